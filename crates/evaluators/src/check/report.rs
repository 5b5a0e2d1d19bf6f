//! What a check has found.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use sluice_engine::{Charge, Format, Resource};

use super::Sample;
use crate::{Answered, Failure};

/// All that a check has found.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub pods: Vec<PodRow>,
    /// Each thing that was tried.
    pub findings: Vec<Finding>,
    /// How fast it answers.
    pub speeds: Vec<Speed>,
}

/// What is said of one pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    pub pod: String,
    /// What Kubernetes counts.
    pub native: BTreeMap<String, String>,
    /// What the evaluator charges; `None` without a match.
    pub charged: Option<BTreeMap<String, String>>,
    /// Why there is no valid answer.
    pub error: Option<String>,
    #[serde(skip)]
    pub(super) is_no_answer: bool,
}

impl PodRow {
    pub(super) fn of(sample: &Sample, said: Result<Answered, Failure>) -> Self {
        let is_no_answer = said.as_ref().is_err_and(Failure::is_no_answer);
        let (charged, error) = match said {
            Ok(Answered::Charge(charge)) => (Some(amounts(&charge)), None),
            Ok(Answered::NoMatch) => (None, None),
            Err(failure) => (None, Some(failure.to_string())),
        };
        Self { pod: sample.name.to_string(), native: amounts(&sample.native), charged, error, is_no_answer }
    }

    pub(super) fn says_same(&self, other: &Self) -> bool {
        self.charged == other.charged && self.error == other.error
    }
}

fn amounts(charge: &Charge) -> BTreeMap<String, String> {
    let format = |resource: &Resource| match resource {
        Resource::Memory | Resource::LimitsMemory => Format::BinarySi,
        _ => Format::DecimalSi,
    };
    let amount = |(resource, amount): &(Resource, sluice_engine::Amount)| {
        (resource.key().to_owned(), amount.quantity(format(resource)).to_string())
    };
    charge.iter().map(amount).collect()
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub tried: &'static str,
    /// Whether it is as it must be.
    pub good: bool,
    pub seen: String,
}

impl Finding {
    pub(super) const fn of(tried: &'static str, good: bool, seen: String) -> Self {
        Self { tried, good, seen }
    }
}

/// How fast it answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Speed {
    /// Questions at once.
    pub at_once: usize,
    /// Answers per second.
    pub per_second: f64,
    /// Half of the answers took no longer, in milliseconds.
    pub p50_ms: f64,
    /// Of a hundred answers 99 took no longer, in milliseconds.
    pub p99_ms: f64,
    /// Questions without an answer.
    pub failed: usize,
}

impl Report {
    /// Whether all is as it must be.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.good) && self.speeds.iter().all(|speed| speed.failed == 0)
    }
}

/// The amounts, `cpu=1, pods=1`.
struct List<'a>(&'a BTreeMap<String, String>);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> = self.0.iter().map(|(key, amount)| format!("{key}={amount}")).collect();
        f.write_str(&entries.join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.pods.iter().map(|row| row.pod.len()).max().unwrap_or(0);
        for row in &self.pods {
            writeln!(f, "{:width$}  native   {}", row.pod, List(&row.native))?;
            match (&row.error, &row.charged) {
                (Some(error), _) => writeln!(f, "{:width$}  WRONG    {error}", "")?,
                (None, Some(charged)) => writeln!(f, "{:width$}  charged  {}", "", List(charged))?,
                (None, None) => writeln!(f, "{:width$}  no match", "")?,
            }
        }
        writeln!(f)?;
        for finding in &self.findings {
            let Finding { tried, good, seen } = finding;
            writeln!(f, "{}  {tried}: {seen}", if *good { "good " } else { "WRONG" })?;
        }
        writeln!(f)?;
        for speed in &self.speeds {
            let Speed { at_once, per_second, p50_ms, p99_ms, failed } = speed;
            writeln!(
                f,
                "{at_once:2} at once  {per_second:8.0} answers/s  p50 {p50_ms:.2} ms  p99 {p99_ms:.2} ms  {failed} failed"
            )?;
        }
        Ok(())
    }
}
