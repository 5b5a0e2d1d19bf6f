//! The kinds of which there are many objects.

use sluice_api::names;

/// What a collection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Namespaces,
    Pods,
    Quotas,
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
            Self::Other => ("v1", ""),
        }
    }

    /// Whether its objects change.
    pub(super) const fn changes(self) -> bool {
        matches!(self, Self::Pods | Self::Quotas)
    }
}
