//! What a quota's status says of keys that its managed quota limits: what that says, and until then what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_engine::ManagedStatus;
use sluice_index::Key;

use super::State;

impl State {
    /// The managed quota of a quota says this from now on; `None`: it has none.
    pub fn set_managed_status(&mut self, quota: &Key, status: Option<ManagedStatus>) {
        if quota.namespace.is_empty() {
            return self.set_managed_status_of_cluster(quota, status);
        }
        drop(self.cluster.managed.set(quota, status));
        let namespace = self.cluster.namespaces.id(&quota.namespace);
        if let Some(id) = namespace.and_then(|namespace| self.cluster.quotas.find(namespace, &quota.name)) {
            self.recorder.restate(id);
        }
    }

    /// What namespaces take is shown anew only where something else is said of it.
    fn set_managed_status_of_cluster(&mut self, quota: &Key, status: Option<ManagedStatus>) {
        let before =
            self.cluster.managed.set(quota, status).map(|status| status.namespaces).unwrap_or_default();
        let Some(id) = self.cluster.quotas.find_cluster(&quota.name) else { return };
        let now = self.cluster.managed.get(quota).map(|status| &status.namespaces);
        let names: BTreeSet<_> = before.keys().chain(now.into_iter().flat_map(BTreeMap::keys)).collect();
        let is_changed =
            |name: &&Arc<str>| before.get(*name) != now.and_then(|namespaces| namespaces.get(*name));
        self.cluster.quotas.note_changed_namespaces(id, names.into_iter().filter(is_changed).cloned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use serde_json::{Value, json};
    use sluice_api::names;
    use sluice_engine::{ChargeRules, Quantity};
    use sluice_index::Targeting;

    use super::*;
    use crate::{Action, GateConfig, Moment};

    const AT: Moment = Moment { mono_ms: 0, unix_ms: 1_767_225_600_000 };

    fn key() -> Key {
        Key { namespace: "team".into(), name: "q".into() }
    }

    /// A new leader that sees a quota of these keys with this usage in its status.
    fn leader(keys: &[&str], used: &Value) -> State {
        let config = GateConfig::new(names::GATE, ChargeRules::for_minor(36));
        let mut state = State::new(config, Targeting::new(kube::core::Selector::default(), [].into()));
        state.lead(AT);
        let hard: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!("9"))).collect();
        let quota = json!({
            "metadata": { "name": "q", "namespace": "team", "uid": "1", "resourceVersion": "1" },
            "spec": { "hard": hard }, "status": { "used": used },
        });
        state.apply_quota(&serde_json::from_value(quota).unwrap(), AT);
        state
    }

    /// What is written as used.
    fn used(state: &mut State) -> Vec<String> {
        match state.plan(AT).as_slice() {
            [Action::Record(record)] => {
                record.target.used.iter().map(|(key, used)| format!("{key}={used}")).collect()
            }
            other => panic!("one write: {other:?}"),
        }
    }

    fn says(used: &[(&str, &str)], trouble: Option<&str>) -> Option<ManagedStatus> {
        let used = used.iter().map(|(key, text)| (Arc::from(*key), Quantity::parse(text).unwrap()));
        let trouble = trouble.map(str::to_owned);
        Some(ManagedStatus { used: used.collect(), trouble, ..ManagedStatus::default() })
    }

    #[test]
    fn a_new_leader_keeps_what_is_recorded_until_the_managed_quota_says_something() {
        let keys = ["pods", "services", "secrets"];
        let recorded = json!({ "pods": "0", "services": "4" });
        assert_eq!(used(&mut leader(&keys, &recorded)), ["pods=0", "services=4"], "and makes nothing up");
        let mut state = leader(&keys, &recorded);
        state.set_managed_status(&key(), says(&[("services", "5"), ("secrets", "0")], None));
        assert_eq!(used(&mut state), ["pods=0", "secrets=0", "services=5"]);
        let mut state = leader(&keys, &recorded);
        state.set_managed_status(&key(), says(&[("secrets", "1")], None));
        assert_eq!(used(&mut state), ["pods=0", "secrets=1", "services=4"]);
        let mut state = leader(&keys, &recorded);
        state.set_managed_status(&key(), says(&[("secrets", "1")], Some("services: not counted")));
        assert_eq!(used(&mut state), ["pods=0", "secrets=1"], "nothing old beside the trouble");
    }

    #[test]
    fn keys_that_the_managed_quota_does_not_limit_are_the_gates() {
        let mut state = leader(&["pods", "cpu/vmi"], &json!({ "pods": "7", "cpu/vmi": "7" }));
        state.set_managed_status(&key(), says(&[("pods", "3")], None));
        assert_eq!(used(&mut state), ["cpu/vmi=0", "pods=0"]);
    }

    #[test]
    fn of_a_cluster_quota_it_is_shown_in_all_and_by_namespace_and_never_recorded() {
        let config = GateConfig::new(names::GATE, ChargeRules::for_minor(36));
        let mut state = State::new(config, Targeting::new(kube::core::Selector::default(), [].into()));
        state.allow_cluster_quotas(true, AT);
        for name in ["a", "b"] {
            let namespace = json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } });
            state.apply_namespace(&serde_json::from_value(namespace).unwrap(), AT);
        }
        let quota = json!({
            "metadata": { "name": "q", "uid": "1", "resourceVersion": "1" },
            "spec": { "quota": { "hard": { "pods": "9", "services": "9" } }, "selector": { "labels": {} } },
        });
        state.apply_cluster_quota(&serde_json::from_value(quota).unwrap(), AT);
        state.lead(AT);
        let id = state.cluster.quotas.find_cluster("q").unwrap();
        let names: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let shown = |state: &State| {
            let view = state.cluster_view(id, &names).unwrap();
            let text = |used: &[(String, Quantity)]| {
                used.iter().map(|(key, used)| format!("{key}={used}")).collect::<Vec<_>>().join(" ")
            };
            let each = view.namespaces.iter().map(|(_, used)| text(used.as_ref().unwrap()));
            let total = view.total.unwrap();
            (text(&total.used), each.collect::<Vec<_>>(), total.uncounted)
        };
        assert_eq!(shown(&state), ("pods=0".into(), vec!["pods=0".into(), "pods=0".into()], String::new()));
        state.take_changed_clusters();
        assert_eq!(state.take_changed_namespaces(id, false), None, "it is not shown before it has a record");
        let record = json!({
            "metadata": { "name": "1", "uid": "c", "resourceVersion": "2" },
            "status": { "hard": { "pods": "9" }, "used": { "pods": "0" } },
        });
        state.apply_charge(&serde_json::from_value(record).unwrap(), AT);
        assert_eq!(state.take_changed_namespaces(id, false).unwrap().len(), 2, "they were selected");
        let key = Key { namespace: "".into(), name: "q".into() };
        let of_b = ("b".into(), [("services".into(), Quantity::parse("3").unwrap())].into());
        let told = ManagedStatus { namespaces: [of_b].into(), ..says(&[("services", "3")], None).unwrap() };
        state.set_managed_status(&key, Some(told.clone()));
        assert!(state.take_changed_clusters().contains(&id));
        assert_eq!(state.take_changed_namespaces(id, false).unwrap(), ["b".into()].into());
        let each = vec!["pods=0".into(), "pods=0 services=3".into()];
        assert_eq!(shown(&state), ("pods=0 services=3".into(), each, String::new()));
        assert_eq!(state.accounts.record_of(&state.cluster, id).unwrap().used.len(), 1, "what pods take");
        state.set_managed_status(&key, Some(ManagedStatus { trouble: Some("why".into()), ..told }));
        assert!(state.take_changed_clusters().contains(&id));
        assert!(state.take_changed_namespaces(id, false).unwrap().is_empty());
        assert_eq!(shown(&state).2, "why");
        state.set_managed_status(&key, None);
        assert_eq!(state.take_changed_namespaces(id, false).unwrap(), ["b".into()].into());
        assert_eq!(shown(&state).0, "pods=0");
    }
}
