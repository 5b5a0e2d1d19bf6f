//! `xtask check`: rules about dependencies. `deny.toml` says to cargo-deny the same of licences and versions.

mod directions;
mod duplicates;
mod features;
mod licences;
mod metadata;

use anyhow::bail;

use metadata::Metadata;

/// Checks all rules and reports every violation.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = Metadata::load()?;
    let mut violations = directions::violations(&metadata);
    violations.extend(licences::violations(&metadata));
    violations.extend(duplicates::violations(&metadata));
    violations.extend(features::violations()?);
    if violations.is_empty() {
        println!("directions of dependencies, licences, versions and features are as they should be");
        return Ok(());
    }
    for violation in &violations {
        eprintln!("{violation}");
    }
    bail!("{} rules about dependencies are broken", violations.len());
}
