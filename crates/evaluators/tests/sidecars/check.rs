//! `sluice evaluator check`, but for its printing.

use std::path::{Path, PathBuf};

use sluice_evaluators::check::{NotReached, Report, check, generated};

use crate::sidecar::{Sidecar, link};

/// Checks the evaluator in a directory when it listens.
async fn checked(directory: &Path) -> Report {
    drop(link(directory).await);
    let socket: PathBuf = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    check(&socket, &generated(), |_| {}).await.unwrap()
}

/// What was tried and is not good.
fn wrong(report: &Report) -> Vec<&str> {
    report.findings.iter().filter(|finding| !finding.good).map(|finding| finding.tried).collect()
}

#[tokio::test]
async fn a_good_evaluator_passes() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &[]);
    let report = checked(directory.path()).await;
    assert!(report.is_good(), "{report}");
    assert_eq!(report.pods.len(), 30);
    let usual = report.pods.iter().find(|row| row.pod == "usual-running").unwrap();
    assert_eq!(
        (usual.native["cpu"].as_str(), usual.charged.as_ref().unwrap()["cpu"].as_str()),
        ("250m", "500m")
    );
    assert!(report.pods.iter().any(|row| row.charged.is_none()), "no match is an answer");
    assert_eq!(report.speeds.iter().map(|speed| speed.at_once).collect::<Vec<_>>(), [1, 4, 16]);
    let others = report.findings.iter().find(|finding| finding.tried == "other pods matter").unwrap();
    assert!(others.seen.starts_with("no:"), "{}", others.seen);
}

#[tokio::test]
async fn what_an_evaluator_does_wrong_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--error-for", "usual-running"]);
    let report = checked(directory.path()).await;
    assert_eq!(wrong(&report), ["pods"]);
    let row = report.pods.iter().find(|row| row.error.is_some()).unwrap();
    assert_eq!(row.error.as_deref(), Some("says \"no licence server for usual-running\""));
    assert!(report.to_string().contains("WRONG  pods: 29 of 30 pods have a valid answer"), "{report}");
}

#[tokio::test]
async fn an_evaluator_that_ends_is_named_and_the_check_ends_too() {
    let directory = tempfile::tempdir().unwrap();
    let _sidecar = Sidecar::start(directory.path(), &["--mode", "crash"]);
    let report = checked(directory.path()).await;
    assert!(!report.is_good() && report.pods.iter().all(|row| row.error.is_some()), "{report}");
    assert!(report.speeds.iter().all(|speed| speed.failed > 0), "{report}");
}

#[tokio::test]
async fn who_is_not_there_is_not_reached() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("none.sock");
    let failed = check(&missing, &generated(), |_| {}).await.unwrap_err();
    assert!(matches!(failed, NotReached::Connect { .. }), "{failed}");
    let _sidecar = Sidecar::start(directory.path(), &["--mode", "mute", "--name", "mute.sock"]);
    drop(link(directory.path()).await);
    let failed = check(&directory.path().join("mute.sock"), &generated(), |_| {}).await.unwrap_err();
    assert!(failed.to_string().contains("no answer within a second"), "{failed}");
}
