//! `xtask check`: rules about dependencies of crates and of modules, and that a page of the
//! documentation names tests that exist. What a crate of ours may use and the features of others are checked here, the rest
//! of the dependencies by cargo-deny.

mod circles;
mod conformance;
mod deny;
mod directions;
mod features;
mod metadata;

pub(crate) use deny::advisories;

/// Checks all rules and reports every violation.
pub(crate) fn run() -> anyhow::Result<()> {
    conformance::check()?;
    directions::check()?;
    circles::check()?;
    features::check()?;
    deny::check()
}
