//! The managed ClusterResourceQuota of a cluster quota.

use sluice_engine::Quantity;
use sluice_index::{AcrqWire, ClusterResourceQuotas, Watched as _};

use super::*;

const KIND: ManagedKind = ManagedKind::ClusterResourceQuota;

fn name() -> Key {
    Key { namespace: "".into(), name: "q".into() }
}

fn selector() -> Value {
    json!({ "labels": { "matchLabels": { "team": "a" } }, "annotations": null })
}

fn acrq(generation: i64, quota: Value, selector: Value) -> AcrqWire {
    serde_json::from_value(json!({
        "metadata": { "name": "q", "uid": UID, "generation": generation },
        "spec": { "quota": quota, "selector": selector },
    }))
    .unwrap()
}

fn wish(quota: Value, selector: Value) -> Option<Wish> {
    let mut wishes = Wishes::default();
    wishes.upsert(&name(), &acrq(1, quota, selector));
    wishes.get(&name()).cloned()
}

fn observed(object: Value) -> Existing {
    let mut quotas = ClusterResourceQuotas::default();
    quotas.upsert(&serde_json::from_value(object).unwrap());
    quotas.record(&names::managed_cluster_quota("q")).cloned().unwrap().into()
}

/// The managed one that there is, changed by a merge patch.
fn managed(change: Value) -> Existing {
    let mut object = json!({
        "metadata": {
            "name": names::managed_cluster_quota("q"), "resourceVersion": "7",
            "uid": "22222222-2222-2222-2222-222222222222",
            "labels": { names::MANAGED_LABEL: "true" },
            "ownerReferences": [{ "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
                "name": "q", "uid": UID, "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": { "quota": hard(&[("services", "5")]), "selector": selector() },
        "status": { "total": {} },
    });
    json_patch::merge(&mut object, &change);
    observed(object)
}

fn case_of<'c>(wish: Option<&'c Wish>, existing: Option<&'c Existing>, is_served: Option<bool>) -> Case<'c> {
    static KEY: std::sync::LazyLock<Key> = std::sync::LazyLock::new(name);
    Case { kind: KIND, key: &KEY, wish, existing, is_served }
}

#[test]
fn what_is_created_is_a_cluster_quota_with_keys_scopes_selector_and_owner() {
    let mut quota = json!({
        "hard": { "persistentvolumeclaims": "3", "cpu/vmi": "1" },
        "scopes": ["VolumeAttributesClass"],
    });
    let wanted = wish(quota.clone(), selector()).unwrap();
    let Plan::Write(Write::Create(object)) = case_of(Some(&wanted), None, Some(true)).plan() else {
        panic!()
    };
    quota["hard"] = json!({ "persistentvolumeclaims": "3" });
    assert_eq!(object["apiVersion"], "quota.openshift.io/v1");
    assert_eq!(object["kind"], "ClusterResourceQuota");
    assert_eq!(object["spec"], json!({ "quota": quota, "selector": selector() }));
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("ApplicationAwareClusterResourceQuota"), &json!("q"), &json!(UID))
    );
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    let metadata = &object["metadata"];
    assert_eq!(metadata["name"], "q-non-schedulable-resources-managed-crq-x");
    assert_eq!(
        (metadata.get("namespace"), &metadata["labels"]),
        (None, &json!({ "aaq.kubevirt.io": "true" }))
    );
    assert_eq!(case_of(Some(&wanted), Some(&observed(object)), Some(true)).plan(), Plan::Leave);
    assert_eq!(wish(hard(&[("pods", "1"), ("cpu/vmi", "1")]), selector()), None, "nothing to hand over");
}

#[rstest]
#[case::limit(json!({ "spec": { "quota": { "hard": { "services": "9" } } } }))]
#[case::more(json!({ "spec": { "quota": { "hard": { "secrets": "0" } } } }))]
#[case::selector_gone(json!({ "spec": { "selector": null } }))]
#[case::other_labels(json!({ "spec": { "selector": { "labels": { "matchLabels": { "team": "b", "tier": "1" } } } } }))]
#[case::by_expression(json!({ "spec": { "selector": { "labels": { "matchLabels": null,
    "matchExpressions": [{ "key": "team", "operator": "Exists" }] } } } }))]
#[case::annotations(json!({ "spec": { "selector": { "annotations": { "a": "b" } } } }))]
#[case::label_gone(json!({ "metadata": { "labels": null } }))]
#[case::owner_gone(json!({ "metadata": { "ownerReferences": null } }))]
fn what_differs_is_repaired(#[case] change: Value) {
    let wanted = wish(hard(&[("services", "5")]), selector()).unwrap();
    let existing = managed(change);
    let Plan::Write(Write::Update(patch)) = case_of(Some(&wanted), Some(&existing), Some(true)).plan() else {
        panic!()
    };
    assert_eq!(patch["metadata"]["uid"], "22222222-2222-2222-2222-222222222222");
    let mut fixed = json!({
        "metadata": { "name": names::managed_cluster_quota("q") },
        "spec": { "quota": { "hard": existing.quota.raw().spec_hard }, "selector": existing.selector() },
    });
    json_patch::merge(&mut fixed, &patch);
    assert_eq!(case_of(Some(&wanted), Some(&observed(fixed)), Some(true)).plan(), Plan::Leave);
}

#[test]
fn a_selector_that_says_the_same_is_left() {
    let wanted = wish(hard(&[("services", "5")]), selector());
    let labels = json!({ "matchLabels": { "team": "a" }, "matchExpressions": [] });
    let existing = managed(json!({ "spec": { "selector": { "labels": labels, "annotations": {} } } }));
    assert_eq!(case_of(wanted.as_ref(), Some(&existing), Some(true)).plan(), Plan::Leave);
}

#[test]
fn other_scopes_are_a_reason_to_replace_it_and_it_goes_with_the_keys() {
    let wanted = wish(hard(&[("services", "5")]), selector()).unwrap();
    let delete = |existing: &Existing| Plan::Write(Write::Delete(existing.quota.uid.clone()));
    let scoped = managed(json!({ "spec": { "quota": { "scopes": ["BestEffort"] } } }));
    assert_eq!(case_of(Some(&wanted), Some(&scoped), Some(true)).plan(), delete(&scoped));
    let existing = managed(json!({}));
    assert_eq!(case_of(None, Some(&existing), Some(true)).plan(), delete(&existing));
    let leaving = managed(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    assert_eq!(case_of(None, Some(&leaving), Some(true)).plan(), Plan::Leave);
}

#[test]
fn one_of_others_is_left_and_told_of() {
    let wanted = wish(hard(&[("services", "5")]), selector());
    for foreign in [
        json!({ "metadata": { "ownerReferences": null, "labels": null } }),
        // The owner of a managed ResourceQuota is another kind.
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": names::API_VERSION, "name": "q",
            "kind": "ApplicationAwareResourceQuota", "uid": UID, "controller": true }] } }),
    ] {
        let foreign = managed(foreign);
        assert_eq!(case_of(None, Some(&foreign), Some(true)).plan(), Plan::Leave);
        let case = case_of(wanted.as_ref(), Some(&foreign), Some(true));
        assert_eq!(case.plan(), Plan::Foreign);
        let told = case.status(None).unwrap();
        assert!(told.used.is_empty() && told.namespaces.is_empty());
        let told = told.trouble.unwrap();
        assert!(
            told.starts_with("spec.quota.hard: not enforced: services: the ClusterResourceQuota q-"),
            "{told}"
        );
    }
}

#[test]
fn a_cluster_without_the_kind_is_told_of_with_the_keys_and_a_remedy() {
    let wanted = wish(hard(&[("services", "5"), ("secrets", "5"), ("pods", "1")]), selector());
    assert_eq!(case_of(wanted.as_ref(), None, None).plan(), Plan::Leave, "it is not known yet");
    assert_eq!(case_of(wanted.as_ref(), None, None).status(None), Some(ManagedStatus::default()));
    let absent = case_of(wanted.as_ref(), None, Some(false));
    assert_eq!(absent.plan(), Plan::NotServed);
    assert_eq!(
        absent.status(Some("an old refusal")).unwrap().trouble.unwrap(),
        "spec.quota.hard: not enforced: secrets, services: this cluster has no ClusterResourceQuota \
         (quota.openshift.io/v1), limit them by a quota in each namespace"
    );
    assert_eq!(case_of(None, None, Some(false)).status(None), None);
}

#[test]
fn usage_is_told_in_all_and_by_namespace_and_never_made_up() {
    let wanted = wish(hard(&[("services", "5"), ("secrets", "5")]), selector());
    let told = |change: Value| {
        let existing = managed(change);
        case_of(wanted.as_ref(), Some(&existing), Some(true)).status(None).unwrap()
    };
    let amounts = |used: Value| json!({ "hard": { "services": "5", "secrets": "5" }, "used": used });
    assert_eq!(told(json!({})), ManagedStatus::default(), "not counted yet");
    let none = json!({ "status": { "total": amounts(json!({})), "namespaces": null } });
    assert_eq!(told(none), ManagedStatus::default(), "it selects no namespace, and counts in none");
    let counted = json!({ "status": {
        "total": amounts(json!({ "services": "3", "pods": "9" })),
        "namespaces": [{ "namespace": "a", "status": amounts(json!({ "services": "3", "pods": "9" })) }],
    } });
    let now = told(counted.clone());
    let services = |used: &std::collections::BTreeMap<Arc<str>, Quantity>| {
        used.iter().map(|(key, amount)| format!("{key}={amount}")).collect::<Vec<_>>()
    };
    assert_eq!(services(&now.used), ["services=3"]);
    assert_eq!(services(&now.namespaces["a"]), ["services=3"]);
    assert!(now.trouble.unwrap().contains("secrets: Kubernetes counts no such objects"));
    let mut elsewhere = counted;
    elsewhere["spec"] = json!({ "selector": { "labels": { "matchLabels": { "team": "b" } } } });
    assert_eq!(told(elsewhere), ManagedStatus::default(), "of other namespaces");
}

#[test]
fn cluster_quotas_that_have_no_effect_want_nothing() {
    let mut state = State::new(KIND, 1);
    state.upsert(&name(), &acrq(1, hard(&[("services", "5")]), selector()));
    state.set_served(Some(true));
    let existing = managed(json!({}));
    let decide = |state: &mut State, existing: Option<&Existing>| {
        let mut writes = Vec::new();
        while let Some(key) = state.next(0) {
            writes.extend(state.decide(&key, existing, 0));
        }
        writes.pop()
    };
    assert_eq!(state.news(&name(), Some(&existing)), None);
    assert!(matches!(decide(&mut state, Some(&existing)), Some(Write::Delete(_))), "left from when they had");
    state.answered(&name(), Answer::Done(()), 0);
    assert_eq!(state.allow(true), [name()]);
    assert!(matches!(decide(&mut state, None), Some(Write::Create(_))), "at once");
    assert_eq!(state.news(&name(), Some(&existing)), Some(Some(ManagedStatus::default())));
    assert_eq!(state.allow(true), []);
}

#[test]
fn a_specification_that_cannot_be_read_says_nothing_of_what_there_is() {
    let mut wishes = Wishes::default();
    for spec in [json!({ "quota": "x" }), json!({ "quota": { "hard": { "services": "x" } } })] {
        let quota = json!({ "metadata": { "name": "q", "uid": UID }, "spec": spec });
        wishes.upsert(&name(), &serde_json::from_value::<AcrqWire>(quota).unwrap());
        let existing = managed(json!({}));
        assert_eq!(case_of(wishes.get(&name()), Some(&existing), Some(true)).plan(), Plan::Leave, "{spec}");
    }
}

#[test]
fn a_name_without_room_for_the_suffix_is_told_of() {
    let most = names::MAX_NAME_OF_MANAGED_CLUSTER;
    let wanted = wish(hard(&[("services", "5")]), selector());
    let plan = |length: usize| {
        let key = Key { name: "n".repeat(length).into(), ..name() };
        Case { kind: KIND, key: &key, wish: wanted.as_ref(), existing: None, is_served: Some(true) }.plan()
    };
    assert_eq!(plan(most + 1), Plan::NameTooLong);
    assert!(matches!(plan(most), Plan::Write(Write::Create(_))));
    assert_eq!(names::managed_cluster_quota(&"n".repeat(most)).len(), 253);
}
