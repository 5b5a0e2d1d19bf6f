//! Two replicas and one server in which everything may be late, get lost or happen twice.

use super::replica::Replica;
use super::server::{Key, Kind, NAMESPACES, Server, cluster_quota, key, own_quota};
use super::step::{Step, Trouble};
use crate::gate::{Action, GateEvent, Moment, Outcome, Regarding};

pub struct Request {
    pub replica: usize,
    /// Which life of the replica asked: a crash ends it, the request goes on.
    pub life: u32,
    pub action: Action,
    pub begun_ms: u64,
    /// How long the server's log was then.
    pub logged: usize,
    /// It was done, and this is the answer.
    pub outcome: Option<Outcome>,
}

pub struct World {
    pub server: Server,
    pub replicas: Vec<Replica>,
    pub lives: [u32; 2],
    pub requests: Vec<Request>,
    pub told: Vec<GateEvent>,
    pub now_ms: u64,
    /// The highest limits since the beginning: of the cluster quota, and of the namespace's own.
    pub highest: [u64; 2],
    pub trouble: Trouble,
}

pub fn pod(namespace: u8, pod: u8) -> Key {
    let namespace = NAMESPACES[usize::from(namespace) % NAMESPACES.len()];
    key(Kind::Pod, namespace, &format!("{namespace}-p{pod}"))
}

impl World {
    /// Two of three namespaces are selected.
    pub fn new(trouble: Trouble) -> Self {
        let mut server = Server::default();
        for (namespace, is_member) in NAMESPACES.into_iter().zip([true, true, false]) {
            server.label(namespace, is_member);
        }
        server.allow(true);
        let mut world = Self {
            replicas: Vec::new(),
            server,
            lives: [0; 2],
            requests: Vec::new(),
            told: Vec::new(),
            now_ms: 0,
            highest: [3000, 2000],
            trouble,
        };
        world.server.set_hard(&cluster_quota(), 3000);
        world.server.set_hard(&own_quota(), 2000);
        world.replicas = (0..2).map(|at| Replica::new(at, &world.server, false, world.moment())).collect();
        world.lead(0);
        world.deliver_all();
        world
    }

    pub fn moment(&self) -> Moment {
        Moment { mono_ms: self.now_ms, unix_ms: self.server.now_s * 1000 }
    }

    pub fn lead(&mut self, replica: usize) {
        if self.replicas[replica].leads {
            return;
        }
        // A process that lost its lease ends; it is another one that leads later.
        if self.replicas[replica].deposed_at.is_some() {
            self.crash(replica);
        }
        for other in self.replicas.iter_mut().filter(|other| other.leads) {
            other.leads = false;
            other.deposed_at = Some(self.now_ms);
        }
        let chosen = &mut self.replicas[replica];
        chosen.leads = true;
        chosen.deposed_at = None;
        chosen.catches_up = Some(self.server.log.len());
        self.deliver(replica, Kind::Pod, 0);
        self.plan();
    }

    pub fn deliver(&mut self, replica: usize, kind: Kind, count: usize) {
        let now = self.moment();
        self.replicas[replica].deliver(&self.server, kind, count, now);
    }

    pub fn deliver_to(&mut self, replica: usize) {
        for kind in super::server::KINDS {
            self.deliver(replica, kind, usize::MAX);
        }
    }

    pub fn deliver_all(&mut self) {
        self.deliver_to(0);
        self.deliver_to(1);
    }

    pub fn crash(&mut self, replica: usize) {
        self.lives[replica] += 1;
        let number = replica + 2 * self.lives[replica] as usize;
        let leads = self.replicas[replica].leads;
        self.replicas[replica] = Replica::new(number, &self.server, leads, self.moment());
    }

    pub fn plan(&mut self) {
        let now = self.moment();
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            if !replica.acts(now) {
                continue;
            }
            for action in replica.state.plan(now) {
                if let Action::WriteEvent(event) = action {
                    tells_of_own_pods_only(&event);
                    self.told.push(event.clone());
                    replica.state.on_outcome(Outcome::EventWritten(event, true), now);
                    continue;
                }
                let (life, logged) = (self.lives[at], self.server.log.len());
                let request =
                    Request { replica: at, life, action, begun_ms: now.mono_ms, logged, outcome: None };
                self.requests.push(request);
            }
            replica.check(now);
        }
    }

    pub fn step(&mut self, step: &Step) {
        if std::env::var_os("SIM_TRACE").is_some() {
            eprintln!("{}ms {step:?}", self.now_ms);
        }
        match *step {
            Step::Create { namespace, pod: number, milli_cpu, priority } => {
                let (_, namespace, name) = pod(namespace, number);
                self.server.create_pod(&namespace, &name, milli_cpu, priority);
            }
            Step::Delete { namespace, pod: number } => self.server.delete(&pod(namespace, number)),
            Step::Finish { namespace, pod: number } => self.server.finish_pod(&pod(namespace, number)),
            Step::Touch { namespace, pod: number } => self.server.edit(&pod(namespace, number), |_| {}),
            Step::Label { namespace, is_member } => {
                self.server.label(NAMESPACES[usize::from(namespace) % NAMESPACES.len()], is_member);
            }
            Step::Hard { is_own, hard } => self.set_hard(is_own, hard),
            Step::DeleteQuota { is_own } => self.server.delete(&quota(is_own)),
            Step::Meaning { is_own } => self.server.change_meaning(&quota(is_own)),
            Step::Selector => self.server.change_selector(),
            Step::Allow { is_allowed } => self.server.allow(is_allowed),
            Step::DeleteCharge => self.delete_charge(),
            Step::Deliver { replica, kind, count } => {
                self.deliver(usize::from(replica), kind, usize::from(count));
            }
            Step::Execute { at } => self.execute(usize::from(at)),
            Step::Answer { at, fault } => self.answer(usize::from(at), fault),
            Step::Relist { replica, kind } => {
                self.replicas[usize::from(replica)].relist(&self.server, kind);
            }
            Step::Crash { replica } => self.crash(usize::from(replica)),
            Step::Lead { replica } => self.lead(usize::from(replica)),
            Step::Wait { ms } => self.pass(ms),
        }
        self.collect_garbage();
        self.plan();
    }

    /// Limits only grow, unless anything may happen.
    fn set_hard(&mut self, is_own: bool, hard: u64) {
        let highest = &mut self.highest[usize::from(is_own)];
        let hard = if self.trouble == Trouble::BusyAdmin { hard } else { hard.max(*highest) };
        *highest = hard.max(*highest);
        self.server.set_hard(&quota(is_own), hard);
    }

    pub fn delete_charge(&mut self) {
        let charge = self.server.all(Kind::Charge, "").next().map(|(key, _)| key.clone());
        if let Some(charge) = charge {
            self.server.delete(&charge);
        }
    }

    /// A charge goes with its quota.
    fn collect_garbage(&mut self) {
        let quotas = self.server.all(Kind::ClusterQuota, "");
        let owners: Vec<_> = quotas.map(|(_, quota)| quota["metadata"]["uid"].clone()).collect();
        let is_orphan = |key: &&Key| owners.iter().all(|uid| *uid != key.2.as_str());
        let orphans: Vec<Key> =
            self.server.all(Kind::Charge, "").map(|(key, _)| key).filter(is_orphan).cloned().collect();
        for orphan in orphans {
            self.server.delete(&orphan);
        }
    }

    pub fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.server.now_s = i64::try_from(self.now_ms / 1000).unwrap();
    }
}

pub fn quota(is_own: bool) -> Key {
    if is_own { own_quota() } else { cluster_quota() }
}

/// Pods have the names of their namespaces.
fn tells_of_own_pods_only(event: &GateEvent) {
    if matches!(event.regarding, Regarding::Pod(_)) {
        assert!(event.name.starts_with(&*event.namespace), "{event:?}");
        for other in NAMESPACES.iter().filter(|other| **other != &*event.namespace) {
            assert!(!event.message.contains(&format!("{other}-p")), "{event:?}");
        }
    }
}
