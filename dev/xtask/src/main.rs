//! Developer commands: code generation, checks, test bed, image.

mod bed;
mod check;
mod generate;
mod image;
mod lint;
mod plugin;
mod shell;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Sluice. `make help` lists the usual ones.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write all files in deploy/.
    Gen {
        /// Write nothing; fail if a file differs from what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Check which crate and which module uses which, the width of lines, licences, duplicate versions, where packages come
    /// from, that the files, headings and tests that the documentation names exist, and that CRDs have only grown.
    Check,
    /// Fetch the advisories of RustSec and look for those about our dependencies.
    Advisories,
    /// Format check, clippy, generated files, and `check`.
    Lint,
    /// Build the test bed's programs and run every test; the last line is the sum.
    Test {
        /// Arguments for `cargo test`, in place of `--workspace`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the static binary and the image archive target/image/sluice.tar.
    Image,
    /// Build the static binary as a plug-in of kubectl, and krew's manifest: target/plugin.
    Plugin,
    /// Control planes that stay until they are taken down.
    #[command(subcommand)]
    Bed(bed::BedCommand),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Gen { check } => generate::run(check),
        Command::Check => check::run(),
        Command::Advisories => check::advisories(),
        Command::Lint => lint::run_all(),
        Command::Test { arguments } => test::run(&arguments),
        Command::Image => image::run(),
        Command::Plugin => plugin::run(),
        Command::Bed(command) => bed::run(command).await,
    }
}
