//! A world of two replicas and one server in which everything may be late, get lost or happen twice.

use sluice_engine::{Amount, Claim};
use sluice_index::{ArqWire, PodWire, Targeting};

use super::machine_leaders::Plug;
use super::pauses;
use super::resizes::Resize;
use super::server::{Change, GATE, Server, wire};
use super::step::{Fault, Step, Trouble, Watch, reply};
use crate::gate::parts::stamp::Stamp;
use crate::gate::{Action, Answer, AuditCursor, AuditFinding, GateConfig, Moment, Outcome, State};

/// For how long a leader that was replaced goes on when two act at once.
const DEPOSED_MS: u64 = 10_000;

/// A request's time limit: nothing arrives after it.
const REQUEST_MS: u64 = 5_000;

pub struct Replica {
    pub state: State,
    /// How much of the log each [`Watch`] has delivered.
    pub cursors: [usize; Watch::ALL.len()],
    pub leads: bool,
    /// A list of pods that is handed on piece by piece.
    listing: Option<Listing>,
    /// It leads as soon as it has seen so much: what there was when it got the lease.
    catches_up: Option<usize>,
    deposed_at: Option<u64>,
}

/// The pods that there were at some moment, in pages.
struct Listing {
    pods: std::vec::IntoIter<serde_json::Value>,
    cursor: usize,
}

impl Replica {
    /// A deposed leader goes on for a while: it has not noticed yet.
    fn acts(&self, trouble: Trouble, now: Moment) -> bool {
        self.leads
            || trouble != Trouble::Expiry
                && self.deposed_at.is_some_and(|since| now.mono_ms < since + DEPOSED_MS)
    }

    fn check(&mut self, trouble: Trouble, now: Moment) {
        let namespaces: Vec<_> = self.state.index().1.iter().map(|(id, _)| id).collect();
        for namespace in namespaces {
            let mut place = AuditCursor::default();
            let found = loop {
                let found = self.state.audit(namespace, &mut place, now);
                if found != AuditFinding::More {
                    break found;
                }
            };
            assert_eq!(found, AuditFinding::Right, "incremental sums differ from recomputed ones");
        }
        let quotas: Vec<_> = self.state.index().2.iter().map(|(id, _)| id).collect();
        for quota in quotas {
            let in_flight = self.state.queue().ledger(quota).is_some_and(|ledger| {
                ledger.lines().iter().any(|line| line.claimed(Claim::InFlight) != Amount::ZERO)
            });
            // No room is ever kept on account of a leader that there is not.
            assert!(
                trouble != Trouble::ScribbledStatus || !in_flight,
                "the only leader takes its own charges for another's"
            );
        }
    }
}

pub struct Request {
    pub replica: usize,
    /// Which life of the replica asked: a crash ends it, the request goes on.
    pub life: u32,
    pub action: Action,
    pub begun_ms: u64,
    /// How long the server's log was then.
    pub logged: usize,
}

pub struct World {
    pub server: Server,
    pub replicas: Vec<Replica>,
    pub(super) lives: Vec<u32>,
    pub requests: Vec<Request>,
    pub(super) resizes: Vec<Resize>,
    pub(super) plugs: Vec<Plug>,
    pub(super) now_ms: u64,
    pub(super) highest_hard: u64,
    pub(super) paused_until: Option<i64>,
    trouble: Trouble,
}

/// A process of its own: `number` tells it from all others.
fn fresh(number: usize) -> State {
    let mut config = GateConfig::new(GATE, sluice_engine::ChargeRules::for_minor(36));
    config.charge_spacing_ms = 0;
    // One takes its time, the other none.
    config.reclassified_pods = if number.is_multiple_of(2) { 1 } else { 1_000 };
    let selector = kube::core::Selector::default();
    let mut state = State::new(config, Targeting::new(selector, super::own_namespace()));
    state.set_stamp(Stamp::numbered(number as u64));
    state.apply_namespace(&pauses::slowly(None), Moment { mono_ms: 0, unix_ms: 0 });
    state
}

impl World {
    pub fn new(trouble: Trouble) -> Self {
        let mut server = Server::default();
        server.set_hard(3000);
        let mut world = Self {
            server,
            replicas: (0..2)
                .map(|number| Replica {
                    state: fresh(number),
                    cursors: [0; Watch::ALL.len()],
                    leads: false,
                    listing: None,
                    catches_up: None,
                    deposed_at: None,
                })
                .collect(),
            lives: vec![0, 0],
            requests: Vec::new(),
            resizes: Vec::new(),
            plugs: Vec::new(),
            now_ms: 0,
            highest_hard: 3000,
            paused_until: None,
            trouble,
        };
        world.lead(0);
        world.deliver_all();
        world
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { mono_ms: self.now_ms, unix_ms: self.server.now_s * 1000 }
    }

    fn lead(&mut self, replica: usize) {
        if self.replicas[replica].leads {
            return;
        }
        // A process that lost its lease ends; it is another one that leads later.
        if self.replicas[replica].deposed_at.is_some() {
            self.crash(replica);
        }
        let now = self.moment();
        for other in &mut self.replicas {
            if other.leads {
                other.leads = false;
                other.deposed_at = Some(now.mono_ms);
            }
        }
        let chosen = &mut self.replicas[replica];
        chosen.leads = true;
        chosen.deposed_at = None;
        chosen.catches_up = Some(self.server.log.len());
        self.deliver(replica, Watch::Pods, 0);
        self.plan();
    }

    /// Pods and quotas come by watches of their own, each as late as it likes.
    pub fn deliver(&mut self, replica: usize, watch: Watch, count: usize) {
        let now = self.moment();
        let one = &mut self.replicas[replica];
        if let (Watch::Pods, Some(listing)) = (watch, &mut one.listing) {
            for pod in listing.pods.by_ref().take(count) {
                one.state.apply_pod(&wire::<PodWire>(pod), now);
            }
            if listing.pods.len() > 0 {
                return;
            }
            one.state.end_pods();
            one.cursors[Watch::Pods as usize] = listing.cursor;
            one.listing = None;
        }
        let cursor = &mut one.cursors[watch as usize];
        let until = cursor.saturating_add(count).min(self.server.log.len());
        for change in &self.server.log[*cursor..until] {
            match (change.clone(), watch) {
                (Change::Pod(pod), Watch::Pods) => one.state.apply_pod(&wire::<PodWire>(pod), now),
                (Change::PodGone(pod), Watch::Pods) => one.state.delete_pod(&wire::<PodWire>(pod)),
                (Change::Quota(quota), Watch::Quotas) => {
                    one.state.apply_watched_quota(&wire::<ArqWire>(quota), now);
                }
                (Change::QuotaGone(quota), Watch::Quotas) => {
                    one.state.delete_watched_quota(&wire::<ArqWire>(quota), now);
                }
                (Change::Machine(vmi), Watch::Machines) => one.state.apply_machine(&vmi, now),
                (Change::MachineGone(vmi), Watch::Machines) => one.state.delete_machine(&vmi, now),
                _ => {}
            }
        }
        *cursor = until;
        let is_listing = one.listing.is_some();
        let watches = if self.server.vms.is_some() { 3 } else { 2 };
        let has_seen = |wanted| !is_listing && one.cursors[..watches].iter().all(|cursor| wanted <= *cursor);
        if one.catches_up.is_some_and(has_seen) {
            one.catches_up = None;
            one.state.lead(now);
        }
    }

    fn relist(&mut self, replica: usize) {
        let pods: Vec<_> = self.server.pods.iter().map(|(name, pod)| Server::pod_json(name, pod)).collect();
        let one = &mut self.replicas[replica];
        one.listing = Some(Listing { pods: pods.into_iter(), cursor: self.server.log.len() });
        one.state.begin_pods();
    }

    pub(super) fn deliver_all(&mut self) {
        for watch in Watch::ALL {
            (0..self.replicas.len()).for_each(|replica| self.deliver(replica, watch, usize::MAX));
        }
    }

    /// A new process: it lists, and knows nothing else.
    fn crash(&mut self, replica: usize) {
        let now = self.moment();
        self.lives[replica] += 1;
        let mut state = fresh(replica + 2 * self.lives[replica] as usize);
        self.server.tell(&mut state, now);
        state.apply_namespace(&pauses::slowly(self.paused_until), now);
        state.begin_quotas();
        if let Some(quota) = &self.server.quota {
            state.apply_listed_quota(&wire::<ArqWire>(Server::quota_json(quota)), now);
        }
        state.end_quotas(now);
        state.begin_pods();
        for (name, pod) in &self.server.pods {
            state.apply_pod(&wire::<PodWire>(Server::pod_json(name, pod)), now);
        }
        state.end_pods();
        let (leads, cursor) = (self.replicas[replica].leads, self.server.log.len());
        let catches_up = leads.then_some(cursor);
        let cursors = [cursor; Watch::ALL.len()];
        self.replicas[replica] =
            Replica { state, cursors, leads, listing: None, catches_up, deposed_at: None };
        self.deliver(replica, Watch::Pods, 0);
    }

    pub fn plan(&mut self) {
        let now = self.moment();
        let mut answered = Vec::new();
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            if !replica.acts(self.trouble, now) {
                continue;
            }
            for action in replica.state.plan(now) {
                if let Action::Answer(ticket, judgement) = action {
                    answered.push((at, ticket, judgement));
                } else if let Action::WriteEvent(tell) = action {
                    replica.state.on_outcome(Outcome::EventWritten(tell, true), now);
                } else {
                    self.requests.push(Request {
                        replica: at,
                        life: self.lives[at],
                        action,
                        begun_ms: now.mono_ms,
                        logged: self.server.log.len(),
                    });
                }
            }
            replica.check(self.trouble, now);
        }
        for (replica, ticket, judgement) in answered {
            self.judged(replica, ticket, &judgement);
            self.judged_plug(replica, ticket, &judgement);
        }
    }

    pub(super) fn acts(&self, replica: usize) -> bool {
        self.replicas[replica].acts(self.trouble, self.moment())
    }

    pub fn answer(&mut self, at: usize, fault: Fault) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.remove(at % self.requests.len());
        let dead = self.now_ms > request.begun_ms + REQUEST_MS;
        let fault = if dead { Fault::RequestLost } else { fault };
        if matches!(fault, Fault::Late) {
            // No process waits for the answer any more.
            self.requests.push(Request { life: u32::MAX, action: request.action.clone(), ..request });
        }
        let done = matches!(fault, Fault::None | Fault::AnswerLost);
        if std::env::var_os("SIM_TRACE").is_some() {
            eprintln!(
                "{}ms answer r{} {:?} {fault:?} dead={dead} server quota={:?} taken={}",
                self.now_ms,
                request.replica,
                request.action,
                self.server.quota.as_ref().map(|q| (&q.status, q.version)),
                self.server.taken()
            );
        }
        let outcome = match &request.action {
            Action::Record(record) => {
                let answer = if done { Some(self.server.record(record)) } else { None };
                Outcome::Recorded(record.quota, record.uid.clone(), reply(answer, fault))
            }
            Action::Release(release) => {
                let before = self.server.taken();
                // A refusal is given only for the very version that there is.
                let answer = match fault {
                    Fault::Refused => Some(self.server.refuse(release)),
                    _ if done => Some(self.server.release(release)),
                    _ => None,
                };
                let after = self.server.taken();
                if after > before {
                    assert!(
                        after <= self.highest_hard,
                        "released {after}m where at most {}m may be taken",
                        self.highest_hard
                    );
                }
                let fault = if matches!(answer, Some(Answer::Stale(_))) { Fault::None } else { fault };
                Outcome::Released(release.pod, release.uid.clone(), reply(answer, fault))
            }
            Action::ListQuotas(namespaces) => {
                let list = self.server.quota.iter().map(|quota| wire(Server::quota_json(quota))).collect();
                let answer = if done { Some(Answer::Done(list)) } else { None };
                Outcome::Listed(namespaces.iter().map(|(id, _)| *id).collect(), reply(answer, fault))
            }
            Action::Read(pod) => {
                let answer = if done { Some(self.server.read(&pod.name)) } else { None };
                Outcome::Read(pod.pod, pod.uid.clone(), reply(answer, fault))
            }
            Action::CatchUp => {
                let one = &self.replicas[request.replica];
                let is_alive = self.lives[request.replica] == request.life;
                if is_alive && (one.listing.is_some() || one.cursors[Watch::Pods as usize] < request.logged) {
                    return self.requests.push(request);
                }
                Outcome::CaughtUp
            }
            Action::ListTargets => Outcome::TargetsListed,
            Action::ListClusterQuotas => Outcome::ClusterListed(Answer::Done(Vec::new())),
            Action::ReadMachine(read) => {
                let find = || self.server.vms.as_ref()?.find(&read.uid.to_string());
                let answer = done.then(|| Answer::Done(find()));
                Outcome::MachineRead(read.clone(), Box::new(reply(answer, fault)))
            }
            Action::WriteEvent(_) | Action::Answer(..) => return,
        };
        if self.lives[request.replica] == request.life {
            let now = self.moment();
            self.replicas[request.replica].state.on_outcome(outcome, now);
        }
    }

    pub fn step(&mut self, step: &Step) {
        if std::env::var_os("SIM_TRACE").is_some() {
            eprintln!("{}ms {step:?}", self.now_ms);
        }
        let pod = |pod: &u8| format!("p{pod}");
        match step {
            Step::Create { pod: p, milli_cpu, priority } => {
                self.server.create_pod(&pod(p), *milli_cpu, *priority);
            }
            Step::Delete { pod: p } => self.server.delete_pod(&pod(p)),
            Step::Finish { pod: p } => self.server.finish_pod(&pod(p)),
            Step::Touch { pod: p } => self.server.touch_pod(&pod(p)),
            Step::Resize { replica, pod: p, milli_cpu } => {
                self.resize(usize::from(*replica), &pod(p), *milli_cpu);
            }
            Step::Commit { at } => self.commit(usize::from(*at)),
            Step::Hard { hard } => {
                self.server.set_hard(*hard);
                self.highest_hard = self.highest_hard.max(*hard);
            }
            Step::Pause { seconds } => self.pause(i64::from(*seconds)),
            Step::DeleteQuota => {
                self.server.delete_quota();
                self.highest_hard = u64::MAX;
            }
            Step::Meaning => self.server.change_meaning(),
            Step::Scribble { used } => self.server.scribble_status(*used),
            Step::Deliver { replica, watch, count } => {
                self.deliver(usize::from(*replica), *watch, usize::from(*count));
            }
            Step::Answer { at, fault } => self.answer(usize::from(*at), *fault),
            Step::Relist { replica } => self.relist(usize::from(*replica)),
            Step::Crash { replica } => self.crash(usize::from(*replica)),
            Step::Lead { replica } => self.lead(usize::from(*replica)),
            Step::Wait { ms } => self.pass(*ms),
        }
        self.plan();
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.server.now_s = i64::try_from(self.now_ms / 1000).unwrap();
    }
}
