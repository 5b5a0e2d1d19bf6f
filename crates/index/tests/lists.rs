//! The contract of lists and sweeps ([`Watched`]), which the gate's kinds keep too: in the middle of a list nothing is forgotten, a
//! list that breaks off removes nothing, and what a complete one did not have is gone.
#![allow(clippy::unwrap_used, missing_docs)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_engine::ChargeRules;
use sluice_index::{HeadroomNamespaces, Namespaces, PodFacts, Pods, Quotas, Targeting, Watched as _};

#[derive(Clone, Copy)]
enum Step {
    Begin,
    See(&'static str),
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

#[test]
fn records_of_a_store() {
    let mut kind = HeadroomNamespaces::default();
    check(|step| {
        kind.apply(&match step {
            Step::Begin => Event::Init,
            Step::See(name) => {
                let metadata = json!({"name": name, "uid": name, "resourceVersion": "5"});
                Event::InitApply(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
            }
            Step::End => Event::InitDone,
        });
        sorted(kind.all().iter().map(|record| &*record.name))
    });
}

#[test]
fn pods() {
    let (mut pods, mut namespaces) = (Pods::default(), no_namespaces());
    check(|step| {
        match step {
            Step::Begin => pods.begin_list(),
            Step::See(name) => {
                let facts = PodFacts::read(&object(name), "gate", ChargeRules::for_minor(36), 0);
                drop(pods.upsert(facts, &mut namespaces));
            }
            Step::End => {
                for id in pods.end_list() {
                    pods.remove(id, &mut namespaces).unwrap();
                }
            }
        }
        sorted(pods.iter().map(|(_, record)| &*record.name))
    });
}

#[test]
fn quotas() {
    let (mut quotas, mut namespaces) = (Quotas::default(), no_namespaces());
    check(|step| {
        match step {
            Step::Begin => quotas.begin_list(),
            Step::See(name) => _ = quotas.upsert(&object(name), &mut namespaces),
            Step::End => {
                for id in quotas.end_list() {
                    quotas.remove(id, &mut namespaces).unwrap();
                }
            }
        }
        sorted(quotas.iter().map(|(_, record)| &*record.name))
    });
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
            Step::End => drop(namespaces.end_list()),
        }
        sorted(namespaces.iter().map(|(_, namespace)| &*namespace.name))
    });
}
