//! Tables, JSON files and the few statistics that all benches need.

use std::fmt::{Display, Formatter};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

/// A line about progress; figures go to standard output, this does not.
pub fn say(line: &str) {
    eprintln!("bench: {line}");
}

/// A table: a title, a header, rows.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these column names.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self { title: title.to_owned(), rows: vec![columns.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Prints it.
    pub fn print(&self) {
        print!("{self}");
    }
}

/// The first column to the left and the others to the right.
impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        writeln!(f, "\n{}", self.title)?;
        for row in &self.rows {
            let mut line = String::from("  ");
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line.push_str(&if at == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") });
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `met` or `MISSED`.
pub fn verdict(met: bool) -> String {
    if met { "met" } else { "MISSED" }.to_owned()
}

/// Writes `<out>/<name>.json`.
///
/// # Errors
/// When the file cannot be written.
pub fn write(out: &Path, name: &str, value: &Value) -> anyhow::Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    let path = out.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(&path, format!("{text}\n")).with_context(|| format!("writing {}", path.display()))?;
    println!("  → {}", path.display());
    Ok(())
}

/// The last lines of a log, for messages.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(10)).copied().collect::<Vec<_>>().join("\n")
}

/// The machine: figures taken while others used it are to be read with care.
pub fn machine() -> Value {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Option<f64> = load.split(' ').next().and_then(|number| number.parse().ok());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    json!({"cores": cores, "load_before": load, "optimised": !cfg!(debug_assertions)})
}

/// The value below which the share `q` (0..=1) of all lies; sorts them. NaN of none.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = (values.len() as f64 * q).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// The middle one; sorts them.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// Rounded to so many decimals, for files that people read.
pub fn round(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

/// Milliseconds with fraction.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut table = Table::new("what takes how long", &["what", "p50", "p99"]);
        table.row(["a name that is long".to_owned(), "1.5 ms".to_owned(), "12.25 ms".to_owned()]);
        table.row(["µ".to_owned(), "…".to_owned(), String::new()]);
        insta::assert_snapshot!(table, @"

        what takes how long
          what                    p50       p99
          a name that is long  1.5 ms  12.25 ms
          µ                         …
        ");
    }
}
