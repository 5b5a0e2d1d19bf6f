//! Short stories, one behaviour each.

use std::collections::BTreeMap;

use sluice_index::{NamespaceWire, Targeting, VmiWire};

use super::replica::see;
use super::server::{GATE, Server, is_gated, wire};
use super::step::Fault;
use super::team::NAMESPACE;
use crate::{Action, Answer, GateConfig, GateEvent, Judgement, Moment, Outcome, State, Ticket};

pub(super) fn at(ms: u64) -> Moment {
    Moment { mono_ms: ms, unix_ms: i64::try_from(ms).unwrap() }
}

pub(super) struct Story {
    pub(super) server: Server,
    pub(super) state: State,
    pub(super) cursor: usize,
    pub(super) told: Vec<GateEvent>,
    pub(super) answered: Vec<(Ticket, Judgement)>,
    /// VMs as the server has them, by uid; `None`: it cannot be asked.
    pub(super) machines: Option<BTreeMap<String, VmiWire>>,
}

impl Story {
    pub(super) fn begin() -> Self {
        let config = GateConfig::new(GATE, sluice_engine::ChargeRules::for_minor(36));
        let targeting = Targeting::new(kube::core::Selector::default(), super::own_namespace());
        let mut state = State::new(config, targeting);
        let namespace: NamespaceWire =
            wire(serde_json::json!({"metadata": {"name": NAMESPACE, "uid": "n", "resourceVersion": "1"}}));
        state.apply_namespace(&namespace, at(0));
        let (server, machines) = (Server::default(), Some(BTreeMap::new()));
        Self { server, state, cursor: 0, told: Vec::new(), answered: Vec::new(), machines }
    }

    /// Led by a process that knows that no other one acts.
    pub(super) fn led() -> Self {
        let mut story = Self::begin();
        let grace_ms = std::mem::take(&mut story.state.config_mut().in_flight_grace_ms);
        story.state.lead(at(0));
        story.run(at(0));
        story.state.config_mut().in_flight_grace_ms = grace_ms;
        story
    }

    pub(super) fn see_all(&mut self, now: Moment) {
        for change in self.server.log.split_off(self.cursor) {
            see(&mut self.state, &change, now);
        }
    }

    /// Does everything that is asked for until nothing is.
    pub(super) fn run(&mut self, now: Moment) {
        while self.run_once(now) {}
    }

    /// Does what is asked for now. False if that is nothing, and will be.
    pub(super) fn run_once(&mut self, now: Moment) -> bool {
        self.see_all(now);
        let actions = self.state.plan(now);
        let is_something = !actions.is_empty() || self.state.next_due_ms(now) == Some(0);
        for action in actions {
            let outcome = match action {
                Action::ReadMachine(read) => {
                    let found = self.machines.as_ref().map(|known| known.get(&read.uid.to_string()).cloned());
                    let answer = found.map_or_else(|| Answer::Unknown("no".to_owned()), Answer::Done);
                    Outcome::MachineRead(read, Box::new(answer))
                }
                Action::CatchUp => {
                    self.see_all(now);
                    Outcome::CaughtUp
                }
                Action::Answer(ticket, judgement) => {
                    self.answered.push((ticket, judgement));
                    continue;
                }
                Action::WriteEvent(tell) => {
                    self.told.push(tell.clone());
                    Outcome::EventWritten(tell, true)
                }
                action => self.server.outcome(&action, Fault::None),
            };
            self.state.on_outcome(outcome, now);
        }
        is_something
    }

    pub(super) fn gated(&self) -> Vec<&str> {
        self.server.pods().filter(|(_, pod)| is_gated(pod)).map(|(name, _)| name).collect()
    }
}

#[test]
fn the_charge_is_recorded_before_the_gate_goes() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 400, 0);
    story.see_all(at(0));
    let first = story.state.plan(at(0));
    assert!(matches!(first.as_slice(), [Action::Record(_)]), "{first:?}");
    assert!(story.state.plan(at(1)).is_empty(), "nothing is released before the charge is recorded");
    let Some(Action::Record(record)) = first.into_iter().next() else { unreachable!() };
    let answer = story.server.record(&record);
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(2));
    assert!(
        story.state.plan(at(2)).is_empty(),
        "nothing is released before every quota of that time is seen"
    );
    story.see_all(at(2));
    let second = story.state.plan(at(2));
    assert!(matches!(second.as_slice(), [Action::Release(_)]), "{second:?}");
}

#[test]
fn a_held_pod_is_told_once_with_sorted_amounts() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 800, 0);
    story.run(at(0));
    story.server.create_pod("b", 300, 0);
    story.run(at(1000));
    story.run(at(2000));
    let told: Vec<_> = story.told.iter().map(|tell| (&*tell.name, tell.message.as_str())).collect();
    assert_eq!(
        told,
        [(
            "b",
            "exceeded quota: compute, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"
        )]
    );
}

#[test]
fn a_smaller_pod_passes_until_the_head_has_waited_long() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("running", 600, 0);
    story.run(at(0));
    story.server.now_s = 1;
    story.server.create_pod("head", 800, 0);
    story.run(at(1000));
    story.server.now_s = 2;
    story.server.create_pod("small", 100, 0);
    story.run(at(2000));
    assert_eq!(story.gated(), ["head"]);
    story.server.delete_pod("small");
    story.run(at(89_000));
    story.server.now_s = 90;
    story.server.create_pod("late", 100, 0);
    story.run(at(90_000));
    assert_eq!(story.gated(), ["head", "late"], "room is kept for the head now");
    assert!(
        story.told.iter().any(|tell| &*tell.name == "late" && tell.message.contains("kept for pod head"))
    );
    story.server.delete_pod("running");
    story.run(at(91_000));
    assert_eq!(story.gated(), Vec::<&str>::new(), "the head fits, and beside it the late one");
}

#[test]
fn a_pod_that_can_never_fit_holds_nobody_up() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("giant", 5000, 10);
    story.run(at(0));
    story.server.now_s = 600;
    story.server.create_pod("small", 900, 0);
    story.run(at(600_000));
    assert_eq!(story.gated(), ["giant"]);
    story.server.set_hard(6000);
    story.run(at(601_000));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn a_quota_created_just_before_the_pod_is_not_missed() {
    let mut story = Story::led();
    story.server.set_hard(100);
    // Only the pod is seen: the quota's watch is late.
    story.cursor = story.server.log.len();
    story.server.log.clear();
    story.cursor = 0;
    story.server.create_pod("a", 400, 0);
    story.run(at(0));
    assert_eq!(story.gated(), ["a"]);
}

#[test]
fn without_a_quota_pods_go() {
    let mut story = Story::led();
    story.server.create_pod("a", 400, 0);
    story.run(at(0));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn a_namespace_that_is_no_longer_targeted_lets_its_pods_go() {
    let mut story = Story::led();
    story.server.set_hard(100);
    story.server.create_pod("a", 400, 0);
    story.run(at(0));
    assert_eq!(story.gated(), ["a"]);
    let label = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        match_labels: Some([("gate".to_owned(), "yes".to_owned())].into()),
        ..Default::default()
    };
    story.state.retarget(Targeting::new(label.try_into().unwrap(), super::own_namespace()), at(1));
    story.run(at(1));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

#[test]
fn limits_are_enforced_before_any_status_is_written() {
    let mut story = Story::led();
    story.server.set_hard(300);
    story.server.create_pod("a", 400, 0);
    story.run(at(0));
    assert_eq!(story.gated(), ["a"]);
    assert_eq!(story.server.status(), Some(("300m", "0")));
}

#[test]
fn a_quota_that_is_seen_late_beside_a_known_one_holds_too() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.run(at(0));
    // Created before the pod; the watch of quotas is late.
    story.server.version += 1;
    let late = serde_json::json!({
        "metadata": {
            "name": "late", "namespace": NAMESPACE, "uid": "quota-999", "resourceVersion": story.server.version.to_string(),
        },
        "spec": {"hard": {"requests.cpu": "100m"}},
    });
    story.server.create_pod("a", 400, 0);
    story.see_all(at(100));
    let Some(Action::Record(record)) = story.state.plan(at(100)).into_iter().next() else { unreachable!() };
    let answer = story.server.record(&record);
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(101));
    assert!(story.state.plan(at(101)).is_empty(), "the watch has not come to the record");
    let at_server = super::server::key(super::server::Kind::Quota, NAMESPACE, "late");
    story.server.objects.insert(at_server, late.clone());
    story.state.apply_watched_quota(&wire(late), at(102));
    story.run(at(102));
    story.run(at(200));
    assert_eq!(story.gated(), ["a"]);
}
