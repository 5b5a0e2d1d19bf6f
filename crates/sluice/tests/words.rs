//! Colours, manual pages, and what shells other than bash are told.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeSet;
use std::process::Command;

fn sluice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "SLUICE_COMPLETE", "SLUICE_LOG"] {
        command.env_remove(variable);
    }
    command
}

fn printed(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn no_color_takes_the_colours_of_errors_away() {
    let coloured = |no_color: bool| {
        let mut command = sluice();
        command.args(["top", "--nope"]).env("CLICOLOR_FORCE", "1");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(2));
        done.stderr.contains(&0x1b)
    };
    assert!(coloured(false), "without colours to begin with this shows nothing");
    assert!(!coloured(true));
}

#[test]
fn what_ends_a_command_is_told_in_one_form() {
    let no_file = "/nowhere/at-all";
    let commands: [&[&str]; 4] = [
        &["evaluator", "explain", "--file", no_file, "--pods", no_file],
        &["evaluator", "check", "--socket", no_file],
        &["evaluator", "check", "--socket", no_file, "--pods", no_file],
        &["top", "--kubeconfig", no_file],
    ];
    for command in commands {
        let done = sluice().args(command).output().unwrap();
        assert!(!done.status.success(), "{command:?}");
        let told = String::from_utf8(done.stderr).unwrap();
        assert!(told.lines().any(|line| line.starts_with("error: ")), "{command:?}: {told}");
        assert!(!told.contains("Error: "), "{command:?}: {told}");
    }
}

#[test]
fn a_manual_page_is_written_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    printed(sluice().args(["man", "--output"]).arg(folder.path()));
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
    // The commands as help names them.
    let commands = |of: &[&str]| {
        let help = printed(sluice().args(of).arg("-h"));
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let lines = lines.take_while(|line| line.starts_with("  "));
        let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned));
        names.filter(|name| !name.is_empty() && name != "help").collect::<Vec<String>>()
    };
    let mut wanted = BTreeSet::from(["sluice.1".to_owned()]);
    for command in commands(&[]) {
        wanted.extend(commands(&[&command]).iter().map(|part| format!("sluice-{command}-{part}.1")));
        wanted.insert(format!("sluice-{command}.1"));
    }
    assert!(wanted.contains("sluice-why.1") && wanted.contains("sluice-list-held.1"), "{wanted:?}");
    assert_eq!(files, wanted);
    for file in files {
        let page = std::fs::read_to_string(folder.path().join(&file)).unwrap();
        let title = format!(".TH {} 1", file.trim_end_matches(".1"));
        assert!(page.contains(&title) && page.contains(".SH DESCRIPTION"), "{file}: {page}");
    }
}

/// What a shell is offered after these words, the last of which is being written.
fn offered(shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = sluice();
    // As the scripts call it (`clap_complete/src/env/shells.rs`).
    command.env("SLUICE_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    command.env("_CLAP_IFS", "\n").arg("--").args(words);
    let text = printed(&mut command);
    // zsh: `name:description`; fish and powershell: `name<TAB>description`.
    text.lines().map(|line| line.split([':', '\t']).next().unwrap().to_owned()).collect()
}

#[test]
fn zsh_fish_and_powershell_are_told_commands_and_types() {
    for shell in ["zsh", "fish", "powershell"] {
        let script = printed(sluice().args(["completion", shell]));
        assert!(script.contains("SLUICE_COMPLETE") && script.contains("sluice"), "{shell}: {script}");
        assert_eq!(offered(shell, &["sluice", "drain"]), ["drain-check"], "{shell}");
        assert_eq!(offered(shell, &["sluice", "why", "vm"]), ["vm", "vmi"], "{shell}");
        let flags = offered(shell, &["sluice", "pause", "--req"]);
        assert_eq!(flags, ["--request-timeout"], "{shell}");
    }
}
