//! What commands print, and how they exit.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use sluice_gate::plain;

/// Set when standard output was found closed.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How a command ends that could read what it needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Nothing is held, nothing fails.
    Good,
    /// Something is held, fails or is left.
    Held,
    /// It is not known: a right is missing, or there is no such object.
    Unknown,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Good => 0,
            Exit::Held => 3,
            Exit::Unknown => 4,
        })
    }
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// For people, with more columns
    Wide,
    /// For programs: apiVersion cli.sluice.dev/v1
    Json,
    /// The same as YAML
    Yaml,
    /// Names alone
    Name,
}

/// How to print.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OutputArgs {
    /// How to print what is found
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Prints a text. A reader that has gone is no error.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &impl Display) -> io::Result<()> {
    print_bytes(plain(&text.to_string()).as_bytes())
}

/// Whether who read standard output has gone: there is nothing more to print.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// As [`print`], byte by byte.
///
/// # Errors
/// As there.
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            CLOSED.store(true, Ordering::Relaxed);
            Ok(())
        }
        other => other,
    }
}

/// Prints a value for programs.
///
/// # Errors
/// When it cannot be written.
pub fn print_value(value: &Value, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Yaml => serde_saphyr::to_string(value)?,
        _ => format!("{}\n", serde_json::to_string_pretty(value)?),
    };
    Ok(print(&text)?)
}

/// Rows as a table.
pub fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = sluice_gate::table(&mut text, "", rows);
    text
}
