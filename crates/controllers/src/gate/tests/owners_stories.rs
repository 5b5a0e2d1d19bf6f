//! VMs that are charged in place of their pods: short stories, one behaviour each.

use super::owners::recharge;
use super::stories::{Story, at};
use crate::gate::Action;

const VM: &str = "v1";
const SOURCE: &str = "v1-p1";
const TARGET: &str = "v1-p2";

impl Story {
    /// A VM that is charged `charge` of 1000m, and its first pod.
    fn with_machine(charge: u64) -> Self {
        let mut story = Self::led();
        story.server.set_hard(1000);
        story.charge_machine(Some(charge));
        story.server.create_pod(SOURCE, 100, 0);
        story.run(at(0));
        story
    }

    fn charge_machine(&mut self, charge: Option<u64>) {
        recharge(&mut self.state, VM, charge, at(0));
    }

    fn is_gated(&self, name: &str) -> bool {
        self.server.pods[name].gated
    }

    /// Runs, and reads what the quota's status says is used then.
    fn used_at(&mut self, now: u64) -> String {
        self.run(at(now));
        self.server.quota.as_ref().and_then(|quota| quota.status.clone()).unwrap().1
    }
}

#[test]
fn two_pods_change_places_in_a_full_quota() {
    let mut story = Story::with_machine(1000);
    assert!(!story.is_gated(SOURCE));
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_at(100), "1");
    assert!(!story.is_gated(TARGET));
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_at(200), "1");
    story.server.delete_pod(TARGET);
    assert_eq!(story.used_at(300), "0");
}

#[test]
fn a_pod_waits_for_what_is_missing_of_the_charge() {
    let mut story = Story::with_machine(600);
    story.server.create_pod("plain", 300, 0);
    assert_eq!(story.used_at(100), "900m");
    story.server.delete_pod(SOURCE);
    story.server.create_pod("other", 500, 0);
    assert_eq!(story.used_at(200), "800m");
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_at(300), "800m");
    assert!(story.is_gated(TARGET), "its size does not count, the charge does");
    story.charge_machine(Some(200));
    assert_eq!(story.used_at(400), "1");
    assert!(!story.is_gated(TARGET));
}

#[test]
fn a_charge_that_grows_is_counted_and_further_pods_go() {
    let mut story = Story::with_machine(600);
    story.server.create_pod("plain", 300, 0);
    story.run(at(100));
    story.charge_machine(Some(800));
    assert_eq!(story.used_at(200), "1100m");
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_at(300), "1100m");
    assert!(!story.is_gated(TARGET));
    story.charge_machine(None);
    assert_eq!(story.used_at(400), "500m", "each pod for itself");
    story.charge_machine(Some(50));
    assert_eq!(story.used_at(500), "350m");
}

#[test]
fn a_decision_on_a_smaller_charge_is_made_again() {
    let mut story = Story::with_machine(600);
    story.server.delete_pod(SOURCE);
    story.run(at(100));
    story.server.create_pod(TARGET, 100, 0);
    story.see_all(at(200));
    assert!(story.state.plan(at(200)).iter().any(|action| matches!(action, Action::Record(_))));
    story.charge_machine(Some(1200));
    assert_eq!(story.used_at(300), "0", "what was asked for is not answered");
    assert!(story.is_gated(TARGET));
}

/// Nothing of a further pod is recorded beside what the VM takes already.
#[test]
fn at_a_take_over_the_end_of_the_source_makes_no_room_while_the_target_may_be_going() {
    let mut story = Story::begin();
    story.server.set_hard(1000);
    story.server.scribble_status(1000);
    story.charge_machine(Some(1000));
    story.server.create_pod(SOURCE, 100, 0);
    story.server.ungate_pod(SOURCE);
    story.server.create_pod(TARGET, 100, 0);
    story.see_all(at(0));
    story.state.lead(at(0));
    story.server.finish_pod(SOURCE);
    story.server.create_pod("plain", 1000, 1);
    assert_eq!(story.used_at(0), "1");
    assert!(story.is_gated("plain"));
    story.server.ungate_pod(TARGET);
    assert_eq!(story.used_at(10), "1");
    story.server.finish_pod(TARGET);
    story.run(at(20));
    assert!(!story.is_gated("plain"));
}
