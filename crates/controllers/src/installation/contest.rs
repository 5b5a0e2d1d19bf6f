//! Operands that another client insists on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use sluice_api::names;
use sluice_runtime::events::{EventType, Report};
use tokio::time::Instant;

use super::apply::{Target, Write};
use crate::pace::Pace;

/// So many times in a row an operand is put back before that is told.
const ROUNDS: u32 = 3;

/// How often, and what another client did last, by operand.
#[derive(Debug, Default)]
pub(super) struct Contests(BTreeMap<Target, (u32, String)>);

impl Contests {
    /// The write is about to be sent.
    pub(super) fn wrote(&mut self, write: &Write) {
        if let Some(what) = &write.contested {
            let (rounds, last) = self.0.entry(write.target.clone()).or_default();
            *rounds = rounds.saturating_add(1);
            last.clone_from(what);
        }
    }

    /// Forgets what is over by the `pace` of the writes.
    pub(super) fn keep(&mut self, pace: &Pace<Target>, now: Instant) {
        self.0.retain(|target, _| pace.forgotten(target, now).is_some());
    }

    /// A sentence for each operand that is contested.
    pub(super) fn told(&self) -> Vec<String> {
        self.0.keys().filter_map(|target| self.sentence(target)).collect()
    }

    /// When the first of them will be over.
    pub(super) fn over(&self, pace: &Pace<Target>, now: Instant) -> Option<Instant> {
        self.0.keys().filter_map(|target| pace.forgotten(target, now)).min()
    }

    fn sentence(&self, target: &Target) -> Option<String> {
        let (_, what) = self.0.get(target).filter(|(rounds, _)| *rounds >= ROUNDS)?;
        Some(format!(
            "{target}: {what} whenever the operator puts it back: \
             change the options of the installation or the AAQ instead"
        ))
    }

    /// The event of a write to a contested operand, about the operator in `namespace`, which keeps them all.
    pub(super) fn event(&self, namespace: &str, target: &Target) -> Option<Report> {
        let note = self.sentence(target)?;
        Some(Report {
            regarding: ObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: Some("Deployment".to_owned()),
                name: Some(names::OPERATOR.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            },
            related: related(namespace, target),
            type_: EventType::Warning,
            reason: names::OBJECT_CONTESTED.to_owned(),
            action: "PutBack".to_owned(),
            note,
        })
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
