//! What a panic ends: the process is started again for it, for a test cannot survive its own abort.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::{Command, ExitStatus};

use sluice_runtime::panics::{end_process_on_panic, isolated};

const ROLE: &str = "SLUICE_TEST_PANIC";

/// Runs this test alone in a process of its own.
fn run(role: &str) -> (ExitStatus, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_panic_ends_the_process_unless_it_is_isolated", "--nocapture"]);
    let output = command.env(ROLE, role).output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn play(role: &str) {
    end_process_on_panic();
    let work = async { panic!("on purpose") };
    let ended = match role {
        "isolated" => tokio::spawn(isolated(work)).await,
        _ => tokio::spawn(work).await,
    };
    assert!(ended.is_err_and(|error| error.is_panic()));
    println!("still here");
}

#[tokio::test]
async fn a_panic_ends_the_process_unless_it_is_isolated() {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role).await;
    }
    let (status, text) = run("isolated");
    assert!(status.success() && text.contains("still here"), "{status}: {text}");
    let (status, text) = run("task");
    assert!(!status.success() && !text.contains("still here"), "{status}: {text}");
}
