//! `metadata.resourceVersion` as an order of the versions of one object.

use std::fmt;

/// A resource version.
///
/// Versions of one resource are decimal numbers that grow with each write (part of the API's contract since
/// Kubernetes 1.35, and true of every etcd-backed server before). A server that hands out something else gets
/// versions that are never older than any other, so that nothing it says is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// Takes over a version from the API.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        Self(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Whether this is certainly an older version than `other`.
    #[must_use]
    pub fn is_older_than(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && self.0 < other.0
    }

    /// Whether this is certainly no later version than `other`.
    #[must_use]
    pub fn is_no_later_than(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && self.0 <= other.0
    }

    /// The version as a number; 0 if the server's version is not understood.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The version as a precondition for a write; `None` if the server's version is not understood.
    #[must_use]
    pub fn precondition(self) -> Option<String> {
        (self.0 != 0).then(|| self.0.to_string())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
