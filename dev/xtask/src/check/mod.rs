//! `xtask check`: rules about dependencies. What a crate of ours may use is checked here, the rest by cargo-deny.

mod deny;
mod directions;
mod metadata;

/// Checks all rules and reports every violation.
pub(crate) fn run() -> anyhow::Result<()> {
    directions::check()?;
    deny::check()
}
