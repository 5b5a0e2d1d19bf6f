//! Structured logs.

use std::backtrace::{Backtrace, BacktraceStatus};

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How to log.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub struct LoggingArgs {
    /// What to log, such as `info` or `info,sluice_gate=debug`
    ///
    /// Without it servers log at `info`, commands at `warn`.
    #[arg(long, global = true, env = "SLUICE_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How to print logs; without it servers print JSON and commands text
    #[arg(long, global = true, value_enum)]
    log_format: Option<Format>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// One JSON object a line
    Json,
    /// For people
    Text,
}

impl LoggingArgs {
    /// Starts logging to standard error.
    ///
    /// # Errors
    /// When the filter cannot be read.
    pub fn init(&self, is_server: bool) -> anyhow::Result<()> {
        let log = self.log.as_deref().unwrap_or(if is_server { "info" } else { "warn" });
        let filter = EnvFilter::try_new(log).with_context(|| format!("could not read --log {log}"))?;
        // What ends the process is told, whatever else is left out.
        let filter = filter.add_directive(format!("{FATAL}=error").parse()?);
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let format = self.log_format.unwrap_or(if is_server { Format::Json } else { Format::Text });
        match format {
            Format::Json => logs.json().flatten_event(true).init(),
            Format::Text => logs.with_ansi(false).init(),
        }
        Ok(())
    }
}

/// Where what ends a process comes from, in logs.
const FATAL: &str = "sluice::fatal";

/// Starts the logs of a server whose options cannot be read.
pub fn init_for_error() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).json().flatten_event(true).init();
}

/// Tells why a server ends.
pub fn fatal(error: &str) {
    tracing::error!(target: FATAL, error, "the process ends");
}

/// From now on panics are told in the format of the logs.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let panic = info.payload_as_str().unwrap_or("a payload that is no text");
        let at = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        let thread = thread.name().unwrap_or_default();
        tracing::error!(target: FATAL, panic, at, thread, backtrace = trace, "a panic, which is a defect of Sluice");
    }));
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use std::process::Command;

    use serde_json::Value;

    use super::LoggingArgs;

    const ROLE: &str = "SLUICE_TEST_PANIC";

    /// The process is started again for it: logs and hooks are one for a process.
    #[test]
    fn a_panic_of_a_server_is_a_line_of_its_logs() {
        if std::env::var_os(ROLE).is_some() {
            LoggingArgs { log: Some("off".to_owned()), log_format: None }.init(true).unwrap();
            super::log_panics();
            sluice_runtime::panics::end_process_on_panic();
            panic!("on \"purpose\"\nand in two lines");
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "logging::tests::a_panic_of_a_server_is_a_line_of_its_logs", "--nocapture"]);
        let done = command.env(ROLE, "").env("RUST_BACKTRACE", "0").output().unwrap();
        assert_eq!(done.status.code(), None, "aborted: {done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [line] = &lines[..] else { panic!("{said}") };
        assert_eq!(
            (&line["level"], &line["panic"]),
            (&"ERROR".into(), &"on \"purpose\"\nand in two lines".into())
        );
        assert!(line["at"].as_str().unwrap().starts_with("crates/sluice/src/logging.rs:"), "{said}");
        assert_eq!(line["message"], "a panic, which is a defect of Sluice");
    }
}
