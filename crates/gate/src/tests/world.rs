//! A world of some replicas and one server in which everything may be late, get lost or happen twice.

use super::evaluator::Evaluators;
use super::machine_leaders::Plug;
use super::replica::Replica;
use super::resizes::Resize;
use super::server::{KINDS, Key, Kind, Server, key, uid};
use super::step::{PodAt, Step, Trouble};
use super::team::{NAMESPACE, QUOTA};
use super::trace::Trace;
use crate::{Action, GateEvent, Moment, Outcome, Regarding};

/// What a run begins with.
#[derive(Debug)]
pub struct Setting {
    /// Each namespace, and whether the cluster quotas select it.
    pub namespaces: &'static [(&'static str, bool)],
    /// Kind, namespace and name of each quota, and its limit in thousandths of a CPU.
    pub quotas: &'static [(Kind, &'static str, &'static str, u64)],
    /// How many pods of a namespace there are at most.
    pub pods: u8,
    pub replicas: usize,
}

/// One namespace and its quota.
pub static TEAM: Setting = Setting {
    namespaces: &[(NAMESPACE, false)],
    quotas: &[(Kind::Quota, NAMESPACE, QUOTA, 3000)],
    pods: 12,
    replicas: 2,
};

/// Several namespaces, one quota over some of them, and a quota that one of them has of its own.
pub static SHARED: Setting = Setting {
    namespaces: &[("blue", true), ("green", true), ("red", false)],
    quotas: &[(Kind::ClusterQuota, "", "all", 3000), (Kind::Quota, "green", "own", 2000)],
    pods: 5,
    replicas: 2,
};

impl Setting {
    pub fn is_shared(&self) -> bool {
        self.quotas.iter().any(|(kind, ..)| *kind == Kind::ClusterQuota)
    }

    pub fn quota(&self, at: u8) -> Key {
        let (kind, namespace, name, _) = self.quotas[usize::from(at) % self.quotas.len()];
        key(kind, namespace, name)
    }

    pub fn namespace(&self, at: u8) -> &'static str {
        self.namespaces[usize::from(at) % self.namespaces.len()].0
    }

    /// Pods have the names of their namespaces.
    pub fn pod(&self, (namespace, number): PodAt) -> Key {
        let namespace = self.namespace(namespace);
        key(Kind::Pod, namespace, &format!("{namespace}-p{number}"))
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
    /// It was done, and this is the answer.
    pub outcome: Option<Outcome>,
}

pub struct World {
    pub server: Server,
    pub setting: &'static Setting,
    pub replicas: Vec<Replica>,
    pub lives: Vec<u32>,
    pub requests: Vec<Request>,
    pub resizes: Vec<Resize>,
    pub plugs: Vec<Plug>,
    pub told: Vec<GateEvent>,
    pub now_ms: u64,
    /// The highest limit of each quota of the setting since the beginning.
    pub highest: Vec<u64>,
    pub trouble: Trouble,
    pub trace: Trace,
    pub evaluators: Evaluators,
}

impl World {
    pub fn new(setting: &'static Setting, trouble: Trouble) -> Self {
        let mut server = Server::default();
        for (namespace, is_member) in setting.namespaces {
            server.label(namespace, *is_member);
        }
        if setting.is_shared() {
            server.allow(true);
        }
        for (kind, namespace, name, hard) in setting.quotas {
            server.limit(&key(*kind, namespace, name), *hard);
        }
        let mut world = Self {
            replicas: Vec::new(),
            server,
            setting,
            lives: vec![0; setting.replicas],
            requests: Vec::new(),
            resizes: Vec::new(),
            plugs: Vec::new(),
            told: Vec::new(),
            now_ms: 0,
            highest: setting.quotas.iter().map(|(.., hard)| *hard).collect(),
            trouble,
            trace: Trace::default(),
            evaluators: Evaluators::default(),
        };
        let new = |at| Replica::new(at, &world.server, false, world.moment());
        world.replicas = (0..setting.replicas).map(new).collect();
        world.lead(0);
        world.deliver_all();
        world
    }

    pub fn moment(&self) -> Moment {
        Moment { mono_ms: self.now_ms, unix_ms: self.server.now_s * 1000 }
    }

    pub fn acts(&self, replica: usize) -> bool {
        self.replicas[replica].acts(self.trouble, self.moment())
    }

    pub fn leader(&self) -> &Replica {
        self.replicas.iter().find(|replica| replica.leads).expect("one leads")
    }

    pub fn lead(&mut self, replica: usize) {
        if self.replicas[replica].leads {
            return;
        }
        // A process that lost its lease ends; it is another one that leads later.
        if self.replicas[replica].deposed_at.is_some() {
            self.crash(replica);
        }
        let mut is_handed_over = false;
        for other in self.replicas.iter_mut().filter(|other| other.leads) {
            // Not where a leader goes on that was replaced.
            is_handed_over = self.trouble == Trouble::Expiry && other.state.has_nothing_under_way();
            other.leads = false;
            other.deposed_at = Some(self.now_ms);
        }
        let chosen = &mut self.replicas[replica];
        chosen.leads = true;
        chosen.deposed_at = None;
        chosen.is_handed_over = is_handed_over;
        chosen.state.expect_to_lead();
        chosen.catches_up = Some(self.server.log.len());
        self.evaluators.takes_over(self.server.log.len());
        self.deliver(replica, Kind::Pod, 0);
        self.plan();
    }

    pub fn deliver(&mut self, replica: usize, kind: Kind, count: usize) {
        let now = self.moment();
        self.replicas[replica].deliver(&self.server, kind, count, now);
        self.ask_next(replica);
    }

    pub fn deliver_to(&mut self, replica: usize) {
        KINDS.into_iter().for_each(|kind| self.deliver(replica, kind, usize::MAX));
    }

    pub fn deliver_all(&mut self) {
        (0..self.replicas.len()).for_each(|replica| self.deliver_to(replica));
    }

    pub fn crash(&mut self, replica: usize) {
        self.lives[replica] += 1;
        let number = replica + self.replicas.len() * self.lives[replica] as usize;
        let leads = self.replicas[replica].leads;
        self.evaluators.forget(replica, self.now_ms);
        if leads {
            self.evaluators.takes_over(self.server.log.len());
        }
        self.replicas[replica] = Replica::new(number, &self.server, leads, self.moment());
    }

    pub fn plan(&mut self) {
        let now = self.moment();
        let mut answered = Vec::new();
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            // All processes ask evaluators.
            let asks = self.server.prices.is_some()
                && replica.deposed_at.is_none()
                && !replica.leads
                && !replica.state.is_leading();
            if !asks && !replica.acts(self.trouble, now) {
                continue;
            }
            for action in replica.state.plan(now) {
                if let Action::Release(release) = &action
                    && self.server.prices.is_some()
                {
                    self.evaluators.check_sums(at, &replica.state, release, now.mono_ms);
                    self.evaluators.check_shown((at, self.lives[at]), release, &self.server, self.trouble);
                }
                self.trace.add(at, &action);
                match action {
                    Action::Answer(ticket, judgement) => answered.push((at, ticket, judgement)),
                    Action::WriteEvent(event) => {
                        tells_of_own_pods_only(self.setting, &event);
                        self.told.push(event.clone());
                        replica.state.on_outcome(Outcome::EventWritten(event, true), now);
                    }
                    action => {
                        let (life, logged) = (self.lives[at], self.server.log.len());
                        let begun_ms = now.mono_ms;
                        self.requests.push(Request {
                            replica: at,
                            life,
                            action,
                            begun_ms,
                            logged,
                            outcome: None,
                        });
                    }
                }
            }
            replica.check(self.trouble, now);
        }
        for (replica, ticket, judgement) in answered {
            self.judged(replica, ticket, &judgement);
            self.judged_plug(replica, ticket, &judgement);
        }
    }

    pub fn step(&mut self, step: &Step) {
        self.say(step);
        let (setting, many) = (self.setting, self.replicas.len());
        let process = |at: u8| usize::from(at) % many;
        match *step {
            Step::Create(at, milli_cpu, priority) => {
                let (_, namespace, name) = setting.pod(at);
                self.server.create_in(&namespace, &name, milli_cpu, priority);
            }
            Step::Delete(at) => self.server.delete(&setting.pod(at)),
            Step::Finish(at) => self.server.finish(&setting.pod(at)),
            Step::Touch(at) => self.server.edit(&setting.pod(at), |_| {}),
            Step::Relabel(at, price) => self.server.edit(&setting.pod(at), |pod| {
                pod["metadata"]["labels"]["price"] = price.to_string().into();
            }),
            Step::Policy(at) => self.change_policy(process(at)),
            Step::Expect(at) => self.expect_policy(process(at)),
            Step::ReadBeside(at, count) => self.read_beside(process(at), usize::from(count)),
            Step::Switch(at) => self.switch_policy(process(at)),
            Step::Silence(at, pod, is_silent) => {
                self.evaluators.silence(process(at), &setting.pod(pod).2, is_silent);
            }
            Step::Resize(at, pod, milli_cpu) => self.resize(process(at), &setting.pod(pod), milli_cpu),
            Step::Commit(at) => self.commit(usize::from(at)),
            Step::Label(namespace, is_member) => {
                self.server.label(setting.namespace(namespace), is_member);
                self.forget_highest(|quota| quota.0 == Kind::ClusterQuota);
            }
            Step::Hard(at, hard) => self.set_hard(at, hard),
            Step::DeleteQuota(at) => {
                self.server.delete(&setting.quota(at));
                self.forget_highest(|quota| *quota == setting.quota(at));
            }
            Step::Pause(at, seconds) => {
                self.pause(setting.namespace(at), i64::from(seconds));
                // What is decided while it lasts goes later too.
                self.forget_highest(|_| true);
            }
            Step::Meaning(at) => self.server.count_otherwise(&setting.quota(at)),
            Step::Scribble(at, used) => self.server.write_status_of(&setting.quota(at), used, 0),
            Step::Selector => {
                self.server.change_selector();
                self.forget_highest(|quota| quota.0 == Kind::ClusterQuota);
            }
            Step::Allow(is_allowed) => {
                self.server.allow(is_allowed);
                self.forget_highest(|quota| quota.0 == Kind::ClusterQuota);
            }
            Step::DeleteCharge => self.delete_charge(),
            Step::Deliver(at, kind, count) => self.deliver(process(at), kind, usize::from(count)),
            Step::Execute(at) => self.execute(usize::from(at)),
            Step::Answer(at, fault) => self.answer(usize::from(at), fault),
            Step::Relist(at, kind) => self.replicas[process(at)].relist(&self.server, kind),
            Step::Crash(at) => self.crash(process(at)),
            Step::Lead(at) => self.lead(process(at)),
            Step::Wait(ms) => self.pass(ms),
            Step::Calm => self.quiet_second(),
        }
        self.collect_garbage();
        self.plan();
    }

    /// With `SIM_TRACE` in the environment a run says what happens.
    pub fn say(&self, step: &impl std::fmt::Debug) {
        if std::env::var_os("SIM_TRACE").is_some() {
            eprintln!("{}ms {step:?}", self.now_ms);
        }
    }

    /// Limits only grow, unless anything may happen.
    fn set_hard(&mut self, at: u8, hard: u64) {
        let highest = &mut self.highest[usize::from(at) % self.setting.quotas.len()];
        let hard = if self.trouble == Trouble::BusyAdmin { hard } else { hard.max(*highest) };
        *highest = hard.max(*highest);
        self.server.limit(&self.setting.quota(at), hard);
    }

    /// From now on more may be taken of these quotas than they allow: pods ran before they were about them.
    fn forget_highest(&mut self, is_meant: impl Fn(&Key) -> bool) {
        for (highest, (kind, namespace, name, _)) in self.highest.iter_mut().zip(self.setting.quotas) {
            if is_meant(&key(*kind, namespace, name)) {
                *highest = u64::MAX;
            }
        }
    }

    /// What is taken of each quota of the setting, in thousandths of a CPU.
    pub fn taken(&self) -> Vec<u64> {
        let quotas = self.setting.quotas.iter();
        quotas
            .map(|(kind, namespace, name, _)| self.server.taken_of(&key(*kind, namespace, name)).0)
            .collect()
    }

    /// What was taken since `before` was there.
    pub fn check_room(&self, before: &[u64]) {
        let hidden = self.evaluators.hidden(&self.server);
        for ((after, before), (highest, quota)) in
            self.taken().into_iter().zip(before).zip(self.highest.iter().zip(self.setting.quotas))
        {
            assert!(
                after <= (*before.max(highest)).saturating_add(hidden),
                "{after}m are taken where at most {highest}m may be, of {quota:?}"
            );
        }
    }

    pub fn delete_charge(&mut self) {
        let charge = self.server.all(Kind::Charge, "").next().map(|(key, _)| key.clone());
        if let Some(charge) = charge {
            self.server.delete(&charge);
        }
    }

    /// A charge goes with its quota.
    fn collect_garbage(&mut self) {
        let is_owner =
            |charge: &Key| self.server.all(Kind::ClusterQuota, "").any(|(_, it)| uid(it) == charge.2);
        let charges = self.server.all(Kind::Charge, "").map(|(key, _)| key);
        let orphans: Vec<Key> = charges.filter(|charge| !is_owner(charge)).cloned().collect();
        orphans.iter().for_each(|orphan| self.server.delete(orphan));
    }

    pub fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.server.now_s = i64::try_from(self.now_ms / 1000).unwrap();
    }
}

/// No pod of another namespace is named.
fn tells_of_own_pods_only(setting: &Setting, event: &GateEvent) {
    if setting.is_shared() && matches!(event.regarding, Regarding::Pod(_)) {
        assert!(event.name.starts_with(&*event.namespace), "{event:?}");
        for (other, _) in setting.namespaces.iter().filter(|(other, _)| **other != *event.namespace) {
            assert!(!event.message.contains(&format!("{other}-p")), "{event:?}");
        }
    }
}
