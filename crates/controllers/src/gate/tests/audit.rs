//! The audit finds what no path of the gate produces, and puts it right.

use std::sync::Arc;

use rstest::rstest;
use sluice_engine::Claim;

use super::stories::{Story, at};
use crate::gate::stage::Stage;
use crate::gate::{Found, Place, State};

fn audit(story: &mut Story) -> Found {
    let (namespace, _) = story.state.namespaces.iter().next().unwrap();
    let mut place = Place::default();
    loop {
        let found = story.state.audit(namespace, &mut place, at(1000));
        if found != Found::More {
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

fn charged_twice(state: &mut State) {
    let id = state.pods.iter().find(|(_, record)| &*record.name == "a").unwrap().0;
    let Stage::Counted { charge, quotas } = state.stage(id) else { unreachable!() };
    let (charge, quotas) = (Arc::clone(charge), Arc::clone(quotas));
    state.queue.apply(Claim::Counted, &quotas, &charge);
}

fn not_charged(state: &mut State) {
    let (id, record) = state.pods.iter().find(|(_, record)| &*record.name == "a").unwrap();
    let record = record.clone();
    state.unstage(id, &record);
    state.set_stage(id, Stage::Counted { charge: record.charge, quotas: Arc::from([]) });
}

fn forgotten(state: &mut State) {
    let (id, record) = state.pods.iter().find(|(_, record)| &*record.name == "b").unwrap();
    let record = record.clone();
    state.unstage(id, &record);
}

#[rstest]
#[case(charged_twice, true)]
#[case(not_charged, false)]
#[case(forgotten, false)]
fn a_difference_is_found_and_put_right(#[case] damage: fn(&mut State), #[case] is_in_sums: bool) {
    let mut story = story();
    assert_eq!(audit(&mut story), Found::Right);
    damage(&mut story.state);
    let Found::Repaired { pod, quota } = audit(&mut story) else { panic!("nothing was found") };
    assert_eq!((pod.is_some(), quota.is_some()), (!is_in_sums, is_in_sums));
    assert_eq!(audit(&mut story), Found::Right);
    story.run(at(2000));
    assert_eq!(story.gated(), ["b"], "what a takes is counted once");
    story.server.finish_pod("a");
    story.run(at(3000));
    assert_eq!(story.gated(), Vec::<&str>::new(), "and b was not forgotten");
}
