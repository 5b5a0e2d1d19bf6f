//! Why a pod waits, or does not.

use std::fmt::{self, Formatter, Write as _};
use std::sync::Arc;

use sluice_engine::Quantity;

use super::obstacle::{Lack, Obstacle, QuotaName, sentence};
use super::quota::Taker;
use super::words::{MOST_BYTES, duration, moment, table};
use crate::messages::{HELD_CLAIMS, reasons};

/// Why a pod is where it is on its way from creation to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodExplanation {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub verdict: Verdict,
    /// When the pod was created, in seconds since the epoch: a gate is there from the beginning.
    pub since: i64,
    /// The quotas that count it, or that it waits for.
    pub quotas: Vec<QuotaName>,
    /// Of a pod that waits for room.
    pub wait: Option<Wait>,
    /// It has claims of ephemeral volumes, which count while it waits.
    pub has_claims: bool,
}

/// The place of a pod that waits for room, among those of its namespace that wait for one of its quotas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// From 1 on.
    pub place: usize,
    /// How many wait.
    pub of: usize,
    /// The next ones that go before it.
    pub ahead: Vec<Ahead>,
    /// Who takes most of the first quota that is short, and how much of its first key.
    pub takers: Vec<Taker>,
    /// What all others take of it together.
    pub others: Option<(usize, Quantity)>,
}

/// A pod of the namespace that goes before another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub name: Box<str>,
    /// `spec.priority`.
    pub priority: i32,
    /// What it needs of the keys that the other one is short of.
    pub needs: Vec<(Arc<str>, Quantity)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has no gate, and the quotas count it. What of it cannot be read is counted with the largest amount there is.
    Released {
        /// The field that cannot be read.
        unreadable: Option<Arc<str>>,
    },
    /// It runs no more, and takes nothing.
    Over,
    /// It may go: a leader that runs removes the gate.
    Going,
    /// Quotas have no room for it.
    NoRoom(Vec<Obstacle>),
    /// Gates of others hold it; ours has its turn after them.
    OtherGates,
    /// Something that it asks for cannot be read; the text names the field.
    Unreadable(Arc<str>),
    /// A quota of its namespace cannot be understood.
    InvalidQuota(String),
    /// Its VM cannot be counted.
    UnknownMachine(String),
    /// Evaluators have not said what it takes.
    NotEvaluated(String),
    /// The API server refuses to let the gate be removed.
    Refused(String),
    /// No pod waits for quota until this time: it goes in its turn.
    Paused(String),
    /// Its namespace is not targeted, or it is exempt: it goes without a charge.
    NotTargeted,
    /// Its namespace is being deleted.
    Terminating,
    /// It was not looked at yet.
    Pending,
}

impl Verdict {
    /// The word for it, the same in events, conditions, JSON and on the command line.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Released { unreadable: None } => reasons::RELEASED,
            Self::Released { unreadable: Some(_) } | Self::Unreadable(_) => reasons::UNREADABLE,
            Self::Over => reasons::OVER,
            Self::Going | Self::Pending => reasons::PENDING,
            Self::NoRoom(obstacles) => sentence(obstacles, MOST_BYTES).0,
            Self::OtherGates => reasons::OTHER_GATES,
            Self::InvalidQuota(_) => reasons::INVALID_QUOTA,
            Self::UnknownMachine(_) => reasons::UNKNOWN_MACHINE,
            Self::NotEvaluated(_) => reasons::NOT_EVALUATED,
            Self::Refused(_) => reasons::REFUSED,
            Self::Paused(_) => reasons::PAUSED,
            Self::NotTargeted => reasons::NOT_TARGETED,
            Self::Terminating => reasons::TERMINATING,
        }
    }

    /// The short form, of so many bytes at most. It has no amounts of time.
    #[must_use]
    pub fn sentence(&self, most: usize) -> String {
        match self {
            Self::Released { unreadable: None } => "has no gate of Sluice and is counted".to_owned(),
            Self::Released { unreadable: Some(field) } => {
                format!("counted with the largest amount there is: {field}")
            }
            Self::Over => "runs no more and takes nothing of quotas".to_owned(),
            Self::Going => {
                "there is room for it: its gate is to be removed by the controller that leads".to_owned()
            }
            Self::NoRoom(obstacles) => sentence(obstacles, most).1,
            Self::OtherGates => {
                "scheduling gates of others hold it; it is not its turn before they are gone".to_owned()
            }
            Self::Unreadable(field) => format!("held: {field}; correct the pod and create it again"),
            Self::InvalidQuota(message) => format!("held: {message}"),
            Self::UnknownMachine(why) | Self::NotEvaluated(why) => why.clone(),
            Self::Refused(why) => format!("the API server refuses to release the pod: {why}"),
            Self::Paused(until) => format!("no pod waits for quota until {until}: it goes in its turn"),
            Self::NotTargeted => {
                "its namespace is not targeted, or it is a pod of the platform: the controller that leads lets it go \
                 without a charge"
                    .to_owned()
            }
            Self::Terminating => "held: its namespace is being deleted".to_owned(),
            Self::Pending => "held: not looked at yet".to_owned(),
        }
    }

    /// Whether something holds the pod.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        !matches!(self, Self::Released { .. } | Self::Over)
    }
}

impl PodExplanation {
    /// Reason and note of an event about the pod, so many bytes at most; `None` where there is nothing to tell.
    pub(crate) fn event(&self, most: usize) -> Option<(&'static str, String)> {
        let is_told = match &self.verdict {
            Verdict::NoRoom(_)
            | Verdict::Unreadable(_)
            | Verdict::InvalidQuota(_)
            | Verdict::UnknownMachine(_)
            | Verdict::NotEvaluated(_)
            | Verdict::Refused(_) => true,
            Verdict::Released { unreadable } => unreadable.is_some() && !self.quotas.is_empty(),
            _ => false,
        };
        if !is_told {
            return None;
        }
        let claims = matches!(self.verdict, Verdict::NoRoom(_)) && self.has_claims;
        let most = if claims { most.saturating_sub(HELD_CLAIMS.len() + 2) } else { most };
        let mut note = self.verdict.sentence(most);
        if claims {
            note = format!("{note}; {HELD_CLAIMS}");
        }
        Some((self.verdict.reason(), note))
    }

    /// The first line.
    fn headline(&self, f: &mut Formatter<'_>, now: i64) -> fmt::Result {
        let held = format!("held {} (since {})", duration(now - self.since), moment(self.since));
        let name = &self.name;
        match &self.verdict {
            Verdict::NoRoom(obstacles) if obstacles.iter().any(Obstacle::never) => {
                let asked = obstacles.iter().flat_map(|it| it.keys.iter().map(move |key| (it, key)));
                let never: Vec<String> = asked
                    .filter(|(_, key)| key.never)
                    .map(|(it, key)| {
                        let quota = it.quota.for_people();
                        format!(
                            "it asks for {} {}, quota {quota} allows {} in all",
                            key.key, key.needs, key.limit
                        )
                    })
                    .collect();
                writeln!(f, "{name} can never go: {}; {held}.", never.join("; "))
            }
            Verdict::NoRoom(_) => {
                write!(f, "{name} waits for quota: {held}")?;
                if let Some(wait) = &self.wait {
                    write!(f, ", place {} of {} in {}", wait.place, wait.of, self.namespace)?;
                }
                writeln!(f, ".")
            }
            verdict if verdict.is_held() => writeln!(f, "{name}: {}; {held}.", verdict.sentence(MOST_BYTES)),
            verdict => writeln!(f, "{name}: {}.", verdict.sentence(MOST_BYTES)),
        }
    }

    /// Writes the long form.
    pub(super) fn write(&self, f: &mut Formatter<'_>, now: i64) -> fmt::Result {
        self.headline(f, now)?;
        if let Verdict::NoRoom(obstacles) = &self.verdict {
            self.amounts(f, obstacles)?;
        } else if !self.quotas.is_empty() {
            let quotas: Vec<String> = self.quotas.iter().map(QuotaName::for_people).collect();
            writeln!(f, "  Quotas: {}.", quotas.join(", "))?;
        }
        if self.has_claims && self.verdict.is_held() {
            writeln!(f, "  {HELD_CLAIMS}.")?;
        }
        Ok(())
    }

    fn amounts(&self, f: &mut Formatter<'_>, obstacles: &[Obstacle]) -> fmt::Result {
        let head = ["QUOTA", "KEY", "NEEDS", "USED", "LIMIT", "SHORT BY", ""].map(str::to_owned);
        let mut rows = vec![head.to_vec()];
        for obstacle in obstacles {
            for key in &obstacle.keys {
                let own = match (&key.own, &obstacle.lack) {
                    (_, Lack::KeptForOwn(pod)) => format!("(kept for {pod}, which has waited longer)"),
                    (_, Lack::KeptForOther) => "(kept for a pod that has waited longer)".to_owned(),
                    (Some(own), Lack::Exceeded) => format!("({own} of them in {})", self.namespace),
                    (None, Lack::Exceeded) => String::new(),
                };
                let amounts = [key.needs, key.used, key.limit, key.short_by].map(|amount| amount.to_string());
                let mut row = vec![obstacle.quota.for_people(), key.key.to_string()];
                row.extend(amounts);
                row.push(own);
                rows.push(row);
            }
        }
        table(f, "  ", &rows)?;
        let Some(wait) = &self.wait else { return Ok(()) };
        if !wait.ahead.is_empty() {
            let ahead: Vec<String> = wait.ahead.iter().map(Ahead::for_people).collect();
            let more = (wait.place - 1).saturating_sub(wait.ahead.len());
            let more = if more > 0 { format!(", {more} more") } else { String::new() };
            writeln!(f, "  Ahead: {}{more}.", ahead.join(", "))?;
        }
        self.remedy(f, obstacles)?;
        self.takers(f, obstacles, wait)
    }

    fn remedy(&self, f: &mut Formatter<'_>, obstacles: &[Obstacle]) -> fmt::Result {
        if obstacles.iter().any(Obstacle::never) {
            let fields =
                obstacles.iter().filter_map(|it| Some((it.field_to_raise()?, it.quota.for_people())));
            let fields: Vec<String> = fields.map(|(field, quota)| format!("{field} of {quota}")).collect();
            return writeln!(
                f,
                "  Ask for less (change the template of the pod's controller and delete the pod), or have {} raised.",
                fields.join(" and ")
            );
        }
        let exceeded = obstacles.iter().filter(|obstacle| obstacle.lack == Lack::Exceeded);
        let freed: Vec<String> = exceeded
            .flat_map(|it| it.keys.iter().map(move |key| (it, key)))
            .map(|(it, key)| format!("{} {} freed in {}", key.key, key.short_by, it.quota.for_people()))
            .collect();
        if freed.is_empty() {
            return Ok(());
        }
        let ahead = self.wait.as_ref().is_some_and(|wait| wait.place > 1);
        let beside = if ahead { ", beside what those ahead need" } else { "" };
        writeln!(f, "  Would release it: {}{beside}.", freed.join(" and "))
    }

    fn takers(&self, f: &mut Formatter<'_>, obstacles: &[Obstacle], wait: &Wait) -> fmt::Result {
        let Some(first) = obstacles.first().filter(|_| !wait.takers.is_empty()) else { return Ok(()) };
        let takers: Vec<String> =
            wait.takers.iter().map(|taker| format!("{} {}", taker.name, taker.amount)).collect();
        let mut line = format!("  Largest in {}: {}", first.quota.for_people(), takers.join(", "));
        if let Some((many, amount)) = &wait.others {
            write!(line, ", {many} more: {amount}")?;
        }
        writeln!(f, "{line}.")
    }
}

impl Ahead {
    fn for_people(&self) -> String {
        let mut about = vec![format!("priority {}", self.priority)];
        let needs: Vec<String> = self.needs.iter().map(|(key, amount)| format!("{key} {amount}")).collect();
        if !needs.is_empty() {
            about.push(format!("needs {}", needs.join(", ")));
        }
        format!("{} ({})", self.name, about.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_before_a_pod_is_told_with_its_amounts_as_a_list() {
        let need = |key: &str, amount| (Arc::from(key), Quantity::parse(amount).unwrap());
        let ahead = |needs| Ahead { name: "urgent".into(), priority: 7, needs }.for_people();
        let needs = vec![need("requests.cpu", "2"), need("pods", "1")];
        assert_eq!(ahead(needs), "urgent (priority 7, needs requests.cpu 2, pods 1)");
        assert_eq!(ahead(Vec::new()), "urgent (priority 7)");
    }
}
