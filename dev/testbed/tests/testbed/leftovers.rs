//! Nothing of a bed outlives the process that holds it, unless its logs are wanted.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use sluice_testbed::process::ProcessId;
use sluice_testbed::{Bed, BedOptions, Component, Program, wait};

const SOON: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
struct Held {
    dir: PathBuf,
    processes: BTreeMap<Component, ProcessId>,
}

/// Starts `examples/hold-bed.rs`, which Cargo builds along with the tests.
fn hold_bed() -> (Child, Held) {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/hold-bed");
    // A shell that starts something in the background has it ignore Ctrl-C, and so do all that come of it.
    let mut command = Command::new("env");
    let mut child = command.arg("--default-signal=INT").arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let held: Held = serde_json::from_str(&line).unwrap();
    assert!(held.dir.is_dir());
    assert_eq!(held.processes.len(), 5);
    assert!(held.processes.values().all(ProcessId::is_alive));
    (child, held)
}

async fn all_gone(held: &Held) {
    let gone =
        || async { (!held.dir.exists() && !held.processes.values().any(ProcessId::is_alive)).then_some(()) };
    wait::eventually(SOON, gone, "processes and directory of a dead test to disappear").await.unwrap();
}

#[tokio::test]
async fn kill_9_of_the_test_leaves_nothing() {
    let (mut child, held) = hold_bed();
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(&held).await;
}

#[tokio::test]
async fn ctrl_c_leaves_nothing() {
    let (mut child, held) = hold_bed();
    let sent = Command::new("sh").arg("-c").arg(format!("kill -INT {}", child.id())).status().unwrap();
    assert!(sent.success());
    child.wait().unwrap();
    all_gone(&held).await;
}

#[tokio::test]
async fn a_panic_keeps_the_logs_and_ends_the_processes() {
    let options = BedOptions { kwok: false, scheduler: false, ..BedOptions::default() };
    let bed = Bed::start(options).await.unwrap();
    let (dir, processes) = (bed.dir().to_owned(), bed.processes());
    let failed = std::thread::spawn(move || {
        let _bed = bed;
        panic!("on purpose");
    });
    assert!(failed.join().is_err());
    assert!(!processes.values().any(ProcessId::is_alive));
    assert!(dir.join("logs/kube-apiserver.log").is_file());
    let audit = std::fs::read_to_string(dir.join("logs/audit.log")).unwrap();
    assert!(audit.contains("\"auditID\""));
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn programs_obey() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = "trap 'echo bye; exit 7' TERM; echo hello; while :; do sleep 0.05; done";
    let start = || Program::start("script", "/bin/sh", ["-c", script], [("A", "b")], &log).unwrap();
    let program = start();
    wait::eventually(SOON, || async { program.log().contains("hello").then_some(()) }, "output")
        .await
        .unwrap();
    program.pause();
    program.terminate();
    assert_eq!(program.wait().await.code, 7);
    assert!(!program.is_running());
    assert!(program.log().contains("bye"));

    let program = start();
    assert!(program.is_running());
    program.kill();
    assert!(!program.is_running());
    assert_eq!(program.wait().await.code, 128 + 9);

    let process = start().process().clone();
    assert!(!process.is_alive(), "a dropped program still runs");
    assert!(Program::start("none", "/nowhere/at-all", ["x"], [("A", "b")], &log).is_err());
}

#[test]
fn a_program_that_starts_others_all_the_time_can_be_paused() {
    let dir = tempfile::tempdir().unwrap();
    let script = "while :; do /bin/true; done";
    let log = dir.path().join("log");
    let program = Program::start("script", "/bin/sh", ["-c", script], [("A", "b")], log).unwrap();
    let (paused, all_paused) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                program.pause();
                paused.send(is_stopped(program.pid())).unwrap();
                program.resume();
            }
        });
        for _ in 0..100 {
            let is_stopped = all_paused.recv_timeout(SOON);
            if is_stopped.is_err() {
                // The keeper waits for a stop that does not come: this frees it.
                let group = format!("-{}", program.pid());
                Command::new("kill").args(["-9", "--", &group]).status().unwrap();
            }
            assert_eq!(is_stopped, Ok(true), "paused");
        }
    });
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}
