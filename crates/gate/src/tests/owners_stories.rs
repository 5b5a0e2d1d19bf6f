//! VMs that are charged in place of their pods: short stories, one behaviour each.

use super::owners::recharge;
use super::server::wire;
use super::stories::{Story, at};
use crate::{Action, Answer, Outcome};

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
        self.server.is_held(name)
    }

    /// A process that begins to lead while its predecessor may be releasing the target: the source takes all there is.
    fn taken_over_in_migration() -> Self {
        let mut story = Self::begin();
        story.server.set_hard(1000);
        story.server.scribble_status(1000);
        story.charge_machine(Some(1000));
        story.server.create_pod(SOURCE, 100, 0);
        story.server.ungate_pod(SOURCE);
        story.server.create_pod(TARGET, 100, 0);
        story.see_all(at(0));
        story.state.lead(at(0));
        story
    }

    /// Runs, and reads what the quota's status says is used then.
    fn used_at(&mut self, now: u64) -> String {
        self.run(at(now));
        self.server.used().to_owned()
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

/// What a successor counts is the same, whether it sees that the pod has been let go or not.
#[test]
fn a_pod_that_adds_nothing_goes_without_a_record() {
    let mut story = Story::with_machine(1000);
    assert_eq!(story.used_at(60), "1");
    story.server.create_pod(TARGET, 100, 0);
    story.see_all(at(100));
    let actions = story.state.plan(at(100));
    let [Action::Release(release)] = actions.as_slice() else { unreachable!("{actions:?}") };
    assert_eq!(&*release.name, TARGET);
}

/// A quota that is not seen yet may be about it, and not about the other one.
#[test]
fn a_pod_of_other_scopes_goes_when_its_charge_is_recorded() {
    let mut story = Story::with_machine(1000);
    story.server.create_pod(TARGET, 100, 0);
    let mut target = story.server.pod(TARGET).clone();
    target["spec"]["priorityClassName"] = "high".into();
    story.state.apply_pod(&wire(target), at(100));
    let actions = story.state.plan(at(100));
    assert!(matches!(actions.as_slice(), [Action::Record(_)]), "{actions:?}");
}

/// A tenant may set a deadline on a pod of a VM. Another pod of it has none, and may be let in without a gate.
#[test]
fn the_pods_of_a_vm_are_under_the_same_quotas_whatever_deadline_they_have() {
    for pod in [SOURCE, TARGET] {
        let mut story = Story::led();
        story.server.set_hard(1000);
        story.charge_machine(Some(1000));
        let mut quota = story.server.quota().unwrap().clone();
        quota["spec"]["scopes"] = serde_json::json!(["NotTerminating"]);
        story.state.apply_watched_quota(&wire(quota), at(0));
        story.server.create_ungated(pod, 100);
        let mut launcher = story.server.pod(pod).clone();
        if pod == SOURCE {
            launcher["spec"]["activeDeadlineSeconds"] = 60.into();
        }
        story.state.apply_pod(&wire(launcher), at(0));
        let actions = story.state.plan(at(0));
        let [Action::Record(record)] = actions.as_slice() else { unreachable!("{actions:?}") };
        assert_eq!(record.target.used[0].1.to_string(), "1", "{pod}");
    }
}

/// A successor would find that nothing of it is used.
#[test]
fn a_pod_does_not_go_before_what_the_other_one_takes_is_recorded() {
    let mut story = Story::with_machine(600);
    assert_eq!(story.used_at(60), "600m");
    story.charge_machine(Some(800));
    story.server.create_pod(TARGET, 100, 0);
    story.see_all(at(100));
    let actions = story.state.plan(at(100));
    let [Action::Record(record)] = actions.as_slice() else { unreachable!("{actions:?}") };
    let answer = story.server.record(record);
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid.clone(), answer), at(100));
    assert_eq!(story.used_at(200), "800m");
    assert!(!story.is_gated(TARGET));
}

/// The list may be about to show that the source has ended.
#[test]
fn a_pod_that_a_list_shows_before_the_other_one_goes_when_its_charge_is_recorded() {
    let mut story = Story::with_machine(1000);
    assert_eq!(story.used_at(60), "1");
    story.server.create_pod(TARGET, 100, 0);
    story.state.begin_pods();
    story.see_all(at(100));
    let actions = story.state.plan(at(100));
    assert!(matches!(actions.as_slice(), [Action::Record(_)]), "{actions:?}");
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
    let mut story = Story::taken_over_in_migration();
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

/// The predecessor may know already that the source has ended, and have given its room away. And it may have released the
/// target as well, by a request that is under way.
#[test]
fn at_a_take_over_a_decision_about_the_target_that_is_taken_back_makes_no_room() {
    let mut story = Story::taken_over_in_migration();
    let Some(Action::Record(record)) = story.state.plan(at(0)).into_iter().next() else { unreachable!() };
    let answer = story.server.record(&record);
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(0));
    story.see_all(at(0));
    let Some(Action::Release(release)) = story.state.plan(at(0)).into_iter().next() else { unreachable!() };
    story.server.finish_pod(SOURCE);
    story.server.create_pod("plain", 1000, 1);
    story.see_all(at(10));
    let refused = Outcome::Released(release.pod, release.uid, Answer::Refused("not today".to_owned()));
    story.state.on_outcome(refused, at(10));
    assert_eq!(story.used_at(10), "1");
    assert!(story.is_gated("plain"));
    story.server.ungate_pod(TARGET);
    assert_eq!(story.used_at(20), "1");
    story.server.finish_pod(TARGET);
    story.run(at(30));
    assert!(!story.is_gated("plain"));
}

#[test]
fn at_a_take_over_room_is_kept_although_the_quota_counts_something_else_now() {
    let mut story = Story::taken_over_in_migration();
    story.server.finish_pod(SOURCE);
    story.see_all(at(0));
    story.server.change_meaning();
    story.server.create_pod("plain", 1000, 1);
    story.run(at(10));
    assert!(story.is_gated("plain"));
    assert_eq!(story.used_at(20), "1");
}

#[test]
fn at_a_take_over_the_target_claims_its_charge_although_its_release_is_refused() {
    let mut story = Story::taken_over_in_migration();
    let mut releases = 0;
    for now in 0..2000 {
        if now == 10 {
            story.server.finish_pod(SOURCE);
            story.server.create_pod("plain", 1000, 0);
        }
        story.see_all(at(now));
        for action in story.state.plan(at(now)) {
            let outcome = match action {
                Action::Record(record) => {
                    let answer = story.server.record(&record);
                    Outcome::Recorded(record.quota, record.uid, answer)
                }
                Action::Release(release) => {
                    assert_eq!(&*release.name, TARGET);
                    releases += 1;
                    Outcome::Released(release.pod, release.uid, Answer::Refused("not today".to_owned()))
                }
                _ => continue,
            };
            story.state.on_outcome(outcome, at(now));
        }
    }
    assert!(releases > 1);
}

/// KubeVirt's controller patches a new pod while its gate is being removed, and no other room is left for it.
#[test]
fn at_a_take_over_the_first_pod_of_a_vm_does_not_wait_for_its_own_room() {
    let mut story = Story::begin();
    story.server.set_hard(1000);
    story.charge_machine(Some(1000));
    story.see_all(at(0));
    story.state.lead(at(0));
    story.run(at(0));
    story.server.create_pod(SOURCE, 100, 0);
    let (mut recorded, mut released) = (0, 0);
    for now in 0..1000 {
        story.see_all(at(now));
        for action in story.state.plan(at(now)) {
            let outcome = match action {
                Action::Record(record) => {
                    recorded += u32::from(released == 1);
                    let answer = story.server.record(&record);
                    Outcome::Recorded(record.quota, record.uid, answer)
                }
                Action::Release(release) => {
                    released += 1;
                    if released == 1 {
                        story.server.touch_pod(SOURCE);
                    }
                    Outcome::Released(release.pod, release.uid.clone(), story.server.release(&release))
                }
                _ => continue,
            };
            story.state.on_outcome(outcome, at(now));
        }
    }
    assert!(!story.is_gated(SOURCE));
    assert_eq!((released, recorded), (2, 0), "its charge is recorded already");
}

/// It has seen the end of the source first, and given that room away.
#[test]
fn beside_another_leader_a_target_waits_for_the_whole_charge() {
    let mut story = Story::with_machine(1000);
    story.server.create_pod(TARGET, 100, 0);
    story.server.charge_quota(1000);
    let charged = story.server.quota().unwrap().clone();
    story.state.apply_watched_quota(&wire(charged), at(100));
    story.run(at(100));
    assert!(story.is_gated(TARGET));
    story.server.create_pod("theirs", 1000, 0);
    story.server.ungate_pod("theirs");
    story.server.finish_pod(SOURCE);
    for now in [200, 51_000, 51_100] {
        story.run(at(now));
        assert!(story.is_gated(TARGET), "{now}");
    }
    story.server.finish_pod("theirs");
    story.run(at(52_000));
    assert!(!story.is_gated(TARGET));
}
