//! `xtask test`: every test, and one line with the sum at the end.

use std::io::{BufRead as _, BufReader};
use std::num::NonZero;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, anyhow, ensure};
use sluice_testbed::artifacts;

use crate::shell::{cargo, run as shell_run, shown, target_directory};

/// How many tests of a suite run at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Beside one for each core: a test waits for its control plane now and then. With more of them control planes get so slow
/// that tests wait longer than they may.
const FURTHER_THREADS: usize = 1;

/// Tests that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Builds what the tests start, then runs `cargo test`.
///
/// The suites are told where the program is: built by themselves, alone, it would get other features of shared
/// dependencies than `cargo test --workspace` gives them, and half of them would be compiled twice.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let start = Instant::now();
    build()?;
    let mut command = cargo();
    command.env("SLUICE_BINARY", target_directory().join("debug").join("sluice"));
    // A snapshot that differs is a failure, and nothing is written beside it.
    command.env("INSTA_UPDATE", "no");
    if std::env::var_os(TEST_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env(TEST_THREADS, (cores + FURTHER_THREADS).to_string());
    }
    command.args(["test", "--locked", "--no-fail-fast"]);
    if arguments.is_empty() {
        command.arg("--workspace");
    } else {
        command.args(arguments);
    }
    let shown = shown(&command);
    eprintln!("+ {shown}");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("could not start {shown}"))?;
    let output = child.stdout.take().context("cargo test has no output")?;
    let mut sum = Sum::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("could not read the output of cargo test")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        sum.add(&line);
    }
    let status = child.wait().with_context(|| format!("could not wait for {shown}"))?;
    println!("\ntests took {} s", start.elapsed().as_secs());
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.ignored);
    ensure!(status.success() && sum.failed == 0, "{shown} failed with {status}");
    ensure!(sum.passed > 0, "{shown} ran no test");
    Ok(())
}

/// Builds the control plane and the product at once: neither keeps all cores busy by itself.
fn build() -> anyhow::Result<()> {
    let control_plane = || {
        artifacts::kubernetes()?;
        artifacts::kwok()?;
        artifacts::evaluator()?;
        artifacts::kubevirt()
    };
    std::thread::scope(|scope| {
        let control_plane = scope.spawn(control_plane);
        shell_run(cargo().args(["build", "--locked", "--package", "workspace-hack", "--package", "sluice"]))?;
        control_plane.join().map_err(|_| anyhow!("building the control plane panicked"))?.map(drop)
    })
}

impl Sum {
    /// Adds what a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …` says.
    fn add(&mut self, line: &str) {
        let Some(result) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn results_of_several_binaries_are_summed() {
        let mut sum = Sum::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.21s",
            "test a_test ... 7 failed",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 9 filtered out; finished in 12.00s",
        ] {
            sum.add(line);
        }
        let expected = Sum { passed: 5, failed: 4, ignored: 1 };
        assert_eq!(sum, expected);
    }
}
