//! Structured logs.

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How to log.
#[derive(Debug, clap::Args)]
pub struct LoggingArgs {
    /// What to log, such as `info` or `info,sluice_gate=debug`
    #[arg(long, global = true, env = "SLUICE_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How to print logs
    #[arg(long, global = true, value_enum, default_value_t = Format::Json)]
    log_format: Format,
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
    pub fn init(&self) -> anyhow::Result<()> {
        let filter =
            EnvFilter::try_new(&self.log).with_context(|| format!("could not read --log {}", self.log))?;
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            Format::Json => logs.json().flatten_event(true).init(),
            Format::Text => logs.with_ansi(false).init(),
        }
        Ok(())
    }
}
