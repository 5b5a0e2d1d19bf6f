//! What a leader honours of those before it and beside it, and what it leaves to the next one: short stories.

use super::replica::see;
use super::server::wire;
use super::step::Fault;
use super::stories::{Story, at};
use crate::{Action, Answer, Moment, Outcome};

impl Story {
    /// Led by the second process: the first one recorded `used` of 1000m. Pods have a name, thousandths of a CPU and a
    /// priority.
    fn taken_over(used: u64, pods: &[(&str, u64, i32)]) -> Self {
        let mut story = Self::begin();
        story.server.set_hard(1000);
        story.server.scribble_status(used);
        for (name, milli_cpu, priority) in pods {
            story.server.create_pod(name, *milli_cpu, *priority);
        }
        story.see_all(at(0));
        story.state.lead(at(0));
        story.run(at(0));
        story
    }

    /// A new process lists.
    fn list(&mut self, now: Moment) {
        self.state.apply_quota(&wire(self.server.quota().unwrap().clone()), now);
        for (_, pod) in self.server.pods() {
            self.state.apply_pod(&wire(pod.clone()), now);
        }
        self.cursor = self.server.log.len();
    }
}

#[test]
fn what_a_predecessor_recorded_is_honoured_for_a_while() {
    let mut story = Story::taken_over(700, &[("a", 500, 0)]);
    assert_eq!(story.gated(), ["a"]);
    story.run(at(49_000));
    assert_eq!(story.gated(), ["a"]);
    story.run(at(50_000));
    story.run(at(50_100));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

/// The clock says that the predecessor's requests are dead, not that what they did was seen.
#[test]
fn what_a_predecessor_recorded_is_honoured_until_the_watch_has_passed_what_it_did() {
    let mut story = Story::taken_over(800, &[("a", 800, 0), ("b", 800, 1)]);
    // The watch of pods stands still from here on.
    story.server.ungate_pod("a");
    let unseen = story.server.log.split_off(0);
    let mut asked = 0;
    for seconds in [30, 31, 600, 3600] {
        for action in story.state.plan(at(seconds * 1000)) {
            match action {
                Action::CatchUp => asked += 1,
                Action::WriteEvent(_) | Action::Record(_) => {}
                other => panic!("{other:?} after {seconds} s"),
            }
        }
    }
    assert_eq!(asked, 1);
    story.server.log = unseen;
    story.see_all(at(3_600_000));
    story.state.on_outcome(Outcome::CaughtUp, at(3_600_000));
    story.run(at(3_601_000));
    assert_eq!(story.gated(), ["b"]);
}

/// Has one charge recorded, with the answer lost; returns the request.
fn charge_with_lost_answer(story: &mut Story) -> crate::Record {
    story.see_all(at(0));
    let Some(Action::Record(record)) = story.state.plan(at(0)).into_iter().next() else { unreachable!() };
    let _ = story.server.record(&record);
    let lost = Answer::Unknown("connection lost".to_owned());
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid.clone(), lost), at(0));
    *record
}

#[test]
fn a_leader_knows_its_own_record_when_the_answer_was_lost() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 400, 0);
    charge_with_lost_answer(&mut story);
    story.run(at(200));
    assert_eq!(story.gated(), Vec::<&str>::new());
    story.server.create_pod("b", 600, 0);
    story.run(at(300));
    assert_eq!(story.gated(), Vec::<&str>::new(), "no room is lost to the charge that was not answered");
}

#[test]
fn an_equal_record_of_another_leader_is_not_taken_for_the_own() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 0);
    story.see_all(at(0));
    let Some(Action::Record(record)) = story.state.plan(at(0)).into_iter().next() else { unreachable!() };
    // Another leader charges the same amount for a pod of its own; our request and its answer are lost.
    let theirs = crate::Record { charges: record.charges + 1, ..(*record).clone() };
    let _ = story.server.record(&theirs);
    let lost = Answer::Unknown("connection lost".to_owned());
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, lost), at(0));
    story.run(at(200));
    assert_eq!(story.gated(), ["a"], "the other leader's release is awaited");
    story.run(at(51_000));
    story.run(at(51_100));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn freed_room_is_given_away_at_once_after_a_restart() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 0);
    story.run(at(0));
    story.server.create_pod("b", 600, 0);
    story.run(at(10));
    let server = std::mem::take(&mut story.server);
    let mut next = Story::begin();
    next.server = server;
    next.list(at(20));
    next.state.lead(at(20));
    next.run(at(20));
    assert_eq!(next.gated(), ["b"]);
    next.server.delete_pod("a");
    next.run(at(30));
    assert_eq!(next.gated(), Vec::<&str>::new());
}

/// A pod ends while nobody leads: its room is free at once after a leader that had nothing under way, and kept for what may
/// be under way after one that ended otherwise.
#[test]
fn room_is_kept_for_a_predecessor_unless_it_had_nothing_under_way() {
    for is_handed_over in [true, false] {
        let mut story = Story::led();
        story.server.set_hard(1000);
        story.server.create_pod("a", 600, 0);
        story.run(at(0));
        assert!(story.state.has_nothing_under_way());
        story.server.create_pod("b", 600, 0);
        story.server.delete_pod("a");
        let mut next = Story::begin();
        next.server = std::mem::take(&mut story.server);
        next.list(at(20));
        assert!(!next.state.has_nothing_under_way(), "it does not lead");
        match is_handed_over {
            true => next.state.lead_after_handover(at(20)),
            false => next.state.lead(at(20)),
        }
        next.run(at(20));
        assert_eq!(next.gated().is_empty(), is_handed_over);
        assert_eq!(next.state.has_nothing_under_way(), is_handed_over);
        next.run(at(51_000));
        next.run(at(51_100));
        assert!(next.gated().is_empty() && next.state.has_nothing_under_way());
    }
}

/// A leader that has not noticed yet that it is none any more sees a pod end, and gives its room away, when this process has
/// caught up with pods and not with quotas.
#[test]
fn who_is_to_lead_honours_what_others_charge_meanwhile() {
    for expects in [true, false] {
        let mut story = Story::led();
        story.server.set_hard(1000);
        story.server.create_pod("a", 600, 0);
        story.run(at(0));
        for waits in ["b", "c"] {
            story.server.create_pod(waits, 600, 0);
        }
        let mut next = Story::begin();
        next.server = std::mem::take(&mut story.server);
        next.list(at(20));
        if expects {
            next.state.expect_to_lead();
        }
        next.server.delete_pod("a");
        next.server.charge_quota(600);
        let [.., gone, charged] = &next.server.log[..] else { unreachable!() };
        let (gone, charged) = (gone.clone(), charged.clone());
        see(&mut next.state, &charged, at(25));
        next.state.lead(at(30));
        see(&mut next.state, &gone, at(35));
        next.run(at(40));
        assert_eq!(next.gated().len(), if expects { 2 } else { 1 }, "the other one may be letting one go");
    }
}

#[test]
fn a_release_is_under_way_until_it_is_answered() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 0);
    let release = loop {
        story.see_all(at(0));
        let action = story.state.plan(at(0)).pop().expect("the pod is to be released");
        if let Action::Release(_) = action {
            break action;
        }
        let outcome = story.server.outcome(&action, Fault::None);
        story.state.on_outcome(outcome, at(0));
    };
    assert!(!story.state.has_nothing_under_way());
    let lost = story.server.outcome(&release, Fault::RequestLost);
    story.state.on_outcome(lost, at(0));
    assert!(!story.state.has_nothing_under_way(), "it may be done later");
    story.run(at(10_000));
    assert!(story.gated().is_empty() && story.state.has_nothing_under_way());
}
