//! The plan, and that its patches do what they say.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_index::wire::AaqWire;
use sluice_operator::default_namespace_selector;

use super::observe::{Configuration, Kind, Webhook, World, chosen};
use super::plan::plan;

fn webhook(name: &str) -> Webhook {
    Webhook { name: name.to_owned(), ca_bundle: b"bundle".to_vec(), namespace_selector: None }
}

/// All as it should be.
fn world() -> World {
    let mut gater = webhook(names::WEBHOOK_GATER);
    gater.namespace_selector = Some(default_namespace_selector());
    let validating =
        [names::WEBHOOK_QUOTA, names::WEBHOOK_GATE_GUARD, names::WEBHOOK_AAQ, names::WEBHOOK_POD_IDENTITY];
    World {
        mutating: Some(Configuration {
            kind: Kind::Mutating,
            resource_version: "7".to_owned(),
            webhooks: vec![gater],
        }),
        validating: Some(Configuration {
            kind: Kind::Validating,
            resource_version: "9".to_owned(),
            webhooks: validating.map(webhook).to_vec(),
        }),
        bundle: Some(b"bundle".to_vec()),
        selector: Some(None),
    }
}

fn selector(value: Value) -> LabelSelector {
    serde_json::from_value(value).expect("a selector")
}

#[test]
fn what_is_right_is_not_written() {
    assert_eq!(plan(&world()), []);
    let mut world = world();
    let webhooks = &mut world.mutating.as_mut().expect("seen").webhooks;
    // As the API server gives it back.
    webhooks[0].namespace_selector = Some(selector(json!({
        "matchExpressions": [{ "key": names::TARGET_LABEL, "operator": "Exists", "values": [] }],
        "matchLabels": {},
    })));
    assert_eq!(plan(&world), []);
}

#[test]
fn what_is_not_known_is_not_touched() {
    assert_eq!(plan(&World::default()), []);
    let mut world = world();
    for configuration in [&mut world.mutating, &mut world.validating] {
        for webhook in &mut configuration.as_mut().expect("seen").webhooks {
            webhook.ca_bundle.clear();
            webhook.namespace_selector = Some(selector(json!({ "matchLabels": { "other": "x" } })));
        }
    }
    world.bundle = None;
    world.selector = None;
    assert_eq!(plan(&world), []);
}

#[test]
fn a_new_bundle_goes_to_each_of_our_webhooks_and_to_no_other() {
    let mut world = world();
    world.bundle = Some(b"two".to_vec());
    world.validating.as_mut().expect("seen").webhooks.insert(1, webhook("somebody.else"));
    let patches = plan(&world);
    assert_eq!(patches.len(), 2);
    let value = json!(ByteString(b"two".to_vec()));
    let add = |index: usize| json!({ "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": value });
    let test = |version: &str| json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version });
    assert_eq!(patches[0].operations, json!([test("7"), add(0)]));
    assert_eq!(patches[1].operations, json!([test("9"), add(0), add(2), add(3), add(4)]));
}

#[test]
fn the_gate_follows_the_aaq_and_the_others_do_not() {
    let mut world = world();
    let wanted = selector(json!({ "matchLabels": { "team": "a" } }));
    world.selector = Some(Some(wanted.clone()));
    let patches = plan(&world);
    assert_eq!(patches.len(), 1, "{patches:?}");
    assert_eq!(patches[0].kind, Kind::Mutating);
    assert_eq!(
        patches[0].operations[1],
        json!({ "op": "add", "path": "/webhooks/0/namespaceSelector", "value": wanted })
    );
    // Every namespace.
    world.selector = Some(Some(LabelSelector::default()));
    assert_eq!(plan(&world)[0].operations[1]["value"], json!({}));
}

#[test]
fn the_patches_apply_to_the_version_they_were_planned_for() {
    let mut object = json!({
        "metadata": { "resourceVersion": "7" },
        "webhooks": [{ "name": names::WEBHOOK_GATER, "clientConfig": {} }],
    });
    let mut world = world();
    world.bundle = Some(b"two".to_vec());
    let patch = |world: &World| -> json_patch::Patch {
        serde_json::from_value(plan(world)[0].operations.clone()).expect("a JSON patch")
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
    let first = plan(&world);
    assert!(!first[0].operations.to_string().contains("namespaceSelector"), "{first:?}");
    for configuration in [&mut world.mutating, &mut world.validating] {
        for webhook in &mut configuration.as_mut().expect("seen").webhooks {
            webhook.ca_bundle = b"two".to_vec();
        }
    }
    let then = plan(&world);
    assert!(then[0].operations.to_string().contains("namespaceSelector"), "{then:?}");
}

#[test]
fn the_oldest_aaq_counts() {
    let aaq = |name: &str, created: &str, team: &str| -> AaqWire {
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "namespaceSelector": { "matchLabels": { "team": team } } },
        }))
        .expect("an AAQ")
    };
    assert_eq!(chosen([].iter()), None);
    let aaqs = [aaq("a", "2026-01-02T00:00:00Z", "new"), aaq("b", "2026-01-01T00:00:00Z", "old")];
    assert_eq!(chosen(aaqs.iter()), Some(selector(json!({ "matchLabels": { "team": "old" } }))));
}
