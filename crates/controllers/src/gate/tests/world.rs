//! A world of two replicas and one server in which everything may be late, get lost or happen twice.

use sluice_engine::{Amount, Claim};
use sluice_index::Targeting;
use sluice_index::wire::{NamespaceWire, PodWire, QuotaWire};

use super::server::{Change, GATE, NAMESPACE, Pod, Server, wire};
use crate::gate::honour::Stamp;
use crate::gate::{Action, Answer, GateConfig, Moment, Outcome, State};

/// For how long a leader that was replaced goes on when two act at once.
const DEPOSED_MS: u64 = 10_000;

/// A request's time limit: nothing arrives after it.
const REQUEST_MS: u64 = 5_000;

/// How late a watch may be. The three together are less than the time for which usage in flight is honoured.
const WATCH_MS: u64 = 10_000;

#[derive(Clone, Debug)]
pub enum Step {
    Create { pod: u8, milli_cpu: u64, priority: i32 },
    Delete { pod: u8 },
    Finish { pod: u8 },
    Touch { pod: u8 },
    Hard { hard: u64 },
    DeleteQuota,
    Scribble { used: u64 },
    Deliver { replica: bool, count: u8 },
    Answer { at: u8, fault: Fault },
    Crash { replica: bool },
    Lead { replica: bool },
    Wait { ms: u64 },
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    None,
    /// Done, but the answer is lost.
    AnswerLost,
    /// Not done, and nobody knows.
    RequestLost,
    /// Perhaps done later, and nobody knows.
    Late,
    Refused,
    Busy,
}

/// What goes wrong in a run besides late, lost and refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Processes crash and leaders change; one that is replaced does not notice for a while, so two act at
    /// once.
    TwoLeaders,
    /// Processes crash and leaders change; one whose lease has expired asks for nothing more, but what it has
    /// asked for may still be done.
    Expiry,
    /// Somebody writes arbitrary usage into the status. Not together with crashes: what a leader has charged
    /// and not released when it crashes is known from the status alone, so whoever may write that can erase it.
    ScribbledStatus,
    /// Crashes, and limits that change and quotas that come and go.
    BusyAdmin,
}

pub struct Replica {
    pub state: State,
    cursor: usize,
    leads: bool,
    deposed_at: Option<u64>,
}

impl Replica {
    fn check(&mut self, trouble: Trouble) {
        let quotas: Vec<_> = self.state.index().2.iter().map(|(id, _)| id).collect();
        for quota in quotas {
            assert!(self.state.audit(quota), "incremental sums differ from recomputed ones");
            let in_flight = self.state.book().ledger(quota).is_some_and(|ledger| {
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
}

pub struct World {
    pub server: Server,
    pub replicas: Vec<Replica>,
    lives: Vec<u32>,
    pub requests: Vec<Request>,
    now_ms: u64,
    /// When each entry of the server's log was made; what was made since the last wait is not in it yet.
    logged_ms: Vec<u64>,
    highest_hard: u64,
    trouble: Trouble,
}

/// A process of its own: `number` tells it from all others.
fn fresh(number: usize) -> State {
    let mut config = GateConfig::new(GATE, sluice_engine::ChargeRules::for_minor(36));
    config.charge_spacing_ms = 0;
    let selector = kube::core::Selector::default();
    let mut state = State::new(config, Targeting::new(selector, super::own_namespace()));
    state.stamp = Stamp::numbered(number as u64);
    state.see_namespace(&namespace(), Moment { mono_ms: 0, unix_ms: 0 });
    state
}

fn namespace() -> NamespaceWire {
    wire(serde_json::json!({"metadata": {"name": NAMESPACE, "uid": "n", "resourceVersion": "1"}}))
}

impl World {
    pub fn new(trouble: Trouble) -> Self {
        let mut server = Server::default();
        server.set_hard(3000);
        let mut world = Self {
            server,
            replicas: (0..2)
                .map(|number| Replica { state: fresh(number), cursor: 0, leads: false, deposed_at: None })
                .collect(),
            lives: vec![0, 0],
            requests: Vec::new(),
            now_ms: 0,
            logged_ms: Vec::new(),
            highest_hard: 3000,
            trouble,
        };
        world.lead(0);
        world
    }

    fn moment(&self) -> Moment {
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
        // A replica only leads when it has seen everything that was there when it began.
        self.deliver(replica, usize::MAX);
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
        chosen.state.lead(now);
        self.plan();
    }

    pub fn deliver(&mut self, replica: usize, count: usize) {
        let now = self.moment();
        let one = &mut self.replicas[replica];
        let until = one.cursor.saturating_add(count).min(self.server.log.len());
        for change in &self.server.log[one.cursor..until] {
            match change.clone() {
                Change::Pod(pod) => one.state.see_pod(&wire::<PodWire>(pod), now),
                Change::PodGone(pod) => one.state.lose_pod(&wire::<PodWire>(pod)),
                Change::Quota(quota) => one.state.see_quota(&wire::<QuotaWire>(quota), now),
                Change::QuotaGone(quota) => one.state.lose_quota(&wire::<QuotaWire>(quota), now),
            }
        }
        one.cursor = until;
    }

    /// A new process: it lists, and knows nothing else.
    fn crash(&mut self, replica: usize) {
        let now = self.moment();
        self.lives[replica] += 1;
        let mut state = fresh(replica + 2 * self.lives[replica] as usize);
        state.begin_quotas();
        if let Some(quota) = &self.server.quota {
            state.see_quota(&wire::<QuotaWire>(Server::quota_json(quota)), now);
        }
        state.end_quotas(now);
        state.begin_pods();
        for (name, pod) in &self.server.pods {
            state.see_pod(&wire::<PodWire>(Server::pod_json(name, pod)), now);
        }
        state.end_pods();
        let leads = self.replicas[replica].leads;
        let mut one = Replica { state, cursor: self.server.log.len(), leads, deposed_at: None };
        if leads {
            one.state.lead(now);
        }
        self.replicas[replica] = one;
    }

    pub fn plan(&mut self) {
        let now = self.moment();
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            // A deposed leader goes on for a while: it has not noticed yet.
            let acts = replica.leads
                || self.trouble != Trouble::Expiry
                    && replica.deposed_at.is_some_and(|since| now.mono_ms < since + DEPOSED_MS);
            if !acts {
                continue;
            }
            for action in replica.state.plan(now) {
                if !matches!(action, Action::Tell(_)) {
                    self.requests.push(Request {
                        replica: at,
                        life: self.lives[at],
                        action,
                        begun_ms: now.mono_ms,
                    });
                }
            }
            replica.check(self.trouble);
        }
    }

    pub fn answer(&mut self, at: usize, fault: Fault) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.remove(at % self.requests.len());
        let dead = self.now_ms > request.begun_ms + REQUEST_MS;
        if matches!(fault, Fault::Late) && !dead {
            // Nobody waits for the answer any more.
            self.requests.push(Request { life: u32::MAX, action: request.action.clone(), ..request });
        }
        let done = !dead && matches!(fault, Fault::None | Fault::AnswerLost);
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
                let answer = if done { Some(self.server.release(release)) } else { None };
                let after = self.server.taken();
                if after > before {
                    assert!(
                        after <= self.highest_hard,
                        "released {after}m where at most {}m may be taken",
                        self.highest_hard
                    );
                }
                Outcome::Released(release.pod, release.uid.clone(), reply(answer, fault))
            }
            Action::ListQuotas(namespace, _) => {
                let list = self.server.quota.iter().map(|quota| wire(Server::quota_json(quota))).collect();
                let answer = if done { Some(Answer::Done(list)) } else { None };
                Outcome::Listed(*namespace, reply(answer, fault))
            }
            Action::Tell(_) => return,
        };
        if self.lives[request.replica] == request.life {
            let now = self.moment();
            self.replicas[request.replica].state.settle(outcome, now);
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
            Step::Hard { hard } => {
                self.server.set_hard(*hard);
                self.highest_hard = self.highest_hard.max(*hard);
            }
            Step::DeleteQuota => {
                self.server.delete_quota();
                self.highest_hard = u64::MAX;
            }
            Step::Scribble { used } => self.server.scribble_status(*used),
            Step::Deliver { replica, count } => self.deliver(usize::from(*replica), usize::from(*count)),
            Step::Answer { at, fault } => self.answer(usize::from(*at), *fault),
            Step::Crash { replica } => self.crash(usize::from(*replica)),
            Step::Lead { replica } => self.lead(usize::from(*replica)),
            Step::Wait { ms } => self.pass(*ms),
        }
        self.plan();
    }

    fn pass(&mut self, ms: u64) {
        self.logged_ms.resize(self.server.log.len(), self.now_ms);
        self.now_ms += ms;
        self.server.now_s = i64::try_from(self.now_ms / 1000).unwrap();
        let late = self.logged_ms.partition_point(|logged| logged + WATCH_MS <= self.now_ms);
        for replica in 0..self.replicas.len() {
            self.deliver(replica, late.saturating_sub(self.replicas[replica].cursor));
        }
    }

    /// No more faults: everything is delivered and answered until nothing happens any more.
    pub fn calm_down(&mut self) {
        for _ in 0..400 {
            self.deliver(0, usize::MAX);
            self.deliver(1, usize::MAX);
            self.plan();
            while !self.requests.is_empty() {
                self.answer(0, Fault::None);
                self.plan();
            }
            self.pass(1000);
        }
    }

    pub fn check_end(&self) {
        let leader = self.replicas.iter().find(|replica| replica.leads).expect("one leads");
        assert!(leader.state.is_quiet());
        let Some(quota) = &self.server.quota else {
            assert!(self.server.pods.values().all(|pod| !pod.gated), "held although there is no quota");
            return;
        };
        let taken = self.server.taken();
        let used = quota.status.as_ref().map(|(_, used)| sluice_engine::Quantity::parse(used).unwrap());
        let expected = sluice_engine::Quantity::parse(&format!("{taken}m")).unwrap();
        assert_eq!(used, Some(expected), "the status does not say what is taken");
        for pod in self.server.pods.values().filter(|pod| pod.gated) {
            // Room may be kept for another one that has waited longer.
            let is_kept = |other: &&Pod| {
                other.gated
                    && other.uid != pod.uid
                    && other.milli_cpu <= quota.hard
                    && taken + pod.milli_cpu + other.milli_cpu > quota.hard
            };
            assert!(
                taken + pod.milli_cpu > quota.hard || self.server.pods.values().any(|other| is_kept(&other)),
                "{}m of {}m taken, and a pod of {}m is held",
                taken,
                quota.hard,
                pod.milli_cpu
            );
        }
    }
}

fn reply<T>(answer: Option<Answer<T>>, fault: Fault) -> Answer<T> {
    match (answer, fault) {
        (Some(answer), Fault::None) => answer,
        (_, Fault::Refused) => Answer::Refused("not today".to_owned()),
        (_, Fault::Busy) => Answer::Busy(None),
        _ => Answer::Unknown("connection lost".to_owned()),
    }
}
