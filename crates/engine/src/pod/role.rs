//! What a container is for the sums over a pod.

/// What a container is for the fold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs as long as the pod.
    Main,
    /// An init container that keeps running.
    Sidecar,
    /// An init container that ends before the next one starts.
    Init,
}
