//! How servers and commands end that cannot begin.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::process::{Command, Output};

use serde_json::Value;

/// A kubeconfig of an API server that is not there.
fn nowhere() -> tempfile::NamedTempFile {
    use std::io::Write as _;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {}}]}"#;
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn sluice(arguments: &[&str]) -> Output {
    let kubeconfig = nowhere();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(arguments).env("KUBECONFIG", kubeconfig.path()).env_remove("SLUICE_LOG");
    command.env("RUST_BACKTRACE", "0").output().unwrap()
}

/// All that it said, line by line; the last one says why it ended.
fn last_line(arguments: &[&str], code: i32) -> Value {
    let done = sluice(arguments);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!((done.status.code(), done.stdout.len()), (Some(code), 0), "{arguments:?}: {said}");
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    let lines: Vec<Value> = said.lines().map(read).collect();
    let last = lines.last().unwrap_or_else(|| panic!("{arguments:?} said nothing")).clone();
    assert_eq!((&last["level"], &last["message"]), (&"ERROR".into(), &"the process ends".into()), "{said}");
    assert!(last["timestamp"].is_string(), "{said}");
    last
}

#[test]
fn a_server_that_cannot_begin_says_so_in_a_line_of_its_logs() {
    for server in ["controller", "webhook", "operator"] {
        let said = last_line(&[server, "--no-such-option"], 2);
        assert!(said["error"].as_str().unwrap().contains("--no-such-option"), "{said}");
        let said = last_line(&["--log", "=,=", server], 1);
        assert!(said["error"].as_str().unwrap().starts_with("could not read --log"), "{said}");
    }
}

#[test]
fn a_server_without_an_api_server_says_so_in_a_line_of_its_logs() {
    // Whatever the filter leaves out.
    let said = last_line(&["--log", "off", "operator"], 1);
    assert!(!said["error"].as_str().unwrap().is_empty(), "{said}");
}

#[test]
fn a_command_says_so_in_plain_words() {
    for (arguments, code) in [(&["top", "--no-such-option"][..], 2), (&["top", "quotas"][..], 1)] {
        let done = sluice(arguments);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{said}");
        assert!(!said.starts_with('{') && said.to_lowercase().starts_with("error: "), "{said}");
    }
    let done = sluice(&["controller", "--help"]);
    assert!(done.status.success() && done.stdout.starts_with(b"Release pods"), "{done:?}");
}
