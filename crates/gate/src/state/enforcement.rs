//! Quotas that do not limit what their keys promise: about pods that are not gated, since their namespace is not targeted or
//! is exempt, about pods of [paused](super::pauses) namespaces, and about ResourceClaims. They are told so.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::QuotaId;
use sluice_index::NamespaceId;

use super::State;

impl State {
    /// DeviceClasses name these extended resources from now on.
    pub fn set_claimed_resources(&mut self, extended: BTreeSet<Arc<str>>) {
        if self.cluster.claimed_resources != extended {
            self.cluster.claimed_resources = extended;
            self.restate_quotas();
        }
    }

    /// Every quota has something else to say, whatever is charged to it.
    pub fn restate_quotas(&mut self) {
        let quotas: Vec<QuotaId> = self.cluster.quotas.iter().map(|(id, _)| id).collect();
        let is_of_cluster =
            |id: &QuotaId| self.cluster.quotas.get(*id).is_some_and(|quota| quota.cluster().is_some());
        let (clusters, others): (Vec<_>, Vec<_>) = quotas.into_iter().partition(is_of_cluster);
        clusters.into_iter().for_each(|id| self.cluster.quotas.note_changed_cluster(id));
        others.into_iter().for_each(|id| self.recorder.restate(id));
    }

    /// Pods of the namespace are gated from now on, or no more: its quotas say so.
    pub(super) fn restate_quotas_about(&mut self, id: NamespaceId) {
        let quotas =
            self.cluster.namespaces.get(id).map(|namespace| namespace.quotas().to_vec()).unwrap_or_default();
        for id in quotas {
            if self.cluster.quotas.get(id).is_some_and(|quota| quota.cluster().is_some()) {
                self.cluster.quotas.note_changed_cluster(id);
            } else {
                self.recorder.restate(id);
            }
        }
    }

    /// The selector, which messages repeat, is another one.
    pub(super) fn restate_unenforced(&mut self) {
        let ids: Vec<NamespaceId> = self.cluster.namespaces.iter().map(|(id, _)| id).collect();
        for id in
            ids.into_iter().filter(|id| self.cluster.namespaces.ungated(*id).is_some()).collect::<Vec<_>>()
        {
            self.restate_quotas_about(id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use kube::core::{Expression, Selector};
    use serde_json::{Value, json};
    use sluice_api::names;
    use sluice_engine::{ChargeRules, NamespacePattern};
    use sluice_index::{ArqWire, Targeting};

    use super::*;
    use crate::messages::reasons;
    use crate::recording::status;
    use crate::{Action, Answer, GateConfig, GateEvent, Moment, Outcome, RecordedObject};

    const AT: Moment = Moment { mono_ms: 0, unix_ms: 1_767_225_600_000 };

    fn exempt() -> Arc<[NamespacePattern]> {
        ["kube-*".parse().unwrap()].into()
    }

    fn labelled(key: &str) -> Selector {
        Expression::Exists(key.to_owned()).into()
    }

    /// A leader that has not seen anything; namespaces with the label `gated` are targeted.
    fn leader() -> State {
        let config = GateConfig::new(names::GATE, ChargeRules::for_minor(36));
        let mut state = State::new(config, Targeting::new(labelled("gated"), exempt()));
        state.lead(AT);
        state
    }

    fn see_namespace(state: &mut State, name: &str, labels: &Value) {
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": "1", "labels": labels });
        state.apply_namespace(&serde_json::from_value(json!({ "metadata": metadata })).unwrap(), AT);
    }

    fn quota(namespace: &str, version: u64, hard: &Value, status: &Value) -> ArqWire {
        let metadata = json!({
            "name": "q", "namespace": namespace, "uid": namespace, "resourceVersion": version.to_string(),
        });
        let quota = json!({ "metadata": metadata, "spec": { "hard": hard }, "status": status });
        serde_json::from_value(quota).unwrap()
    }

    fn see_quota(state: &mut State, namespace: &str, version: u64, hard: &Value, status: &Value) {
        state.apply_quota(&quota(namespace, version, hard, status), AT);
    }

    /// Another client has written an empty status. What is written then is stored. Returns how often that was, and how many
    /// events told that the quota limits nothing.
    fn overwritten(state: &mut State, version: &mut u64, mono_ms: u64) -> (usize, usize) {
        let (hard, now) = (json!({ "pods": "1" }), Moment { mono_ms, ..AT });
        let mut next = || {
            *version += 1;
            *version
        };
        state.apply_quota(&quota("team", next(), &hard, &json!({})), now);
        let (mut writes, mut told) = (0, 0);
        for action in state.plan(now) {
            let outcome = match action {
                Action::Record(record) => {
                    writes += 1;
                    let stored = quota("team", next(), &hard, &status(&record));
                    let answer = Answer::Done(RecordedObject::Quota(stored));
                    Outcome::Recorded(record.quota, record.uid, answer)
                }
                Action::WriteEvent(event) => {
                    told += usize::from(event.reason == reasons::NOT_ENFORCED);
                    Outcome::EventWritten(event, true)
                }
                Action::CatchUp => Outcome::CaughtUp,
                other => panic!("{other:?}"),
            };
            state.on_outcome(outcome, now);
        }
        (writes, told)
    }

    /// The status that is written, if any, and the events.
    fn planned(state: &mut State, mono_ms: u64) -> (Option<Value>, Vec<GateEvent>) {
        let (mut written, mut told) = (None, Vec::new());
        for action in state.plan(Moment { mono_ms, ..AT }) {
            match action {
                Action::Record(record) => written = Some(status(&record)),
                Action::WriteEvent(event) => told.push(event),
                Action::CatchUp => {}
                other => panic!("{other:?}"),
            }
        }
        (written, told)
    }

    fn condition(status: &Value) -> Option<(&str, &str, &str)> {
        let known = status["conditions"].as_array()?.iter().find(|known| known["type"] == "Enforced")?;
        Some((
            known["status"].as_str().unwrap(),
            known["reason"].as_str().unwrap(),
            known["message"].as_str().unwrap(),
        ))
    }

    #[test]
    fn a_quota_of_a_namespace_that_is_not_targeted_says_so_until_it_is() {
        let hard = json!({ "pods": "1" });
        let mut state = leader();
        see_namespace(&mut state, "team", &json!({}));
        see_quota(&mut state, "team", 1, &hard, &json!({}));
        let (written, told) = planned(&mut state, 0);
        let written = written.unwrap();
        let (is_enforced, reason, message) = condition(&written).unwrap();
        assert_eq!((is_enforced, reason), ("False", "NamespaceNotTargeted"));
        assert!(message.contains("spec.namespaceSelector of the AAQ (gated)"), "{message}");
        let [event] = &told[..] else { panic!("one event: {told:?}") };
        assert_eq!((&*event.name, event.reason, &*event.message), ("q", "NotEnforced", message));
        // The next leader neither writes nor tells it again.
        let mut state = leader();
        see_namespace(&mut state, "team", &json!({}));
        see_quota(&mut state, "team", 2, &hard, &written);
        assert_eq!(planned(&mut state, 0), (None, Vec::new()));
        see_namespace(&mut state, "team", &json!({ "gated": "" }));
        let (targeted, told) = planned(&mut state, 1_000);
        assert_eq!((condition(&targeted.unwrap()), told), (None, Vec::new()));
    }

    #[test]
    fn a_status_that_another_client_overwrites_is_put_right_and_the_event_written_once() {
        let mut state = leader();
        see_namespace(&mut state, "team", &json!({}));
        let mut version = 0;
        let mut rounds = (1..=6).map(|round| overwritten(&mut state, &mut version, round * 120_000));
        assert_eq!(rounds.next(), Some((1, 1)));
        assert_eq!(rounds.collect::<Vec<_>>(), [(1, 0); 5]);
        // It is another case once the quota has limited pods meanwhile.
        see_namespace(&mut state, "team", &json!({ "gated": "" }));
        assert_eq!(overwritten(&mut state, &mut version, 840_000), (1, 0));
        see_namespace(&mut state, "team", &json!({}));
        assert_eq!(overwritten(&mut state, &mut version, 960_000), (1, 1));
        // What the status said when this process began to lead is no news either.
        let mut next = leader();
        see_namespace(&mut next, "team", &json!({}));
        let mut first = leader();
        see_namespace(&mut first, "team", &json!({}));
        see_quota(&mut first, "team", 1, &json!({ "pods": "1" }), &json!({}));
        let written = planned(&mut first, 0).0.unwrap();
        see_quota(&mut next, "team", 2, &json!({ "pods": "1" }), &written);
        assert_eq!(planned(&mut next, 0), (None, Vec::new()));
        assert_eq!(overwritten(&mut next, &mut version, 120_000), (1, 0));
    }

    #[test]
    fn an_exempt_namespace_has_another_remedy_and_what_is_no_pods_is_enforced_everywhere() {
        let mut state = leader();
        see_namespace(&mut state, "kube-public", &json!({ "gated": "" }));
        see_quota(&mut state, "kube-public", 1, &json!({ "requests.cpu": "1" }), &json!({}));
        let (written, told) = planned(&mut state, 0);
        assert_eq!(condition(&written.unwrap()).unwrap().1, "NamespaceExempt");
        assert_eq!(told.len(), 1);
        let mut state = leader();
        see_namespace(&mut state, "team", &json!({}));
        see_quota(&mut state, "team", 1, &json!({ "services": "1" }), &json!({}));
        let (written, told) = planned(&mut state, 0);
        assert_eq!((written.as_ref().and_then(condition), told), (None, Vec::new()));
    }

    #[test]
    fn what_another_made_of_the_condition_is_put_right_and_another_selector_is_told() {
        let hard = json!({ "pods": "1" });
        let mut first = leader();
        see_namespace(&mut first, "team", &json!({}));
        see_quota(&mut first, "team", 1, &hard, &json!({}));
        let written = planned(&mut first, 0).0.unwrap();
        for field in ["reason", "message"] {
            let mut edited = written.clone();
            edited["conditions"][0][field] = json!("Other");
            let mut state = leader();
            see_namespace(&mut state, "team", &json!({}));
            see_quota(&mut state, "team", 2, &hard, &edited);
            assert_eq!(condition(&planned(&mut state, 0).0.unwrap()), condition(&written), "{field}");
        }
        let mut state = leader();
        see_namespace(&mut state, "team", &json!({}));
        see_quota(&mut state, "team", 2, &hard, &written);
        assert_eq!(planned(&mut state, 0), (None, Vec::new()));
        state.retarget(Targeting::new(labelled("sluiced"), exempt()), AT);
        let (reworded, told) = planned(&mut state, 1_000);
        assert!(condition(&reworded.unwrap()).unwrap().2.contains("(sluiced)"));
        assert_eq!(told, Vec::new(), "the reason is the same");
        state.retarget(Targeting::new(Selector::default(), exempt()), AT);
        assert!(state.recorder.has_next(), "the status is to be looked at again");
    }

    #[test]
    fn keys_that_claims_count_to_are_told_of_while_a_device_class_names_them() {
        let mut state = leader();
        see_namespace(&mut state, "team", &json!({ "gated": "" }));
        see_quota(&mut state, "team", 1, &json!({ "requests.example.com/gpu": "1" }), &json!({}));
        let uncounted = |written: Option<Value>| {
            let conditions = written.unwrap()["conditions"].as_array().cloned().unwrap_or_default();
            let told = conditions.iter().find(|known| known["type"] == "UncountedKeys")?;
            Some(told["message"].as_str()?.to_owned())
        };
        assert_eq!(uncounted(planned(&mut state, 0).0), None, "containers are counted");
        // A leader that knows of the class.
        let mut state = leader();
        state.set_claimed_resources(["example.com/gpu".into()].into());
        see_namespace(&mut state, "team", &json!({ "gated": "" }));
        see_quota(&mut state, "team", 1, &json!({ "requests.example.com/gpu": "1" }), &json!({}));
        let told = uncounted(planned(&mut state, 0).0).unwrap();
        assert!(
            told.starts_with("spec.hard: not enforced on ResourceClaims: requests.example.com/gpu"),
            "{told}"
        );
        state.set_claimed_resources(BTreeSet::new());
        assert!(state.recorder.has_next(), "the status is to be looked at again");
    }

    #[test]
    fn a_cluster_quota_says_in_which_namespaces_it_limits_nothing() {
        let mut state = leader();
        state.allow_cluster_quotas(true, AT);
        see_namespace(&mut state, "b", &json!({}));
        see_namespace(&mut state, "a", &json!({}));
        see_namespace(&mut state, "gated", &json!({ "gated": "" }));
        let quota = json!({
            "metadata": { "name": "q", "uid": "1", "resourceVersion": "1" },
            "spec": { "quota": { "hard": { "pods": "9" } }, "selector": { "labels": {} } },
        });
        state.apply_cluster_quota(&serde_json::from_value(quota).unwrap(), AT);
        let id = state.cluster.quotas.find_cluster("q").unwrap();
        let told = |state: &State| state.accounts.status_of(&state.cluster, id).unwrap().unenforced;
        let message = told(&state).unwrap().message;
        assert!(message.contains(" of 2 of 3 selected namespaces, "), "{message}");
        assert!(message.contains(": a, b: "), "in the order of names: {message}");
        assert_eq!(
            state.accounts.record_of(&state.cluster, id).unwrap().unenforced,
            None,
            "the charge is no place for words"
        );
        state.take_changed_clusters();
        for name in ["a", "b"] {
            see_namespace(&mut state, name, &json!({ "gated": "" }));
        }
        assert!(state.take_changed_clusters().contains(&id));
        assert_eq!(told(&state), None);
    }
}
