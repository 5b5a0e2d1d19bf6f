//! Policies of sidecars: `Evaluator`s that say which pods a sidecar is asked about, and what it may answer. Pure.

use std::sync::Arc;
use std::time::Duration;

use kube::core::Selector;
use serde_json::Value;
use sluice_api::{EvaluatorOnFailure, EvaluatorOtherPods, EvaluatorSpec, refused_of_evaluator};
use sluice_engine::evaluation::Rules;

use crate::Failure;
use crate::spec::Common;

/// The least and the longest time that an answer may be given.
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// The least and the most questions that a sidecar may have at once.
const CONCURRENCIES: (i64, i64) = (1, 32);

/// How a sidecar is asked. Without an `Evaluator` of its name it is asked by the [default](Self::default).
///
/// If the object cannot be used, there is no answer about any pod that it selects, and the gate holds these pods: what they
/// are charged otherwise may be too little.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SidecarPolicy {
    pods: Selector,
    namespaces: Selector,
    rules: Rules,
    on_failure: Option<EvaluatorOnFailure>,
    other_pods: Option<EvaluatorOtherPods>,
    /// Another one is another policy.
    revision: Option<String>,
    limits: Limits,
    fault: Option<Arc<str>>,
}

/// How long and how often a sidecar is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many questions it has at once, at least 1.
    pub concurrency: usize,
}

impl Default for Limits {
    /// One second, and four questions.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(1), concurrency: 4 }
    }
}

impl SidecarPolicy {
    /// Whether the `spec` of an `Evaluator` is the policy of a sidecar, and no rule.
    #[must_use]
    pub fn is_one(spec: &Value) -> bool {
        spec.get("sidecar").is_some_and(|sidecar| !sidecar.is_null())
    }

    /// Reads the `spec` of an `Evaluator`.
    #[must_use]
    pub fn read(spec: &Value) -> Self {
        let Common { pods, namespaces, read, rules } = Common::read(spec);
        let refused = refused_container(spec);
        let (spec, unread) = match read {
            Ok(spec) => (spec, None),
            Err(fault) => (EvaluatorSpec::default(), Some(fault)),
        };
        let (limits, wrong) = match limits_of(&spec) {
            Ok(limits) => (limits, is_of_rules(&spec)),
            Err(fault) => (Limits::default(), Some(fault)),
        };
        let EvaluatorSpec { on_failure, revision, sidecar, .. } = spec;
        let other_pods = sidecar.and_then(|sidecar| sidecar.other_pods);
        let fault: Option<Arc<str>> = unread.or(wrong).or(refused).map(Arc::from);
        let on_failure = if fault.is_some() { Some(EvaluatorOnFailure::Hold) } else { on_failure };
        Self { pods, namespaces, rules, on_failure, other_pods, revision, limits, fault }
    }

    /// The pods that it is asked about, by their labels.
    #[must_use]
    pub const fn pods(&self) -> &Selector {
        &self.pods
    }

    /// The namespaces of these pods, by their labels.
    #[must_use]
    pub const fn namespaces(&self) -> &Selector {
        &self.namespaces
    }

    /// What it may charge.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What becomes of waiting pods when it does not work; `None`: the policy does not say. One that cannot be used holds
    /// them: what it says of failures may be what cannot be read of it.
    #[must_use]
    pub const fn on_failure(&self) -> Option<EvaluatorOnFailure> {
        self.on_failure
    }

    /// Which other pods it is sent; `None`: the policy does not say.
    #[must_use]
    pub const fn other_pods(&self) -> Option<EvaluatorOtherPods> {
        self.other_pods
    }

    /// How long and how often it is asked.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Why the object cannot be used: the field, and what to do.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Whether all that was answered by the one holds by the other.
    #[must_use]
    pub fn answers_as(&self, other: &Self) -> bool {
        let limits = self.limits;
        *self == Self { limits, ..other.clone() }
    }

    /// Whether it can be asked by this.
    pub(crate) fn usable(&self) -> Result<(), Failure> {
        self.fault.as_deref().map_or(Ok(()), |why| Err(Failure::BadPolicy(why.into())))
    }
}

fn limits_of(spec: &EvaluatorSpec) -> Result<Limits, String> {
    let Some(sidecar) = &spec.sidecar else { return Ok(Limits::default()) };
    let mut limits = Limits::default();
    if let Some(text) = &sidecar.timeout {
        let (least, longest) = TIMEOUTS;
        let read = duration(text).filter(|timeout| (least..=longest).contains(timeout));
        limits.timeout = read.ok_or_else(|| {
            format!("spec.sidecar.timeout: {text:?} is no time from 50ms to 10s: write one like 500ms or 2s")
        })?;
    }
    if let Some(number) = sidecar.concurrency {
        let (least, most) = CONCURRENCIES;
        let read = usize::try_from(number).ok().filter(|_| (least..=most).contains(&number));
        limits.concurrency = read.ok_or_else(|| {
            format!("spec.sidecar.concurrency: {number} is not from {least} to {most}: write one that is")
        })?;
    }
    Ok(limits)
}

/// A field of its container. What name it may have, the API server is told at admission: under another it does not run.
fn refused_container(spec: &Value) -> Option<String> {
    let refused = refused_of_evaluator("", spec).into_iter().find(|it| it.field.starts_with("spec."))?;
    Some(format!("{}: {}", refused.field, refused.why))
}

/// A whole number of seconds or milliseconds.
fn duration(text: &str) -> Option<Duration> {
    let number =
        |digits: &str| digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    match text.strip_suffix("ms") {
        Some(millis) => number(millis).map(Duration::from_millis),
        None => number(text.strip_suffix('s')?).map(Duration::from_secs),
    }
}

/// What is there that a sidecar has no use for. The API server refuses it too; there may be objects from before.
fn is_of_rules(spec: &EvaluatorSpec) -> Option<String> {
    if spec.cel.is_some() {
        return Some("spec.cel: spec.sidecar is there too: remove one of them".to_owned());
    }
    let has_examples = !spec.examples.is_empty();
    has_examples.then(|| {
        "spec.examples: no sidecar is asked at admission: remove them, and try it by sluice evaluator check".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;
    use serde_json::json;
    use sluice_engine::Resource;
    use sluice_engine::evaluation::{Floor, Strategy};

    use super::*;

    #[test]
    fn without_fields_it_is_what_it_is_without_an_object() {
        assert_eq!(SidecarPolicy::read(&json!({"sidecar": {}})), SidecarPolicy::default());
        for (spec, is_one) in [
            (json!({"sidecar": {}}), true),
            (json!({"sidecar": null, "cel": {}}), false),
            (json!({"cel": {}}), false),
            (json!({}), false),
        ] {
            assert_eq!(SidecarPolicy::is_one(&spec), is_one, "{spec}");
        }
    }

    #[test]
    fn each_field_is_read() {
        let policy = SidecarPolicy::read(&json!({
            "podSelector": {"matchLabels": {"app": "db"}},
            "namespaceSelector": {"matchLabels": {"tier": "gold"}},
            "strategy": "Retain", "floor": "None", "keys": ["cpu", "example.com/license"], "onFailure": "CountNatively",
            "revision": "7", "sidecar": {"timeout": "250ms", "concurrency": 16, "otherPods": "None"},
        }));
        assert_eq!(policy.fault(), None);
        let has = |selector: &Selector, key: &str, value: &str| {
            selector.matches(&[(key.to_owned(), value.to_owned())].into())
        };
        assert!(has(policy.pods(), "app", "db") && !has(policy.pods(), "app", "web"));
        assert!(has(policy.namespaces(), "tier", "gold") && !has(policy.namespaces(), "tier", "iron"));
        let keys = ["requests.cpu", "example.com/license"].map(Resource::from_quota_key).into();
        let rules = Rules { strategy: Strategy::Retain, floor: Floor::None, keys: Some(keys) };
        assert_eq!(*policy.rules(), rules);
        assert_eq!(policy.on_failure(), Some(EvaluatorOnFailure::CountNatively));
        assert_eq!(policy.other_pods(), Some(EvaluatorOtherPods::None));
        assert_eq!(policy.limits(), Limits { timeout: Duration::from_millis(250), concurrency: 16 });
    }

    #[test]
    fn what_cannot_be_used_says_the_field_and_the_remedy() {
        for (field, value, said) in [
            (
                "keys",
                json!(["storage"]),
                "spec.keys[0]: no quota limits pods by \"storage\": write a key like requests.cpu",
            ),
            ("keys", json!([]), "spec.keys: it is empty: name a key, or remove it"),
            (
                "sidecar",
                json!({"timeout": "49ms"}),
                "spec.sidecar.timeout: \"49ms\" is no time from 50ms to 10s: write",
            ),
            ("sidecar", json!({"timeout": "11s"}), "spec.sidecar.timeout: \"11s\""),
            ("sidecar", json!({"timeout": "+1s"}), "spec.sidecar.timeout: \"+1s\""),
            ("sidecar", json!({"concurrency": 33}), "spec.sidecar.concurrency: 33 is not from 1 to 32"),
            (
                "cel",
                json!({"match": "true", "charge": {"a": "1"}}),
                "spec.cel: spec.sidecar is there too: remove one",
            ),
            (
                "examples",
                json!([{"pod": {}}]),
                "spec.examples: no sidecar is asked at admission: remove them",
            ),
            ("floor", json!("Low"), "spec: unknown variant `Low`"),
            ("podSelector", json!(7), "spec.podSelector: "),
        ] {
            let mut spec = json!({"sidecar": {}});
            spec[field] = value;
            let policy = SidecarPolicy::read(&spec);
            let fault = policy.fault().unwrap_or_default();
            assert!(fault.starts_with(said), "{fault}");
            assert!(matches!(policy.usable(), Err(Failure::BadPolicy(_))));
        }
    }

    /// What can be read of it may be what is wrong, and the controller's flag is none of its business.
    #[test]
    fn what_cannot_be_used_holds_whatever_is_said_of_failures() {
        for on_failure in [json!(null), json!("Hold"), json!("CountNatively"), json!("Never")] {
            for wrong in [json!({"timeout": "1h"}), json!({"otherPods": 7})] {
                let policy = SidecarPolicy::read(&json!({"onFailure": on_failure, "sidecar": wrong}));
                assert!(policy.fault().is_some());
                assert_eq!(policy.on_failure(), Some(EvaluatorOnFailure::Hold), "{on_failure} {wrong}");
            }
        }
    }

    #[test]
    fn what_only_bounds_the_asking_changes_no_answer() {
        let with = |field: &str, value: Value| {
            let mut spec = json!({"sidecar": {}});
            spec[field] = value;
            SidecarPolicy::read(&spec)
        };
        let is_same = |field, value| SidecarPolicy::default().answers_as(&with(field, value));
        assert!(is_same("sidecar", json!({"timeout": "2s", "concurrency": 1})));
        for (field, value) in [
            ("revision", json!("2")),
            ("floor", json!("None")),
            ("keys", json!(["pods"])),
            ("onFailure", json!("Hold")),
            ("sidecar", json!({"otherPods": "None"})),
        ] {
            assert!(!is_same(field, value), "{field}");
        }
    }
}
