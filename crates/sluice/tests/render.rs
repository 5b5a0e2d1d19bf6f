//! The program itself: what it does with options that cannot be, and with an output that cannot be written.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};

fn render(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("render").args(arguments);
    command
}

#[test]
fn a_wrong_option_ends_with_2_a_sentence_and_nothing_on_stdout() {
    let mut tolerations = tempfile::NamedTempFile::new().unwrap();
    tolerations.write_all(b"- {key: infra, opreator: Exists}\n").unwrap();
    let typo = format!("--tolerations={}", tolerations.path().display());
    for (wrong, field) in [
        ("--namespace=kube-system", "namespace"),
        ("--image=registry.example.com/slu ice:1", "image"),
        ("--kubernetes=1.12", "--kubernetes"),
        ("--replicas=0", "replicas"),
        ("--platform=openshit", "--platform"),
        ("--cert-manager=A_B", "certManager.issuerRef"),
        ("--options=/nonexistent", "options"),
        (typo.as_str(), "tolerations"),
    ] {
        let done = render(&[wrong]).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0), "{wrong}: {said}");
        assert!(said.starts_with("error: ") && said.contains(field), "{wrong}: {said}");
    }
    assert!(render(&[]).output().unwrap().status.success());
}

#[test]
fn an_output_that_cannot_be_written_ends_with_2_and_a_sentence() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (read, broken) = std::io::pipe().unwrap();
    drop(read);
    for (what, output) in [("full", Stdio::from(full)), ("closed", Stdio::from(broken))] {
        let done = render(&[]).stdout(output).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{what}: {said}");
        assert!(said.starts_with("error: stdout: could not write all objects: "), "{what}: {said}");
    }
}
