//! The part of an AdmissionReview that the endpoints look at.
//!
//! Everything else is skipped without being stored, and the objects stay the bytes they arrived as until an
//! endpoint asks for the few fields it needs. Skipping is iterative: depth costs no stack.

pub(crate) mod local_target;
pub(crate) mod pod;
mod verdict;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use verdict::{PatchOp, Verdict};

/// Why a body is no usable AdmissionReview, in the words of application-aware-quota's server
/// (`pkg/aaq-server/aaq-handler.go`). All of them answer 400.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Nothing was sent.
    #[error("admission request body is empty")]
    Empty,
    #[error("could not parse admission review request: {0}")]
    NotUtf8(#[from] std::str::Utf8Error),
    /// Not JSON, or a field of another type than AdmissionReview says.
    #[error("could not parse admission review request: {0}")]
    NotJson(#[from] serde_json::Error),
    /// Some other object.
    #[error(
        "could not parse admission review request: got kind \"{kind}\" of apiVersion \"{api_version}\", want \
         AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1"
    )]
    NotAReview {
        /// As received.
        api_version: String,
        /// As received.
        kind: String,
    },
    /// `request` is absent or null.
    #[error("admission review can't be used: request field is nil")]
    NoRequest,
    /// Without a uid no answer can be attributed.
    #[error("admission review can't be used: request.uid is empty")]
    NoUid,
}

/// What the client does to the object.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(from = "String")]
pub enum Operation {
    Create,
    /// `UPDATE`, which includes patches and server-side apply.
    Update,
    Delete,
    Connect,
    /// Anything else, as received.
    Unknown(String),
}

impl From<String> for Operation {
    fn from(text: String) -> Self {
        match text.as_str() {
            "CREATE" => Self::Create,
            "UPDATE" => Self::Update,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            _ => Self::Unknown(text),
        }
    }
}

impl Default for Operation {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

/// One admission request, v1 or v1beta1 (the two do not differ in these fields).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// Echoed in the answer; never empty.
    #[serde(default, deserialize_with = "nullable")]
    pub uid: String,
    /// `request.kind.kind`, the only thing endpoints are chosen by, as upstream does.
    #[serde(default, deserialize_with = "kind_of")]
    pub kind: String,
    /// What is being done.
    #[serde(default, deserialize_with = "nullable")]
    pub operation: Operation,
    /// Empty for cluster-scoped objects.
    #[serde(default, deserialize_with = "nullable")]
    pub namespace: String,
    /// Empty when the server is to generate it.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// No verdict depends on it: verdicts have no side effects.
    #[serde(default, deserialize_with = "nullable")]
    pub dry_run: bool,
    /// Who asks.
    #[serde(default, deserialize_with = "nullable")]
    pub user_info: UserInfo,
    /// The object after the operation.
    #[serde(default, borrow)]
    pub object: Option<&'a RawValue>,
    /// The object before the operation.
    #[serde(default, borrow)]
    pub old_object: Option<&'a RawValue>,
}

impl<'a> Review<'a> {
    /// Reads a request body.
    ///
    /// # Errors
    /// Whatever keeps the body from being an AdmissionReview that can be answered.
    pub fn decode(body: &'a [u8]) -> Result<Self, ReviewError> {
        if body.is_empty() {
            return Err(ReviewError::Empty);
        }
        let envelope: Envelope<'a> = serde_json::from_str(std::str::from_utf8(body)?)?;
        let known_version =
            matches!(envelope.api_version.as_str(), "" | "admission.k8s.io/v1" | "admission.k8s.io/v1beta1");
        if !known_version || !matches!(envelope.kind.as_str(), "" | "AdmissionReview") {
            return Err(ReviewError::NotAReview { api_version: envelope.api_version, kind: envelope.kind });
        }
        let review = envelope.request.ok_or(ReviewError::NoRequest)?;
        if review.uid.is_empty() {
            return Err(ReviewError::NoUid);
        }
        Ok(review)
    }

    /// Reads the object after the operation; `expected` is what it should be, with its article.
    ///
    /// # Errors
    /// A verdict that refuses the request.
    pub(crate) fn read_object<T: Deserialize<'a>>(&self, expected: &str) -> Result<T, Verdict> {
        read("object", self.object, expected)
    }

    /// The object as the API server sent it.
    pub(crate) fn object_text(&self) -> Option<&'a str> {
        self.object.map(RawValue::get)
    }

    /// Reads the object before the operation, as [`Self::read_object`].
    pub(crate) fn read_old_object<T: Deserialize<'a>>(&self, expected: &str) -> Result<T, Verdict> {
        read("oldObject", self.old_object, expected)
    }
}

fn read<'a, T: Deserialize<'a>>(
    field: &str,
    raw: Option<&'a RawValue>,
    expected: &str,
) -> Result<T, Verdict> {
    let Some(raw) = raw else {
        return Err(Verdict::malformed(format!("admission request has no {field}: expected {expected}")));
    };
    serde_json::from_str(raw.get()).map_err(|error| unreadable(field, expected, &error))
}

/// What is told of a field that cannot be read.
pub(crate) fn unreadable(field: &str, expected: &str, error: &serde_json::Error) -> Verdict {
    Verdict::malformed(format!("could not read {field} of the admission request as {expected}: {error}"))
}

/// Go's decoder takes `null` for "not set"; so does this.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(default, deserialize_with = "nullable")]
    api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(default, borrow)]
    request: Option<Review<'a>>,
}

fn kind_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    nullable::<D, Kind>(deserializer).map(|kind| kind.kind)
}

#[derive(Default, Deserialize)]
struct Kind {
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
}

/// A requester, as the API server authenticated it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct UserInfo {
    #[serde(default, deserialize_with = "nullable")]
    pub username: String,
    #[serde(default, deserialize_with = "nullable")]
    pub groups: Vec<String>,
}

/// Of the metadata of an object, whether it is being deleted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Set once it is.
    #[serde(default)]
    pub(crate) deletion_timestamp: Option<String>,
}
