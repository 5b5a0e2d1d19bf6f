//! The index of pods against a plain map, over arbitrary sequences of updates, deletions and relists.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use sluice_engine::{ChargeRules, Uid};
use sluice_index::{
    Gates, Namespaces, PlatformPod, PodChange as Change, PodFacts, PodWire, Pods, Source, Targeting, Version,
};

const GATE: &str = "gate";
/// 2026-01-01, in seconds since the epoch.
const NEW_YEAR: i64 = 1_767_225_600;

#[derive(Clone, Debug)]
enum Step {
    See {
        namespace: u8,
        name: u8,
        uid: u8,
        milli_cpu: u8,
        gated: bool,
    },
    /// An event from before what is known.
    SeeOld {
        namespace: u8,
        name: u8,
    },
    Lose {
        namespace: u8,
        name: u8,
    },
    /// A list that leaves out every pod of one namespace.
    Relist {
        without: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (namespace, name) = (0..4u8, 0..6u8);
    prop_oneof![
        6 => (namespace.clone(), name.clone(), 0..3u8, 1..9u8, any::<bool>()).prop_map(
            |(namespace, name, uid, milli_cpu, gated)| Step::See { namespace, name, uid, milli_cpu, gated }
        ),
        1 => (namespace.clone(), name.clone()).prop_map(|(namespace, name)| Step::SeeOld { namespace, name }),
        2 => (namespace.clone(), name).prop_map(|(namespace, name)| Step::Lose { namespace, name }),
        1 => namespace.prop_map(|without| Step::Relist { without }),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Known {
    uid: u8,
    version: u64,
    milli_cpu: u8,
    gated: bool,
}

type Model = BTreeMap<(u8, u8), Known>;

fn owner(known: &Known) -> String {
    format!("vm{}", known.milli_cpu % 2)
}

/// Some pods were created before there was a stamp.
const fn is_stamped(known: &Known) -> bool {
    known.milli_cpu > 2
}

fn facts(at: (u8, u8), known: &Known) -> PodFacts {
    let gates = if known.gated { json!([{"name": GATE}]) } else { json!([]) };
    let cpu = format!("{}m", u32::from(known.milli_cpu));
    // It may have other owners and names of creators than before.
    let launcher =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "l", "uid": owner(known), "controller": true});
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": owner(known), "controller": true,
    });
    let owners = match known.milli_cpu {
        ..5 => json!([owner]),
        5..7 => json!([launcher]),
        7.. => json!([]),
    };
    let stamp = if is_stamped(known) { json!({"quota.sluice.dev/created-by": "me"}) } else { json!({}) };
    let wire: PodWire = serde_json::from_value(json!({
        "metadata": {
            "namespace": format!("ns{}", at.0), "name": format!("pod{}", at.1), "uid": format!("uid{}", known.uid),
            "resourceVersion": known.version.to_string(), "creationTimestamp": format!("2026-01-01T00:00:0{}Z", at.1 % 3),
            "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}], "annotations": stamp,
            "ownerReferences": owners,
        },
        "spec": {
            "schedulingGates": gates, "nodeName": null,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}, "env": [{"name": "E"}]}],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }))
    .unwrap();
    let platform = PlatformPod::of(&wire.metadata).filter(|_| known.milli_cpu >= 5);
    PodFacts { platform, ..PodFacts::read(&wire, GATE, ChargeRules::for_minor(36), 0) }
}

fn see(pods: &mut Pods, namespaces: &mut Namespaces, at: (u8, u8), known: &Known) {
    if let Change::Replaced(old, _) = pods.upsert(facts(at, known), Source::Watch, namespaces) {
        assert_eq!(*old.name, *format!("pod{}", at.1), "the pod that is gone has the name of the new one");
    }
}

fn check(pods: &Pods, namespaces: &Namespaces, model: &Model) {
    assert_eq!(pods.len(), model.len());
    let mut listed: BTreeSet<(u8, u8)> = BTreeSet::new();
    for (at, known) in model {
        let namespace = namespaces.id(&format!("ns{}", at.0)).unwrap();
        let id = pods.find(namespace, &format!("pod{}", at.1)).unwrap();
        let record = pods.get(id).unwrap();
        assert_eq!(record.uid.to_string(), format!("uid{}", known.uid));
        assert_eq!(record.version, Version::parse(Some(&known.version.to_string())));
        assert_eq!(record.gates, if known.gated { Gates::Ours } else { Gates::None });
        let cpu = record.charge.get(&sluice_engine::Resource::Cpu).unwrap();
        assert_eq!(cpu.nanos(), i128::from(known.milli_cpu) * 1_000_000);
        assert!(namespaces.get(namespace).unwrap().pods().contains(&id));
        listed.insert(*at);
        let of_owner = pods.of_owner(namespace, &Uid::parse(&owner(known)), "me");
        assert_eq!(of_owner.contains(&id), known.milli_cpu < 5 && is_stamped(known));
        assert!(pods.of_owner(namespace, &Uid::parse(&owner(known)), "m").is_empty());
        assert_eq!(pods.created_by("me").any(|other| other == id), of_owner.contains(&id));
        assert!(of_owner.iter().all(|id| pods.get(*id).is_some_and(|other| other.namespace == namespace)));
        let attached = pods.attached_to(namespace, &Uid::parse(&owner(known)));
        assert_eq!(attached.contains(&id), (5..7).contains(&known.milli_cpu));
        assert!(attached.iter().all(|id| pods.get(*id).is_some_and(|other| other.platform().is_some())));
        assert!(pods.have_attached() || attached.is_empty());
        let creator = record.ownership().and_then(|ownership| ownership.created_by.as_deref());
        assert_eq!(creator, (known.milli_cpu < 5 && is_stamped(known)).then_some("me"));
        let unstamped = model.iter().filter(|(other_at, other)| {
            other_at.0 == at.0 && !is_stamped(other) && owner(other) == owner(known)
        });
        let oldest =
            unstamped.map(|(other_at, other)| (i64::from(other_at.1 % 3), format!("uid{}", other.uid)));
        let found = pods.oldest_unstamped(namespace, &Uid::parse(&owner(known)));
        let found =
            found.and_then(|id| pods.get(id)).map(|found| (found.created - NEW_YEAR, found.uid.to_string()));
        assert_eq!(found, oldest.min());
    }
    let records = || {
        model.keys().map(|at| {
            let namespace = namespaces.id(&format!("ns{}", at.0)).unwrap();
            let id = pods.find(namespace, &format!("pod{}", at.1)).unwrap();
            (namespace, id, pods.get(id).unwrap())
        })
    };
    let owners = std::iter::successors(pods.next_owner(None), |last| pods.next_owner(Some(last)));
    let owned = records().filter_map(|(at, _, record)| Some((at, record.ownership()?.machine.clone())));
    assert_eq!(owners.collect::<Vec<_>>(), owned.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
    let of_platform =
        std::iter::successors(pods.next_of_platform(None), |last| pods.next_of_platform(Some(last)));
    let of_platform: Vec<_> = of_platform.map(|(.., id)| *id).collect();
    let expected = records().filter(|(.., record)| record.platform().is_some()).map(|(_, id, _)| id);
    assert_eq!(of_platform.len(), expected.clone().count(), "each once");
    assert_eq!(of_platform.into_iter().collect::<BTreeSet<_>>(), expected.collect());
    let in_namespaces: usize = namespaces.iter().map(|(_, namespace)| namespace.pods().len()).sum();
    assert_eq!(in_namespaces, listed.len(), "namespaces list exactly the pods that are in them");
}

fn run(steps: &[Step]) {
    let targeting = Targeting::new(kube::core::Selector::default(), [].into());
    let (mut pods, mut namespaces) = (Pods::default(), Namespaces::new(targeting));
    let mut model = Model::new();
    for (turn, step) in steps.iter().enumerate() {
        let version = turn as u64 + 10;
        match *step {
            Step::See { namespace, name, uid, milli_cpu, gated } => {
                let known = Known { uid, version, milli_cpu, gated };
                see(&mut pods, &mut namespaces, (namespace, name), &known);
                model.insert((namespace, name), known);
            }
            Step::SeeOld { namespace, name } => {
                if model.contains_key(&(namespace, name)) {
                    let old = Known { uid: 9, version: 1, milli_cpu: 99, gated: true };
                    see(&mut pods, &mut namespaces, (namespace, name), &old);
                }
            }
            Step::Lose { namespace, name } => {
                if model.remove(&(namespace, name)).is_some() {
                    let at = namespaces.id(&format!("ns{namespace}")).unwrap();
                    let id = pods.find(at, &format!("pod{name}")).unwrap();
                    pods.remove(id, &mut namespaces).unwrap();
                }
            }
            Step::Relist { without } => {
                pods.begin_list();
                for (at, known) in model.iter().filter(|(at, _)| at.0 != without) {
                    let change = pods.upsert(facts(*at, known), Source::Watch, &mut namespaces);
                    assert!(matches!(change, Change::Same), "a pod that is as it was known is no change");
                }
                for id in pods.end_list() {
                    pods.remove(id, &mut namespaces).unwrap();
                }
                model.retain(|at, _| at.0 != without);
            }
        }
        check(&pods, &namespaces, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_index_is_what_was_seen(steps in proptest::collection::vec(step(), 1..80)) {
        run(&steps);
    }
}

#[test]
fn a_quantity_that_cannot_be_read_is_named_and_is_the_largest_there_is() {
    let wire: PodWire = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1e999"}}}]},
    }))
    .unwrap();
    let facts = PodFacts::read(&wire, GATE, ChargeRules::for_minor(36), 0);
    let memory = facts.charge.get(&sluice_engine::Resource::LimitsMemory);
    assert_eq!(memory, Some(sluice_engine::Amount::LIMIT));
    let error = facts.unreadable.unwrap();
    assert!(error.starts_with("spec.containers[main].resources.limits[memory]: "), "{error}");
}

#[test]
fn a_deleted_pod_stops_counting_after_its_grace() {
    let wire: PodWire = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5",
            "deletionTimestamp": "1970-01-01T00:01:40Z", "deletionGracePeriodSeconds": 30,
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}]},
    }))
    .unwrap();
    let targeting = Targeting::new(kube::core::Selector::default(), [].into());
    let (mut pods, mut namespaces) = (Pods::default(), Namespaces::new(targeting));
    let facts = PodFacts::read(&wire, GATE, ChargeRules::for_minor(36), 100);
    let Change::Added(id) = pods.upsert(facts, Source::Watch, &mut namespaces) else { unreachable!() };
    assert_eq!(pods.next_overdue(), Some(131));
    assert!(pods.take_overdue(130).is_empty());
    assert_eq!(pods.take_overdue(131), [id]);
    let charge = std::sync::Arc::clone(&pods.get(id).unwrap().charge);
    assert_eq!(charge.get(&sluice_engine::Resource::Cpu), None);
    assert_eq!(pods.next_overdue(), None);
}

#[test]
fn a_deadline_puts_no_pod_of_kubevirt_under_other_quotas() {
    let terminating = |creator: Option<&str>, owner: &str| {
        let annotations = creator.map(|creator| json!({ "quota.sluice.dev/created-by": creator }));
        let owner = json!({ "apiVersion": "kubevirt.io/v1", "kind": owner, "name": "o", "uid": "o", "controller": true });
        let wire: PodWire = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "annotations": annotations, "ownerReferences": [owner],
            },
            "spec": {"containers": [], "activeDeadlineSeconds": 60},
        }))
        .unwrap();
        PodFacts::read(&wire, GATE, ChargeRules::for_minor(36), 0).scope_facts.terminating
    };
    let machine = "VirtualMachineInstance";
    assert!(!terminating(Some("system:serviceaccount:kubevirt:kubevirt-controller"), machine));
    assert!(terminating(Some("system:serviceaccount:kubevirt:kubevirt-handler"), machine));
    assert!(terminating(Some("alice"), machine));
    // Created before there was a stamp.
    assert!(!terminating(None, machine));
    assert!(terminating(None, "Job"));
}

#[test]
fn what_is_kept_of_a_pod_does_not_grow_with_the_resources_that_it_names() {
    let read = |names: usize| {
        let requests: serde_json::Map<_, _> = (0..names)
            .map(|n| (format!("a.io/{n:05}"), json!("1")))
            .chain([("cpu".to_owned(), json!("2"))])
            .collect();
        let wire: PodWire = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]},
        }))
        .unwrap();
        PodFacts::read(&wire, GATE, ChargeRules::for_minor(36), 0)
    };
    let few = read(64);
    assert_eq!((few.charge.len(), few.unreadable), (64 + 4, None));
    let many = read(10_000);
    assert_eq!(many.charge.len(), 4, "{:?}", many.charge);
    assert!(many.unreadable.unwrap().contains("10000 extended resources"));
}
