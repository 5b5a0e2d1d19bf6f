//! How a run ends, and what has to be true then.

use sluice_engine::{Amount, Claim, Quantity, Resource};

use super::super::step::Fault;
use super::server::{Key, Kind, NAMESPACES, Server, is_gated, key, pod_milli};
use super::world::World;

/// More than there are ever to do while two leaders contradict each other.
const REQUESTS: usize = 3_000;

impl World {
    /// No more faults: everything is delivered and answered until nothing happens any more, and for longer than room is
    /// kept for a pod that cannot go.
    pub fn calm_down(&mut self) {
        for _ in 0..150 {
            self.quiet_second();
        }
        for _ in 0..50 {
            self.pass(600_000);
            self.quiet_second();
        }
        let writes = self.server.writes;
        for _ in 0..5 {
            self.quiet_second();
        }
        assert_eq!(self.server.writes, writes, "something is written again and again");
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
        for (key, pod) in self.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod)) {
            let quotas = self.quotas_of(&key.1);
            let lacks_room = quotas.iter().any(|quota| !self.has_room(quota, pod_milli(pod)));
            assert!(lacks_room, "{key:?} of {}m is held, and {:?}", pod_milli(pod), self.rooms(&quotas));
        }
    }

    fn quotas_of(&self, namespace: &str) -> Vec<Key> {
        let all = self.server.quotas().into_iter();
        all.filter(|quota| self.server.is_about(quota, namespace)).collect()
    }

    fn rooms(&self, quotas: &[Key]) -> Vec<(u64, u64)> {
        quotas.iter().map(|quota| (self.server.taken(quota).0, self.server.hard(quota).unwrap())).collect()
    }

    fn has_room(&self, quota: &Key, milli_cpu: u64) -> bool {
        self.server.taken(quota).0 + milli_cpu <= self.server.hard(quota).unwrap()
    }

    /// What is recorded is what is taken.
    fn check_record(&self, quota: &Key) {
        let object = self.server.get(quota).unwrap();
        let record = match quota.0 {
            Kind::ClusterQuota => {
                let charge = Server::charge_key(object["metadata"]["uid"].as_str().unwrap());
                self.server.get(&charge).expect("a charge")
            }
            _ => object,
        };
        let (cpu, pods) = self.server.taken(quota);
        let used =
            |key: &str| record["status"]["used"][key].as_str().map(|text| Quantity::parse(text).unwrap());
        let expected = Quantity::parse(&format!("{cpu}m")).unwrap();
        assert_eq!(used("requests.cpu"), Some(expected), "{quota:?}: the record does not say what is taken");
        if let Some(recorded) = used("pods") {
            assert_eq!(recorded, Quantity::parse(&pods.to_string()).unwrap(), "{quota:?}");
        }
    }

    /// Of what the leader knows nothing is in flight, and each namespace has the share that its pods take.
    fn check_shares(&self) {
        let leader = self.replicas.iter().find(|replica| replica.leads).expect("one leads");
        assert!(leader.state.is_quiet());
        let (_, namespaces, quotas) = leader.state.index();
        assert_eq!(quotas.len(), self.server.quotas().len(), "it knows the quotas that there are");
        for (id, record) in quotas.iter() {
            let ledger = leader.state.queue().ledger(id).unwrap();
            let is_in_flight =
                ledger.lines().iter().any(|line| line.claimed(Claim::InFlight) != Amount::ZERO);
            assert!(!is_in_flight, "{ledger:?}");
            let Some(shares) = leader.state.queue().shares(id) else { continue };
            let cpu = Resource::from_quota_key("requests.cpu");
            let at = ledger.lines().iter().position(|line| line.resource == cpu).unwrap();
            let mut many = 0;
            let quota = key(Kind::ClusterQuota, "", &record.name);
            for name in NAMESPACES {
                let selected = self.server.is_about(&quota, name);
                let (taken, _) = self.server.taken_in(name);
                let share = shares.get(namespaces.id(name).unwrap().share());
                let expected: Amount = Quantity::parse(&format!("{taken}m")).unwrap().into();
                many += usize::from(selected && taken > 0);
                let known = share.get(at).copied().unwrap_or(Amount::ZERO);
                assert_eq!(
                    known,
                    if selected { expected } else { Amount::ZERO },
                    "{name} of {}",
                    record.name
                );
            }
            assert_eq!(shares.len(), many, "there are no other shares");
        }
    }
}
