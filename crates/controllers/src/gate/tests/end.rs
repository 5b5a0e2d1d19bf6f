//! How a run of the simulation ends, and what has to be true then.

use super::server::Pod;
use super::step::Fault;
use super::world::World;

impl World {
    /// No more faults: everything is delivered and answered until nothing happens any more.
    pub fn calm_down(&mut self) {
        self.resizes.clear();
        self.plugs.clear();
        for _ in 0..400 {
            self.deliver_all();
            self.plan();
            while !self.requests.is_empty() {
                self.deliver_all();
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
        let running = self.server.pods.values().filter(|pod| !pod.gated && !pod.finished).count();
        let counted = quota.counts_pods.then(|| running.to_string());
        assert_eq!(quota.used_pods, counted, "the status does not say how many pods there are");
        for pod in self.server.pods.values().filter(|pod| pod.gated) {
            // Room may be kept for another one that has waited longer.
            let is_kept = |other: &&Pod| {
                other.gated
                    && other.uid != pod.uid
                    && other.milli_cpu <= quota.hard
                    && taken + other.milli_cpu > quota.hard
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
