//! Operands that another client insists on, and events of these and of admission objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use sluice_api::names;
use sluice_runtime::events::{EventType, Report};
use tokio::time::Instant;

use super::apply::{Target, Write};
use crate::pace::Pace;

/// So many times in a row an operand is put back before that is told.
const ROUNDS: u32 = 3;

/// What other clients insist on.
#[derive(Debug, Default)]
pub(super) struct Contests {
    /// How often, and what another client did last, by operand.
    operands: BTreeMap<Target, (u32, String)>,
    /// Sentences about admission objects of which events were written.
    of_admission: Vec<String>,
}

impl Contests {
    /// The write is about to be sent.
    pub(super) fn wrote(&mut self, write: &Write) {
        if let Some(what) = &write.contested {
            let (rounds, last) = self.operands.entry(write.target.clone()).or_default();
            *rounds = rounds.saturating_add(1);
            last.clone_from(what);
        }
    }

    /// Forgets all operands.
    pub(super) fn clear(&mut self) {
        self.operands.clear();
    }

    /// Forgets what is over by the `pace` of the writes.
    pub(super) fn keep(&mut self, pace: &Pace<Target>, now: Instant) {
        self.operands.retain(|target, _| pace.forgotten(target, now).is_some());
    }

    /// A sentence for each operand that is contested.
    pub(super) fn told(&self) -> Vec<String> {
        self.operands.keys().filter_map(|target| self.sentence(target)).collect()
    }

    /// When the first of them will be over.
    pub(super) fn over(&self, pace: &Pace<Target>, now: Instant) -> Option<Instant> {
        self.operands.keys().filter_map(|target| pace.forgotten(target, now)).min()
    }

    fn sentence(&self, target: &Target) -> Option<String> {
        let (_, what) = self.operands.get(target).filter(|(rounds, _)| *rounds >= ROUNDS)?;
        Some(format!(
            "{target}: {what} whenever the operator puts it back: \
             change the options of the installation or the AAQ instead"
        ))
    }

    /// The event of a write to a contested operand, about the operator in `namespace`, which keeps them all.
    pub(super) fn event(&self, namespace: &str, target: &Target) -> Option<Report> {
        Some(report(namespace, related(namespace, target), self.sentence(target)?))
    }

    /// As [`Self::event`], of each of these sentences about admission objects that is new.
    pub(super) fn of_admission(&mut self, namespace: &str, told: &[String]) -> Vec<Report> {
        let before = std::mem::replace(&mut self.of_admission, told.to_vec());
        let new = told.iter().filter(|note| !before.contains(note));
        new.map(|note| report(namespace, None, note.clone())).collect()
    }
}

fn report(namespace: &str, related: Option<ObjectReference>, note: String) -> Report {
    Report {
        regarding: ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(names::OPERATOR.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        },
        related,
        type_: EventType::Warning,
        reason: names::OBJECT_CONTESTED.to_owned(),
        action: "PutBack".to_owned(),
        note,
    }
}

fn related(namespace: &str, target: &Target) -> Option<ObjectReference> {
    let Target::Operand(operand) = target else { return None };
    let resource = operand.kind.resource();
    Some(ObjectReference {
        api_version: Some(resource.api_version),
        kind: Some(resource.kind),
        name: Some(operand.name.clone()),
        namespace: operand.kind.is_namespaced().then(|| namespace.to_owned()),
        ..ObjectReference::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::kind::{Kind, Operand};
    use super::*;

    #[test]
    fn an_event_tells_once_of_each_admission_object() {
        let mut contests = Contests::default();
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let mut notes = |told: &[String]| {
            contests.of_admission("home", told).into_iter().map(|report| report.note).collect::<Vec<_>>()
        };
        assert_eq!(notes(std::slice::from_ref(&a)), ["a"]);
        assert_eq!(notes(&[a.clone(), b]), ["b"]);
        assert!(notes(&[]).is_empty());
        assert_eq!(notes(&[a]), ["a"], "a new case");
    }

    #[test]
    fn three_rounds_are_told_until_it_was_calm() {
        let (mut contests, mut pace, now) = (Contests::default(), Pace::default(), Instant::now());
        let target = Target::Operand(Operand::new(Kind::Service, names::WEBHOOK));
        let write = |contested: Option<&str>| Write {
            target: target.clone(),
            rests_on: String::new(),
            contested: contested.map(str::to_owned),
            body: Value::Null,
        };
        let mut round = |contests: &mut Contests, contested| {
            contests.keep(&pace, now);
            let write = write(contested);
            pace.wrote(&target, write.limits(), now);
            contests.wrote(&write);
            contests.told().len()
        };
        for (contested, told) in
            [(None, 0), (Some("a changes it"), 0), (Some("a changes it"), 0), (Some("b changes it"), 1)]
        {
            assert_eq!(round(&mut contests, contested), told);
        }
        let event = contests.event("home", &target).unwrap();
        assert!(event.note.starts_with("Service sluice-webhook: b changes it whenever"), "{}", event.note);
        assert_eq!(
            (event.regarding.namespace.as_deref(), event.reason.as_str()),
            (Some("home"), "ObjectContested")
        );
        let over = contests.over(&pace, now).unwrap();
        contests.keep(&pace, over);
        assert_eq!(contests.told().len(), 1);
        contests.keep(&pace, over + std::time::Duration::from_secs(1));
        assert_eq!(contests.told(), Vec::<String>::new());
        assert!(contests.event("home", &target).is_none());
    }
}
