#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::ManagedStatus;
use sluice_index::{ArqWire, Key, ResourceQuotaRecord, ResourceQuotaWire};
use sluice_runtime::request::Answer;

use super::existing::Existing;
use super::kind::ManagedKind;
use super::plan::{Case, Plan, Write};
use super::state::State;
use super::wishes::{Wish, Wishes};

mod cluster;

const UID: &str = "11111111-1111-1111-1111-111111111111";

fn key() -> Key {
    Key { namespace: "team".into(), name: "q".into() }
}

fn arq(generation: i64, spec: Value) -> ArqWire {
    let metadata = json!({ "name": "q", "namespace": "team", "uid": UID, "generation": generation });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// What is kept of a quota with this specification.
fn wants(spec: Value) -> Option<Wish> {
    let mut arqs = Wishes::default();
    arqs.upsert(&key(), &arq(1, spec));
    arqs.get(&key()).cloned()
}

fn hard(keys: &[(&str, &str)]) -> Value {
    let hard: serde_json::Map<_, _> =
        keys.iter().map(|(key, amount)| ((*key).to_owned(), json!(amount))).collect();
    json!({ "hard": hard })
}

/// The managed quota that there is, changed by a merge patch.
fn existing(spec: Value, change: Value) -> Existing {
    let mut quota = json!({
        "metadata": {
            "name": names::managed_quota("q"), "namespace": "team", "resourceVersion": "7",
            "uid": "22222222-2222-2222-2222-222222222222",
            "labels": { names::MANAGED_LABEL: "true" },
            "ownerReferences": [{ "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
                "name": "q", "uid": UID, "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": spec,
        "status": {},
    });
    json_patch::merge(&mut quota, &change);
    read(quota)
}

fn read(quota: Value) -> Existing {
    let wire = serde_json::from_value::<ResourceQuotaWire>(quota).unwrap();
    Existing::from(Arc::new(ResourceQuotaRecord::read(&wire)))
}

fn case<'c>(key: &'c Key, wish: Option<&'c Wish>, existing: Option<&'c Existing>) -> Case<'c> {
    Case { kind: ManagedKind::ResourceQuota, key, wish, existing, is_served: Some(true) }
}

fn plan(key: &Key, wish: Option<&Wish>, existing: Option<&Existing>) -> Plan {
    case(key, wish, existing).plan()
}

fn status(
    key: &Key,
    wish: Option<&Wish>,
    existing: Option<&Existing>,
    refusal: Option<&str>,
) -> Option<ManagedStatus> {
    case(key, wish, existing).status(refusal)
}

fn created(arq: &Wish) -> Value {
    match plan(&key(), Some(arq), None) {
        Plan::Write(Write::Create(object)) => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_created_has_the_keys_the_scopes_and_the_owner_and_needs_no_repair() {
    let mut spec = json!({
        "hard": { "pods": "2", "cpu/vmi": "1", "persistentvolumeclaims": "3", "requests.storage": "1Gi" },
        "scopes": ["VolumeAttributesClass"],
        "scopeSelector": { "matchExpressions": [
            { "scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"] }] },
    });
    assert_eq!(wants(spec.clone()).unwrap().limits, None, "core refuses pods with this scope");
    spec["hard"] = json!({ "persistentvolumeclaims": "3", "cpu/vmi": "1", "requests.storage": "1Gi" });
    let arq = wants(spec.clone()).unwrap();
    let object = created(&arq);
    spec["hard"] = json!({ "persistentvolumeclaims": "3", "requests.storage": "1Gi" });
    assert_eq!(object["spec"], spec);
    assert_eq!(object["metadata"]["name"], "q-non-schedulable-resources-managed-rq-x");
    let quota = read(object);
    assert_eq!(plan(&key(), Some(&arq), Some(&quota)), Plan::Leave);
}

#[rstest]
#[case::limit(json!({ "spec": { "hard": { "services": "9" } } }))]
#[case::missing(json!({ "spec": { "hard": { "services": null } } }))]
#[case::more(json!({ "spec": { "hard": { "secrets": "0" } } }))]
#[case::unreadable(json!({ "spec": { "hard": { "services": "1e99" } } }))]
#[case::label_gone(json!({ "metadata": { "labels": null } }))]
#[case::label_value(json!({ "metadata": { "labels": { names::MANAGED_LABEL: "no" } } }))]
#[case::owner_gone(json!({ "metadata": { "ownerReferences": null } }))]
#[case::other_uid(json!({ "metadata": { "ownerReferences": [{ "apiVersion": names::API_VERSION, "name": "q",
    "kind": "ApplicationAwareResourceQuota", "uid": "x", "controller": true, "blockOwnerDeletion": true }] } }))]
#[case::does_not_block(json!({ "metadata": { "ownerReferences": [{ "apiVersion": names::API_VERSION, "name": "q",
    "kind": "ApplicationAwareResourceQuota", "uid": UID, "controller": true }] } }))]
fn what_differs_is_repaired_by_a_patch_that_names_the_object(#[case] change: Value) {
    let spec = hard(&[("services", "2"), ("pods", "1")]);
    let wanted = wants(spec).unwrap();
    let quota = existing(hard(&[("services", "2")]), change);
    let Plan::Write(Write::Update(patch)) = plan(&key(), Some(&wanted), Some(&quota)) else { panic!() };
    assert_eq!(patch["metadata"]["uid"], "22222222-2222-2222-2222-222222222222");
    let mut fixed = json!({ "metadata": { "name": names::managed_quota("q"), "namespace": "team" },
        "spec": { "hard": quota.quota.raw().spec_hard }, "status": {} });
    json_patch::merge(&mut fixed, &patch);
    let fixed = read(fixed);
    assert_eq!(plan(&key(), Some(&wanted), Some(&fixed)), Plan::Leave);
}

#[test]
fn other_scopes_are_a_reason_to_replace_it() {
    let wanted = wants(hard(&[("services", "2")])).unwrap();
    let quota = existing(hard(&[("services", "2")]), json!({ "spec": { "scopes": ["BestEffort"] } }));
    let delete = Plan::Write(Write::Delete(quota.quota.uid.clone()));
    assert_eq!(plan(&key(), Some(&wanted), Some(&quota)), delete);
    let used = existing(
        hard(&[("services", "2")]),
        json!({ "spec": { "scopes": ["BestEffort"] }, "status": { "used": { "services": "0" } } }),
    );
    let now = status(&key(), Some(&wanted), Some(&used), None).unwrap();
    assert_eq!(now, ManagedStatus::default(), "nothing is taken over from it");
}

#[test]
fn it_goes_with_the_keys_and_with_the_quota_but_only_if_it_is_ours() {
    let limits = || hard(&[("services", "2")]);
    let quota = existing(limits(), json!({}));
    assert_eq!(plan(&key(), None, Some(&quota)), Plan::Write(Write::Delete(quota.quota.uid.clone())));
    let by_label = existing(limits(), json!({ "metadata": { "ownerReferences": null } }));
    assert_eq!(plan(&key(), None, Some(&by_label)), Plan::Write(Write::Delete(by_label.quota.uid.clone())));
    let leaving = existing(limits(), json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    let wanted = wants(limits());
    for arq in [None, wanted.as_ref()] {
        assert_eq!(plan(&key(), arq, Some(&leaving)), Plan::Leave);
    }
    for foreign in [
        json!({ "metadata": { "ownerReferences": null, "labels": null } }),
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "q",
            "uid": "x", "controller": true }] } }),
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": names::API_VERSION, "name": "other",
            "kind": "ApplicationAwareResourceQuota", "uid": "x", "controller": true }] } }),
    ] {
        let foreign = existing(limits(), foreign);
        assert_eq!(plan(&key(), None, Some(&foreign)), Plan::Leave);
        assert_eq!(plan(&key(), wanted.as_ref(), Some(&foreign)), Plan::Foreign);
        let told = status(&key(), wanted.as_ref(), Some(&foreign), None).unwrap();
        assert!(told.used.is_empty() && told.trouble.unwrap().contains("is not Sluice's"));
    }
    // The garbage collector deletes it: to create it again would be a fight.
    let mut deleting = arq(1, limits());
    deleting.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let mut arqs = Wishes::default();
    arqs.upsert(&key(), &deleting);
    assert_eq!(plan(&key(), arqs.get(&key()), None), Plan::Leave);
    assert_eq!(plan(&key(), arqs.get(&key()), Some(&quota)), Plan::Leave);
    // A specification that cannot be read says nothing about what there is.
    let unreadable = wants(hard(&[("services", "x")])).unwrap();
    assert_eq!(plan(&key(), Some(&unreadable), Some(&quota)), Plan::Leave);
    assert_eq!(status(&key(), Some(&unreadable), Some(&quota), None), None);
}

#[test]
fn usage_is_what_the_managed_quota_says_and_never_made_up() {
    let wanted = wants(hard(&[("services", "5"), ("secrets", "5"), ("pods", "1")]));
    let used = |change: Value| {
        let quota = existing(hard(&[("services", "5"), ("secrets", "5")]), json!({ "status": change }));
        let status = status(&key(), wanted.as_ref(), Some(&quota), None).unwrap();
        let used = status.used.iter().map(|(key, amount)| format!("{key}={amount}")).collect::<Vec<_>>();
        (used, status.trouble)
    };
    assert_eq!(status(&key(), wanted.as_ref(), None, None), Some(ManagedStatus::default()));
    assert_eq!(used(json!({})), (vec![], None), "not counted yet");
    let before =
        json!({ "hard": { "services": "2", "pods": "1" }, "used": { "services": "3", "pods": "0" } });
    assert_eq!(used(before), (vec!["services=3".to_owned()], None), "of other limits, and true");
    let all =
        json!({ "hard": { "services": "5", "secrets": "5" }, "used": { "services": "3", "secrets": "0" } });
    assert_eq!(used(all).0, ["secrets=0", "services=3"]);
    let (some, told) =
        used(json!({ "hard": { "services": "5", "secrets": "5" }, "used": { "services": "3" } }));
    assert_eq!(some, ["services=3"]);
    assert!(told.unwrap().contains("secrets: Kubernetes counts no such objects"));
}

#[test]
fn a_name_without_room_for_the_suffix_is_told_of() {
    let long = Key { namespace: "team".into(), name: "n".repeat(names::MAX_NAME_OF_MANAGED + 1).into() };
    let wanted = wants(hard(&[("services", "5")]));
    assert_eq!(plan(&long, wanted.as_ref(), None), Plan::NameTooLong);
    let told = status(&long, wanted.as_ref(), None, None).unwrap().trouble.unwrap();
    assert!(told.contains("at most 214 characters"), "{told}");
    let fits = Key { name: "n".repeat(names::MAX_NAME_OF_MANAGED).into(), ..long };
    assert!(matches!(plan(&fits, wanted.as_ref(), None), Plan::Write(Write::Create(_))));
    assert_eq!(names::managed_quota(&fits.name).len(), 253);
}

#[test]
fn a_list_forgets_what_was_not_in_it_and_the_same_generation_is_not_read_again() {
    let mut arqs = Wishes::default();
    assert!(arqs.upsert(&key(), &arq(1, hard(&[("services", "5")]))));
    assert!(!arqs.upsert(&key(), &arq(1, hard(&[("services", "6")]))), "the API server counts generations");
    assert!(arqs.upsert(&key(), &arq(2, hard(&[("services", "6")]))));
    assert!(!arqs.upsert(&key(), &arq(3, hard(&[("services", "6"), ("pods", "1")]))), "of no concern");
    arqs.begin_list();
    assert!(!arqs.upsert(&key(), &arq(3, hard(&[("services", "6"), ("pods", "1")]))));
    assert_eq!(arqs.end_list(), []);
    arqs.begin_list();
    assert_eq!(arqs.end_list(), [key()]);
    assert!(!arqs.remove(&key()));
    assert!(arqs.upsert(&key(), &arq(4, hard(&[("services", "6")]))));
    assert!(arqs.upsert(&key(), &arq(5, hard(&[("pods", "6")]))), "it wants none any more");
    assert_eq!(arqs.get(&key()), None);
}

/// Decides at this moment on all that is due.
fn decided(state: &mut State, quota: Option<&Existing>, now: u64) -> Option<Write> {
    let mut writes = Vec::new();
    while let Some(key) = state.next(now) {
        writes.extend(state.decide(&key, quota, now));
    }
    assert!(writes.len() <= 1, "{writes:?}");
    writes.pop()
}

#[test]
fn one_write_at_a_time_and_ever_fewer_until_the_quota_wants_something_else() {
    let mut state = State::new(ManagedKind::ResourceQuota, 1);
    state.upsert(&key(), &arq(1, hard(&[("services", "5")])));
    let mut now = 0;
    assert!(decided(&mut state, None, now).is_some());
    state.touch(&key());
    assert_eq!(decided(&mut state, None, now), None, "one is in flight");
    let mut waits = Vec::new();
    for _ in 0..14 {
        state.answered(&key(), Answer::Refused("no".to_owned()), now);
        assert_eq!(decided(&mut state, None, now), None);
        let due = state.next_due_ms().unwrap();
        waits.push(due - now);
        assert_eq!(decided(&mut state, None, due - 1), None);
        assert!(decided(&mut state, None, due).is_some());
        now = due;
    }
    assert!(
        waits[0] <= 200 && waits[4] >= 1_600 && waits[13] >= 150_000 && waits[13] <= 300_000,
        "{waits:?}"
    );
    state.answered(&key(), Answer::Refused("no room".to_owned()), now);
    let told = state.news(&key(), None).unwrap().unwrap().trouble.unwrap();
    assert!(told.contains("cannot be written: no room"), "{told}");
    assert_eq!(state.news(&key(), None), None, "told once");
    state.upsert(&key(), &arq(2, hard(&[("services", "6")])));
    assert_eq!(state.news(&key(), None), Some(Some(ManagedStatus::default())), "the refusal was of another");
    assert!(decided(&mut state, None, now).is_some(), "at once");
    state.answered(&key(), Answer::Done(()), now);
    let quota = existing(hard(&[("services", "6")]), json!({}));
    assert_eq!(decided(&mut state, Some(&quota), now + 200), None);
    assert_eq!(state.next_due_ms(), None, "nothing is left to be done");
    // It is gone: the managed one is deleted, and nothing is remembered.
    assert!(state.remove(&key()));
    assert!(matches!(decided(&mut state, Some(&quota), now + 200), Some(Write::Delete(_))));
    state.answered(&key(), Answer::Done(()), now + 200);
    assert_eq!(decided(&mut state, None, now + 1_000), None);
}
