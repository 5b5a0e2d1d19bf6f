//! What rules and policies of sidecars have in common: the `spec` of an `Evaluator` as it is written, readable or not.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;
use serde_json::Value;
use sluice_api::{EvaluatorFloor, EvaluatorSpec, EvaluatorStrategy};
use sluice_engine::Resource;
use sluice_engine::evaluation::{Floor, Rules, Strategy};
use sluice_engine::resource::{consumed_by_pods, is_qualified_name};
use sluice_index::read_selector;

/// The `spec` of an `Evaluator`. What cannot be read of its selectors selects all.
pub(crate) struct Common {
    pub(crate) pods: Selector,
    pub(crate) namespaces: Selector,
    /// What it may charge.
    pub(crate) rules: Rules,
    /// All of it, or the field that is wrong, and what to do.
    pub(crate) read: Result<EvaluatorSpec, String>,
}

impl Common {
    pub(crate) fn read(spec: &Value) -> Self {
        let pods = selector(spec, "podSelector");
        let namespaces = selector(spec, "namespaceSelector");
        let read = EvaluatorSpec::deserialize(spec).map_err(|error| format!("spec: {error}"));
        let rules = read.as_ref().map(rules_of).unwrap_or_else(|_| Ok(Rules::default()));
        let wrong = [&pods, &namespaces].into_iter().find_map(|selector| selector.as_ref().err().cloned());
        let read =
            wrong.map_or(read, Err).and_then(|spec| rules.as_ref().map(|_| spec).map_err(Clone::clone));
        let rules = rules.unwrap_or_default();
        Self { pods: pods.unwrap_or_default(), namespaces: namespaces.unwrap_or_default(), rules, read }
    }
}

fn rules_of(spec: &EvaluatorSpec) -> Result<Rules, String> {
    let strategy = match spec.strategy {
        EvaluatorStrategy::Replace => Strategy::Replace,
        EvaluatorStrategy::Retain => Strategy::Retain,
    };
    let floor = match spec.floor {
        EvaluatorFloor::Positive => Floor::Positive,
        EvaluatorFloor::Native => Floor::Native,
        EvaluatorFloor::None => Floor::None,
    };
    let keys = spec.keys.as_ref().map(|keys| keys_of(keys)).transpose()?;
    Ok(Rules { strategy, floor, keys })
}

fn keys_of(keys: &[String]) -> Result<BTreeSet<Resource>, String> {
    if keys.is_empty() {
        return Err("spec.keys: it is empty: name a key, or remove it, so that any may be charged".to_owned());
    }
    let read = |(number, key): (usize, &String)| {
        if is_qualified_name(key) && consumed_by_pods(key) {
            return Ok(Resource::from_quota_key(key));
        }
        Err(format!(
            "spec.keys[{number}]: no quota limits pods by {key:?}: write a key like requests.cpu or example.com/license"
        ))
    };
    keys.iter().enumerate().map(read).collect()
}

fn selector(spec: &Value, field: &str) -> Result<Selector, String> {
    let path = format!("spec.{field}");
    let Some(written) = spec.get(field).filter(|value| !value.is_null()) else {
        return Ok(Selector::default());
    };
    let read = LabelSelector::deserialize(written).map_err(|error| format!("{path}: {error}"))?;
    read_selector(&path, read)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}
