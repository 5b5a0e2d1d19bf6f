//! The contract of lists and sweeps ([`Watched`]), which the gate's kinds keep too: in the middle of a list nothing is
//! forgotten, a list that breaks off removes nothing, and what a complete one did not have is gone,
//! whatever answers have said meanwhile.
#![allow(clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_engine::ChargeRules;
use sluice_index::{
    AcrqWire, HeadroomNamespaces, Listed, Namespaces, PodFacts, Pods, Quotas, Source, Targeting, Watched as _,
};

#[derive(Clone, Copy)]
enum Step {
    Begin,
    See(&'static str),
    /// The answer to a request.
    Answer(&'static str),
    End,
}

/// `known_after` takes a step and returns the names that are known then, sorted.
fn check(mut known_after: impl FnMut(Step) -> Vec<String>) {
    known_after(Step::See("a"));
    assert_eq!(known_after(Step::See("b")), ["a", "b"]);
    assert_eq!(known_after(Step::Begin), ["a", "b"]);
    assert_eq!(known_after(Step::See("b")), ["a", "b"], "in the middle of a list");
    assert_eq!(known_after(Step::Begin), ["a", "b"], "the list broke off");
    assert_eq!(known_after(Step::See("a")), ["a", "b"]);
    assert_eq!(known_after(Step::End), ["a"]);
}

/// An answer about an object does not show that a list holds it.
fn check_answers(mut known_after: impl FnMut(Step) -> Vec<String>) {
    known_after(Step::See("a"));
    known_after(Step::See("b"));
    known_after(Step::Begin);
    known_after(Step::See("b"));
    assert_eq!(known_after(Step::Answer("a")), ["a", "b"]);
    assert_eq!(known_after(Step::Answer("c")), ["a", "b", "c"]);
    assert_eq!(known_after(Step::Answer("b")), ["a", "b", "c"]);
    assert_eq!(known_after(Step::End), ["b", "c"], "what was not known may have been created since");
}

fn object<W: DeserializeOwned>(name: &str) -> W {
    let metadata = json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": "5"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
}

fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<_> = names.map(ToOwned::to_owned).collect();
    names.sort_unstable();
    names
}

fn no_namespaces() -> Namespaces {
    Namespaces::new(Targeting::new(kube::core::Selector::default(), [].into()))
}

fn store() -> impl FnMut(Step) -> Vec<String> {
    let mut kind = HeadroomNamespaces::default();
    let wire = |name| {
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "5"});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    move |step| {
        match step {
            Step::Begin => drop(kind.apply(&Event::Init)),
            Step::See(name) => drop(kind.apply(&Event::InitApply(wire(name)))),
            Step::Answer(name) => _ = kind.upsert_answered(&wire(name)),
            Step::End => drop(kind.apply(&Event::InitDone)),
        }
        sorted(kind.all().iter().map(|record| &*record.name))
    }
}

#[test]
fn records_of_a_store() {
    check(store());
    check_answers(store());
}

fn listed() -> impl FnMut(Step) -> Vec<String> {
    let mut known = Listed::<&str, ()>::default();
    move |step| {
        let mut see = |name, by| {
            known.see(&name, by);
            known.insert(name, ());
        };
        match step {
            Step::Begin => known.begin_list(),
            Step::See(name) => see(name, Source::Watch),
            Step::Answer(name) => see(name, Source::Answer),
            Step::End => drop(known.end_list()),
        }
        sorted(known.keys().copied())
    }
}

#[test]
fn what_others_keep_of_a_kind() {
    check(listed());
    check_answers(listed());
}

fn pods() -> impl FnMut(Step) -> Vec<String> {
    let (mut pods, mut namespaces) = (Pods::default(), no_namespaces());
    let facts = |name| PodFacts::read(&object(name), "gate", ChargeRules::for_minor(36), 0);
    move |step| {
        match step {
            Step::Begin => pods.begin_list(),
            Step::See(name) => drop(pods.upsert(facts(name), Source::Watch, &mut namespaces)),
            Step::Answer(name) => drop(pods.upsert(facts(name), Source::Answer, &mut namespaces)),
            Step::End => {
                for id in pods.end_list() {
                    pods.remove(id, &mut namespaces).unwrap();
                }
            }
        }
        sorted(pods.iter().map(|(_, record)| &*record.name))
    }
}

#[test]
fn pods_of_the_gate() {
    check(pods());
    check_answers(pods());
}

fn quotas() -> impl FnMut(Step) -> Vec<String> {
    let (mut quotas, mut namespaces) = (Quotas::default(), no_namespaces());
    move |step| {
        match step {
            Step::Begin => quotas.begin_list(),
            Step::See(name) => _ = quotas.upsert(&object(name), Source::Watch, &mut namespaces),
            Step::Answer(name) => _ = quotas.upsert(&object(name), Source::Answer, &mut namespaces),
            Step::End => {
                for id in quotas.end_list() {
                    quotas.remove(id, &mut namespaces).unwrap();
                }
            }
        }
        sorted(quotas.iter().map(|(_, record)| &*record.name))
    }
}

#[test]
fn quotas_of_a_namespace() {
    check(quotas());
    check_answers(quotas());
}

fn cluster_quotas() -> impl FnMut(Step) -> Vec<String> {
    let (mut quotas, mut namespaces) = (Quotas::default(), no_namespaces());
    move |step| {
        let mut see = |name| {
            let wire: AcrqWire = object(name);
            drop(quotas.upsert_cluster(&wire, &mut namespaces));
        };
        match step {
            Step::Begin => quotas.begin_cluster_list(),
            Step::See(name) => see(name),
            Step::Answer(_) => unreachable!("no request is answered with one"),
            Step::End => {
                for id in quotas.end_cluster_list() {
                    quotas.remove(id, &mut namespaces).unwrap();
                }
            }
        }
        sorted(quotas.iter().map(|(_, record)| &*record.name))
    }
}

#[test]
fn quotas_of_the_cluster() {
    check(cluster_quotas());
}

#[test]
fn namespaces_of_the_gate() {
    let mut namespaces = no_namespaces();
    check(|step| {
        match step {
            Step::Begin => namespaces.begin_list(),
            Step::See(name) => {
                let meta = ObjectMeta { name: Some((*name).to_owned()), ..ObjectMeta::default() };
                namespaces.upsert(&meta);
            }
            Step::Answer(_) => unreachable!("no request is answered with one"),
            Step::End => drop(namespaces.end_list()),
        }
        sorted(namespaces.iter().map(|(_, namespace)| &*namespace.name))
    });
}
