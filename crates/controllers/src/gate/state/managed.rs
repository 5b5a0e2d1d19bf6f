//! What a quota's status says of keys that its managed quota limits: what that says, and until then what was recorded.

use std::sync::Arc;

use sluice_engine::managed::managed;
use sluice_engine::{CompiledQuota, ManagedStatus, QuotaId, StatusTarget, status_target};
use sluice_index::{Key, QuotaRecord};

use super::State;

impl State {
    /// The managed quota of a quota says this from now on; `None`: it has none.
    pub fn set_managed_status(&mut self, quota: &Key, status: Option<ManagedStatus>) {
        self.managed.set(quota, status);
        let namespace = self.namespaces.id(&quota.namespace);
        if let Some(id) = namespace.and_then(|namespace| self.quotas.find(namespace, &quota.name)) {
            self.writes.mark(id);
        }
    }

    /// The status that a quota should have; `None` as long as its sums are not complete.
    pub fn status_of(&self, id: QuotaId) -> Option<StatusTarget> {
        let quota = self.quotas.get(id)?;
        let (compiled, ledger) = (self.complete(id)?, self.queue.ledger(id)?);
        Some(status_target(compiled, ledger, &self.managed_status(quota, compiled)))
    }

    /// While the managed quota says nothing of a key, as in the moments after a change of limits or of leaders, the last value
    /// stays; a 0 would be wrong.
    fn managed_status(&self, quota: &QuotaRecord, compiled: &CompiledQuota) -> ManagedStatus {
        let mut keys = managed(compiled).map(|entry| &entry.key).peekable();
        let Some(namespace) =
            quota.namespace().and_then(|id| self.namespaces.get(id)).filter(|_| keys.peek().is_some())
        else {
            return ManagedStatus::default();
        };
        let key = Key { namespace: Arc::clone(&namespace.name), name: Arc::clone(&quota.name) };
        let mut status = self.managed.get(&key).cloned().unwrap_or_default();
        if status.trouble.is_none() {
            for key in keys {
                if let Some(last) = quota.recorded.used.get(key) {
                    status.used.entry(Arc::clone(key)).or_insert(last);
                }
            }
        }
        status
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
    use crate::gate::{Action, GateConfig, Moment};

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
        Some(ManagedStatus { used: used.collect(), trouble: trouble.map(str::to_owned) })
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
}
