//! What a quota has, what is taken of it, and who waits for it.

use std::fmt::{self, Formatter};
use std::sync::Arc;

use sluice_engine::{Quantity, QuotaKind};

use super::obstacle::QuotaName;
use super::words::{duration, moment, percent, table};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaExplanation {
    /// Its namespace; empty for one of the cluster.
    pub namespace: Arc<str>,
    /// The namespace of which alone it tells who takes and who waits; `None`: of all.
    pub within: Option<Arc<str>>,
    pub quota: QuotaName,
    /// The keys that pods take of.
    pub lines: Vec<Line>,
    /// How many pods wait for it.
    pub held: usize,
    /// The pod that was created first of those: the second of that since the epoch, and its name, of a cluster quota with
    /// its namespace.
    pub oldest: Option<(i64, String)>,
    /// Who takes most of the first key that is full, or of the first key.
    pub takers: Vec<Taker>,
    /// What all others take of it together.
    pub others: Option<(usize, Quantity)>,
    /// What of the specification cannot be understood: no pod of its namespaces is released meanwhile.
    pub invalid: Option<String>,
    pub not_enforced: Vec<String>,
}

/// One key of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub key: Arc<str>,
    pub used: Quantity,
    pub limit: Quantity,
    /// What pods take that run.
    pub counted: Quantity,
    /// What is decided to be taken and not seen yet.
    pub assumed: Quantity,
    /// What is recorded and not found among the pods, or taken in namespaces that cannot be seen.
    pub unseen: Quantity,
}

impl Line {
    /// `used` in hundredths of the limit; 100 of a limit of 0.
    #[must_use]
    pub fn percent(&self) -> i64 {
        percent(self.used, self.limit)
    }
}

/// What is told of the pods that wait for a quota: its condition `PodsHeld`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTold {
    /// When the oldest of them was created, in seconds since the epoch.
    pub since: i64,
    /// How many, which is the oldest, and what it lacks.
    pub message: String,
}

/// Who takes something of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taker {
    /// A pod, `vm` with a name, or a namespace.
    pub name: String,
    /// How much.
    pub amount: Quantity,
}

impl QuotaExplanation {
    /// The key that is nearest to its limit, or above it.
    #[must_use]
    pub fn fullest(&self) -> Option<&Line> {
        self.lines.iter().rev().max_by_key(|line| line.percent())
    }

    /// Writes the long form.
    pub(super) fn write(&self, f: &mut Formatter<'_>, now: i64) -> fmt::Result {
        if let Some(invalid) = &self.invalid {
            writeln!(f, "{}: {invalid}.", self.quota.for_people())?;
        }
        write!(f, "{}  held {}", self.quota.for_people(), self.held)?;
        if let Some((since, name)) = &self.oldest {
            write!(f, ", oldest {} ({name}, since {})", duration(now - since), moment(*since))?;
        }
        writeln!(f)?;
        table(f, "  ", &self.rows())?;
        if !self.takers.is_empty() {
            let takers: Vec<String> =
                self.takers.iter().map(|taker| format!("{} {}", taker.name, taker.amount)).collect();
            let others = self.others.as_ref();
            let others = others.map(|(many, amount)| format!(", {many} more: {amount}")).unwrap_or_default();
            let of = self.fullest().map(|line| format!(" of {}", line.key)).unwrap_or_default();
            writeln!(f, "  Largest{of}: {}{others}.", takers.join(", "))?;
        }
        for told in &self.not_enforced {
            writeln!(f, "  Not enforced: {told}.")?;
        }
        Ok(())
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut head = ["KEY", "USED", "LIMIT", "%"].map(str::to_owned).to_vec();
        head.extend(match &self.within {
            Some(namespace) => vec![format!("IN {namespace}"), "ELSEWHERE".to_owned()],
            None => ["COUNTED", "RELEASED, NOT YET SEEN", "UNSEEN"].map(str::to_owned).to_vec(),
        });
        let mut rows = vec![head];
        for line in &self.lines {
            let mut row = vec![
                line.key.to_string(),
                line.used.to_string(),
                line.limit.to_string(),
                format!("{}%", line.percent()),
            ];
            let amounts = match self.within {
                Some(_) => vec![line.counted, line.unseen],
                None => vec![line.counted, line.assumed, line.unseen],
            };
            row.extend(amounts.iter().map(ToString::to_string));
            rows.push(row);
        }
        rows
    }

    /// `ApplicationAwareResourceQuota` or the kind of one of the cluster.
    #[must_use]
    pub const fn is_of_cluster(&self) -> bool {
        matches!(self.quota.kind, QuotaKind::Cluster)
    }
}
