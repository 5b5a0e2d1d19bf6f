//! What an endpoint decides, and how it is told to the API server.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

/// One step of a JSON patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOp {
    /// Adds a member, replaces it if it exists, or appends to an array when the path ends in `/-`.
    Add {
        /// JSON pointer.
        path: String,
        /// What is put there.
        value: Value,
    },
    /// Removes a member that exists.
    Remove {
        /// JSON pointer.
        path: String,
    },
}

/// The answer to one review.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether the request may go on.
    pub allowed: bool,
    /// `status.code`, an HTTP status.
    pub code: u16,
    /// `status.message`; what the user reads when the request is denied.
    pub message: Cow<'static, str>,
    /// Changes to the object; empty for none.
    pub patch: Vec<PatchOp>,
    /// Shown to the client whatever the decision is.
    pub warnings: Vec<String>,
    /// The same request may be allowed after so many seconds; clients of Kubernetes try again by themselves.
    pub retry_after_s: Option<u32>,
}

impl Verdict {
    /// Allowed, with upstream's code 202 (`docs/predecessors.md`, *Admission of AAQ*).
    pub fn allow(message: impl Into<Cow<'static, str>>) -> Self {
        Self { allowed: true, ..Self::refuse(202, message) }
    }

    /// Refused: the requester may not do this.
    pub fn deny(message: impl Into<Cow<'static, str>>) -> Self {
        Self::refuse(403, message)
    }

    /// Refused: the review does not carry what the endpoint has to look at.
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::refuse(400, message)
    }

    /// Refused with a code of its own.
    pub fn refuse(code: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            allowed: false,
            code,
            message: message.into(),
            patch: Vec::new(),
            warnings: Vec::new(),
            retry_after_s: None,
        }
    }

    /// Not decided: to be tried again.
    pub fn retry(after_s: u32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after_s: Some(after_s), ..Self::refuse(429, message) }
    }

    /// The same with a patch.
    #[must_use]
    pub fn with_patch(mut self, patch: Vec<PatchOp>) -> Self {
        self.patch = patch;
        self
    }

    /// The body of the answer: always `admission.k8s.io/v1`, whatever version was asked with.
    ///
    /// # Errors
    /// None in practice: every part is plain data with string keys.
    pub fn encode(&self, uid: &str) -> Result<Vec<u8>, serde_json::Error> {
        let patch = match self.patch.as_slice() {
            [] => None,
            ops => Some(STANDARD.encode(serde_json::to_vec(ops)?)),
        };
        serde_json::to_vec(&AdmissionReview {
            kind: "AdmissionReview",
            api_version: "admission.k8s.io/v1",
            response: Response {
                uid,
                allowed: self.allowed,
                status: Status {
                    metadata: Empty {},
                    message: &self.message,
                    reason: self.retry_after_s.map(|_| "TooManyRequests"),
                    details: self.retry_after_s.map(|retry_after_seconds| Details { retry_after_seconds }),
                    code: self.code,
                },
                patch_type: patch.as_ref().map(|_| "JSONPatch"),
                patch,
                warnings: &self.warnings,
            },
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    status: Status<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    metadata: Empty,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u32,
}

#[derive(Serialize)]
struct Empty {}
