//! Rules of `Evaluator` objects: evaluators that are asked in the process itself. Pure.

use std::sync::Arc;

use kube::core::{Selector, SelectorExt as _};
use serde_json::{Map, Value};
use sluice_api::EvaluatorSpec;
use sluice_engine::evaluation::{Rules, Strategy, check_floor};
use sluice_engine::{Amount, Charge, ChargeRules, Resource};
use sluice_index::{NativeChargeError, ViewKey, native_charge};
use sluice_rules::{Looks, Outcome, Rule};

use crate::spec::Common;
use crate::{Answered, Failure};

/// An `Evaluator` as far as its rule needs it.
///
/// If its rule cannot be used, it has no answer about any pod that it selects, and the gate holds these pods: what they are
/// charged without the rule may be too little.
#[derive(Debug)]
pub struct RuleEvaluator {
    name: Arc<str>,
    pods: Selector,
    namespaces: Selector,
    rule: Result<Rule, Arc<str>>,
    rules: Rules,
}

impl RuleEvaluator {
    #[must_use]
    pub fn read(name: &str, spec: &Value) -> Self {
        let Common { pods, namespaces, read, rules } = Common::read(spec);
        let rule = read.and_then(|spec| {
            if let Some(field) = of_sidecars(&spec) {
                return Err(format!("spec.{field}: it is of sidecars: remove it"));
            }
            let cel = spec.cel.ok_or(
                "spec.cel: it is not there: write a rule, or the policy of a sidecar with sidecar: {}",
            )?;
            Rule::compile(&cel.matches, &cel.charge).map_err(|error| error.to_string())
        });
        let rule = rule.map_err(Arc::from);
        Self { name: name.into(), pods, namespaces, rule, rules }
    }

    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The pods that it is about, by their labels.
    #[must_use]
    pub const fn pods(&self) -> &Selector {
        &self.pods
    }

    /// The namespaces of these pods, by their labels.
    #[must_use]
    pub const fn namespaces(&self) -> &Selector {
        &self.namespaces
    }

    /// Why its rule cannot be used: the field, and what to do.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.rule.as_ref().err().map(AsRef::as_ref)
    }

    /// The parts of a pod that it looks at, which are all that has to be read; `None`: it cannot be used.
    pub(crate) fn looks(&self) -> Option<&Looks> {
        self.rule.as_ref().ok().map(Rule::looks)
    }

    /// What becomes of what Kubernetes counts.
    #[must_use]
    pub const fn strategy(&self) -> Strategy {
        self.rules.strategy
    }

    /// What Kubernetes counts for a pod that nothing runs yet, and what the rule says of it. `pod` is written as it would be
    /// created; labels of namespaces are not looked at.
    ///
    /// # Errors
    /// When it is no pod, or an amount in it is none.
    pub fn try_on(
        &self,
        pod: &Map<String, Value>,
        by: ChargeRules,
    ) -> Result<(Charge, Result<Answered, Failure>), NativeChargeError> {
        let counted = native_charge(pod, by, 0)?;
        // As the gate sends it.
        let view = ViewKey::default().view(&Value::Object(pod.clone()).to_string())?;
        let seen: Value = serde_json::from_str(&view.json)?;
        let answer = match self.pods.matches(&view.labels) {
            true => self.answer(&seen, &counted),
            false => Ok(Answered::NoMatch),
        };
        Ok((counted, answer))
    }

    /// What the rule says of a pod of which Kubernetes counts `counted`.
    ///
    /// # Errors
    /// When the rule cannot be used, has no answer about this pod, or one below the floor.
    pub fn answer(&self, pod: &Value, counted: &Charge) -> Result<Answered, Failure> {
        let rule = self.rule.as_ref().map_err(|why| Failure::Unusable(why.as_ref().into()))?;
        let outcome = rule
            .evaluate(pod, counted)
            .map_err(|error| Failure::NoAnswer(error.to_string().as_str().into()))?;
        let Outcome::Charge(amounts) = outcome else { return Ok(Answered::NoMatch) };
        let pairs =
            amounts.iter().map(|(key, amount)| (Resource::from_quota_key(key), Amount::from(*amount)));
        let charge = Charge::from_pairs(pairs);
        check_floor(&charge, &self.rules, counted).map_err(Failure::Refused)?;
        Ok(Answered::Charge(charge))
    }
}

/// A field that a rule has no use for.
fn of_sidecars(spec: &EvaluatorSpec) -> Option<&'static str> {
    let keys = spec.keys.as_ref().map(|_| "keys");
    keys.or_else(|| spec.on_failure.map(|_| "onFailure"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;

    fn counted() -> Charge {
        let cpu = |milli: i128| Amount::from_nanos(milli * 1_000_000);
        Charge::from_pairs([
            (Resource::from_quota_key("requests.cpu"), cpu(1500)),
            (Resource::Pods, Amount::ONE),
        ])
    }

    fn licence() -> Value {
        json!({
            "podSelector": {"matchLabels": {"app": "db"}},
            "strategy": "Retain",
            "cel": {"match": "true", "charge": {"example.com/license": "native['requests.cpu'].ceil()"}},
        })
    }

    #[test]
    fn a_rule_answers_with_what_it_charges() {
        let rule = RuleEvaluator::read("licence", &licence());
        assert_eq!((rule.fault(), rule.strategy()), (None, Strategy::Retain));
        assert!(rule.pods().matches(&[("app".to_owned(), "db".to_owned())].into()));
        assert!(!rule.pods().matches(&[("app".to_owned(), "web".to_owned())].into()));
        let licence = Resource::from_quota_key("example.com/license");
        let two = Amount::from_nanos(2_000_000_000);
        let charge = Charge::from_pairs([(licence, two)]);
        assert_eq!(rule.answer(&json!({}), &counted()), Ok(Answered::Charge(charge)));
        let held = rule.answer(&json!({}), &Charge::default()).unwrap_err().to_string();
        assert!(held.contains("ask before with \"requests.cpu\" in native"), "{held}");
    }

    #[test]
    fn what_cannot_be_used_holds_what_it_selects() {
        for (field, value, said) in [
            ("cel", json!({"match": "pod.", "charge": {"example.com/license": "1"}}), "spec.cel.match"),
            ("cel", json!({}), "spec: missing field"),
            ("keys", json!(["pods"]), "spec.keys: it is of sidecars: remove it"),
            ("onFailure", json!("Hold"), "spec.onFailure: it is of sidecars: remove it"),
            ("strategy", json!("Sometimes"), "spec: unknown variant `Sometimes`"),
            (
                "podSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "spec.podSelector",
            ),
            ("namespaceSelector", json!(7), "spec.namespaceSelector"),
        ] {
            let mut spec = licence();
            spec[field] = value;
            let rule = RuleEvaluator::read("licence", &spec);
            let fault = rule.fault().unwrap();
            assert!(fault.starts_with(said), "{fault}");
            let held = rule.answer(&json!({}), &counted()).unwrap_err();
            assert!(matches!(held, Failure::Unusable(_)), "{held}");
            let selects_all = rule.pods().matches(&[("app".to_owned(), "web".to_owned())].into());
            assert_eq!(selects_all, field == "podSelector", "what is readable of its selectors holds");
        }
    }

    #[test]
    fn a_free_pod_needs_a_floor_of_none() {
        for (floor, charge, is_taken) in
            [("Positive", "0", false), ("Positive", "1", true), ("None", "0", true), ("Native", "1", false)]
        {
            let cel = json!({"match": "true", "charge": {"example.com/license": charge}});
            let rule = RuleEvaluator::read("free", &json!({"floor": floor, "cel": cel}));
            assert_eq!(rule.answer(&json!({}), &counted()).is_ok(), is_taken, "{floor} {charge}");
        }
    }
}
