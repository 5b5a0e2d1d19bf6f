//! What can be set about the gate.

use sluice_api::names;
use sluice_engine::ChargeRules;
use sluice_index::{PlatformPod, PodFacts, PodWire};

use super::platform::Platform;

/// Settings of the gate. Times are in milliseconds unless they say otherwise.
#[derive(Clone, Debug)]
pub struct GateConfig {
    /// The name of the scheduling gate.
    pub gate: &'static str,
    /// Rules of charging that depend on the server's version.
    pub rules: ChargeRules,
    /// Which pods are the platform's, and whether they are charged.
    pub platform: Platform,
    /// How long a waiting pod lets others pass before room is kept for it.
    pub patience_ms: u64,
    /// For how long room is kept for usage that is recorded but not found among the pods: longer than any request
    /// that a predecessor has made or admitted can be under way.
    pub in_flight_grace_ms: u64,
    /// How long after an update of a pod was admitted it may still be committed: longer than an API server works on a
    /// request that changes something (34 s, `k8s.io/apiserver/pkg/endpoints/handlers/rest.go`).
    pub admission_life_ms: u64,
    /// How many gates are being removed at a time: enough to keep an API server busy over connections that carry one request
    /// at a time. More only waits inside the server, where it delays others.
    pub concurrent_releases: usize,
    /// The least time between two charges of one quota. Pods that arrive meanwhile share the next one.
    pub charge_spacing_ms: u64,
    /// The least time between two status writes of one quota that no pod waits for.
    pub status_spacing_ms: u64,
    /// How many questions to the same evaluators are in flight at a time, more where they take more at once.
    pub evaluations_at_a_time: usize,
    /// How many pods whose quotas have changed find their stage anew before others get at the state.
    pub reclassified_pods: usize,
    /// About how many pods of a class events are written when the reason for holding them changes; those about the rest
    /// of a long queue would push out all others.
    pub notified_pods: usize,
}

impl GateConfig {
    /// The defaults, for a server with these charging rules.
    #[must_use]
    pub fn new(gate: &'static str, rules: ChargeRules) -> Self {
        Self {
            gate,
            rules,
            platform: Platform::default(),
            patience_ms: 60_000,
            in_flight_grace_ms: 50_000,
            admission_life_ms: 35_000,
            concurrent_releases: 48,
            charge_spacing_ms: 5,
            status_spacing_ms: 50,
            evaluations_at_a_time: 16,
            reclassified_pods: 128,
            notified_pods: 20,
        }
    }

    pub(super) fn read(&self, wire: &PodWire, now: Moment) -> PodFacts {
        let mut facts = PodFacts::read(wire, self.gate, self.rules, now.unix_s());
        let creator =
            wire.metadata.annotations.as_ref().and_then(|known| known.get(names::CREATED_BY_ANNOTATION));
        if creator.is_some_and(|creator| self.platform.may_be_exempt(&facts.name, creator)) {
            facts.platform = PlatformPod::of(&wire.metadata);
        }
        facts
    }
}

/// A moment on two clocks: one that only goes forward, one that agrees with the API's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since some fixed moment of this process.
    pub mono_ms: u64,
    /// Milliseconds since the epoch.
    pub unix_ms: i64,
}

impl Moment {
    /// Whole seconds since the epoch.
    #[must_use]
    pub const fn unix_s(self) -> i64 {
        self.unix_ms.div_euclid(1000)
    }

    /// The milliseconds of the monotonic clock at which a second since the epoch begins; now if that is over.
    pub(super) fn at_second(self, second: i64) -> u64 {
        let later_s = u64::try_from(second.saturating_sub(self.unix_s())).unwrap_or(0);
        self.mono_ms.saturating_add(later_s.saturating_mul(1000))
    }
}
