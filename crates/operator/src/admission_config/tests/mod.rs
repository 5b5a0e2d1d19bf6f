//! The plan, and that its patches do what they say.

use k8s_openapi::ByteString;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_manifests::{AdmissionPolicy, InstallOptions, admission_policies, mutating, validating};
use tokio::time::Instant;

use super::observe::{Configuration, Fixed, Identity, Kind, World};
use super::plan::plan;
use super::step::Step;
use super::upkeep::Upkeep;
use super::{LIMITS, fought_over};
use crate::owner::Owner;
use crate::pace::Pace;

mod aks;
mod leaving;
mod owners;
mod paths;
mod policies;
mod versions;

#[test]
fn an_object_that_is_written_again_and_again_is_named_until_it_was_calm() {
    let (mut pace, now) = (Pace::default(), Instant::now());
    (0..LIMITS.free).for_each(|_| pace.wrote(&GATE, LIMITS, now));
    assert_eq!(fought_over(&pace, now), (Vec::new(), None), "a rotation, or another selector");
    pace.wrote(&GATE, LIMITS, now);
    let (told, over) = fought_over(&pace, now);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("MutatingAdmissionPolicy sluice-gate: another client"), "{told:?}");
    let over = over.expect("it ends");
    assert!(over - now <= LIMITS.longest + LIMITS.calm);
    assert_eq!(fought_over(&pace, over + Duration::from_secs(1)), (Vec::new(), None));
}

/// As it comes back from the API server.
fn through<T: DeserializeOwned + Serialize>(value: Value) -> Value {
    let typed: T = serde_json::from_value(value).expect("the type");
    serde_json::to_value(typed).expect("JSON")
}

/// The operator's ClusterRole.
fn role() -> OwnerReference {
    OwnerReference {
        api_version: "rbac.authorization.k8s.io/v1".to_owned(),
        kind: "ClusterRole".to_owned(),
        name: names::OPERATOR.to_owned(),
        uid: "role".to_owned(),
        ..OwnerReference::default()
    }
}

/// The version of this operator.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// Of an object that belongs to it.
fn identity(version: &str) -> Identity {
    let (resource_version, uid, owners) = (version.to_owned(), "object".to_owned(), vec![role()]);
    Identity {
        resource_version,
        uid,
        owners,
        is_labelled: true,
        writer: Some(OWN.to_owned()),
        last_written_by: None,
    }
}

fn configuration(version: &str, object: Value) -> Option<Option<Configuration>> {
    let entries = object["webhooks"].as_array().expect("webhooks").clone();
    let webhooks = entries
        .into_iter()
        .map(|entry| (entry["name"].as_str().expect("a name").to_owned(), entry))
        .collect();
    Some(Some(Configuration { identity: identity(version), webhooks }))
}

fn fixed(object: &Value) -> Option<Fixed> {
    Some(Fixed { identity: identity("3"), spec: object["spec"].clone() })
}

/// Policies and bindings as they come back from the API server.
fn policies(options: &InstallOptions) -> BTreeMap<Kind, Option<Fixed>> {
    let both = |each: AdmissionPolicy| {
        let (policy, binding) = if each.mutates {
            (
                through::<MutatingAdmissionPolicy>(each.policy.clone()),
                through::<MutatingAdmissionPolicyBinding>(each.binding.clone()),
            )
        } else {
            (
                through::<ValidatingAdmissionPolicy>(each.policy.clone()),
                through::<ValidatingAdmissionPolicyBinding>(each.binding.clone()),
            )
        };
        [(Kind::policy(&each), fixed(&policy)), (Kind::binding(&each), fixed(&binding))]
    };
    admission_policies(options).into_iter().flat_map(both).collect()
}

const LOCK: Kind = Kind::Policy { name: names::LOCK_POLICY, mutates: false };
const LOCK_BINDING: Kind = Kind::Binding { name: names::LOCK_POLICY, mutates: false };
const GATE: Kind = Kind::Policy { name: names::GATE_POLICY, mutates: true };
const GATED: Kind = Kind::Policy { name: names::GATED_POLICY, mutates: false };
const GATED_BINDING: Kind = Kind::Binding { name: names::GATED_POLICY, mutates: false };

fn spec_of(kind: Kind) -> Value {
    policies(&InstallOptions::default())[&kind].as_ref().expect("a policy").spec.clone()
}

/// The spec of a policy that was seen.
fn seen(world: &mut World, kind: Kind) -> &mut Value {
    &mut world.fixed.get_mut(&kind).expect("looked for").as_mut().expect("there").spec
}

/// All as it should be.
fn world() -> World {
    let options = InstallOptions {
        ca_bundle: Some("bundle".to_owned()),
        webhook_path: Some("secret".to_owned()),
        ..InstallOptions::default()
    };
    World {
        mutating: configuration("7", through::<MutatingWebhookConfiguration>(mutating(&options))),
        validating: configuration("9", through::<ValidatingWebhookConfiguration>(validating(&options))),
        fixed: policies(&options),
        bundle: Some(b"bundle".to_vec()),
        path: Some("secret".to_owned()),
        selector: Some(None),
        lets_in_targets_of: Some(None),
        owner: Owner::Known(role()),
        installed: true,
        upkeep: Upkeep::All,
    }
}

fn planned(world: &World) -> Vec<Step> {
    plan(world, &InstallOptions::default()).steps
}

/// The entries of a configuration that was seen.
fn entries(configuration: &mut Option<Option<Configuration>>) -> &mut Vec<(String, Value)> {
    &mut configuration.as_mut().expect("seen").as_mut().expect("there").webhooks
}

fn operations(step: &Step) -> (Kind, &Value) {
    match step {
        Step::Patch { kind, operations } => (*kind, operations),
        Step::Create { .. } | Step::Own { .. } => panic!("no patch: {step:?}"),
    }
}

fn selector(value: Value) -> LabelSelector {
    serde_json::from_value(value).expect("a selector")
}

fn version(version: &str) -> Value {
    json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })
}

#[test]
fn what_is_right_is_not_written() {
    assert_eq!(planned(&world()), []);
    let mut world = world();
    // As another client may have written it.
    entries(&mut world.mutating)[0].1["namespaceSelector"] = json!({
        "matchExpressions": [{ "key": names::TARGET_LABEL, "operator": "Exists", "values": [] }],
        "matchLabels": {},
    });
    let entry = entries(&mut world.validating)[0].1.as_object_mut().expect("an entry");
    entry.remove("objectSelector");
    assert_eq!(planned(&world), []);
}

#[test]
fn what_is_not_known_is_not_touched() {
    assert_eq!(planned(&World::default()), []);
    assert_eq!(planned(&World { installed: true, ..World::default() }), []);
    let mut world = world();
    for configuration in [&mut world.mutating, &mut world.validating] {
        for (_, entry) in entries(configuration) {
            entry["clientConfig"]["caBundle"] = json!("b3RoZXI=");
        }
    }
    entries(&mut world.mutating)[0].1["namespaceSelector"] = json!({ "matchLabels": { "other": "x" } });
    world.bundle = None;
    world.selector = None;
    assert_eq!(planned(&world), []);
    // Nor is anything added that would lack what is not known.
    world.mutating = Some(None);
    entries(&mut world.validating).truncate(1);
    assert_eq!(planned(&world), []);
}

#[test]
fn a_new_bundle_goes_to_each_of_our_webhooks_and_to_no_other() {
    let mut world = world();
    world.bundle = Some(b"two".to_vec());
    let theirs = json!({ "name": "policy.example.com", "clientConfig": { "url": "https://x" } });
    entries(&mut world.validating).insert(1, ("policy.example.com".to_owned(), theirs));
    let patches = planned(&world);
    assert_eq!(patches.len(), 2);
    let value = json!(ByteString(b"two".to_vec()));
    let add = |index: usize| {
        json!({
            "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": value,
        })
    };
    assert_eq!(operations(&patches[0]), (Kind::Mutating, &json!([version("7"), add(0), add(1)])));
    // The second is theirs.
    let ours = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(add);
    let all = json!([vec![version("9")], ours.to_vec()].concat());
    assert_eq!(operations(&patches[1]), (Kind::Validating, &all));
}

/// Carries out the steps of policies that exist and of webhooks, as the API server would.
fn carry_out(world: &mut World, steps: &[Step]) {
    for step in steps {
        let (kind, operations) = operations(step);
        let patch: json_patch::Patch =
            serde_json::from_value(operations.as_array().expect("operations")[1..].to_vec().into())
                .expect("a JSON patch");
        let mut object = match kind {
            Kind::Mutating => entries_of(&mut world.mutating),
            Kind::Validating => entries_of(&mut world.validating),
            kind => json!({ "spec": seen(world, kind) }),
        };
        json_patch::patch(&mut object, &patch).expect("it applies");
        match kind {
            Kind::Mutating => world.mutating = configuration("8", object),
            Kind::Validating => world.validating = configuration("8", object),
            kind => *seen(world, kind) = object["spec"].clone(),
        }
    }
}

fn entries_of(configuration: &mut Option<Option<Configuration>>) -> Value {
    json!({ "webhooks": entries(configuration).iter().map(|(_, entry)| entry).collect::<Vec<_>>() })
}

#[test]
fn the_patches_apply_to_the_version_they_were_planned_for() {
    let mut object = through::<MutatingWebhookConfiguration>(mutating(&InstallOptions::default()));
    object["metadata"]["resourceVersion"] = json!("7");
    let mut world = world();
    world.bundle = Some(b"two".to_vec());
    let patch = |world: &World| -> json_patch::Patch {
        serde_json::from_value(operations(&planned(world)[0]).1.clone()).expect("a JSON patch")
    };
    json_patch::patch(&mut object, &patch(&world)).expect("it applies");
    assert_eq!(object["webhooks"][0]["clientConfig"]["caBundle"], json!(ByteString(b"two".to_vec())));
    object["metadata"]["resourceVersion"] = json!("8");
    json_patch::patch(&mut object, &patch(&world)).expect_err("another version");
}

#[test]
fn the_bundle_does_not_wait_for_a_selector_that_may_be_refused() {
    let mut world = world();
    world.bundle = Some(b"two".to_vec());
    let wrong = json!({ "matchExpressions": [{ "key": "a", "operator": "Sometimes" }] });
    world.selector = Some(Some(selector(wrong)));
    // The API server refuses each attempt to narrow what `sluice-gated` holds for.
    let others = |world: &World| -> Vec<Step> {
        planned(world).into_iter().filter(|step| operations(step).0 != GATED).collect()
    };
    let first = others(&world);
    assert!(!first.is_empty() && !format!("{first:?}").contains("Sometimes"), "{first:?}");
    carry_out(&mut world, &first);
    assert_eq!(others(&world), []);
}

/// Each way to edit an entry so that it does something else.
#[test]
fn an_edited_entry_is_put_back_with_its_bundle_and_namespaces() {
    let edits: [(&str, Value); 8] = [
        ("/failurePolicy", json!("Fail")),
        ("/rules/0/operations/0", json!("UPDATE")),
        ("/clientConfig/service/name", json!("elsewhere")),
        ("/objectSelector/matchExpressions/0/key", json!("other")),
        ("/timeoutSeconds", json!(1)),
        ("/namespaceSelector", json!({ "matchLabels": { "only": "here" } })),
        ("/matchConditions", json!([{ "name": "never", "expression": "false" }])),
        ("/admissionReviewVersions", json!(["v1"])),
    ];
    for (path, value) in edits {
        let mut world = world();
        let mut all = entries(&mut world.validating).iter_mut();
        let (_, entry) = all.find(|(name, _)| name == WebhookEntry::HEADROOM.name).expect("an entry");
        let right = entry.clone();
        match entry.pointer_mut(path) {
            Some(at) => *at = value,
            None => entry[path.trim_start_matches('/')] = value,
        }
        let steps = planned(&world);
        let (kind, operations) = operations(&steps[0]);
        assert_eq!((steps.len(), kind, operations.as_array().map(Vec::len)), (1, Kind::Validating, Some(2)));
        assert_eq!(
            (&operations[1]["op"], &operations[1]["path"]),
            (&json!("replace"), &json!("/webhooks/9"))
        );
        let typed = |entry: &Value| {
            through::<k8s_openapi::api::admissionregistration::v1::ValidatingWebhook>(entry.clone())
        };
        assert_eq!(typed(&operations[1]["value"]), typed(&right), "{path}");
    }
}

#[test]
fn an_edited_gate_keeps_the_namespaces_it_had_until_they_are_known() {
    let mut world = world();
    world.selector = None;
    let live = json!({ "matchLabels": { "team": "a" } });
    let gater = &mut entries(&mut world.mutating)[0].1;
    gater["namespaceSelector"] = live.clone();
    gater["failurePolicy"] = json!("Ignore");
    let steps = planned(&world);
    let value = &operations(&steps[0]).1[1]["value"];
    assert_eq!((&value["namespaceSelector"], &value["failurePolicy"]), (&live, &json!("Fail")));
}

#[test]
fn a_missing_entry_is_appended_and_a_missing_list_made() {
    let mut world = world();
    let (removed, _) = entries(&mut world.validating).remove(2);
    let steps = planned(&world);
    let add = &operations(&steps[0]).1[1];
    assert_eq!((&add["op"], &add["path"]), (&json!("add"), &json!("/webhooks/-")));
    assert_eq!(add["value"]["name"], json!(removed));
    assert_eq!(add["value"]["clientConfig"]["caBundle"], json!(ByteString(b"bundle".to_vec())));

    entries(&mut world.validating).clear();
    let steps = planned(&world);
    let add = &operations(&steps[0]).1[1];
    assert_eq!((&add["path"], add["value"].as_array().map(Vec::len)), (&json!("/webhooks"), Some(11)));
}

#[test]
fn what_is_gone_is_created_with_all_that_is_known() {
    let chosen = selector(json!({ "matchLabels": { "team": "a" } }));
    let gone = policies(&InstallOptions::default()).into_keys().map(|kind| (kind, None)).collect();
    let world = World {
        mutating: Some(None),
        validating: Some(None),
        fixed: gone,
        selector: Some(Some(chosen.clone())),
        ..world()
    };
    let created: BTreeMap<Kind, Value> = planned(&world)
        .into_iter()
        .map(|step| match step {
            Step::Create { kind, object } => (kind, object),
            Step::Patch { .. } | Step::Own { .. } => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(created.len(), 24, "all but what has to come last: {:?}", created.keys());
    assert_eq!(created[&GATE]["kind"], "MutatingAdmissionPolicy");
    assert_eq!(created[&GATE]["spec"]["matchConstraints"]["namespaceSelector"], json!(chosen));
    assert!(!created.contains_key(&GATED) && !created.contains_key(&GATED_BINDING));
    let hook = &created[&Kind::Mutating]["webhooks"][0];
    assert_eq!(hook["namespaceSelector"], json!(chosen));
    assert_eq!(hook["clientConfig"]["caBundle"], json!(ByteString(b"bundle".to_vec())));
    for object in created.values() {
        assert_eq!(object["metadata"]["ownerReferences"], json!([role()]), "{object}");
    }
}

#[test]
fn nothing_is_put_back_into_an_installation_that_is_being_removed() {
    let mut world = world();
    world.installed = false;
    world.fixed.insert(LOCK, None);
    world.fixed.insert(GATE, None);
    world.mutating = Some(None);
    entries(&mut world.validating).truncate(3);
    entries(&mut world.validating)[0].1["failurePolicy"] = json!("Ignore");
    assert_eq!(planned(&world), []);
    // What is left still follows the authority.
    world.bundle = Some(b"two".to_vec());
    assert_eq!(operations(&planned(&world)[0]).1.as_array().map(Vec::len), Some(4));
}
