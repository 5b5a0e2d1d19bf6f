//! What is said about what was seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_manifests::Gating;

use super::probe::{Gates, LastWord, Seen};

/// Something that people have to know at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// In CamelCase.
    pub reason: &'static str,
    /// The API server's name.
    pub server: Arc<str>,
    /// What happens there and what to do.
    pub note: String,
}

/// What was seen at all API servers.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) expected: Gating,
    pub(super) seen: BTreeMap<Arc<str>, Seen>,
}

impl Gates {
    /// A word for labels and lines.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Webhook => "webhook",
            Self::Refused(_) => "refused",
            Self::Nothing => "nothing",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl LastWord {
    /// A word for labels and lines.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Webhook => "webhook",
            Self::Nothing => "nothing",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl Findings {
    /// Each API server: who gates pods there, who refuses those that are not gated, and what is unusual about it.
    pub(super) fn summary(&self) -> String {
        if self.seen.is_empty() {
            return "no API server was asked yet".to_owned();
        }
        let lines = self.seen.iter().map(|(server, seen)| {
            let why = match (&seen.gates, &seen.last_word) {
                (Gates::Refused(why) | Gates::Unknown(why), _) | (_, LastWord::Unknown(why)) => {
                    format!(" ({why})")
                }
                (Gates::Webhook, _) if self.expected == Gating::Policy => {
                    " (the admission policy sluice-gate is not in force)".to_owned()
                }
                _ => String::new(),
            };
            let (gates, last) = (seen.gates.word(), seen.last_word.word());
            format!("{server}: gated by {gates}, the last word has {last}{why}")
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// What comes in without a gate, and what cannot come in.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        let alarm = |(server, seen): (&Arc<str>, &Seen)| {
            let (reason, note) = match (&seen.gates, &seen.last_word) {
                (Gates::Nothing, LastWord::Policy) => (
                    "PodsRefused",
                    "neither admission policy nor webhook gates pods, and they are refused for it".to_owned(),
                ),
                (Gates::Nothing, _) => (
                    "PodsNotGated",
                    "pods of targeted namespaces come in without a gate: neither the admission policy sluice-gate nor \
                     the webhook gating-mutator is in force"
                        .to_owned(),
                ),
                (Gates::Refused(why), _) => {
                    ("PodsRefused", format!("pods of targeted namespaces are refused: {why}"))
                }
                (_, LastWord::Nothing) => (
                    "LastWordMissing",
                    "pods from which another admission plugin takes the gate would be let in: the admission policy \
                     sluice-gated is not in force"
                        .to_owned(),
                ),
                (_, LastWord::Webhook) => (
                    "GuardMissing",
                    "no admission policy is in force, so nobody keeps users from taking gates off pods and from forging \
                     stamps: run the API server with the admission plugin ValidatingAdmissionPolicy"
                        .to_owned(),
                ),
                _ => return None,
            };
            Some(Alarm { reason, server: Arc::clone(server), note: format!("API server {server}: {note}") })
        };
        self.seen.iter().filter_map(alarm).collect()
    }

    /// Nothing is expected to change soon.
    pub(super) fn is_settled(&self) -> bool {
        let gates = |seen: &Seen| match seen.gates {
            Gates::Policy => true,
            Gates::Webhook => self.expected == Gating::Webhook,
            Gates::Refused(_) | Gates::Nothing | Gates::Unknown(_) => false,
        };
        !self.seen.is_empty()
            && self.seen.values().all(|seen| gates(seen) && seen.last_word == LastWord::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(gates: Gates, last_word: LastWord) -> Findings {
        let seen = [(Arc::from("one"), Seen { gates, last_word })].into();
        Findings { expected: Gating::Policy, seen }
    }

    #[test]
    fn what_lets_pods_in_or_keeps_them_all_out_is_an_alarm_and_the_webhook_is_none() {
        let said = [
            (Gates::Policy, LastWord::Policy),
            (Gates::Webhook, LastWord::Policy),
            (Gates::Unknown("no answer".into()), LastWord::Unknown("no answer".into())),
            (Gates::Nothing, LastWord::Nothing),
            (Gates::Nothing, LastWord::Policy),
            (Gates::Refused("no endpoints".into()), LastWord::Policy),
            (Gates::Policy, LastWord::Nothing),
            (Gates::Policy, LastWord::Webhook),
        ]
        .map(|(gates, last_word)| {
            let findings = findings(gates, last_word);
            let alarms =
                findings.alarms().into_iter().map(|alarm| format!("  {}: {}\n", alarm.reason, alarm.note));
            format!("{}\n{}", findings.summary(), alarms.collect::<String>())
        });
        insta::assert_snapshot!(said.concat(), @"
        one: gated by policy, the last word has policy
        one: gated by webhook, the last word has policy (the admission policy sluice-gate is not in force)
        one: gated by unknown, the last word has unknown (no answer)
        one: gated by nothing, the last word has nothing
          PodsNotGated: API server one: pods of targeted namespaces come in without a gate: neither the admission policy sluice-gate nor the webhook gating-mutator is in force
        one: gated by nothing, the last word has policy
          PodsRefused: API server one: neither admission policy nor webhook gates pods, and they are refused for it
        one: gated by refused, the last word has policy (no endpoints)
          PodsRefused: API server one: pods of targeted namespaces are refused: no endpoints
        one: gated by policy, the last word has nothing
          LastWordMissing: API server one: pods from which another admission plugin takes the gate would be let in: the admission policy sluice-gated is not in force
        one: gated by policy, the last word has webhook
          GuardMissing: API server one: no admission policy is in force, so nobody keeps users from taking gates off pods and from forging stamps: run the API server with the admission plugin ValidatingAdmissionPolicy
        ");
    }

    #[test]
    fn the_webhook_is_asked_about_soon_where_the_policy_should_gate() {
        let mut findings = findings(Gates::Webhook, LastWord::Policy);
        assert!(!findings.is_settled());
        findings.expected = Gating::Webhook;
        assert!(findings.is_settled());
        insta::assert_snapshot!(findings.summary(), @"one: gated by webhook, the last word has policy");
    }
}
