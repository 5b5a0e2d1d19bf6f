//! Resizes: the API server asks the leader, and commits only on the version that it asked about.

use serde_json::Value;
use sluice_index::PodWire;

use super::server::{GATE, Key, uid, wire};
use super::stories::{Story, at};
use super::world::World;
use crate::{Asked, Change, GateConfig, Judgement, Ticket};

/// An API server works on a request that changes something for so long at most.
const RESIZE_MS: u64 = 34_000;

/// A resize that an API server works on.
pub struct Resize {
    pod: Key,
    uid: String,
    version: Value,
    milli_cpu: u64,
    replica: usize,
    life: u32,
    begun_ms: u64,
    /// The question that is open; none if it was allowed.
    ticket: Option<Ticket>,
}

pub fn change(before: Value, milli_cpu: u64) -> Change {
    let mut after = before.clone();
    after["spec"]["containers"][0]["resources"]["requests"]["cpu"] = format!("{milli_cpu}m").into();
    read(&wire(before), &wire(after))
}

fn read(before: &PodWire, after: &PodWire) -> Change {
    let config = GateConfig::new(GATE, sluice_engine::ChargeRules::for_minor(36));
    Change::read(before, after, false, &config, at(0))
}

impl World {
    pub fn resize(&mut self, replica: usize, pod: &Key, milli_cpu: u64) {
        let known = self.server.get(pod).filter(|pod| pod["status"]["phase"] == "Pending");
        let Some(uid) = known.map(|pod| uid(pod).to_owned()) else { return };
        let (pod, version, life) = (pod.clone(), Value::Null, self.lives[replica]);
        let begun_ms = self.now_ms;
        self.ask(Resize { pod, uid, version, milli_cpu, replica, life, begun_ms, ticket: None });
    }

    /// What is refused, or not decided, ends here.
    fn ask(&mut self, mut resize: Resize) {
        if !self.acts(resize.replica) {
            return;
        }
        let pod = self.server.objects[&resize.pod].clone();
        resize.version = pod["metadata"]["resourceVersion"].clone();
        resize.life = self.lives[resize.replica];
        let change = change(pod, resize.milli_cpu);
        let now = self.moment();
        match self.replicas[resize.replica].state.ask(&change, now) {
            Asked::Judged(Judgement::Allowed) => resize.ticket = None,
            Asked::Recording(ticket) => resize.ticket = Some(ticket),
            Asked::Judged(_) => return,
        }
        self.resizes.push(resize);
    }

    pub fn judged(&mut self, replica: usize, ticket: Ticket, judgement: &Judgement) {
        let life = self.lives[replica];
        let is_asked = |one: &Resize| (one.replica, one.life, one.ticket) == (replica, life, Some(ticket));
        let Some(found) = self.resizes.iter().position(is_asked) else { return };
        if *judgement == Judgement::Allowed {
            self.resizes[found].ticket = None;
        } else {
            self.resizes.remove(found);
        }
    }

    pub fn commit(&mut self, choice: usize) {
        let now = self.now_ms;
        self.resizes.retain(|resize| now <= resize.begun_ms + RESIZE_MS);
        let allowed: Vec<usize> =
            (0..self.resizes.len()).filter(|at| self.resizes[*at].ticket.is_none()).collect();
        if allowed.is_empty() {
            return;
        }
        let resize = self.resizes.remove(allowed[choice % allowed.len()]);
        let Some(pod) = self.server.get(&resize.pod).filter(|pod| uid(pod) == resize.uid) else { return };
        if pod["metadata"]["resourceVersion"] != resize.version {
            return self.ask(resize);
        }
        let before = self.taken();
        self.server.resize(&resize.pod, resize.milli_cpu);
        self.check_room(&before);
    }
}

impl Story {
    pub(super) fn ask(&mut self, name: &str, milli_cpu: u64, now: u64) -> Asked {
        let change = self.change(name, milli_cpu);
        self.state.ask(&change, at(now))
    }

    fn change(&self, name: &str, milli_cpu: u64) -> Change {
        change(self.server.pod(name).clone(), milli_cpu)
    }

    /// Asks and does all that comes of it.
    pub(super) fn judge(&mut self, name: &str, milli_cpu: u64, now: u64) -> Judgement {
        match self.ask(name, milli_cpu, now) {
            Asked::Judged(judgement) => judgement,
            Asked::Recording(ticket) => {
                // Two charges are never nearer.
                self.run(at(now + 5));
                let answered = self.answered.iter().find(|(answered, _)| *answered == ticket);
                answered.expect("an answer").1.clone()
            }
        }
    }

    /// Pods that run in a quota of 1000m.
    fn with(pods: &[(&str, u64)]) -> Self {
        let mut story = Self::led();
        story.server.set_hard(1000);
        for (name, milli_cpu) in pods {
            story.server.create_pod(name, *milli_cpu, 0);
        }
        story.run(at(0));
        story
    }
}

#[test]
fn what_a_resize_takes_more_is_recorded_before_it_is_answered() {
    let mut story = Story::with(&[("a", 400), ("b", 100)]);
    let Asked::Recording(_) = story.ask("a", 700, 10) else { panic!("it takes more") };
    assert_eq!((story.server.used(), story.answered.len()), ("500m", 0));
    story.run(at(10));
    assert_eq!((story.server.used(), story.answered.len()), ("800m", 1));
    let words = "exceeded quota: compute, requested: requests.cpu=201m, used: requests.cpu=800m, \
                 limited: requests.cpu=1";
    assert_eq!(story.judge("b", 301, 20), Judgement::Refused(words.to_owned()));
    assert_eq!(story.judge("b", 300, 30), Judgement::Allowed);
    assert_eq!(story.server.used(), "1");
}

#[test]
fn many_requests_about_one_version_are_charged_once_as_the_largest() {
    let mut story = Story::with(&[("a", 400)]);
    for (milli_cpu, now) in [(700, 10), (600, 20), (900, 30), (700, 40)] {
        assert_eq!(story.judge("a", milli_cpu, now), Judgement::Allowed, "{milli_cpu}m");
    }
    assert_eq!(story.server.used(), "900m");
    let writes = story.server.writes;
    assert!(matches!(story.ask("a", 900, 50), Asked::Judged(Judgement::Allowed)), "known, nothing to record");
    story.run(at(50));
    assert_eq!(story.server.writes, writes);
    // The one of 600m is committed: the others cannot be any more.
    story.server.resize_pod("a", 600);
    story.run(at(100));
    assert_eq!(story.server.used(), "600m");
}

#[test]
fn a_charge_ends_when_its_request_can_be_under_way_no_more() {
    let mut story = Story::with(&[("a", 400)]);
    assert_eq!(story.judge("a", 1000, 10), Judgement::Allowed);
    story.server.create_pod("waits", 100, 0);
    assert_eq!(story.judge("a", 900, 20_000), Judgement::Allowed, "asked again: it counts from there");
    story.run(at(RESIZE_MS + 19_999));
    assert_eq!((story.server.used(), story.gated()), ("1", vec!["waits"]));
    story.run(at(RESIZE_MS + 22_000));
    story.run(at(RESIZE_MS + 23_000));
    assert_eq!((story.server.used(), story.gated()), ("500m", vec![]));
}

#[test]
fn less_and_nothing_of_a_quota_is_allowed_at_once() {
    let mut story = Story::with(&[("a", 400), ("gated", 900)]);
    let writes = story.server.writes;
    for (name, milli_cpu) in [("a", 400), ("a", 100), ("gated", 5000)] {
        assert_eq!(story.ask(name, milli_cpu, 1), Asked::Judged(Judgement::Allowed), "{name} {milli_cpu}m");
    }
    story.run(at(1));
    assert_eq!(story.server.writes, writes);
}

#[test]
fn room_that_is_kept_for_a_pod_that_waits_is_not_taken_by_a_resize() {
    let mut story = Story::with(&[("a", 600), ("ends", 100)]);
    story.server.create_pod("waits", 500, 0);
    story.run(at(100));
    assert_eq!(story.gated(), ["waits"]);
    let later = 200 + 60_000;
    story.server.delete_pod("ends");
    story.run(at(later));
    assert!(
        matches!(story.judge("a", 1000, later), Judgement::Refused(why) if why.contains("is kept for pod waits"))
    );
}

#[test]
fn what_a_node_said_of_an_earlier_resize_frees_no_other_from_its_charge() {
    let mut story = Story::with(&[("a", 400)]);
    let judged = |story: &mut Story, generation: i64, now: u64| {
        let before = story.server.pod("a").clone();
        let mut after = before.clone();
        after["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
        after["metadata"]["generation"] = generation.into();
        after["status"] = serde_json::json!({
            "conditions": [{"type": "PodResizePending", "reason": "Infeasible", "observedGeneration": 2}],
            "containerStatuses": [{
                "name": "c", "resources": {"requests": {"cpu": "400m"}}, "allocatedResources": {"cpu": "400m"},
            }],
        });
        story.state.ask(&read(&wire(before), &wire(after)), at(now))
    };
    assert_eq!(judged(&mut story, 2, 10), Asked::Judged(Judgement::Allowed), "the node refuses just this");
    assert!(matches!(judged(&mut story, 3, 20), Asked::Judged(Judgement::Refused(_))));
}

#[test]
fn a_dry_run_takes_nothing() {
    let mut story = Story::with(&[("a", 400)]);
    for (milli_cpu, fits) in [(1000, true), (1001, false)] {
        let change = Change { dry_run: true, ..story.change("a", milli_cpu) };
        let asked = story.state.ask(&change, at(1));
        assert_eq!(asked == Asked::Judged(Judgement::Allowed), fits, "{milli_cpu}m: {asked:?}");
    }
    assert_eq!(story.judge("a", 1000, 10), Judgement::Allowed);
}

#[test]
fn a_pod_is_judged_as_it_was_seen() {
    let mut story = Story::with(&[("a", 800)]);
    story.server.resize_pod("a", 100);
    // The ledger still says 800m: what it would hold beside that is too little once it is seen.
    assert!(matches!(story.ask("a", 800, 1), Asked::Judged(Judgement::Undecided(_))));
    story.run(at(100));
    assert_eq!(story.judge("a", 800, 110), Judgement::Allowed);
    assert_eq!(story.server.used(), "800m");
    story.server.create_pod("new", 300, 0);
    story.run(at(200));
    assert_eq!(story.gated(), ["new"], "the room is taken");
}

#[test]
fn a_quota_that_changes_meanwhile_is_decided_on_anew() {
    let mut story = Story::with(&[("a", 400)]);
    let Asked::Recording(ticket) = story.ask("a", 900, 1) else { panic!("it takes more") };
    story.server.set_hard(600);
    story.run(at(1));
    assert!(matches!(story.answered.as_slice(), [(asked, Judgement::Undecided(_))] if *asked == ticket));
    assert!(matches!(story.judge("a", 900, 10), Judgement::Refused(_)));
    story.run(at(100));
    assert_eq!(story.server.used(), "400m");
}

#[test]
fn what_was_allowed_stays_charged_when_the_quotas_change() {
    let mut story = Story::with(&[("a", 400)]);
    assert_eq!(story.judge("a", 900, 10), Judgement::Allowed);
    story.server.delete_quota();
    story.run(at(2));
    story.server.set_hard(1000);
    story.run(at(100));
    assert_eq!(story.server.used(), "900m");
    story.run(at(RESIZE_MS + 2_000));
    story.run(at(RESIZE_MS + 3_000));
    assert_eq!(story.server.used(), "400m");
}

#[test]
fn a_pod_that_is_gone_holds_nothing() {
    let mut story = Story::with(&[("a", 400)]);
    assert_eq!(story.judge("a", 900, 10), Judgement::Allowed);
    story.server.delete_pod("a");
    story.run(at(100));
    assert_eq!(story.server.used(), "0");
}
