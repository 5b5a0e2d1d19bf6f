//! `xtask check`: rules about dependencies. What a crate of ours may use and the features of others are checked here, the rest
//! by cargo-deny.

mod deny;
mod directions;
mod features;
mod metadata;

/// Checks all rules and reports every violation.
pub(crate) fn run() -> anyhow::Result<()> {
    directions::check()?;
    features::check()?;
    deny::check()
}
