//! How commands print what they have found or done.

/// The form of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For scripts
    Json,
}
