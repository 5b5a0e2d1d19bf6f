//! From what is to what should be: JSON patches, and objects to create.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::{Endpoint, FORMER_ENTRIES, WebhookEntry};
use sluice_manifests::{InstallOptions, default_namespace_selector, mutating, validating};

use super::aks;
use super::observe::{Configuration, Kind, World};
use super::ownership;
use super::policies::{self, Selectors};
use super::step::{Step, patch};
use super::upkeep::Upkeep;
use crate::compare::{same, without};
use crate::owner::Owner;
use crate::version::Version;

/// Where an entry has the authorities.
const BUNDLE: [&str; 2] = ["clientConfig", "caBundle"];
/// Where an entry has the authorities and the path.
const CLIENT: [&str; 1] = ["clientConfig"];
/// Where an entry has its namespaces.
const NAMESPACES: [&str; 1] = ["namespaceSelector"];
/// Where an entry says for which requests it is called.
const CONDITIONS: [&str; 1] = ["matchConditions"];

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// In this order.
    pub(super) steps: Vec<Step>,
    /// Why objects that are missing are not created; `None` if nothing is left out for that reason.
    pub(super) withheld: Option<String>,
    /// What a newer operator has written, and is left; `None` if there is nothing.
    pub(super) left: Option<String>,
}

/// What is known and counts for every entry.
struct Wanted<'a> {
    bundle: Option<&'a [u8]>,
    /// It is known under which path the webhook answers.
    knows_path: bool,
    selector: Option<LabelSelector>,
    /// Another selector than the one in force may be written.
    may_select: bool,
    /// It is known whether there are targets that need no gate.
    knows_targets: bool,
    /// What is there is put right.
    restore: bool,
    /// And what is missing is made.
    make: bool,
}

/// The writes that are needed. What is not known is not touched.
///
/// Of what a newer operator has written only the authorities and the namespaces are kept up to date: they belong to the
/// cluster and not to a version.
///
/// An object is only created with an owner. Without one it would outlive the installation, and refuse pods that no webhook
/// reviews any more.
pub(super) fn plan(world: &World, options: &InstallOptions) -> Plan {
    let (mut steps, mut withheld) = (Vec::new(), Vec::new());
    let version = Version::of(options);
    for mut step in contents(world, options, version) {
        if let Step::Create { kind, object } = &mut step {
            let Owner::Known(owner) = &world.owner else {
                withheld.push(kind.name());
                continue;
            };
            ownership::give(object, owner, version);
        }
        steps.push(step);
    }
    withheld.dedup();
    let missing = world.owner.missing().filter(|_| !withheld.is_empty());
    let withheld = missing.map(|missing| {
        let names = withheld.join(", ");
        format!("not created: {names}: {missing}, with which they have to go: apply the manifest or the chart again")
    });
    // Last: they need no version, and other patches do.
    steps.extend(ownership::plan(world, version));
    Plan { steps, withheld, left: left(world, version) }
}

/// The objects that a newer operator has written, in a sentence.
fn left(world: &World, version: Version<'_>) -> Option<String> {
    let newer = world.identities().filter(|(_, is)| version.leaves(is.writer.as_deref()));
    let named = newer.map(|(kind, is)| {
        let writer = is.writer.as_deref().unwrap_or_default();
        format!("{} {} of {writer}", kind.resource().kind, kind.name())
    });
    version.left(&named.collect::<Vec<_>>())
}

/// The writes that bring the contents of all objects to what they should be. What is created has no owner yet.
fn contents(world: &World, options: &InstallOptions, version: Version<'_>) -> Vec<Step> {
    let selector = world.selector.clone().map(|chosen| chosen.unwrap_or_else(default_namespace_selector));
    let selectors = Selectors::of(world, selector.as_ref());
    let wanted = Wanted {
        bundle: world.bundle.as_deref(),
        knows_path: world.path.is_some(),
        selector,
        may_select: selectors.may_gate_others(),
        knows_targets: world.lets_in_targets_of.is_some(),
        restore: world.installed && world.upkeep >= Upkeep::Existing,
        make: world.installed && world.upkeep == Upkeep::All,
    };
    let mut options = options.clone();
    options.webhook_path.clone_from(&world.path);
    options.lets_in_targets_of = world.lets_in_targets_of.clone().flatten();
    options.ca_bundle = wanted.bundle.map(|bundle| String::from_utf8_lossy(bundle).into_owned());
    if let Some(selector) = &wanted.selector {
        options.namespace_selector.clone_from(selector);
    }
    let configurations = [
        (Kind::Mutating, &world.mutating, mutating(&options)),
        (Kind::Validating, &world.validating, validating(&options)),
    ];
    let configurations = configurations.into_iter().filter_map(|(kind, is, object)| {
        configuration(kind, is.as_ref()?.as_ref(), object, &wanted, version)
    });
    policies::plan(world, &options, &selectors, version).into_iter().chain(configurations).collect()
}

fn configuration(
    kind: Kind,
    is: Option<&Configuration>,
    object: Value,
    wanted: &Wanted<'_>,
    version: Version<'_>,
) -> Option<Step> {
    // An entry without the authorities or the path refuses what it should review, one without the namespaces gates the wrong
    // ones.
    let may_add = wanted.make && wanted.bundle.is_some() && wanted.knows_path && wanted.selector.is_some();
    let Some(is) = is else {
        return may_add.then_some(Step::Create { kind, object });
    };
    let is_left = version.leaves(is.identity.writer.as_deref());
    let (may_add, may_restore) = (may_add && !is_left, wanted.restore && !is_left);
    let entries = object.get("webhooks").and_then(Value::as_array)?;
    let mut operations = Vec::new();
    let mut missing = Vec::new();
    for entry in entries {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        match is.webhooks.iter().position(|(other, _)| other == name) {
            Some(index) => operations.extend(repair(is, index, entry, wanted, may_restore)),
            None if may_add => missing.push(entry),
            None => {}
        }
    }
    if !is_left {
        operations.extend(without_former(is));
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
    if operations.is_empty() && wanted.may_select {
        operations.extend(gated_namespaces(is, wanted));
    }
    (!operations.is_empty()).then(|| patch(kind, &is.identity.resource_version, operations))
}

/// What takes out the entries of former versions: API servers would call a path that nothing serves. The last goes first, so
/// that the places of the others stay.
fn without_former(is: &Configuration) -> impl Iterator<Item = Value> {
    let places = is.webhooks.iter().enumerate().rev();
    let former = places.filter(|(_, (name, _))| FORMER_ENTRIES.contains(&name.as_str()));
    former.flat_map(|(index, (name, _))| {
        let path = format!("/webhooks/{index}");
        [
            json!({ "op": "test", "path": format!("{path}/name"), "value": name }),
            json!({ "op": "remove", "path": path }),
        ]
    })
}

/// What brings the entry at `index` to `entry`, but for the namespaces that are gated; if that may not be done, to the
/// authorities.
fn repair(
    is: &Configuration,
    index: usize,
    entry: &Value,
    wanted: &Wanted<'_>,
    may_restore: bool,
) -> Option<Value> {
    let (name, live) = is.webhooks.get(index)?;
    let mut entry = entry.clone();
    let live_namespaces = live.pointer("/namespaceSelector").unwrap_or(&Value::Null);
    let mut compared = live.clone();
    if follows_selector(name) {
        replace(&mut entry, &NAMESPACES, live.pointer("/namespaceSelector"));
    } else if let Some(all) = entry.get("namespaceSelector").cloned() {
        replace(&mut compared, &NAMESPACES, Some(&aks::without_added(&all, live_namespaces)));
    }
    if name == WebhookEntry::GATER.name && !wanted.knows_targets {
        replace(&mut entry, &CONDITIONS, live.pointer("/matchConditions"));
    }
    let live_bundle = live.pointer("/clientConfig/caBundle");
    let bundle = wanted.bundle.map(|bundle| json!(ByteString(bundle.to_vec())));
    if bundle.is_none() || !wanted.knows_path {
        // One is never written without the other. The authorities may be others all the same.
        replace(&mut entry, &CLIENT, live.pointer("/clientConfig"));
        if bundle.is_some() {
            replace(&mut entry, &BUNDLE, bundle.as_ref());
        }
    }
    let unlike = !same(&without(compared, &BUNDLE), &without(entry.clone(), &BUNDLE));
    if unlike && may_restore {
        if let Some(namespaces) = entry.get("namespaceSelector").cloned() {
            replace(&mut entry, &NAMESPACES, Some(&aks::with_added(&namespaces, live_namespaces)));
        }
        return Some(json!({ "op": "replace", "path": format!("/webhooks/{index}"), "value": entry }));
    }
    let bundle = bundle?;
    (live_bundle != Some(&bundle)).then(|| {
        let path = format!("/webhooks/{index}/clientConfig/caBundle");
        json!({ "op": "add", "path": path, "value": bundle })
    })
}

/// The entries of targeted namespaces whose selector is another one.
fn gated_namespaces(is: &Configuration, wanted: &Wanted<'_>) -> Vec<Value> {
    let Some(selector) = wanted.selector.as_ref().map(|selector| json!(selector)) else {
        return Vec::new();
    };
    let differs = is
        .webhooks
        .iter()
        .enumerate()
        .filter(|(_, (name, live))| follows_selector(name) && !aks::is_selected(live, &selector));
    let replaced = differs.map(|(index, (_, live))| {
        let path = format!("/webhooks/{index}/namespaceSelector");
        let live = live.pointer("/namespaceSelector").unwrap_or(&Value::Null);
        json!({ "op": "add", "path": path, "value": aks::with_added(&selector, live) })
    });
    replaced.collect()
}

/// Whether the entry follows the selector of the `AAQ`; the others see all namespaces.
fn follows_selector(name: &str) -> bool {
    let mut webhooks = Endpoint::ALL.iter().flat_map(|endpoint| endpoint.webhooks());
    webhooks.any(|webhook| webhook.selected_namespaces && webhook.name == name)
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
