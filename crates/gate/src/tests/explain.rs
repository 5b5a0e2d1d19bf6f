//! Explanations: what a process finds from lists is what the leader says, and all forms have the same words.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_engine::ChargeRules;
use sluice_engine::vm::Calculator;
use sluice_index::Targeting;

use super::machines::sized_object;
use super::own_namespace;
use super::replica::see;
use super::server::{Change, GATE, KINDS, Kind, Server, key, wire};
use super::stories::{Story, at};
use crate::{Explanation, GateConfig, Moment, PodExplanation, Regarding, State, Subject, Verdict};

pub(super) const NAMESPACES: [&str; 3] = ["blue", "green", "red"];

pub(super) fn new_state() -> State {
    let config = GateConfig::new(GATE, ChargeRules::for_minor(36));
    State::new(config, Targeting::new(kube::core::Selector::default(), own_namespace()))
}

/// What a process finds that lists all objects and knows nothing else. What is recorded it leaves out: it knows all pods.
pub(super) fn recomputed(server: &Server, now: Moment) -> State {
    let mut state = new_state();
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Charge) {
        for (_, object) in server.all(kind, "") {
            let mut object = object.clone();
            if matches!(kind, Kind::Quota | Kind::ClusterQuota) {
                object.as_object_mut().unwrap().remove("status");
            }
            see(&mut state, &Change { kind, is_gone: false, object }, now);
        }
    }
    state.decide_in_memory(now);
    state
}

/// What is known in one namespace: its own pods and quotas, and of cluster quotas the limits and the total.
pub(super) fn seen_from(server: &Server, namespace: &str, now: Moment) -> State {
    let mut state = new_state();
    for kind in [Kind::Namespace, Kind::Quota, Kind::Pod, Kind::ClusterQuota, Kind::Charge, Kind::Permission]
    {
        for ((_, of, name), object) in server.all(kind, "") {
            let mut object = object.clone();
            match kind {
                Kind::Namespace if name != namespace => continue,
                Kind::Quota | Kind::Pod if of != namespace => continue,
                Kind::Quota | Kind::ClusterQuota => drop(object.as_object_mut().unwrap().remove("status")),
                _ => {}
            }
            see(&mut state, &Change { kind, is_gone: false, object }, now);
        }
    }
    state.decide_in_memory(now);
    state
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Create { namespace: usize, milli: u64, priority: i32 },
    Delete(usize),
    Finish(usize),
    Limit(usize, u64),
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..3usize, 1..12u64, 0..3i32)
            .prop_map(|(namespace, tenths, priority)| Op::Create { namespace, milli: tenths * 100, priority }),
        1 => any::<usize>().prop_map(Op::Delete),
        1 => any::<usize>().prop_map(Op::Finish),
        1 => (0..3usize, 0..20u64).prop_map(|(quota, tenths)| Op::Limit(quota, tenths * 100)),
    ];
    prop::collection::vec(op, 1..24)
}

/// A leader that has done all there is to do.
pub(super) fn led(ops: &[Op]) -> Story {
    let mut story = Story::led();
    for namespace in NAMESPACES {
        story.server.label(namespace, namespace != "red");
    }
    story.server.allow(true);
    let quotas = [
        key(Kind::ClusterQuota, "", "all"),
        key(Kind::Quota, "green", "own"),
        key(Kind::Quota, "red", "alone"),
    ];
    for (quota, milli) in quotas.iter().zip([1_500, 1_000, 900]) {
        story.server.limit(quota, milli);
    }
    story.run(at(0));
    let mut pods: Vec<super::server::Key> = Vec::new();
    for (n, op) in ops.iter().enumerate() {
        // Less than it takes until room is kept for a pod.
        let now = at(1_000 * u64::try_from(n).unwrap());
        story.server.now_s = i64::try_from(n).unwrap();
        match op {
            Op::Create { namespace, milli, priority } => {
                let namespace = NAMESPACES[*namespace];
                let name = format!("{namespace}-p{n}");
                story.server.create_in(namespace, &name, *milli, *priority);
                pods.push(key(Kind::Pod, namespace, &name));
            }
            Op::Delete(at) if !pods.is_empty() => {
                let pod = pods.remove(at % pods.len());
                story.server.delete(&pod);
            }
            Op::Finish(at) if !pods.is_empty() => story.server.finish(&pods[at % pods.len()].clone()),
            Op::Limit(quota, milli) => story.server.limit(&quotas[*quota], *milli),
            Op::Delete(_) | Op::Finish(_) => {}
        }
        story.run(now);
    }
    // What was put off is written.
    story.run(at(24_500));
    story
}

fn explained(state: &State, server: &Server) -> Vec<PodExplanation> {
    let pods = server.all(Kind::Pod, "");
    let explained =
        pods.filter_map(|((_, namespace, name), _)| state.explain(Subject::Pod { namespace, name }));
    explained.filter_map(|it| if let Explanation::Pod(pod) = it { Some(pod) } else { None }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn what_is_found_from_lists_is_what_the_leader_says(ops in ops()) {
        let story = led(&ops);
        let now = at(25_000);
        let found = recomputed(&story.server, now);
        let (leaders, ours) = (explained(&story.state, &story.server), explained(&found, &story.server));
        prop_assert_eq!(leaders.len(), story.server.all(Kind::Pod, "").count());
        prop_assert_eq!(&leaders, &ours);
        for subject in [
            Subject::Quota { namespace: "green", name: "own" },
            Subject::Quota { namespace: "red", name: "alone" },
            Subject::ClusterQuota { name: "all" },
        ] {
            prop_assert_eq!(story.state.explain(subject), found.explain(subject));
        }
    }

    #[test]
    fn a_tenant_is_told_the_same_of_its_pods_and_nothing_of_others(ops in ops()) {
        let story = led(&ops);
        let now = at(25_000);
        for namespace in NAMESPACES {
            let seen = seen_from(&story.server, namespace, now);
            for state in [&story.state, &seen] {
                for pod in explained(state, &story.server).into_iter().filter(|pod| *pod.namespace == *namespace) {
                    let explanation = Explanation::Pod(pod);
                    let told = format!("{}{}", explanation.at(25), explanation.json());
                    for other in NAMESPACES.into_iter().filter(|other| *other != namespace) {
                        prop_assert!(!told.contains(other), "{other} in {told}");
                    }
                }
            }
            let own = |state: &State| {
                let all = explained(state, &story.server);
                all.into_iter().filter(|pod| *pod.namespace == *namespace).collect::<Vec<_>>()
            };
            prop_assert_eq!(own(&story.state), own(&seen));
        }
    }
}

/// One situation: two pods wait, the first for lack of room in two quotas.
pub(super) fn short() -> Story {
    let mut story = Story::led();
    story.server.label("blue", true);
    story.server.allow(true);
    story.server.limit(&key(Kind::ClusterQuota, "", "tenants"), 1_200);
    story.server.limit(&key(Kind::Quota, "blue", "compute"), 1_000);
    story.server.create_in("blue", "web", 800, 0);
    story.run(at(0));
    story.server.create_in("blue", "urgent", 600, 1_000);
    story.server.now_s = 1;
    story.server.create_in("blue", "train", 500, 0);
    story.run(at(1_000));
    story
}

#[test]
fn event_condition_command_and_json_have_the_same_words() {
    let story = short();
    let sentence = "exceeded quota: compute, requested: requests.cpu=500m, used: requests.cpu=800m, \
        limited: requests.cpu=1; exceeded quota: tenants, requested: requests.cpu=500m, used: requests.cpu=800m, \
        limited: requests.cpu=1200m";
    let event = story.told.iter().find(|event| &*event.name == "train").unwrap();
    assert_eq!((event.reason, event.message.as_str()), ("QuotaExceeded", sentence));
    let explanation = story.state.explain(Subject::Pod { namespace: "blue", name: "train" }).unwrap();
    assert!(explanation.is_held());
    assert_eq!(
        explanation.at(7_441).to_string(),
        "train waits for quota: held 2h04m (since 1970-01-01T00:00:01Z), place 2 of 2 in blue.\n\
        \x20 QUOTA            KEY           NEEDS  USED  LIMIT  SHORT BY\n\
        \x20 compute          requests.cpu  500m   800m  1      300m\n\
        \x20 cluster tenants  requests.cpu  500m   800m  1200m  100m      (800m of them in blue)\n\
        \x20 Ahead: urgent (priority 1000, needs requests.cpu 600m).\n\
        \x20 Would release it: requests.cpu 300m freed in compute and requests.cpu 100m freed in cluster tenants, \
        beside what those ahead need.\n\
        \x20 Largest in compute: web 800m.\n"
    );
    let found = explanation.json();
    assert_eq!((&found["reason"], &found["message"]), (&json!("QuotaExceeded"), &json!(sentence)));
    assert_eq!(found["obstacles"][1]["keys"][0]["shortBy"], "100m");
    assert_eq!(found["obstacles"][1]["keys"][0]["usedInNamespace"], "800m");
    assert_eq!((&found["wait"]["place"], &found["wait"]["of"]), (&json!(2), &json!(2)));
    let quota = story.server.get(&key(Kind::Quota, "blue", "compute")).unwrap();
    let held =
        quota["status"]["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "PodsHeld");
    assert_eq!(held.unwrap()["message"], "2 pods wait, the oldest is urgent: requests.cpu short by 400m");
    assert_eq!(quota["status"]["heldSince"], "1970-01-01T00:00:00Z");
    let view = story
        .state
        .explain(Subject::Quota { namespace: "blue", name: "compute" })
        .unwrap()
        .at(7_441)
        .to_string();
    assert!(
        view.starts_with("compute  held 2, oldest 2h04m (urgent, since 1970-01-01T00:00:00Z)\n"),
        "{view}"
    );
}

#[test]
fn forty_quotas_that_are_in_the_way_are_told_in_one_event_that_says_what_it_leaves_out() {
    let mut story = Story::led();
    story.server.label("blue", true);
    for n in 0..40 {
        story.server.limit(&key(Kind::Quota, "blue", &format!("{n:02}{}", "q".repeat(251))), 100);
    }
    story.server.create_in("blue", "web", 150, 0);
    story.run(at(0));
    let event = story.told.iter().find(|event| &*event.name == "web").unwrap();
    assert_eq!(event.reason, "ExceedsLimit");
    assert!(event.message.len() <= 1_024, "{}", event.message.len());
    assert!(event.message.starts_with("exceeded quota: 00q"), "{}", event.message);
    assert!(event.message.contains("more quotas"), "{}", event.message);
    assert!(
        event.message.contains("can never be released: raise spec.hard[requests.cpu]"),
        "{}",
        event.message
    );
}

fn pod(name: &str, gates: Value, containers: Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "blue", "uid": name, "resourceVersion": "900" },
        "spec": { "schedulingGates": gates, "containers": containers },
    })
}

#[test]
fn pods_that_do_not_wait_for_room_are_told_apart() {
    let mut story = Story::led();
    story.server.label("blue", true);
    story.server.limit(&key(Kind::Quota, "blue", "compute"), 1_000);
    story.server.create_in("blue", "runs", 100, 0);
    story.server.create_in("blue", "over", 100, 0);
    story.run(at(0));
    story.server.finish(&key(Kind::Pod, "blue", "over"));
    story.run(at(1));
    let ours = json!([{ "name": GATE }]);
    let both = json!([{ "name": GATE }, { "name": "example.com/gate" }]);
    let broken = json!([{ "name": "c", "resources": { "requests": { "cpu": "many" } } }]);
    story.state.apply_pod(&wire(pod("foreign", both, json!([]))), at(2));
    story.state.apply_pod(&wire(pod("broken", ours, broken)), at(2));
    let verdict = |name: &str| match story.state.explain(Subject::Pod { namespace: "blue", name }) {
        Some(Explanation::Pod(pod)) => pod.verdict,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(verdict("runs"), Verdict::Released { unreadable: None });
    assert_eq!(verdict("over").reason(), "Finished");
    assert_eq!(verdict("foreign").reason(), "WaitingForOtherGates");
    assert_eq!(verdict("broken").reason(), "Unreadable");
    assert_eq!(story.state.explain(Subject::Pod { namespace: "blue", name: "none" }), None);
    assert_eq!(story.state.explain(Subject::Pod { namespace: "none", name: "runs" }), None);
    // For as long as no controller leads.
    let elsewhere = Verdict::NotTargeted;
    assert_eq!((elsewhere.reason(), elsewhere.is_held()), ("NotTargeted", true));
    let said = elsewhere.sentence(1_024);
    assert!(said.ends_with("the controller that leads lets it go without a charge"), "{said}");
}

#[test]
fn what_is_told_of_waiting_pods_alone_is_written_once_in_ten_seconds_at_most() {
    const SECONDS: u64 = 60;
    let mut story = short();
    let late = |second: u64| format!("late{second}");
    for name in ["urgent", "train"] {
        story.server.delete(&key(Kind::Pod, "blue", name));
    }
    story.server.create_in("blue", &late(0), 900, 0);
    story.run(at(2_000));
    story.run(at(20_000));
    let before = story.server.writes;
    for second in 1..=SECONDS {
        story.server.now_s += 1;
        story.server.delete(&key(Kind::Pod, "blue", &late(second - 1)));
        story.server.create_in("blue", &late(second), 900, 0);
        story.run(at(20_000 + second * 1_000));
    }
    let written = story.server.writes - before;
    assert!((2..=SECONDS / 10 + 1).contains(&u64::try_from(written).unwrap()), "{written} in {SECONDS} s");
}

/// Where a thousand wait and nothing fits any more, each is told what it would need changed, and the quota says so once.
#[test]
fn a_quota_that_is_lowered_to_nothing_tells_a_thousand_pods_and_is_written_a_few_times() {
    const PODS: usize = 1_000;
    let mut story = short();
    for n in 0..PODS {
        story.server.create_in("blue", &format!("many{n}"), 900, 0);
    }
    story.run(at(2_000));
    story.run(at(20_000));
    let (before, told) = (story.server.writes, story.told.len());
    story.server.limit(&key(Kind::Quota, "blue", "compute"), 0);
    for second in 0..60 {
        story.run(at(21_000 + second * 1_000));
    }
    let written = story.server.writes - before;
    assert!(written <= 8, "{written} writes of statuses");
    let reasons: Vec<_> = story.told.iter().skip(told).map(|event| event.reason).collect();
    assert!(reasons.iter().all(|reason| *reason == "ExceedsLimit"), "{reasons:?}");
    assert!(!reasons.is_empty() && reasons.len() <= PODS + 2, "{} events", reasons.len());
    let Some(Explanation::Pod(pod)) = story.state.explain(Subject::Pod { namespace: "blue", name: "many7" })
    else {
        panic!("it is not known")
    };
    assert_eq!(pod.verdict.reason(), "ExceedsLimit");
}

#[test]
fn a_vm_that_does_not_start_is_told_so_and_what_it_was_made_from_too() {
    let mut story = Story::counting(Calculator::VirtualResources, 1_000);
    let mut machine = sized_object("v1", 2, 2);
    machine["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": "vm-uid", "controller": true,
    }]);
    story.see_machine(&wire(machine), 0);
    story.server.create_pod("v1-p1", 100, 0);
    story.server.create_pod("v1-px2", 100, 0);
    story.run(at(0));
    let told =
        |regarding| story.told.iter().filter(move |event| event.regarding == regarding).collect::<Vec<_>>();
    let (of_machine, of_vm) = (told(Regarding::Machine), told(Regarding::VirtualMachine));
    let ([of_machine], [of_vm]) = (&*of_machine, &*of_vm) else { panic!("{:?}", story.told) };
    assert_eq!((&*of_machine.name, of_machine.uid.to_string().as_str()), ("vm", "v1"));
    assert_eq!((&*of_vm.name, of_vm.uid.to_string().as_str()), ("web", "vm-uid"));
    for event in [of_machine, of_vm] {
        assert_eq!(event.reason, "ExceedsLimit");
        assert!(
            event
                .message
                .starts_with("its pod v1-p1 is held: exceeded quota: compute, requested: requests.cpu=2"),
            "{event:?}"
        );
    }
}
