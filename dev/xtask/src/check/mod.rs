//! `xtask check`: rules about dependencies of crates and of modules, about the width of lines, that what the documentation
//! points to exists (files, headings and tests), and that CRDs accept what they accepted. What a crate of ours may use and
//! the features of others are checked here, the rest of the dependencies by cargo-deny.

mod architecture;
mod circles;
mod columns;
mod conformance;
mod definitions;
mod deny;
mod directions;
mod features;
mod metadata;

pub(crate) use deny::advisories;

/// Checks all rules and reports every violation.
pub(crate) fn run() -> anyhow::Result<()> {
    architecture::check()?;
    conformance::check()?;
    directions::check()?;
    circles::check()?;
    columns::check()?;
    definitions::check()?;
    features::check()?;
    deny::check()
}
