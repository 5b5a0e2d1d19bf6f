use std::os::unix::net::UnixListener;

use sluice_evaluators::discovery::Absence;
use sluice_evaluators::{EvaluatorState, Evaluators, Failure, Verdict};

use crate::sidecar::{Sidecar, evaluators, label_charge, question, until, until_ready};

/// Waits until nobody can be asked, and says why.
async fn absence(evaluators: &Evaluators) -> Absence {
    let is_absent = |state: &EvaluatorState| matches!(state.presence, Some(Err(_)));
    match until(evaluators, is_absent).await.presence {
        Some(Err(absence)) => absence,
        other => panic!("{other:?}"),
    }
}

async fn until_absent(evaluators: &Evaluators, absence: &Absence) {
    until(evaluators, |state| state.presence == Some(Err(absence.clone()))).await;
}

#[tokio::test]
async fn without_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("later");
    let evaluators = evaluators(&path);
    assert_eq!(absence(&evaluators).await, Absence::NoDirectory(path.clone()));
    let failed = evaluators.ask(question("a")).await.unwrap_err();
    assert_eq!(failed.failure, Failure::NotThere(Absence::NoDirectory(path.clone())));
    std::fs::create_dir(&path).unwrap();
    until_absent(&evaluators, &Absence::NoSocket).await;
    let _sidecar = Sidecar::start(&path, &[]);
    until_ready(&evaluators).await;
}

#[tokio::test]
async fn files_that_are_no_evaluator() {
    let directory = tempfile::tempdir().unwrap();
    let evaluators = evaluators(directory.path());
    assert_eq!(absence(&evaluators).await, Absence::NoSocket);
    std::fs::write(directory.path().join("notes.txt"), "").unwrap();
    until_absent(&evaluators, &Absence::NotASocket("notes.txt".into())).await;
    drop(UnixListener::bind(directory.path().join("dead.sock")).unwrap());
    until_absent(&evaluators, &Absence::NobodyListens).await;
}

#[tokio::test]
async fn a_link_to_a_socket_elsewhere_is_not_followed() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _sidecar = Sidecar::start(elsewhere.path(), &["--name", "s.sock"]);
    std::os::unix::fs::symlink(elsewhere.path().join("s.sock"), directory.path().join("link.sock")).unwrap();
    until_absent(&evaluators(directory.path()), &Absence::NotASocket("link.sock".into())).await;
}

#[tokio::test]
async fn a_process_of_another_user_is_not_asked() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can start a process of another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(65_532), None).unwrap();
    let _sidecar = Sidecar::as_user(65_532, directory.path());
    until_absent(&evaluators(directory.path()), &Absence::OtherUser { uid: 65_532, own: 0 }).await;
}

#[tokio::test]
async fn two_processes_are_one_too_many() {
    let directory = tempfile::tempdir().unwrap();
    let _one = Sidecar::start(directory.path(), &["--name", "a.sock"]);
    let evaluators = evaluators(directory.path());
    until_ready(&evaluators).await;
    let two = Sidecar::start(directory.path(), &["--name", "b.sock"]);
    until_absent(&evaluators, &Absence::Several(vec!["a.sock".into(), "b.sock".into()])).await;
    two.kill().await;
    std::fs::remove_file(directory.path().join("b.sock")).unwrap();
    assert_eq!(until_ready(&evaluators).await, 2);
}

#[tokio::test]
async fn one_that_is_not_healthy_or_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let sick = Sidecar::start(directory.path(), &["--mode", "unhealthy"]);
    let evaluators = evaluators(directory.path());
    until_absent(&evaluators, &Absence::Unhealthy).await;
    sick.kill().await;
    let mute = Sidecar::start(directory.path(), &["--mode", "mute"]);
    until(&evaluators, |state| matches!(state.presence, Some(Err(Absence::Mute(_))))).await;
    mute.kill().await;
    until_absent(&evaluators, &Absence::NobodyListens).await;
    let deaf = Sidecar::start(directory.path(), &["--mode", "noread"]);
    until(&evaluators, |state| matches!(state.presence, Some(Err(Absence::Mute(_))))).await;
    deaf.kill().await;
    let _well = Sidecar::start(directory.path(), &[]);
    until_ready(&evaluators).await;
}

#[tokio::test]
async fn a_restart_under_another_name_is_found_among_dead_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let evaluators = evaluators(directory.path());
    for incarnation in 1..=5 {
        let sidecar = Sidecar::start(directory.path(), &[]);
        until(&evaluators, |state| state.presence == Some(Ok(incarnation))).await;
        assert!(evaluators.ask(question("a")).await.is_ok());
        sidecar.kill().await;
        until_absent(&evaluators, &Absence::NobodyListens).await;
    }
}

#[tokio::test]
async fn another_process_under_the_same_name_is_another_incarnation() {
    let directory = tempfile::tempdir().unwrap();
    let double = Sidecar::start(directory.path(), &["--name", "s.sock", "--config", "double"]);
    let evaluators = evaluators(directory.path());
    assert_eq!(until_ready(&evaluators).await, 1);
    // The first one lives on, and nobody can reach it.
    std::fs::remove_file(directory.path().join("s.sock")).unwrap();
    until_absent(&evaluators, &Absence::NoSocket).await;
    let _triple = Sidecar::start(directory.path(), &["--name", "s.sock", "--config", "triple"]);
    assert_eq!(until_ready(&evaluators).await, 2);
    let charged = Ok(Verdict::Charge(label_charge(false).into()));
    assert_eq!(evaluators.ask(question("a")).await.map(|said| said.verdict), charged);
    double.kill().await;
    assert_eq!(evaluators.ask(question("b")).await.map(|said| said.verdict), charged);
    assert_eq!(until_ready(&evaluators).await, 2);
}
