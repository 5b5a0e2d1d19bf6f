//! Tables, JSON files and the few statistics that all benches need.

use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};

/// A line about progress; figures go to standard output, this does not.
pub fn say(line: &str) {
    eprintln!("bench: {line}");
}

/// A bench under way.
#[derive(Debug)]
pub struct Run {
    /// A look, not a figure.
    pub quick: bool,
    /// Where its file goes.
    pub out: PathBuf,
    machine: Value,
}

impl Run {
    /// One that begins now.
    pub fn new(quick: bool, out: PathBuf) -> Self {
        Self { quick, out, machine: machine() }
    }

    /// This much of something if it is quick, else that much.
    pub fn either<T>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }

    /// Writes `<out>/<name>.json`. Each row, or the only one, says on what machine and how it was measured too.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, name: &str, mut file: Value) -> anyhow::Result<()> {
        let further = json!({"machine": self.machine, "quick": self.quick});
        match &mut file {
            Value::Array(rows) => rows.iter_mut().for_each(|row| extend(row, further.clone())),
            file => extend(file, further),
        }
        shorten(&mut file);
        write(&self.out, name, &file)
    }
}

/// Adds fields.
pub fn extend(object: &mut Value, further: Value) {
    if let (Some(object), Value::Object(further)) = (object.as_object_mut(), further) {
        object.extend(further);
    }
}

/// Rounds what has a fraction, for files that people read.
fn shorten(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(number) = number.as_f64().filter(|number| number.fract() != 0.0) {
                *value = json!(round(number, decimals(number, 5)));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// With so many decimals a number has about so many digits.
fn decimals(number: f64, digits: i32) -> i32 {
    #[allow(clippy::cast_possible_truncation)]
    let before = number.abs().max(1e-9).log10().floor() as i32 + 1;
    (digits - before).clamp(0, 9)
}

/// The number at this place of a file, as a pointer without the first slash. NaN if there is none.
pub fn number(file: &Value, place: &str) -> f64 {
    file.pointer(&format!("/{place}")).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// A figure as a table shows it.
fn cell(file: &Value, place: &str) -> String {
    match file.pointer(&format!("/{place}")) {
        Some(Value::Number(number)) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            format!("{number:.*}", usize::try_from(decimals(number, 3)).unwrap_or(0).min(3))
        }
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(met)) => verdict(*met),
        Some(Value::String(text)) => text.clone(),
        _ => "-".to_owned(),
    }
}

/// Prints rows of figures; a column has a name, and its figure a place in the row.
pub fn rows<R: Serialize>(title: &str, columns: &[(&str, &str)], rows: &[R]) -> anyhow::Result<()> {
    let header = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut table = Table { title: title.to_owned(), rows: vec![header] };
    for row in rows {
        let row = serde_json::to_value(row)?;
        table.rows.push(columns.iter().map(|(_, place)| cell(&row, place)).collect());
    }
    table.print();
    Ok(())
}

/// Prints figures of a file, one in a line: its name, its place, and the place of the goal that it must not exceed,
/// if it has one.
pub fn figures(title: &str, lines: &[(&str, &str, Option<&str>)], file: &Value) {
    let mut table = Table::new(title, &["figure", "", "goal", ""]);
    for (name, place, goal) in lines {
        let [goal, met] = goal.map_or_else(Default::default, |goal| {
            [format!("≤ {}", cell(file, goal)), verdict(number(file, place) <= number(file, goal))]
        });
        table.row([(*name).to_owned(), cell(file, place), goal, met]);
    }
    table.print();
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

/// A figure of a file: its name for people, its place, and its goal if it has one.
pub type Judged = (&'static str, &'static str, Option<Goal>);

/// Prints figures of a file, and writes goals and places of those that miss them into it.
pub fn judge(title: &str, lines: &[Judged], file: &mut Value) {
    let mut table = Table::new(title, &["figure", "", "goal", ""]);
    let (mut goals, mut missed) = (serde_json::Map::new(), Vec::new());
    for (name, place, goal) in lines {
        let is_met = goal.map(|goal| goal.is_met(number(file, place)));
        if is_met == Some(false) {
            missed.push(json!(place));
        }
        let words = goal.map(|goal| goal.to_string()).unwrap_or_default();
        if goal.is_some() {
            goals.insert((*place).to_owned(), json!(words));
        }
        table.row([(*name).to_owned(), cell(file, place), words, is_met.map(verdict).unwrap_or_default()]);
    }
    table.print();
    extend(file, json!({"goals": goals, "met": missed.is_empty(), "missed": missed}));
}

/// The places of figures.
pub const fn places<const N: usize>(lines: &[Judged; N]) -> [&'static str; N] {
    let mut places = [""; N];
    let mut at = 0;
    while at < N {
        #[allow(clippy::indexing_slicing, reason = "it is computed when this is compiled")]
        {
            places[at] = lines[at].1;
        }
        at += 1;
    }
    places
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
    use serde_json::json;

    use super::{Goal, Table, cell, judge, shorten};

    #[test]
    fn a_figure_is_met_missed_or_has_no_goal() {
        let mut file = json!({"a": 1.0, "b": 2.0, "c": null});
        let lines =
            [("a", "a", Some(Goal::AtLeast(1.0))), ("b", "b", Some(Goal::AtMost(1.5))), ("c", "c", None)];
        judge("figures", &lines, &mut file);
        assert_eq!((&file["missed"], &file["met"]), (&json!(["b"]), &json!(false)));
        assert_eq!(file["goals"], json!({"a": "≥ 1", "b": "≤ 1.5"}));
        let mut file = json!({});
        judge("figures", &[("a", "a", Some(Goal::AtMost(1.0)))], &mut file);
        assert_eq!(file["missed"], json!(["a"]), "what was not measured is not met");
    }

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

    #[test]
    fn figures_have_as_many_digits_as_are_of_use() {
        let mut file = json!({"a": 1234.56789, "b": 0.000_123_456_7, "c": 4711, "d": 0.0, "e": null});
        let cells = ["a", "b", "c", "d", "e"].map(|place| cell(&file, place));
        assert_eq!(cells, ["1235", "0.000", "4711", "0.000", "-"]);
        shorten(&mut file);
        assert_eq!(file, json!({"a": 1234.6, "b": 0.000_123_46, "c": 4711, "d": 0.0, "e": null}));
    }
}
