//! The plug-in of kubectl, by krew itself and its validator.

use std::path::Path;
use std::process::{Command, Output};

use sluice_packaging::{documents, plugin};
use sluice_testbed::artifacts;
use tempfile::TempDir;

/// Stands for the program.
const PROGRAM: &str = "#!/bin/sh\necho \"called as ${0##*/} $*\"\n";

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder with the archive for this machine and a manifest for two architectures.
fn made() -> (TempDir, String) {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let other = if architecture == "amd64" { "arm64" } else { "amd64" };
    let folder = tempfile::tempdir().unwrap();
    let archive = plugin::archive(PROGRAM.as_bytes(), "a licence\n").unwrap();
    let manifest = plugin::manifest([(architecture, archive.as_slice()), (other, b"another".as_slice())]);
    std::fs::write(folder.path().join("sluice.yaml"), documents(&[manifest]).unwrap()).unwrap();
    let name = plugin::archive_name(architecture);
    std::fs::write(folder.path().join(&name), archive).unwrap();
    (folder, name)
}

/// All that the validator looks at but for the downloads, which do not exist before a release.
fn validated(folder: &Path) -> Output {
    let mut validator = Command::new(&artifacts::krew().unwrap()[1]);
    validator.arg("-skip-install").arg("-manifest").arg(folder.join("sluice.yaml"));
    validator.output().unwrap()
}

fn krew(folder: &Path, arguments: &[&str]) -> Output {
    let mut krew = Command::new(&artifacts::krew().unwrap()[0]);
    krew.args(arguments)
        .current_dir(folder)
        .env("KREW_ROOT", folder.join("krew"))
        .env("KREW_NO_UPGRADE_CHECK", "1");
    krew.output().unwrap()
}

#[test]
fn krews_validator_accepts_the_manifest_and_krew_installs_the_archive() {
    let (folder, archive) = made();
    let folder = folder.path();
    let said = validated(folder);
    assert!(said.status.success(), "{}", text(&said));

    let installed = krew(folder, &["install", "--manifest", "sluice.yaml", "--archive", &archive]);
    assert!(installed.status.success(), "{}", text(&installed));
    let store = folder.join("krew/store/sluice").join(format!("v{}", env!("CARGO_PKG_VERSION")));
    assert!(store.join("LICENSE").is_file());
    let called = Command::new(folder.join("krew/bin/kubectl-sluice")).arg("why").output().unwrap();
    assert_eq!(text(&called), "called as kubectl-sluice why\n");
}

#[test]
fn another_archive_than_that_of_the_manifest_is_refused() {
    let (folder, archive) = made();
    let folder = folder.path();
    std::fs::write(folder.join(&archive), plugin::archive(b"#!/bin/sh\n", "a licence\n").unwrap()).unwrap();
    let said = krew(folder, &["install", "--manifest", "sluice.yaml", "--archive", &archive]);
    assert!(!said.status.success() && text(&said).contains("checksum"), "{}", text(&said));
}

#[test]
fn the_same_program_gives_the_same_archive() {
    let archive = |program: &[u8]| plugin::archive(program, "a licence\n").unwrap();
    assert_eq!(archive(b"a program"), archive(b"a program"));
    assert_ne!(archive(b"a program"), archive(b"another program"));
}
