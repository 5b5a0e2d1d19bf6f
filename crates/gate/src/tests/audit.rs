//! The audit finds what no path of the gate produces, and puts it right.

use rstest::rstest;
use sluice_engine::PodId;

use super::stories::{Story, at};
use crate::{AuditCursor, AuditFinding, State};

fn audit(story: &mut Story) -> AuditFinding {
    let (namespace, _) = story.state.index().1.iter().next().unwrap();
    let mut place = AuditCursor::default();
    loop {
        let found = story.state.audit(namespace, &mut place, at(1000));
        if found != AuditFinding::More {
            return found;
        }
    }
}

/// Of 1000m, `a` runs with 400m and `b` waits with 700m.
fn story() -> Story {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 400, 1);
    story.run(at(0));
    story.server.create_pod("b", 700, 0);
    story.run(at(100));
    assert_eq!(story.gated(), ["b"]);
    story
}

fn pod(state: &State, name: &str) -> PodId {
    state.index().0.iter().find(|(_, record)| &*record.name == name).unwrap().0
}

fn charged_twice(state: &mut State) {
    state.charge_twice(pod(state, "a"));
}

fn not_charged(state: &mut State) {
    state.uncharge(pod(state, "a"));
}

fn forgotten(state: &mut State) {
    state.forget_claim(pod(state, "b"));
}

#[rstest]
#[case(charged_twice, true)]
#[case(not_charged, false)]
#[case(forgotten, false)]
fn a_difference_is_found_and_put_right(#[case] damage: fn(&mut State), #[case] is_in_sums: bool) {
    let mut story = story();
    assert_eq!(audit(&mut story), AuditFinding::Right);
    damage(&mut story.state);
    let AuditFinding::Repaired { pod, quota } = audit(&mut story) else { panic!("nothing was found") };
    assert_eq!((pod.is_some(), quota.is_some()), (!is_in_sums, is_in_sums));
    assert_eq!(audit(&mut story), AuditFinding::Right);
    story.run(at(2000));
    assert_eq!(story.gated(), ["b"], "what a takes is counted once");
    story.server.finish_pod("a");
    story.run(at(3000));
    assert_eq!(story.gated(), Vec::<&str>::new(), "and b was not forgotten");
}
