//! The kinds of quotas.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// About the pods of one namespace.
    Namespace,
    /// About those of all namespaces that it selects.
    Cluster,
}

impl QuotaKind {
    /// The field with the limits.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Namespace => "spec.hard",
            Self::Cluster => "spec.quota.hard",
        }
    }
}
