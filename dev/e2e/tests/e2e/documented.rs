//! Pages of docs with commands and what they print: the commands are run, and the page has to show what comes.
//!
//! A block whose lines begin with `$ ` has commands and their output. One that begins with a command has commands alone:
//! they have to succeed and to print something. With `SLUICE_WRITE_DOCS=1` what differs is written into the page.

mod alike;
mod programs;

use std::ops::Range;
use std::path::{Path, PathBuf};

use sluice_testbed::wait;

use crate::context::SOON;
use alike::{is_alike, with_elisions};
pub use programs::Programs;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Writes pages in place of comparing.
const WRITES: &str = "SLUICE_WRITE_DOCS";
/// Commands that are asked here about what is held.
const HELD: [&str; 2] = ["kubectl sluice why ", "kubectl sluice drain-check "];
/// How commands begin.
const COMMANDS: [&str; 3] = ["kubectl ", "sluice ", "date "];

/// A command of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub command: String,
    /// Where in the page its output is; `None`: it is not shown.
    shown: Option<Range<usize>>,
}

impl Step {
    /// Whether the page shows what it prints.
    pub const fn is_shown(&self) -> bool {
        self.shown.is_some()
    }
}

/// A page, and what is to be written into it.
pub struct Page {
    path: PathBuf,
    lines: Vec<String>,
    new: Vec<(Range<usize>, Vec<String>)>,
    faults: Vec<String>,
    /// The exit code of the last command.
    code: i32,
}

impl Page {
    /// A page of the repository.
    pub fn open(path: &str) -> Self {
        let path = Path::new(ROOT).join(path);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(str::to_owned).collect();
        Self { path, lines, new: Vec::new(), faults: Vec::new(), code: 0 }
    }

    /// All its commands, from top to bottom.
    pub fn steps(&self) -> Vec<Step> {
        steps(&self.lines)
    }

    /// The exit code that a command has by what the page shows of it.
    fn code(&self, step: &Step) -> i32 {
        let first = step.shown.as_ref().and_then(|shown| self.lines[shown.clone()].first());
        match first {
            Some(line) if line.starts_with("Error from server") => 1,
            _ if HELD.iter().any(|start| step.command.starts_with(start)) => 3,
            _ => 0,
        }
    }

    /// Runs a command until it prints what the page shows.
    pub async fn check(&mut self, programs: &Programs, step: &Step) {
        let code = self.code(step);
        let shown: Option<Vec<String>> = step.shown.clone().map(|range| self.lines[range].to_vec());
        let last = std::sync::Mutex::new(String::new());
        let as_shown = || async {
            let (is, text) = programs.run(self.code, &step.command).await;
            let is_right = is == code
                && match &shown {
                    Some(shown) => is_alike(shown, &text),
                    None => !text.trim().is_empty() && !text.starts_with("No resources found"),
                };
            *last.lock().unwrap() = format!("exit code {is}\n{text}");
            is_right.then_some(())
        };
        let writes = std::env::var_os(WRITES).is_some();
        let patience = if writes { SOON / 8 } else { SOON };
        let is_shown = wait::eventually(patience, as_shown, "what the page shows").await.is_ok();
        self.code = code;
        if is_shown {
            return;
        }
        let last = last.into_inner().unwrap();
        let (is, text) = last.split_once('\n').unwrap();
        match (&step.shown, shown) {
            (Some(range), Some(shown)) if writes && is == format!("exit code {code}") => {
                self.new.push((range.clone(), with_elisions(&shown, text)));
            }
            _ => self.faults.push(format!("$ {}\n{last}", step.command)),
        }
    }

    /// Writes what is to be written; there must be nothing else.
    pub fn finish(mut self) {
        let is_new = !self.new.is_empty();
        self.new.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
        for (range, lines) in std::mem::take(&mut self.new) {
            eprintln!("{}: written anew: {lines:#?}", self.path.display());
            self.lines.splice(range, lines);
        }
        if is_new {
            std::fs::write(&self.path, self.lines.join("\n") + "\n").unwrap();
        }
        assert!(self.faults.is_empty(), "{}:\n{}", self.path.display(), self.faults.join("\n"));
    }
}

fn steps(lines: &[String]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block: Option<usize> = None;
    for (number, line) in lines.iter().enumerate() {
        let is_fence = line.starts_with("```");
        match block {
            None if is_fence => block = Some(number + 1),
            Some(begin) if is_fence => {
                assert!(begin < number, "line {begin}: an empty block");
                steps.extend(of_block(begin, &lines[begin..number]));
                block = None;
            }
            _ => {}
        }
    }
    steps
}

/// The commands of a block that begins at this line.
fn of_block(begin: usize, lines: &[String]) -> Vec<Step> {
    let is_command = |line: &str| COMMANDS.iter().any(|start| line.starts_with(start));
    let mut steps: Vec<Step> = Vec::new();
    let has_output = lines.first().is_some_and(|line| line.starts_with("$ "));
    for (number, line) in (begin..).zip(lines) {
        match line.strip_prefix("$ ") {
            Some(command) if has_output => {
                let shown = Some(number + 1..number + 1);
                steps.push(Step { command: command.to_owned(), shown });
            }
            _ if has_output => {
                // The empty line before the next command is for the eye.
                let next = lines.get(number - begin + 1);
                let is_gap = line.is_empty() && next.is_some_and(|next| next.starts_with("$ "));
                if let Some(Step { shown: Some(shown), .. }) = steps.last_mut().filter(|_| !is_gap) {
                    shown.end = number + 1;
                }
            }
            _ if is_command(line) => steps.push(Step { command: line.clone(), shown: None }),
            _ => {}
        }
    }
    steps
}

#[test]
fn commands_and_what_they_print_are_found_in_a_page() {
    let page = "words\n```\n$ kubectl get a\nA\n\nB\n\n$ date -u\n```\n```sh\nkubectl get b\n```\n```\nFoo=True\n```\n";
    let lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let step = |command: &str, shown| Step { command: command.to_owned(), shown };
    let expected =
        [step("kubectl get a", Some(3..6)), step("date -u", Some(8..8)), step("kubectl get b", None)];
    assert_eq!(steps(&lines), expected);
}
