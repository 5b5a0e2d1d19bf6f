//! What `sluice why` prints, whoever has answered.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use sluice_gate::plain;

use crate::cli::printed::{Format, print, print_value};

/// An answer in all its forms.
pub(in crate::cli) struct Said {
    pub source: Source,
    /// The sentences and the explanations for people.
    pub text: String,
    /// The sentences alone.
    pub summary: Vec<String>,
    /// The explanations for programs.
    pub explanations: Vec<Value>,
    pub headroom: Option<Value>,
    /// Rights that were missing.
    pub missing: Vec<String>,
    /// Whether the answer rests on all that it needs.
    pub is_known: bool,
    /// What could not be known and was taken to be so.
    pub assumed: Vec<String>,
    /// Why there is no answer.
    pub unknown: Option<String>,
}

/// Where an answer comes from.
pub(in crate::cli) enum Source {
    /// The controller that leads.
    Leader {
        name: String,
        /// When it answered, by its own account.
        time: Option<Timestamp>,
        /// How long it took to ask: the answer is no older.
        took: Duration,
    },
    /// Lists of objects.
    Recomputed {
        /// Why the leader did not answer, if it was asked.
        why_not: Option<String>,
    },
}

impl Source {
    fn for_people(&self) -> String {
        match self {
            Self::Leader { name, took, .. } => format!("leader {name}, {:.1} s ago", took.as_secs_f64()),
            Self::Recomputed { why_not: None } => "recomputed from lists".to_owned(),
            Self::Recomputed { why_not: Some(why) } => format!("recomputed from lists; {why}"),
        }
    }
}

impl Said {
    /// Prints it to standard output; rights that were missing, and why there is no answer, to standard error.
    pub(super) fn print(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Json | Format::Yaml => print_value(&self.json(), format)?,
            Format::Name => print(&self.names())?,
            Format::Table | Format::Wide => print(&self.table())?,
        }
        if self.unknown.is_some() || !self.is_known {
            self.missing.iter().for_each(|right| eprintln!("missing right: {right}"));
        }
        if let Some(unknown) = &self.unknown {
            eprintln!("error: {}", plain(unknown));
        }
        Ok(())
    }

    fn table(&self) -> String {
        let mut text = self.text.clone();
        if self.unknown.is_none() {
            text.push_str(&format!("  Source: {}.\n", self.source.for_people()));
            text.extend(self.assumed.iter().map(|assumed| format!("  Note: {assumed}.\n")));
        }
        text
    }

    fn json(&self) -> Value {
        let (source, leader, time, why_not) = match &self.source {
            Source::Leader { name, time, .. } => {
                ("leader", Some(name), time.map(|time| time.to_string()), None)
            }
            Source::Recomputed { why_not } => ("recomputed", None, None, why_not.as_ref()),
        };
        json!({
            "apiVersion": "cli.sluice.dev/v1",
            "kind": "Why",
            "source": source,
            "leader": leader,
            "answeredAt": time,
            "whyRecomputed": why_not,
            "summary": self.summary,
            "explanations": self.explanations,
            "headroom": self.headroom,
            "missingRights": self.missing,
            "assumed": self.assumed,
            "unknown": self.unknown,
        })
    }

    /// What is held, by kind and name.
    fn names(&self) -> String {
        let held = self.explanations.iter().filter(|it| is_held(it));
        let names = held.filter_map(|it| {
            let (kind, name) = match it.get("kind")?.as_str()? {
                "PodExplanation" => ("pod", it.get("name")?),
                _ => ("quota", it.pointer("/quota/name")?),
            };
            Some(format!("{kind}/{}\n", name.as_str()?))
        });
        names.collect()
    }
}

/// A pod that is held, or a quota for which pods are.
fn is_held(explanation: &Value) -> bool {
    let held = &explanation["held"];
    held.as_bool().unwrap_or_else(|| held.as_u64().is_some_and(|pods| pods > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: Source) -> Said {
        Said {
            source,
            text: "train waits.\n".to_owned(),
            summary: Vec::new(),
            explanations: vec![
                json!({ "kind": "PodExplanation", "name": "train", "held": true }),
                json!({ "kind": "PodExplanation", "name": "web", "held": false }),
                json!({ "kind": "QuotaExplanation", "quota": { "name": "compute" }, "held": 2 }),
                json!({ "kind": "QuotaExplanation", "quota": { "name": "empty" }, "held": 0 }),
            ],
            headroom: None,
            missing: Vec::new(),
            is_known: true,
            assumed: vec!["the AAQ cannot be read".to_owned()],
            unknown: None,
        }
    }

    #[test]
    fn the_source_is_told_for_people_and_for_programs() {
        let leader = || Source::Leader {
            name: "sluice-controller-x2k".to_owned(),
            time: Some(Timestamp::UNIX_EPOCH),
            took: Duration::from_millis(140),
        };
        let live = said(leader());
        assert_eq!(
            live.table(),
            "train waits.\n  Source: leader sluice-controller-x2k, 0.1 s ago.\n  Note: the AAQ cannot be read.\n"
        );
        let json = live.json();
        assert_eq!((&json["source"], &json["leader"]), (&json!("leader"), &json!("sluice-controller-x2k")));
        assert_eq!(json["answeredAt"], "1970-01-01T00:00:00Z");
        let plain = said(Source::Recomputed { why_not: None });
        assert!(plain.table().contains("  Source: recomputed from lists.\n"));
        let other = said(Source::Recomputed { why_not: Some("the leader is asked too often".to_owned()) });
        assert!(other.table().contains("  Source: recomputed from lists; the leader is asked too often.\n"));
        let json = other.json();
        assert_eq!((&json["source"], &json["leader"]), (&json!("recomputed"), &Value::Null));
        assert_eq!(json["whyRecomputed"], "the leader is asked too often");
    }

    #[test]
    fn the_names_are_of_what_is_held() {
        assert_eq!(said(Source::Recomputed { why_not: None }).names(), "pod/train\nquota/compute\n");
    }
}
