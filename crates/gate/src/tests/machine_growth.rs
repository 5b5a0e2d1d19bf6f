//! VMs that are to have more: the API server asks the leader, and commits only on the version that it asked about.

use serde_json::json;
use sluice_engine::vm::Calculator;
use sluice_index::VmiWire;

use super::machines::{sized, vmi};
use super::server::{Kind, key};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Action, Asked, Judgement, MachineChange, Outcome};

const SOURCE: &str = "v1-p1";
const TARGET: &str = "v1-p2";

/// So long after the question a request may be done yet (milliseconds).
const LIFE_MS: u64 = 40_000;

pub(super) fn of_version(mut vmi: VmiWire, version: u64) -> VmiWire {
    vmi.metadata.resource_version = Some(version.to_string());
    vmi
}

impl Story {
    /// A VM with 2 CPUs that runs, in a quota of so many thousandths.
    fn with_running_machine(hard: u64) -> Self {
        let mut story = Self::counting(Calculator::VirtualResources, hard);
        story.see_machine(&of_version(sized(2, 2), 10), 0);
        story.server.create_pod(SOURCE, 100, 0);
        assert_eq!(story.used_after(0), "2");
        story
    }

    fn ask_for(&mut self, after: VmiWire, dry_run: bool, now: u64) -> Asked {
        let change = MachineChange::read(&of_version(sized(2, 2), 10), &after, dry_run);
        self.state.ask_about_machine(&change, at(now))
    }

    /// Asks for so many CPUs, and does all that comes of it.
    fn grow(&mut self, cpus: u32, now: u64) -> Judgement {
        match self.ask_for(of_version(sized(2, cpus), 10), false, now) {
            Asked::Judged(judgement) => judgement,
            Asked::Recording(ticket) => {
                self.run(at(now + 5));
                let answered = self.answered.iter().find(|(answered, _)| *answered == ticket);
                answered.expect("an answer").1.clone()
            }
        }
    }
}

#[test]
fn what_is_plugged_in_is_recorded_before_it_is_answered() {
    let mut story = Story::with_running_machine(4000);
    let Asked::Recording(_) = story.ask_for(of_version(sized(2, 3), 10), false, 100) else {
        panic!("it takes more")
    };
    assert!(story.answered.is_empty());
    assert_eq!(story.used_after(100), "3");
    assert_eq!(story.answered.len(), 1);
    // Nobody has seen it yet.
    story.server.create_pod("web", 1500, 0);
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(200), "3");
    assert_eq!(story.held(), ["web"], "the target brings what is charged");
    story.see_machine(&of_version(sized(2, 3), 11), 300);
    assert_eq!(story.used_after(300), "3");
    story.see_machine(&of_version(sized(2, 2), 12), 400);
    story.server.set_hard(3500);
    assert_eq!(story.used_after(400), "3500m", "taken back, and the room is free");
}

#[test]
fn what_does_not_fit_is_refused_in_the_words_of_a_quota() {
    let mut story = Story::with_running_machine(2500);
    let words = "exceeded quota: compute, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2500m";
    assert_eq!(story.grow(3, 100), Judgement::Refused(words.to_owned()));
    assert_eq!(story.used_after(200), "2");
    assert!(matches!(story.grow(4, 300), Judgement::Refused(_)));
    story.run(at(300));
    let told = format!("not given more CPUs or memory: {words}");
    assert_eq!(story.told_of("vm"), [("QuotaExceeded", told.as_str())], "once in a while");
    story.server.set_hard(3000);
    story.run(at(400));
    assert_eq!(story.grow(3, 400), Judgement::Allowed);
    assert_eq!(story.used_after(500), "3");
}

#[test]
fn a_dry_run_takes_nothing() {
    let mut story = Story::with_running_machine(3000);
    let asked = story.ask_for(of_version(sized(2, 3), 10), true, 100);
    assert_eq!(asked, Asked::Judged(Judgement::Allowed));
    assert_eq!(story.used_after(100), "2");
    let asked = story.ask_for(of_version(sized(2, 4), 10), true, 200);
    assert!(matches!(asked, Asked::Judged(Judgement::Refused(_))), "{asked:?}");
}

#[test]
fn of_what_was_never_done_the_room_is_given_back() {
    let mut story = Story::with_running_machine(3000);
    assert_eq!(story.grow(3, 100), Judgement::Allowed);
    assert_eq!(story.used_after(30_000), "3", "it may be under way");
    let known = story.machines.take();
    assert_eq!(story.used_after(100 + LIFE_MS), "3", "what became of it cannot be read");
    assert!(story.state.next_due_ms(at(200 + LIFE_MS)).is_some_and(|due| due > 0));
    story.machines = known;
    assert_eq!(story.used_after(2_000 + LIFE_MS), "2");
}

#[test]
fn what_was_done_and_not_seen_stays_charged() {
    let mut story = Story::with_running_machine(3000);
    assert_eq!(story.grow(3, 100), Judgement::Allowed);
    story.change_machine(&of_version(sized(2, 3), 11));
    assert_eq!(story.used_after(100 + LIFE_MS), "3");
    assert_eq!(story.used_after(100 + 3 * LIFE_MS), "3");
}

#[test]
fn many_requests_about_one_version_are_charged_once_as_the_largest() {
    let mut story = Story::with_running_machine(5000);
    for (cpus, now) in [(3, 100), (5, 200), (4, 300), (1, 400)] {
        assert_eq!(story.grow(cpus, now), Judgement::Allowed, "{cpus}");
    }
    assert_eq!(story.used_after(500), "5");
    // The one of 3 is committed: the others cannot be any more.
    story.see_machine(&of_version(sized(2, 3), 11), 600);
    assert_eq!(story.used_after(600), "3");
}

#[test]
fn a_vm_is_judged_as_it_was_seen() {
    let mut story = Story::with_running_machine(3000);
    story.see_machine(&of_version(sized(2, 2), 11), 100);
    assert_eq!(story.grow(9, 200), Judgement::Allowed, "it cannot be committed");
    assert_eq!(story.used_after(200), "2");
    let newer = MachineChange::read(&of_version(sized(2, 2), 12), &sized(2, 3), false);
    let asked = story.state.ask_about_machine(&newer, at(300));
    assert!(matches!(asked, Asked::Judged(Judgement::Undecided(_))), "{asked:?}");
    let unknown = MachineChange::read(&sized(2, 2), &sized(2, 3), false);
    let asked = story.state.ask_about_machine(&unknown, at(300));
    assert!(matches!(asked, Asked::Judged(Judgement::Undecided(_))), "it has no version: {asked:?}");
}

#[test]
fn a_quota_that_changes_meanwhile_is_decided_on_anew() {
    let mut story = Story::with_running_machine(3000);
    let Asked::Recording(ticket) = story.ask_for(of_version(sized(2, 3), 10), false, 100) else {
        panic!("it takes more")
    };
    story.server.set_hard(2500);
    assert_eq!(story.used_after(100), "2");
    let undecided = Judgement::Undecided("the object or a quota has changed meanwhile".into());
    assert_eq!(story.answered, [(ticket, undecided)]);
    assert!(matches!(story.grow(3, 300), Judgement::Refused(_)));
}

/// What is kept for it is all that it has recorded, beside what this process has recorded, and not only what is above what
/// this process has asked to record.
#[test]
fn growth_that_is_not_recorded_takes_nothing_of_what_another_leader_has_charged() {
    let mut story = Story::with_running_machine(4000);
    let Asked::Recording(_) = story.ask_for(of_version(sized(2, 3), 10), false, 100) else {
        panic!("it takes more")
    };
    let actions = story.state.plan(at(100));
    let [Action::Record(record)] = actions.as_slice() else { panic!("{actions:?}") };
    story.server.charge_quota(3000);
    story.see_all(at(110));
    let answer = story.server.record(record);
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid.clone(), answer), at(120));
    story.server.create_pod("web", 1500, 0);
    assert_eq!(story.used_after(200), "3");
    assert_eq!(story.held(), ["web"]);
}

#[test]
fn what_was_allowed_stays_charged_when_the_quotas_change() {
    let mut story = Story::with_running_machine(4000);
    assert_eq!(story.grow(3, 100), Judgement::Allowed);
    story.server.delete_quota();
    story.run(at(200));
    story.server.set_hard(3500);
    assert_eq!(story.used_after(300), "3");
    let words = "exceeded quota: compute, requested: requests.cpu=1, used: requests.cpu=3, limited: requests.cpu=3500m";
    assert_eq!(story.grow(4, 400), Judgement::Refused(words.to_owned()));
}

#[test]
fn a_vm_that_does_not_run_is_plugged_in_when_it_does() {
    let mut story = Story::counting(Calculator::VirtualResources, 1500);
    story.see_machine(&of_version(sized(2, 2), 10), 0);
    let undecided = Judgement::Undecided("no pod of the VM runs yet".into());
    assert_eq!(story.grow(3, 100), undecided, "it is not known to have a pod");
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(200), "0");
    assert_eq!(story.grow(3, 300), undecided, "a predecessor may have let the pod go");
    assert_eq!(story.grow(1, 400), Judgement::Allowed, "less is allowed");
    story.server.set_hard(3000);
    assert_eq!(story.used_after(500), "2");
    assert_eq!(story.grow(3, 600), Judgement::Allowed);
    assert_eq!(story.used_after(700), "3");
}

#[test]
fn the_launcher_of_a_vm_that_is_to_have_more_waits_for_that() {
    let mut story = Story::counting(Calculator::VirtualResources, 2500);
    story.see_machine(&of_version(sized(2, 3), 10), 0);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(200), "0");
    assert_eq!(story.held(), [SOURCE]);
    story.server.set_hard(3000);
    assert_eq!(story.used_after(300), "3");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn a_vm_that_is_gone_holds_nothing() {
    let mut story = Story::with_running_machine(3000);
    assert_eq!(story.grow(3, 100), Judgement::Allowed);
    story.state.delete_machine(&of_version(sized(2, 2), 11), at(200));
    story.server.delete_pod(SOURCE);
    assert_eq!(story.used_after(200), "0");
}

#[test]
fn of_vms_that_are_counted_otherwise_nothing_is_held() {
    let mut story = Story::with_running_machine(3000);
    assert_eq!(story.grow(3, 100), Judgement::Allowed);
    story.state.count_machines_by(Calculator::VmiPodUsage, at(200));
    assert_eq!(story.used_after(200), "100m");
    assert_eq!(story.grow(9, 300), Judgement::Allowed);
    assert_eq!(story.used_after(300), "900m", "what its next pod will take");
    story.state.count_machines_by(Calculator::VirtualResources, at(400));
    assert_eq!(story.used_after(400), "2");
}

#[test]
fn a_vm_that_could_not_be_counted_any_more_is_refused() {
    let mut story = Story::with_running_machine(3000);
    let senseless = || {
        let spec = json!({ "memory": { "guest": "lots" } });
        of_version(vmi(&spec, &json!({})), 10)
    };
    let asked = story.ask_for(senseless(), false, 100);
    let words = "cannot be charged: spec.domain.memory.guest: parsing quantity: \
                 expected a number with an optional suffix, like 500m, 1.5 or 2Gi";
    assert_eq!(asked, Asked::Judged(Judgement::Refused(words.to_owned())));
    let change = MachineChange::read(&senseless(), &senseless(), false);
    let asked = story.state.ask_about_machine(&change, at(200));
    assert_eq!(asked, Asked::Judged(Judgement::Allowed), "nor could it be before");
}

/// The VM changes between question and write, so the API server asks again. What its launcher was decided on with for the
/// first question is no record, and that of another quota says nothing of it.
#[test]
fn what_a_launcher_is_to_take_by_a_question_that_has_ended_is_not_taken_for_recorded() {
    for memory in ["1Gi", "2Gi"] {
        let mut story = Story::counting(Calculator::VirtualResources, 4000);
        let of_memory = json!({ "metadata": {}, "spec": { "hard": { "requests.memory": "4Gi" } } });
        story.server.put(&key(Kind::Quota, NAMESPACE, "memory"), of_memory);
        story.see_machine(&of_version(sized(2, 2), 10), 0);
        story.server.create_pod(SOURCE, 100, 0);
        story.see_all(at(0));
        // Whatever is to be recorded is under way from here on.
        let mut under_way = story.state.plan(at(0));
        assert!(matches!(story.ask_for(of_version(sized(2, 3), 10), false, 100), Asked::Recording(_)));
        under_way.extend(story.state.plan(at(100)));
        story.see_machine(&of_version(sized(2, 2), 11), 200);
        under_way.extend(story.state.plan(at(200)));
        let spec = json!({ "memory": { "guest": memory }, "cpu": { "sockets": 3 } });
        let after = vmi(&spec, &json!({ "currentCPUTopology": { "sockets": 2 } }));
        let again = MachineChange::read(&of_version(sized(2, 2), 11), &of_version(after, 11), false);
        let asked = story.state.ask_about_machine(&again, at(200));
        assert!(
            matches!(asked, Asked::Judged(Judgement::Undecided(_))),
            "{memory}, {asked:?}: {under_way:?}"
        );
        for action in under_way {
            story.act(action, at(300));
        }
        assert_eq!(story.used_after(300), "2");
        assert!(matches!(story.state.ask_about_machine(&again, at(400)), Asked::Recording(_)));
        assert_eq!(story.used_after(400), "3");
    }
}
