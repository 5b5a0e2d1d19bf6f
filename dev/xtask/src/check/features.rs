//! Features of third-party crates: what `make` builds one after the other has to agree on them, or each selection of
//! packages compiles tokio, kube and what depends on them once more.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};

use crate::shell::cargo;

/// What is compiled by `cargo xtask`, `make demo` and `make bench-quick`; `make test` compiles the workspace.
const SELECTIONS: [&[&str]; 3] =
    [&["xtask"], &["workspace-hack", "sluice", "sluice-demo"], &["workspace-hack", "sluice", "sluice-bench"]];

/// Reports the crates that a selection compiles with other features than the workspace.
///
/// # Errors
/// When there is one, or cargo cannot list them.
pub(super) fn check() -> anyhow::Result<()> {
    let workspace = tree(&["--workspace", "--edges", "normal,build,dev"])?;
    let mut count = 0;
    for packages in SELECTIONS {
        let mut arguments = vec!["--edges", "normal,build"];
        arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
        for line in differences(&tree(&arguments)?, &workspace) {
            let packages = packages.join(", ");
            eprintln!(
                "{packages}: the workspace has other features of {line}: add them to dev/workspace-hack"
            );
            count += 1;
        }
    }
    ensure!(count == 0, "{count} crates would be compiled twice");
    Ok(())
}

/// One line per crate with its version and features.
fn tree(arguments: &[&str]) -> anyhow::Result<String> {
    let format = ["--prefix", "none", "--format", "{p} with {f}"];
    let output = cargo()
        .args(["tree", "--locked", "--no-dedupe"])
        .args(format)
        .args(arguments)
        .output()
        .context("could not start cargo tree")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree failed: {errors}");
    String::from_utf8(output.stdout).context("could not read the answer of cargo tree")
}

/// The lines of `selection` that are not in `workspace`.
fn differences<'a>(selection: &'a str, workspace: &str) -> BTreeSet<&'a str> {
    let workspace: BTreeSet<&str> = workspace.lines().collect();
    selection.lines().filter(|line| !workspace.contains(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn a_crate_with_other_features_is_reported_once() {
        let workspace = "tokio v1.0.0 with net,rt\nlog v0.4.0 with std\nserde v1.0.0 with std\n";
        let selection = "tokio v1.0.0 with rt\nlog v0.4.0 with std\ntokio v1.0.0 with rt\n";
        assert_eq!(Vec::from_iter(differences(selection, workspace)), ["tokio v1.0.0 with rt"]);
        assert!(differences(workspace, workspace).is_empty());
    }
}
