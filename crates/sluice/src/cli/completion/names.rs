//! Which names that exist a word of a command line may be.

/// Whose names are meant.
#[derive(Clone, Copy, Debug)]
pub enum NamesOf {
    /// `TYPE NAME`, or `TYPE/NAME`.
    Subject,
    Nodes,
    Namespaces,
    Quotas,
    /// Of the kubeconfig.
    Contexts,
}
