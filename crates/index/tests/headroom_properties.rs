//! Kinds of the cluster against a recomputation, over arbitrary sequences of updates, deletions and relists.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_index::{Key, ResourceQuotaWire, ResourceQuotas, VmimRecord, VmimWire, Vmims, Watched};

#[derive(Clone, Debug)]
struct Thing {
    namespace: u8,
    name: u8,
    uid: u8,
    /// What differs from one version of an object to the next.
    values: (u8, u8, u8),
}

#[derive(Clone, Debug)]
enum Step {
    See(Thing),
    /// An event from before what is known.
    SeeOld(Thing),
    Lose(Thing),
    /// A list that leaves out one namespace.
    Relist {
        without: u8,
    },
}

fn thing() -> impl Strategy<Value = Thing> {
    (0..3u8, 0..4u8, 0..2u8, (0..3u8, 0..3u8, 0..3u8)).prop_map(|(namespace, name, uid, values)| Thing {
        namespace,
        name,
        uid,
        values,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => thing().prop_map(Step::See),
        2 => thing().prop_map(Step::SeeOld),
        2 => thing().prop_map(Step::Lose),
        1 => (0..4u8).prop_map(|without| Step::Relist { without }),
    ];
    prop::collection::vec(step, 0..60)
}

fn meta(thing: &Thing, version: u32) -> Value {
    json!({
        "namespace": format!("ns-{}", thing.namespace), "name": format!("n-{}", thing.name),
        "uid": format!("{}-{}-{}", thing.namespace, thing.name, thing.uid), "resourceVersion": version.to_string(),
        "creationTimestamp": format!("2026-01-01T00:00:0{}Z", thing.uid),
    })
}

fn quota(thing: &Thing, version: u32) -> ResourceQuotaWire {
    let (hard, enforced, used) = thing.values;
    serde_json::from_value(json!({
        "metadata": meta(thing, version),
        "spec": {"hard": {"memory": hard.to_string()}},
        "status": {"hard": {"memory": enforced.to_string()}, "used": {"memory": used.to_string()}},
    }))
    .unwrap()
}

fn migration(thing: &Thing, version: u32) -> VmimWire {
    let (phase, priority, rejected) = thing.values;
    let phases = ["Pending", "Scheduling", "Failed"];
    let priorities = ["no-such", "user-triggered", "system-critical"];
    let status = if rejected == 0 { "False" } else { "True" };
    serde_json::from_value(json!({
        "metadata": meta(thing, version),
        "spec": {"vmiName": "vm", "priority": priorities.get(usize::from(priority))},
        "status": {
            "phase": phases.get(usize::from(phase)),
            "conditions": [{"type": "migrationRejectedByResourceQuota", "status": status}],
        },
    }))
    .unwrap()
}

type Model = BTreeMap<(u8, u8), (Thing, u32)>;

/// Takes the steps; returns what should be known at the end.
fn take<K: Watched>(kind: &mut K, steps: &[Step], wire: impl Fn(&Thing, u32) -> K::Wire) -> Model {
    let mut model = Model::new();
    let mut version = 10;
    for step in steps {
        version += 1;
        match step {
            Step::See(thing) => {
                kind.upsert(&wire(thing, version));
                model.insert((thing.namespace, thing.name), (thing.clone(), version));
            }
            Step::SeeOld(thing) => {
                if model.contains_key(&(thing.namespace, thing.name)) {
                    kind.upsert(&wire(thing, 1));
                }
            }
            Step::Lose(thing) => {
                let at = (thing.namespace, thing.name);
                let same = model.get(&at).is_some_and(|(known, _)| known.uid == thing.uid);
                assert_eq!(kind.remove(&wire(thing, version)), same);
                if same {
                    model.remove(&at);
                }
            }
            Step::Relist { without } => {
                kind.begin_list();
                let mut expected = 0;
                model.retain(|at, (thing, version)| {
                    let listed = at.0 != *without;
                    if listed {
                        kind.upsert(&wire(thing, *version));
                    } else {
                        expected += 1;
                    }
                    listed
                });
                assert_eq!(kind.end_list().len(), expected);
            }
        }
    }
    model
}

fn key(thing: &Thing) -> Key {
    Key { namespace: format!("ns-{}", thing.namespace).into(), name: format!("n-{}", thing.name).into() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn raised_quotas_are_those_of_a_recount(steps in steps()) {
        let mut quotas = ResourceQuotas::default();
        let model = take(&mut quotas, &steps, quota);
        let known: BTreeSet<Key> = quotas.iter().map(|record| record.key()).collect();
        prop_assert_eq!(known, model.values().map(|(thing, _)| key(thing)).collect::<BTreeSet<_>>());
        let raised: BTreeSet<Key> = model
            .values()
            .filter(|(thing, _)| thing.values.1 > thing.values.0)
            .map(|(thing, _)| key(thing))
            .collect();
        prop_assert_eq!(quotas.raised().cloned().collect::<BTreeSet<_>>(), raised);
        for (thing, version) in model.values() {
            let key = key(thing);
            let record = quotas.record(&key.namespace, &key.name).unwrap();
            prop_assert_eq!(record.version.precondition(), Some(version.to_string()));
            prop_assert_eq!(record.raw().used.get("memory").cloned(), Some(thing.values.2.to_string()));
        }
        for namespace in ["ns-0", "ns-1", "ns-2"] {
            let names: Vec<_> = quotas.records_in(namespace).iter().map(|record| &record.name).collect();
            prop_assert!(names.is_sorted());
        }
    }

    #[test]
    fn waiting_migrations_are_those_of_a_recount(steps in steps()) {
        let mut migrations = Vmims::default();
        let model = take(&mut migrations, &steps, migration);
        let mut waiting: Vec<&Thing> = model
            .values()
            .map(|(thing, _)| thing)
            .filter(|thing| thing.values.0 == 0 && thing.values.2 != 0)
            .collect();
        waiting.sort_by_key(|thing| (thing.namespace, std::cmp::Reverse(thing.values.1), thing.uid, thing.name));
        let waiting: Vec<Key> = waiting.into_iter().map(key).collect();
        let found = ["ns-0", "ns-1", "ns-2"].map(|namespace| migrations.waiting_in(namespace)).concat();
        let found: Vec<Key> = found.iter().map(|record| record.key()).collect();
        prop_assert_eq!(&found, &waiting);
        let anywhere: BTreeSet<Key> = migrations.rejected().map(|record| record.key()).collect();
        prop_assert_eq!(anywhere, waiting.into_iter().collect::<BTreeSet<_>>());
        for (thing, _) in model.values() {
            let key = key(thing);
            let record: &VmimRecord = migrations.get(&key.namespace, &key.name).unwrap();
            prop_assert_eq!(migrations.by_uid(&record.uid).map(|found| found.key()), Some(key));
        }
    }
}
