//! What the operator applies to the Deployments of controller and webhook.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_api::names;

use super::apply::{Target, Write};
use super::fields::{self, Field, PRIORITY_CLASS, PULL_POLICY, applied};
use super::observe::{OPERANDS, Operand, World};
use super::wire::Spec;

/// The writes that bring the Deployments to what the `AAQ`, or without one the `MTQ`, asks; none as long as something is not
/// known. `version`: of this operator.
pub(super) fn plan(world: &World, version: &str) -> Vec<Write> {
    let (Some(_), Some(_), Some(classes)) = (&world.aaqs, &world.mtqs, &world.priority_classes) else {
        return Vec::new();
    };
    // What the manifest says of its Deployments, it says of the operator's too.
    let Some(Some(shipped)) = world.deployments.get(names::OPERATOR) else { return Vec::new() };
    let order = world.users_aaq().or_else(|| world.mtq());
    let asked = order.map(|order| asked(&order.spec, classes)).unwrap_or_default();
    let write = |name: &'static str| {
        let is = world.deployments.get(name)?.as_ref()?;
        let stated = stated(is, &asked, shipped, version)?;
        let resource_version = is.resource_version.clone();
        let body = applied(name, &stated, version);
        Some(Write { target: Target::Deployment(name), resource_version, body })
    };
    OPERANDS.into_iter().filter_map(write).collect()
}

/// What is asked of each field of which something is said. Null: it is to be empty.
fn asked(spec: &Spec, classes: &BTreeSet<String>) -> BTreeMap<Field, Value> {
    let mut asked = fields::placement(&spec.infra);
    if let Some(policy) = spec.image_pull_policy.as_ref().filter(|policy| !policy.is_empty()) {
        asked.insert(PULL_POLICY, json!(policy));
    }
    if let Some(class) = priority_class(spec, classes) {
        asked.insert(PRIORITY_CLASS, json!(class));
    }
    asked
}

/// A class that does not exist would keep pods from being made. application-aware-quota
/// (`pkg/aaq-operator/resources/namespaced`) takes KubeVirt's class where none is named; here what was installed stays, so
/// that applying the manifest again has nothing to contest.
fn priority_class<'a>(spec: &'a Spec, classes: &BTreeSet<String>) -> Option<&'a str> {
    spec.priority_class.as_deref().filter(|class| classes.contains(*class))
}

/// All that is to be owned of a Deployment; `None` if that is so, or if it is a newer operator's.
fn stated(
    is: &Operand,
    asked: &BTreeMap<Field, Value>,
    shipped: &Operand,
    version: &str,
) -> Option<BTreeMap<Field, Value>> {
    if is_newer(is, version) {
        return None;
    }
    let (mut stated, mut differs) = (BTreeMap::new(), false);
    for field in fields::all() {
        let (live, is_owned) = (is.fields.value(field), is.fields.is_owned(field));
        let wanted = match asked.get(field) {
            // To be empty, which it is without us.
            Some(Value::Null) if live.is_null() && !is_owned => continue,
            Some(wanted) => wanted.clone(),
            None if !is_owned => continue,
            None => shipped.fields.value(field),
        };
        if wanted.is_null() && !asked.contains_key(field) {
            // What is owned and not stated is taken away.
            differs = true;
            continue;
        }
        differs |= wanted != live;
        stated.insert(field, wanted);
    }
    differs |= !stated.is_empty() && is.writer.as_deref() != Some(version);
    differs.then_some(stated)
}

/// Whether an operator of a newer version has written the Deployment.
pub(super) fn is_newer(is: &Operand, version: &str) -> bool {
    let theirs = is.writer.as_deref().and_then(numbers);
    theirs.zip(numbers(version)).is_some_and(|(theirs, ours)| theirs > ours)
}

/// Major, minor and patch of a version.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let plain = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut numbers = plain.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}
