//! How a run of the simulation ends, and what has to be true then.

use sluice_engine::{Amount, Quantity, Resource};

use super::replica::is_in_flight;
use super::server::{CPU, Key, Kind, Server, is_gated, key, uid};
use super::step::Fault;
use super::world::World;
use super::writes::charge_key;

/// More than there are ever to do while two leaders contradict each other.
const REQUESTS: usize = 3_000;

impl World {
    /// No more faults: everything is delivered and answered until nothing happens any more, and for longer than room is
    /// kept for a pod that cannot go.
    pub fn calm_down(&mut self) {
        self.resizes.clear();
        self.plugs.clear();
        self.evaluators.end_silence();
        for _ in 0..150 {
            self.quiet_second();
        }
        for _ in 0..50 {
            self.pass(600_000);
            self.quiet_second();
        }
        let gated = |server: &Server| server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod)).count();
        loop {
            let (writes, waiting) = (self.server.writes, gated(&self.server));
            for _ in 0..5 {
                self.quiet_second();
            }
            // A turn that ends just now lets another pod go.
            if gated(&self.server) == waiting {
                return assert_eq!(self.server.writes, writes, "something is written again and again");
            }
        }
    }

    pub fn quiet_second(&mut self) {
        self.deliver_all();
        self.plan();
        for _ in 0..REQUESTS {
            if self.requests.is_empty() {
                return self.pass(1000);
            }
            self.deliver_all();
            self.answer(0, Fault::None);
            self.pass(10);
            self.plan();
        }
        panic!("requests without an end: {:?}", self.requests.last().map(|request| &request.action));
    }

    pub fn check_end(&self) {
        for quota in self.server.quotas() {
            self.check_record(&quota);
        }
        self.check_shares();
        let held = || self.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod));
        for (key, pod) in held() {
            let quotas = self.quotas_of(&key.1);
            let others = held().filter(|(other, _)| *other != key);
            let others: Vec<_> =
                others.map(|(other, pod)| (self.quotas_of(&other.1), self.server.size_of(pod))).collect();
            // Room may be kept for another one that has waited longer.
            let is_kept = |quota: &Key| {
                let (taken, hard) = (self.server.taken_of(quota).0, self.server.hard(quota).unwrap());
                others.iter().any(|(about, other)| {
                    about.contains(quota) && *other <= hard && taken + self.server.size_of(pod) + other > hard
                })
            };
            let lacks_room =
                quotas.iter().any(|quota| !self.has_room(quota, self.server.size_of(pod)) || is_kept(quota));
            assert!(
                lacks_room,
                "{key:?} of {}m is held, and {:?}",
                self.server.size_of(pod),
                self.rooms(&quotas)
            );
        }
    }

    /// Every quota holds again what it has no room for: no pause goes on after its end.
    pub fn check_in_force(&mut self) {
        let mut large = Vec::new();
        for (namespace, _) in self.setting.namespaces {
            let quotas = self.quotas_of(namespace).into_iter();
            let Some(hard) = quotas.filter_map(|quota| self.server.hard(&quota)).max() else { continue };
            let name = format!("{namespace}-large");
            self.server.create_in(namespace, &name, hard + 50, 0);
            large.push(key(Kind::Pod, namespace, &name));
        }
        assert!(!large.is_empty());
        self.calm_down();
        for pod in large {
            assert!(self.server.get(&pod).is_some_and(is_gated), "{pod:?} went after all pauses");
        }
        self.check_end();
    }

    fn quotas_of(&self, namespace: &str) -> Vec<Key> {
        let all = self.server.quotas().into_iter();
        all.filter(|quota| self.server.is_about(quota, namespace)).collect()
    }

    fn rooms(&self, quotas: &[Key]) -> Vec<(u64, u64)> {
        quotas.iter().map(|quota| (self.server.taken_of(quota).0, self.server.hard(quota).unwrap())).collect()
    }

    fn has_room(&self, quota: &Key, milli_cpu: u64) -> bool {
        self.server.taken_of(quota).0 + milli_cpu <= self.server.hard(quota).unwrap()
    }

    /// What is recorded is what is taken.
    fn check_record(&self, quota: &Key) {
        let object = self.server.get(quota).unwrap();
        let record = match quota.0 {
            Kind::ClusterQuota => self.server.get(&charge_key(uid(object))).expect("a charge"),
            _ => object,
        };
        let (cpu, pods) = self.server.taken_of(quota);
        let used =
            |key: &str| record["status"]["used"][key].as_str().map(|text| Quantity::parse(text).unwrap());
        assert_eq!(used(CPU), Some(of_milli(cpu)), "{quota:?}: the record does not say what is taken");
        let pods = self.server.counts_pods(quota).then(|| Quantity::parse(&pods.to_string()).unwrap());
        assert_eq!(used("pods"), pods, "{quota:?}: the record does not say how many pods there are");
    }

    /// Of what the leader knows nothing is in flight, and each namespace has the share that its pods take.
    fn check_shares(&self) {
        let state = &self.leader().state;
        assert!(state.is_quiet());
        let (_, namespaces, quotas) = state.index();
        assert_eq!(quotas.len(), self.server.quotas().len(), "it knows the quotas that there are");
        for (id, record) in quotas.iter() {
            assert!(!is_in_flight(state, id), "{:?}", state.queue().ledger(id));
            let Some(shares) = state.queue().shares(id) else { continue };
            let lines = state.queue().ledger(id).unwrap().lines();
            let cpu = Resource::from_quota_key(CPU);
            let at = lines.iter().position(|line| line.resource == cpu).unwrap();
            let mut many = 0;
            let quota = key(Kind::ClusterQuota, "", &record.name);
            for (name, _) in self.setting.namespaces {
                let is_selected = self.server.is_about(&quota, name);
                let taken = if is_selected { self.server.taken_in(name).0 } else { 0 };
                let share = shares.get(namespaces.id(name).unwrap().share());
                many += usize::from(taken > 0);
                let known = share.get(at).copied().unwrap_or(Amount::ZERO);
                assert_eq!(known, Amount::from(of_milli(taken)), "{name} of {}", record.name);
            }
            assert_eq!(shares.len(), many, "there are no other shares");
        }
    }
}

fn of_milli(cpu: u64) -> Quantity {
    Quantity::parse(&format!("{cpu}m")).unwrap()
}
