//! `xtask check`: rules about dependencies, from `cargo metadata`. `deny.toml` says the same to cargo-deny.

mod directions;
mod duplicates;
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
    if violations.is_empty() {
        println!("directions of dependencies, licences and versions are as they should be");
        return Ok(());
    }
    for violation in &violations {
        eprintln!("{violation}");
    }
    bail!("{} rules about dependencies are broken", violations.len());
}
