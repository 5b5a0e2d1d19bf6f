//! Structured logs.

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How to log.
#[derive(Debug, clap::Args)]
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
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let format = self.log_format.unwrap_or(if is_server { Format::Json } else { Format::Text });
        match format {
            Format::Json => logs.json().flatten_event(true).init(),
            Format::Text => logs.with_ansi(false).init(),
        }
        Ok(())
    }
}
