//! Which namespaces cluster quotas select, and how quotas, namespaces and charges are
//! put together in whatever order they come.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it must be"
)]

use kube::core::Selector;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::kinds::acrq::AcrqWire;
use crate::kinds::namespace::{NamespaceWire, Targeting};

struct World {
    quotas: Quotas,
    namespaces: Namespaces,
    version: u64,
}

fn wire<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl World {
    /// Cluster quotas are allowed.
    fn new() -> Self {
        let namespaces = Namespaces::new(Targeting::new(Selector::default(), [].into()));
        let mut world = Self { quotas: Quotas::default(), namespaces, version: 0 };
        assert!(world.quotas.allow_cluster_quotas(true, &mut world.namespaces).is_empty());
        world
    }

    fn acrq(&mut self, selector: &Value, hard: &Value) -> ClusterChange {
        self.version += 1;
        let quota: AcrqWire = wire(json!({
            "metadata": {"name": "all", "uid": "quota", "resourceVersion": self.version.to_string()},
            "spec": {"selector": selector, "quota": {"hard": hard}},
        }));
        assert_eq!(self.quotas.replaced_by_cluster(&quota), None);
        self.quotas.upsert_cluster(&quota, &mut self.namespaces)
    }

    /// It selects these namespaces.
    fn select(&mut self, selector: &Value) -> Vec<String> {
        let change = self.acrq(selector, &json!({"pods": "5"}));
        self.names(&change.moved)
    }

    fn names(&self, ids: &[NamespaceId]) -> Vec<String> {
        let name = |id: &NamespaceId| self.namespaces.get(*id).unwrap().name.to_string();
        let mut names: Vec<String> = ids.iter().map(name).collect();
        names.sort();
        names
    }

    /// Returns whether other quotas select it now.
    fn namespace(&mut self, name: &str, labels: &Value, annotations: &Value) -> bool {
        let seen: NamespaceWire =
            wire(json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}}));
        let change = self.namespaces.upsert(&seen.metadata);
        change.is_relabelled && self.quotas.reselect(change.id, &mut self.namespaces)
    }

    fn id(&self) -> QuotaId {
        self.quotas.find_cluster("all").unwrap()
    }

    /// The namespaces of the quota; each of them must know it.
    fn selected(&self) -> Vec<String> {
        let id = self.id();
        let ids: Vec<NamespaceId> = self.quotas.get(id).unwrap().namespaces().collect();
        for (namespace, known) in self.namespaces.iter() {
            assert_eq!(known.quotas().contains(&id), ids.contains(&namespace), "{}", known.name);
        }
        self.names(&ids)
    }

    fn charge(&mut self, object: &str, charges: Option<i64>) -> Option<QuotaId> {
        self.version += 1;
        let status =
            charges.map(|charges| json!({"hard": {"pods": "5"}, "used": {"pods": "1"}, "charges": charges}));
        let version = self.version.to_string();
        let charge = json!({"metadata": {"name": "quota", "uid": object, "resourceVersion": version}, "status": status});
        self.quotas.upsert_charge(&wire(charge), Source::Watch)
    }

    fn answered_charge(&mut self, object: &str) -> Option<QuotaId> {
        self.version += 1;
        let version = self.version.to_string();
        let charge = json!({"metadata": {"name": "quota", "uid": object, "resourceVersion": version}});
        self.quotas.upsert_charge(&wire(charge), Source::Answer)
    }
}

fn expression(operator: &str, values: &Value) -> Value {
    let values = if values.is_null() { json!({}) } else { json!({"values": values}) };
    let mut expression = json!({"key": "team", "operator": operator});
    expression.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
    json!({"labels": {"matchExpressions": [expression]}})
}

#[rstest]
#[case::neither(json!({}), &["bare", "both", "label", "note", "other"])]
#[case::empty_labels(json!({"labels": {}}), &["bare", "both", "label", "note", "other"])]
#[case::labels(json!({"labels": {"matchLabels": {"team": "a"}}}), &["both", "label"])]
#[case::annotations(json!({"annotations": {"owner": "x"}}), &["both", "note"])]
#[case::both(json!({"labels": {"matchLabels": {"team": "a"}}, "annotations": {"owner": "x"}}), &["both"])]
#[case::no_label_as_annotation(json!({"annotations": {"team": "a"}}), &[])]
#[case::all_annotations(json!({"annotations": {"owner": "x", "more": ""}}), &[])]
#[case::is_in(expression("In", &json!(["a", "c"])), &["both", "label"])]
#[case::not_in_holds_without_the_key(expression("NotIn", &json!(["a"])), &["bare", "note", "other"])]
#[case::exists(expression("Exists", &Value::Null), &["both", "label", "other"])]
#[case::does_not_exist(expression("DoesNotExist", &Value::Null), &["bare", "note"])]
fn it_selects_as_the_api_server_does(#[case] selector: Value, #[case] expected: &[&str]) {
    let mut world = World::new();
    let (label, note) = (json!({"team": "a"}), json!({"owner": "x"}));
    world.namespace("bare", &json!({}), &json!({}));
    world.namespace("label", &label, &json!({}));
    world.namespace("note", &json!({}), &note);
    world.namespace("both", &label, &note);
    world.namespace("other", &json!({"team": "b"}), &json!({"owner": "y"}));
    assert_eq!(world.select(&selector), expected);
    assert_eq!(world.selected(), expected);
    assert_eq!(world.select(&selector), Vec::<String>::new(), "nothing has moved");
    assert_eq!(world.selected(), expected);
}

#[test]
fn a_selector_that_cannot_be_read_selects_nothing_new_and_leaves_nothing_unheld() {
    let unreadable = expression("Near", &json!(["a"]));
    let mut world = World::new();
    world.namespace("label", &json!({"team": "a"}), &json!({}));
    assert_eq!(world.select(&unreadable), Vec::<String>::new());
    assert!(
        world.quotas.get(world.id()).unwrap().compiled.as_ref().is_err_and(|why| why.contains("operator"))
    );
    assert_eq!(world.select(&json!({"labels": {"matchLabels": {"team": "a"}}})), ["label"]);
    assert!(world.quotas.get(world.id()).unwrap().compiled.is_ok());
    let change = world.acrq(&unreadable, &json!({"pods": "5"}));
    assert!(matches!(change.quota, QuotaChange::Meaning(_)) && change.moved.is_empty());
    assert_eq!(world.selected(), ["label"], "its pods are held: what it was meant to select is not known");
}

#[test]
fn a_namespace_is_selected_by_what_was_seen_of_it() {
    let mut world = World::new();
    world.select(&expression("NotIn", &json!(["b"])));
    let pod = "late";
    world.namespaces.intern(pod);
    assert_eq!(world.selected(), Vec::<String>::new(), "only things in it were seen");
    assert!(world.namespace(pod, &json!({}), &json!({})));
    assert_eq!(world.selected(), [pod]);
    assert!(!world.namespace(pod, &json!({"more": "x"}), &json!({})), "it was selected before");
    assert!(world.namespace(pod, &json!({"team": "b"}), &json!({})));
    assert_eq!(world.selected(), Vec::<String>::new());
    assert!(world.namespace(pod, &json!({"team": "c"}), &json!({})));
    let id = world.namespaces.remove(pod).expect("a quota is about it");
    assert!(world.quotas.reselect(id, &mut world.namespaces));
    assert_eq!((world.selected(), world.namespaces.id(pod)), (Vec::new(), None), "its handle is free");
}

#[test]
fn without_permission_nothing_is_selected() {
    let mut world = World::new();
    world.namespace("a", &json!({}), &json!({}));
    assert_eq!(world.select(&json!({})), ["a"]);
    let moved = world.quotas.allow_cluster_quotas(false, &mut world.namespaces);
    assert_eq!((world.names(&moved), world.selected()), (vec!["a".to_owned()], Vec::new()));
    assert!(!world.namespace("b", &json!({}), &json!({})));
    assert!(world.quotas.allow_cluster_quotas(false, &mut world.namespaces).is_empty());
    let moved = world.quotas.allow_cluster_quotas(true, &mut world.namespaces);
    assert_eq!(world.names(&moved), ["a", "b"]);
    assert_eq!(world.selected(), ["a", "b"]);
}

#[test]
fn with_another_handle_it_selects_the_same_and_keeps_its_record() {
    let mut world = World::new();
    world.namespace("a", &json!({}), &json!({}));
    world.select(&json!({}));
    world.charge("object", Some(7));
    let old = world.id();
    let new = world.quotas.renew(old, &mut world.namespaces).unwrap();
    assert_eq!((world.id(), world.quotas.get(old).is_none()), (new, true));
    assert_eq!(world.selected(), ["a"]);
    assert_eq!(world.quotas.get(new).unwrap().recorded.charges, 7);
    assert_eq!(world.charge("object", Some(8)), Some(new));
    assert_eq!(world.quotas.cluster_ids().collect::<Vec<_>>(), [new]);
    world.quotas.remove(new, &mut world.namespaces).unwrap();
    let left = world.namespaces.get(world.namespaces.id("a").unwrap()).unwrap().quotas();
    assert!(left.is_empty() && world.quotas.cluster_ids().len() == 0);
}

#[test]
fn a_charge_that_is_seen_before_its_quota_is_known_with_it() {
    let mut world = World::new();
    assert_eq!(world.charge("object", Some(7)), None);
    world.select(&json!({}));
    let quota = world.quotas.get(world.id()).unwrap();
    assert_eq!((quota.recorded.charges, quota.cluster().unwrap().charge.is_some()), (7, true));
    let uid = quota.uid.clone();
    assert_eq!(world.quotas.remove_charge(&uid), Some(world.id()));
    assert_eq!(world.quotas.remove_charge(&uid), None);
    assert!(world.quotas.get(world.id()).unwrap().cluster().unwrap().charge.is_none());
}

#[test]
fn charges_that_a_list_does_not_hold_are_gone() {
    let mut world = World::new();
    world.select(&json!({}));
    let id = world.charge("object", Some(7)).unwrap();
    world.quotas.begin_charge_list();
    world.charge("object", Some(7));
    assert_eq!(world.quotas.end_charge_list(), []);
    world.quotas.begin_charge_list();
    assert_eq!(world.answered_charge("object"), Some(id), "an answer does not show that it is in the list");
    assert_eq!(world.quotas.end_charge_list(), [id]);
    assert_eq!(world.quotas.end_charge_list(), []);
}

/// The status is shown before the first charge is recorded.
#[rstest]
#[case::not_shown(false, None, false)]
#[case::shown_and_gone(true, None, true)]
#[case::made_anew(true, Some(None), true)]
#[case::recorded(true, Some(Some(7)), false)]
fn a_record_is_lost_where_there_has_been_one(
    #[case] is_shown: bool,
    #[case] charge: Option<Option<i64>>,
    #[case] is_lost: bool,
) {
    let mut world = World::new();
    let hard = if is_shown { json!({"pods": "5"}) } else { json!({}) };
    let quota = json!({
        "metadata": {"name": "all", "uid": "quota", "resourceVersion": "1"},
        "spec": {"quota": {"hard": {"pods": "5"}}}, "status": {"total": {"hard": hard}},
    });
    world.quotas.upsert_cluster(&wire(quota), &mut world.namespaces);
    world.version = 1;
    if let Some(charges) = charge {
        world.charge("object", charges);
    }
    assert_eq!(world.quotas.get(world.id()).unwrap().is_record_lost(), is_lost);
}

/// Whatever it shows meanwhile.
#[test]
fn a_cluster_quota_is_known_by_the_number_of_its_specification() {
    let mut world = World::new();
    let listed = |generation| [(Uid::parse("quota"), generation)];
    assert!(world.quotas.know_clusters(&[]));
    assert!(!world.quotas.know_clusters(&listed(1)));
    let quota = |version: &str, generation: i64, uid: &str| {
        let metadata =
            json!({"name": "all", "uid": uid, "resourceVersion": version, "generation": generation});
        wire::<AcrqWire>(json!({"metadata": metadata, "spec": {"quota": {"hard": {"pods": "5"}}}}))
    };
    for (version, generation) in [("1", 1), ("2", 1), ("3", 2)] {
        world.quotas.upsert_cluster(&quota(version, generation, "quota"), &mut world.namespaces);
        assert!(world.quotas.know_clusters(&listed(generation)));
        assert!(!world.quotas.know_clusters(&listed(generation + 1)));
    }
    assert!(!world.quotas.know_clusters(&[(Uid::parse("other"), 1)]), "one of the same name");
}
