//! From what is to what should be: JSON patches, and objects to create.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_operator::{
    InstallOptions, charge_binding, charge_policy, default_namespace_selector, lock_binding, lock_policy,
    mutating, validating,
};

use super::compare::{same, without};
use super::observe::{Configuration, Fixed, Kind, World};

/// Where an entry has the authorities.
const BUNDLE: [&str; 2] = ["clientConfig", "caBundle"];
/// Where an entry has the authorities and the path.
const CLIENT: [&str; 1] = ["clientConfig"];
/// Where an entry has its namespaces.
const NAMESPACES: [&str; 1] = ["namespaceSelector"];

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// A JSON patch. It applies to the version it was planned for, or not at all.
    Patch {
        /// Of what.
        kind: Kind,
        /// JSON patch.
        operations: Value,
    },
    /// The object is missing.
    Create {
        /// What is missing.
        kind: Kind,
        /// All of it.
        object: Value,
    },
}

/// What is known and counts for every entry.
struct Wanted<'a> {
    bundle: Option<&'a [u8]>,
    selector: Option<LabelSelector>,
    restore: bool,
}

/// The writes that are needed. What is not known is not touched.
pub(super) fn plan(world: &World, options: &InstallOptions) -> Vec<Step> {
    let selector = world.selector.clone();
    let wanted = Wanted {
        bundle: world.bundle.as_deref(),
        selector: selector.map(|chosen| chosen.unwrap_or_else(default_namespace_selector)),
        restore: world.installed,
    };
    let mut options = options.clone();
    options.webhook_path.clone_from(&world.path);
    options.ca_bundle = wanted.bundle.map(|bundle| String::from_utf8_lossy(bundle).into_owned());
    if let Some(selector) = &wanted.selector {
        options.namespace_selector.clone_from(selector);
    }
    let policies = [
        (Kind::Charge, &world.charge, charge_policy(&options)),
        (Kind::ChargeBinding, &world.charge_binding, charge_binding()),
        (Kind::Lock, &world.lock, lock_policy()),
        (Kind::LockBinding, &world.lock_binding, lock_binding()),
    ];
    let configurations = [
        (Kind::Mutating, &world.mutating, mutating(&options)),
        (Kind::Validating, &world.validating, validating(&options)),
    ];
    let policies = policies.into_iter().filter_map(|(kind, is, object)| {
        let is = is.as_ref().filter(|_| wanted.restore)?;
        fixed(kind, is.as_ref(), object)
    });
    let configurations = configurations
        .into_iter()
        .filter_map(|(kind, is, object)| configuration(kind, is.as_ref()?.as_ref(), object, &wanted));
    policies.chain(configurations).collect()
}

/// Policies and their bindings depend on nothing that is watched.
fn fixed(kind: Kind, is: Option<&Fixed>, object: Value) -> Option<Step> {
    let Some(is) = is else {
        return Some(Step::Create { kind, object });
    };
    let spec = object.get("spec")?;
    if same(&is.spec, spec) {
        return None;
    }
    let replace = json!({ "op": "replace", "path": "/spec", "value": spec });
    Some(patch(kind, &is.resource_version, vec![replace]))
}

fn configuration(kind: Kind, is: Option<&Configuration>, object: Value, wanted: &Wanted<'_>) -> Option<Step> {
    // An entry without the authorities refuses what it should review, one without the namespaces gates the wrong ones.
    let may_add = wanted.restore && wanted.bundle.is_some() && wanted.selector.is_some();
    let Some(is) = is else {
        return may_add.then_some(Step::Create { kind, object });
    };
    let entries = object.get("webhooks").and_then(Value::as_array)?;
    let mut operations = Vec::new();
    let mut missing = Vec::new();
    for entry in entries {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        match is.webhooks.iter().position(|(other, _)| other == name) {
            Some(index) => operations.extend(repair(is, index, entry, wanted)),
            None if may_add => missing.push(entry),
            None => {}
        }
    }
    if is.webhooks.is_empty() && !missing.is_empty() {
        // The list itself is gone with its last entry.
        operations.push(json!({ "op": "add", "path": "/webhooks", "value": missing }));
    } else {
        operations.extend(
            missing.iter().map(|entry| json!({ "op": "add", "path": "/webhooks/-", "value": entry })),
        );
    }
    // Apart from all else and after it: a selector that the API server refuses must not stop a rotation.
    if operations.is_empty() {
        operations.extend(gated_namespaces(is, wanted));
    }
    (!operations.is_empty()).then(|| patch(kind, &is.resource_version, operations))
}

/// What brings the entry at `index` to `entry`, but for the namespaces that are gated.
fn repair(is: &Configuration, index: usize, entry: &Value, wanted: &Wanted<'_>) -> Option<Value> {
    let (name, live) = is.webhooks.get(index)?;
    let mut entry = entry.clone();
    if name == names::WEBHOOK_GATER {
        replace(&mut entry, &NAMESPACES, live.pointer("/namespaceSelector"));
    }
    let live_bundle = live.pointer("/clientConfig/caBundle");
    if wanted.bundle.is_none() {
        // Nor is the path.
        replace(&mut entry, &CLIENT, live.pointer("/clientConfig"));
    }
    let unlike = !same(&without(live.clone(), &BUNDLE), &without(entry.clone(), &BUNDLE));
    if unlike && wanted.restore {
        return Some(json!({ "op": "replace", "path": format!("/webhooks/{index}"), "value": entry }));
    }
    let bundle = wanted.bundle.map(|bundle| json!(ByteString(bundle.to_vec())))?;
    (live_bundle != Some(&bundle)).then(|| {
        let path = format!("/webhooks/{index}/clientConfig/caBundle");
        json!({ "op": "add", "path": path, "value": bundle })
    })
}

/// Only the gate follows the `AAQ`; the other webhooks see all namespaces.
fn gated_namespaces(is: &Configuration, wanted: &Wanted<'_>) -> Option<Value> {
    let selector = json!(wanted.selector.as_ref()?);
    let index = is.webhooks.iter().position(|(name, _)| name == names::WEBHOOK_GATER)?;
    let (_, live) = is.webhooks.get(index)?;
    let live = live.pointer("/namespaceSelector").unwrap_or(&Value::Null);
    (!same(live, &selector)).then(|| {
        let path = format!("/webhooks/{index}/namespaceSelector");
        json!({ "op": "add", "path": path, "value": selector })
    })
}

fn replace(entry: &mut Value, path: &[&str], value: Option<&Value>) {
    *entry = without(std::mem::take(entry), path);
    let [parents @ .., last] = path else { return };
    let mut at = Some(entry);
    for name in parents {
        at = at.and_then(|value| value.get_mut(*name));
    }
    if let (Some(fields), Some(value)) = (at.and_then(Value::as_object_mut), value) {
        fields.insert((*last).to_owned(), value.clone());
    }
}

fn patch(kind: Kind, resource_version: &str, mut operations: Vec<Value>) -> Step {
    let unchanged = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": resource_version });
    operations.insert(0, unchanged);
    Step::Patch { kind, operations: Value::Array(operations) }
}
