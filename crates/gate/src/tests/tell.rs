//! What is told in a namespace: what the leader says there, and nothing of other namespaces.

use proptest::prelude::*;
use sluice_engine::vm::Calculator;

use super::explain::{NAMESPACES, led, new_state, ops, recomputed, seen_from, short};
use super::machines::sized_object;
use super::server::{Kind, Server, key, wire};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Explanation, Told, Topic, Verdict};

/// All that may be asked in a namespace, of what is there and of what is not.
fn topics(server: &Server) -> Vec<Topic<'_>> {
    let named = |kind| server.all(kind, "").map(|((_, _, name), _)| name.as_str());
    let mut all = vec![Topic::Pod("p"), Topic::Quota("ow"), Topic::ClusterQuota("al"), Topic::Machine("p")];
    all.extend(named(Kind::Pod).map(Topic::Pod));
    all.extend(named(Kind::Quota).map(Topic::Quota));
    all.extend(named(Kind::ClusterQuota).map(Topic::ClusterQuota));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    /// What the leader tells in a namespace, what a process finds there that may list all, and one that may list the
    /// namespace alone.
    #[test]
    fn what_is_told_in_a_namespace_is_the_same_whoever_finds_it_and_names_no_other(ops in ops()) {
        let story = led(&ops);
        let now = at(25_000);
        let found = recomputed(&story.server, now);
        for namespace in NAMESPACES {
            let seen = seen_from(&story.server, namespace, now);
            let others: Vec<&str> = NAMESPACES.into_iter().filter(|other| *other != namespace).collect();
            for topic in topics(&story.server) {
                let told = story.state.tell(namespace, topic).unwrap();
                prop_assert_eq!(&told, &found.tell(namespace, topic).unwrap());
                prop_assert_eq!(&told, &seen.tell(namespace, topic).unwrap());
                let text = match &told {
                    Told::Explained { explanations, .. } => {
                        explanations.iter().map(|it| format!("{}{}", it.at(25), it.json())).collect::<String>()
                    }
                    Told::Unknown(names) => names.concat(),
                    Told::Crowded => String::new(),
                };
                for other in &others {
                    prop_assert!(!text.contains(other), "{topic:?} in {namespace}: {other} in {text}");
                }
            }
        }
    }
}

#[test]
fn a_cluster_quota_is_told_as_one_of_its_namespaces_sees_it() {
    let mut story = short();
    story.server.label("green", true);
    story.server.create_in("green", "away", 300, 0);
    story.server.create_in("green", "late", 900, 0);
    story.run(at(2_000));
    let told = |namespace: &str, name: &str| story.state.tell(namespace, Topic::ClusterQuota(name)).unwrap();
    let Told::Explained { explanations, is_crowded: false } = told("blue", "tenants") else {
        panic!("not told")
    };
    let [explanation] = explanations.as_slice() else { panic!("{explanations:?}") };
    assert_eq!(
        explanation.at(61).to_string(),
        "cluster tenants  held 2, oldest 1m (urgent, since 1970-01-01T00:00:00Z)\n\
        \x20 KEY           USED   LIMIT  %    IN blue  ELSEWHERE\n\
        \x20 requests.cpu  1100m  1200m  91%  800m     300m\n\
        \x20 Largest of requests.cpu: web 800m.\n"
    );
    assert_eq!(explanation.json()["within"], "blue");
    assert_eq!(told("blue", "tenant"), Told::Unknown(vec!["tenants".into()]));
    assert_eq!(told("red", "tenants"), Told::Unknown(Vec::new()), "nothing of such a namespace is known");
    let pods = |namespace: &str| match story.state.tell(namespace, Topic::Pod("trian")).unwrap() {
        Told::Unknown(names) => names,
        told => panic!("{told:?}"),
    };
    assert!(pods("blue").contains(&"train".into()) && !pods("green").contains(&"train".into()));
}

#[test]
fn a_process_that_does_not_lead_tells_nothing() {
    let state = new_state();
    assert_eq!(state.tell("blue", Topic::Pod("web")), None);
}

/// More pods than a look of two milliseconds sees.
#[test]
fn in_a_crowd_places_and_takers_are_left_out_and_amounts_are_not() {
    let mut story = Story::led();
    story.server.label("blue", true);
    story.server.allow(true);
    story.server.limit(&key(Kind::Quota, "blue", "compute"), 1_000);
    story.server.limit(&key(Kind::ClusterQuota, "", "tenants"), 9_000);
    for n in 0..5_001 {
        story.server.create_in("blue", &format!("p{n}"), 600, 0);
    }
    story.run(at(0));
    let told = |topic| story.state.tell("blue", topic).unwrap();
    let explained = |topic| match told(topic) {
        Told::Explained { mut explanations, is_crowded: true } => explanations.remove(0),
        told => panic!("{told:?}"),
    };
    let Explanation::Pod(pod) = explained(Topic::Pod("p1")) else { panic!("no pod") };
    assert!(matches!(pod.verdict, Verdict::NoRoom(_)) && pod.wait.is_none(), "{pod:?}");
    let Explanation::Quota(quota) = explained(Topic::Quota("compute")) else { panic!("no quota") };
    assert_eq!((quota.held, quota.takers.len()), (5_000, 0));
    assert_eq!(told(Topic::ClusterQuota("tenants")), Told::Crowded);
}

#[test]
fn a_vm_is_told_by_its_pods() {
    let mut story = Story::counting(Calculator::VirtualResources, 1_000);
    story.see_machine(&wire(sized_object("v1", 2, 2)), 0);
    story.server.create_pod("v1-p1", 100, 0);
    story.run(at(0));
    let told = |name| story.state.tell(NAMESPACE, Topic::Machine(name)).unwrap();
    let Told::Explained { explanations, .. } = told("vm") else { panic!("{:?}", told("vm")) };
    let [Explanation::Pod(pod)] = explanations.as_slice() else { panic!("{explanations:?}") };
    assert_eq!((&*pod.name, pod.verdict.reason()), ("v1-p1", "ExceedsLimit"));
    assert_eq!(told("vn"), Told::Unknown(vec!["vm".into()]));
}
