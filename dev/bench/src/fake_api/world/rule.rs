//! The `Evaluator` of the fake API server: at most one, a rule that charges pods. Clients can list, watch and patch it.

use serde_json::{Value, json};
use sluice_api::names::{EVALUATORS, OWN_GROUP, OWN_VERSION};

use super::super::kept::How;
use super::super::object::{Event, Object, RULES, Refused};
use super::World;
use crate::pod_json::uid;
use crate::report::extend;

const NAME: &str = "bench";

impl World {
    /// Creates the rule, or replaces its spec. Returns whether that could be done.
    pub fn set_rule(&mut self, spec: &Value) -> bool {
        let known = self.kept.get(&path(NAME)).cloned();
        let (word, how) = if known.is_some() { ("MODIFIED", How::Replace) } else { ("ADDED", How::Create) };
        let mut rule = known.unwrap_or_else(|| {
            json!({
                "apiVersion": RULES.0, "kind": RULES.1,
                "metadata": {"name": NAME, "uid": uid(3 << 40), "creationTimestamp": "2026-01-12T08:00:02Z"},
            })
        });
        let generation = rule.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0) + 1;
        json_patch::merge(&mut rule, &json!({"metadata": {"generation": generation}}));
        extend(&mut rule, json!({"spec": spec}));
        self.write_rule(word, how, NAME, rule).is_ok()
    }

    /// Applies a merge patch of a rule's status.
    pub(in super::super) fn tell_of_rule(&mut self, name: &str, patch: Value) -> Result<String, Refused> {
        let written = self.write_rule("MODIFIED", How::Merge, name, patch)?;
        self.told += 1;
        Ok(written)
    }

    fn write_rule(
        &mut self,
        word: &'static str,
        how: How,
        name: &str,
        sent: Value,
    ) -> Result<String, Refused> {
        let written = self.kept.write(how, path(name), sent, self.version + 1)?;
        self.version += 1;
        let (version, object) = (self.version, Object::Rule(written.clone()));
        // The bench counts events that Sluice has not caused, and means those of pods: this one is not among them.
        self.rule_events.push(Event { word, is_caused: true, version, object });
        Ok(written)
    }

    /// The rule as JSON, if there is one.
    pub(super) fn rule(&self) -> Option<String> {
        self.kept.get(&path(NAME)).map(Value::to_string)
    }

    /// Whether all is [settled](Self::is_settled), and each quota's status says that every pod that counts takes so many
    /// cores of `limits.cpu`.
    pub fn is_charged(&self, cores: u64) -> bool {
        self.is_settled() && self.tenants.iter().all(|tenant| tenant.cores() == Some(tenant.counted * cores))
    }
}

impl super::Tenant {
    /// What the status says of `limits.cpu`, if those are whole cores.
    fn cores(&self) -> Option<u64> {
        self.status.as_ref()?.pointer("/used/limits.cpu")?.as_str()?.parse().ok()
    }
}

fn path(name: &str) -> String {
    format!("apis/{OWN_GROUP}/{OWN_VERSION}/{EVALUATORS}/{name}")
}

#[cfg(test)]
mod tests {
    use super::super::Size;
    use super::*;

    #[test]
    fn pods_are_charged_when_the_status_of_each_quota_says_so() {
        let mut world = World::new(Size { namespaces: 2, pods: 8, waiting: 2 });
        for namespace in 0..2 {
            assert!(!world.is_charged(2), "{namespace} has no status");
            let quota: Value = serde_json::from_str(&world.quota(namespace).unwrap()).unwrap();
            let status = json!({"used": {"pods": "3", "limits.cpu": "6"}, "held": 1});
            assert!(
                world.record(namespace, &json!({"metadata": quota["metadata"], "status": status})).is_ok()
            );
        }
        assert!(world.is_charged(2) && !world.is_charged(3));
        assert_eq!((world.waiting(), world.held(1), world.held(2)), (vec![0, 1], 1, 0));
    }
}
