//! What collections hold. Pods are kept as facts and printed when they are sent: as JSON 150,000 of them would take more
//! than a gibibyte.

use sluice_api::names;

use crate::cluster_json;
use crate::pod_json::{Facts, Template};

/// `apiVersion` and kind of rules.
pub(super) const RULES: (&str, &str) = ("quota.sluice.dev/v1alpha1", "Evaluator");

/// The kinds of which there are objects in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Namespaces,
    Pods,
    Quotas,
    /// `Evaluator`s.
    Rules,
    /// Anything else: there is none of it.
    Other,
}

impl Kind {
    /// `apiVersion` and kind.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Namespaces => ("v1", "Namespace"),
            Self::Pods => ("v1", "Pod"),
            Self::Quotas => (names::API_VERSION, "ApplicationAwareResourceQuota"),
            Self::Rules => RULES,
            Self::Other => ("v1", ""),
        }
    }

    /// About as long as its objects are.
    pub(super) const fn bytes(self) -> usize {
        if matches!(self, Self::Pods) { 9_500 } else { 1_000 }
    }
}

/// An object, as it was in one version.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Namespace(u64),
    Pod(Facts),
    /// As JSON.
    Quota(String),
    /// As JSON.
    Rule(String),
}

impl Object {
    /// Appends its JSON.
    pub(super) fn print(&self, template: &Template, text: &mut String) {
        match self {
            Self::Namespace(number) => {
                text.push_str(&cluster_json::namespace(*number, namespace_version(*number)).to_string());
            }
            Self::Pod(facts) => template.write(*facts, text),
            Self::Quota(object) | Self::Rule(object) => text.push_str(object),
        }
    }
}

/// The version of a namespace; it does not change.
pub(super) const fn namespace_version(number: u64) -> u64 {
    number + 1
}

/// What happened to an object, and the object after it.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// As a watch says it.
    pub(super) word: &'static str,
    /// Whether Sluice did it.
    pub(super) is_caused: bool,
    pub(super) version: u64,
    pub(super) object: Object,
}

/// A part of a list.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) version: u64,
    pub(super) objects: Vec<Object>,
    /// The number of the first object of the next part, if there is one.
    pub(super) next: Option<u64>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no such object.
    Missing,
    /// The object is not what it was.
    Conflict,
    /// The object is there already.
    Exists,
    /// A patch that does not apply.
    Invalid,
    /// A body that is none.
    Malformed,
    /// By an admission policy, with what it says.
    Denied(String),
    /// The fake does not know such requests.
    NotAllowed,
}

impl Refused {
    /// Code, reason and message of the `metav1.Status` that an API server answers.
    pub(super) fn status(self) -> (u16, &'static str, String) {
        let (code, reason, message) = match self {
            Self::Missing => (404, "NotFound", "there is no such object"),
            Self::Conflict => (409, "Conflict", "the object has been modified"),
            Self::Exists => (409, "AlreadyExists", "there is such an object already"),
            Self::Invalid => {
                (422, "Invalid", "the server rejected our request due to an error in our request")
            }
            Self::Malformed => (400, "BadRequest", "the body is no JSON"),
            Self::Denied(message) => return (403, "Forbidden", message),
            Self::NotAllowed => (405, "MethodNotAllowed", "the fake takes no such request"),
        };
        (code, reason, message.to_owned())
    }
}
