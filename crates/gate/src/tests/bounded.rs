//! Work that is bounded however much there is to do.

use sluice_index::{NamespaceWire, PodWire, Targeting};

use super::server::{is_gated, wire};
use super::stories::{Story, at};
use crate::{Action, Answer, Judgement, Outcome, Release};

#[test]
fn a_mass_release_asks_for_some_at_a_time_and_forgets_none() {
    let mut story = Story::led();
    story.server.set_hard(0);
    for n in 0..1000 {
        story.server.create_pod(&format!("p{n}"), 1, 0);
    }
    story.run(at(0));
    let nowhere =
        Targeting::new(kube::core::Expression::Exists("nowhere".to_owned()).into(), super::own_namespace());
    assert_eq!(story.state.retarget(nowhere, at(0)), 1000);
    let releases = |story: &mut Story| {
        let actions = story.state.plan(at(0));
        if actions.iter().any(|action| matches!(action, Action::ListTargets)) {
            story.state.on_outcome(Outcome::TargetsListed, at(0));
        }
        let releases = actions.into_iter().filter_map(|action| match action {
            Action::Release(release) => Some(release),
            _ => None,
        });
        releases.collect::<Vec<_>>()
    };
    // 128 pods at a time find out that they may go.
    let asked: Vec<_> = (0..9).flat_map(|_| releases(&mut story)).collect();
    assert_eq!(asked.len(), 32);
    assert!(releases(&mut story).is_empty(), "the next come when these are answered");
    for release in asked {
        let answer = story.server.release(&release);
        story.state.on_outcome(Outcome::Released(release.pod, release.uid, answer), at(1));
    }
    story.run(at(1));
    // The others wait for the next list.
    story.run(at(1_001));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

/// Pods of these namespaces need no quota to go.
fn untargeted(namespaces: &[&str]) -> Story {
    let mut story = Story::led();
    let nowhere =
        Targeting::new(kube::core::Expression::Exists("nowhere".to_owned()).into(), super::own_namespace());
    story.state.retarget(nowhere, at(0));
    for name in namespaces {
        story.state.apply_namespace(&namespace(name), at(0));
    }
    story
}

fn namespace(name: &str) -> NamespaceWire {
    let metadata = serde_json::json!({"name": name, "uid": name, "resourceVersion": "2"});
    wire(serde_json::json!({ "metadata": metadata }))
}

fn gated(namespace: &str, n: usize) -> PodWire {
    wire(serde_json::json!({
        "metadata": {
            "name": format!("p{n}"), "namespace": namespace, "uid": format!("{namespace}-{n}"), "resourceVersion": "5",
        },
        "spec": {"schedulingGates": [{"name": super::server::GATE}], "containers": [{"name": "c"}]},
    }))
}

/// What is asked for by now.
fn releases(story: &mut Story, ms: u64) -> Vec<Release> {
    let mut asked = Vec::new();
    for _ in 0..8 {
        for action in story.state.plan(at(ms)) {
            match action {
                Action::ListTargets => story.state.on_outcome(Outcome::TargetsListed, at(ms)),
                Action::Release(release) => asked.push(release),
                _ => {}
            }
        }
    }
    asked
}

/// The request still occupies the API server.
#[test]
fn a_pod_that_is_deleted_while_its_release_hangs_keeps_its_place() {
    let mut story = untargeted(&["slow"]);
    for n in 0..100 {
        story.state.apply_pod(&gated("slow", n), at(0));
    }
    let hanging = releases(&mut story, 0);
    assert_eq!(hanging.len(), 32);
    for n in 0..100 {
        if hanging.iter().any(|release| *release.name == *format!("p{n}")) {
            story.state.delete_pod(&gated("slow", n));
        }
    }
    assert_eq!(releases(&mut story, 1).len(), 0);
    for release in hanging {
        story.state.on_outcome(Outcome::Released(release.pod, release.uid, Answer::Stale(None)), at(2));
    }
    assert_eq!(releases(&mut story, 2).len(), 32);
}

/// What its requests occupy is nothing of another namespace's.
#[test]
fn a_new_namespace_has_places_of_its_own_whichever_one_has_ended() {
    let mut story = untargeted(&["slow"]);
    for n in 0..100 {
        story.state.apply_pod(&gated("slow", n), at(0));
    }
    assert_eq!(releases(&mut story, 0).len(), 32);
    for n in 0..100 {
        story.state.delete_pod(&gated("slow", n));
    }
    story.state.delete_namespace(&namespace("slow"), at(1));
    story.state.apply_namespace(&namespace("new"), at(2));
    for n in 0..100 {
        story.state.apply_pod(&gated("new", n), at(2));
    }
    assert_eq!(releases(&mut story, 1_001).len(), 16, "all that are left of 48");
}

/// An admission webhook of its own may make all updates of a namespace slow.
#[test]
fn a_namespace_whose_releases_are_not_answered_keeps_no_other_waiting() {
    let mut story = untargeted(&["slow", "other"]);
    for n in 0..300 {
        story.state.apply_pod(&gated("slow", n), at(0));
    }
    let slow = releases(&mut story, 0);
    assert_eq!(slow.len(), 32);
    // What is selected is listed once in a second.
    story.state.apply_pod(&gated("other", 0), at(1_001));
    let other = releases(&mut story, 1_001);
    assert_eq!(other.iter().map(|release| &*release.namespace).collect::<Vec<_>>(), ["other"]);
    for release in slow {
        let lost = Answer::Unknown("no answer in time".into());
        story.state.on_outcome(Outcome::Released(release.pod, release.uid, lost), at(5_000));
    }
    let again = releases(&mut story, 10_000);
    assert_eq!(again.len(), 4, "of as many as wait");
    let first = again.into_iter().next().unwrap();
    let done = wire(serde_json::json!({
        "metadata": {"name": first.name, "namespace": "slow", "uid": first.uid.to_string(), "resourceVersion": "6"},
        "spec": {"containers": [{"name": "c"}]},
    }));
    story.state.on_outcome(Outcome::Released(first.pod, first.uid, Answer::Done(done)), at(10_001));
    assert_eq!(releases(&mut story, 10_001).len(), 29, "it is answered again");
}

/// An API server has gated them, so it knows the label already.
#[test]
fn gated_pods_are_not_let_go_by_a_late_view_of_their_namespace() {
    let mut story = Story::led();
    let label = kube::core::Expression::Exists("gate".to_owned());
    story.state.retarget(Targeting::new(label.into(), super::own_namespace()), at(0));
    story.server.set_hard(1000);
    story.run(at(0));
    for pod in ["a", "b", "c"] {
        story.server.create_pod(pod, 800, 0);
    }
    story.see_all(at(100));
    let lists = |actions: &[Action]| {
        assert!(!actions.iter().any(|action| matches!(action, Action::Release(_))), "{actions:?}");
        actions.iter().filter(|action| matches!(action, Action::ListTargets)).count()
    };
    assert_eq!(lists(&story.state.plan(at(100))), 1, "for all of them");
    assert_eq!(lists(&story.state.plan(at(110))), 0);
    let namespace = serde_json::json!({
        "name": super::team::NAMESPACE, "uid": "n", "resourceVersion": "2", "labels": {"gate": ""},
    });
    story.state.apply_namespace(&wire(serde_json::json!({ "metadata": namespace })), at(120));
    story.state.on_outcome(Outcome::TargetsListed, at(120));
    story.run(at(120));
    assert_eq!(story.gated().len(), 2);
}

#[test]
fn an_edit_of_a_quota_is_worked_off_some_pods_at_a_time_and_nothing_is_decided_before_its_end() {
    let mut story = Story::led();
    story.state.config_mut().reclassified_pods = 10;
    story.server.set_hard(100);
    for n in 0..150 {
        story.server.create_pod(&format!("p{n:03}"), 1, 0);
    }
    story.run(at(0));
    assert_eq!(story.gated().len(), 50);
    story.server.delete_pod("p000");
    story.server.change_meaning();
    let running = story.server.pods().filter(|(_, pod)| !is_gated(pod)).count();
    story.see_all(at(100));
    for _ in 0..13 {
        let (asked, _): (Vec<_>, Vec<_>) = story
            .state
            .plan(at(100))
            .into_iter()
            .partition(|action| !matches!(action, Action::WriteEvent(_)));
        assert!(asked.is_empty(), "{asked:?}");
        assert_eq!(story.state.next_due_ms(at(100)), Some(0), "there is more to do");
    }
    // What is seen meanwhile counts.
    story.server.delete_pod("p001");
    assert_eq!(
        story.judge("p002", 2, 100),
        Judgement::Undecided("the object or a quota has changed meanwhile".into())
    );
    story.run(at(200));
    assert_eq!(story.server.taken(), 100, "the room of both pods was given away once");
    assert_eq!(story.server.status(), Some(("100m", "100m")));
    assert_eq!(story.server.quota().unwrap()["status"]["used"]["pods"], "100");
    assert_eq!(running, 99);
}

#[test]
fn decisions_that_a_change_overtakes_are_taken_back_some_at_a_time() {
    let mut story = Story::led();
    story.state.config_mut().reclassified_pods = 10;
    story.server.set_hard(100);
    for n in 0..100 {
        story.server.create_pod(&format!("p{n:03}"), 1, 0);
    }
    story.see_all(at(0));
    // All are decided on and none is recorded.
    let asked = story.state.plan(at(0));
    assert!(matches!(asked.as_slice(), [Action::Record(_)]), "{asked:?}");
    story.server.set_hard(30);
    for action in asked {
        let Action::Record(record) = action else { unreachable!() };
        let answer = story.server.record(&record);
        story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(1));
    }
    for _ in 0..8 {
        let asked = story.state.plan(at(1));
        assert!(asked.is_empty(), "{asked:?}");
    }
    story.run(at(100));
    story.run(at(200));
    assert_eq!(story.server.taken(), 30);
    assert_eq!(story.state.held(), 70);
}

#[test]
fn a_namespace_whose_quota_is_edited_all_the_time_keeps_no_other_at_rest() {
    let mut story = Story::led();
    story.state.config_mut().reclassified_pods = 10;
    let pod = |namespace: &str, n: usize| -> PodWire {
        wire(serde_json::json!({
            "metadata": {
                "name": format!("p{n}"), "namespace": namespace, "uid": format!("{namespace}-{n}"), "resourceVersion": "5",
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"},
        }))
    };
    let mut version = 10;
    let mut edit = |story: &mut Story, namespace: &str| {
        version += 1;
        let key = if version % 2 == 0 { "requests.cpu" } else { "pods" };
        let quota = serde_json::json!({
            "metadata": {"name": "q", "namespace": namespace, "uid": namespace, "resourceVersion": version.to_string()},
            "spec": {"hard": {key: "1k"}},
        });
        story.state.apply_watched_quota(&wire(quota), at(0));
    };
    for namespace in ["busy", "quiet"] {
        for n in 0..100 {
            story.state.apply_pod(&pod(namespace, n), at(0));
        }
    }
    edit(&mut story, "busy");
    edit(&mut story, "quiet");
    let quiet = story.state.index().1.id("quiet").unwrap();
    for _ in 0..30 {
        assert!(story.state.is_paused(quiet));
        edit(&mut story, "busy");
        story.state.plan(at(0));
        if !story.state.is_paused(quiet) {
            return;
        }
    }
    panic!("the quiet namespace rests although its quota was edited once");
}

#[test]
fn what_is_recorded_and_not_released_yet_is_not_taken_for_another_leaders_when_its_namespace_rests() {
    let mut story = Story::led();
    story.server.set_hard(10);
    story.server.create_pod("p", 10, 0);
    story.see_all(at(0));
    let asked = story.state.plan(at(0));
    let [Action::Record(record)] = asked.as_slice() else { panic!("{asked:?}") };
    let answer = story.server.record(record);
    story.see_all(at(0));
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid.clone(), answer), at(0));
    // Its gate is not being removed yet when the namespace is paused, and room is kept for its predecessor.
    story.state.keep_foreign_charges_until(record.quota, 50_000);
    let namespace = story.state.index().2.get(record.quota).unwrap().namespace().unwrap();
    story.state.reclassify_namespace(namespace, at(1));
    story.run(at(100));
    assert_eq!(story.gated(), Vec::<&str>::new());
}
