//! `sluice crds`.

use std::io::Write as _;

/// Prints all definitions as one YAML stream.
///
/// # Errors
/// When standard output cannot be written.
pub fn print() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for crd in sluice_api::all_crds() {
        writeln!(out, "---\n{}", serde_saphyr::to_string(&crd)?)?;
    }
    Ok(())
}
