//! What was measured, and the figures that come of it.

use std::collections::BTreeMap;

use sluice_testbed::audit::AuditEvent;

use super::drain::Drain;
use super::journey::{Journey, Step, Window};
use super::stopped::Stopped;
use super::tenants::Met;
use crate::report::{median, quantile};

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) migrations: usize,
    pub(super) full: Vec<Journey>,
    pub(super) roomy: Vec<Journey>,
    /// Of Sluice's accounts, by verb and resource; in earnest and in dry runs.
    pub(super) writes: BTreeMap<String, usize>,
    pub(super) dry_runs: BTreeMap<String, usize>,
    /// Events for people, which nothing waits for.
    pub(super) events: BTreeMap<String, usize>,
    pub(super) drains: Vec<Drain>,
    pub(super) drains_roomy: Vec<Drain>,
    pub(super) no_grant: Met,
    pub(super) attack: Met,
    pub(super) stopped: Stopped,
}

impl Figures {
    /// For so many migrations on each side.
    pub(super) fn new(migrations: usize) -> Self {
        Self { migrations, ..Self::default() }
    }

    pub(super) fn journey(&mut self, full: bool, journey: Journey) {
        if full { &mut self.full } else { &mut self.roomy }.push(journey);
    }

    pub(super) fn requests<'r>(&mut self, writes: impl Iterator<Item = &'r AuditEvent>) {
        for write in writes {
            let counts = match (write.is_dry_run(), write.resource.as_str()) {
                (true, _) => &mut self.dry_runs,
                (false, "events") => &mut self.events,
                (false, _) => &mut self.writes,
            };
            *counts.entry(format!("{} {}", write.verb, write.resource)).or_default() += 1;
        }
    }

    pub(super) fn drain(&mut self, full: bool, drain: Drain) {
        if full { &mut self.drains } else { &mut self.drains_roomy }.push(drain);
    }

    pub(super) fn windows(&self) -> impl Iterator<Item = &Window> {
        self.full.iter().filter_map(|journey| journey.window.as_ref())
    }

    /// Quantiles of the time from a migration to its target: under full quotas, under quotas with room.
    pub(super) fn target_both_ms(&self, q: f64) -> [f64; 2] {
        [&self.full, &self.roomy].map(|journeys| {
            quantile(&mut journeys.iter().map(|journey| journey.target_ms).collect::<Vec<_>>(), q)
        })
    }

    pub(super) fn open_ms(&self, q: f64) -> f64 {
        quantile(&mut self.windows().map(|window| window.open_ms).collect::<Vec<_>>(), q)
    }

    pub(super) fn rejected(&self) -> usize {
        self.full.iter().map(|journey| journey.rejected).sum()
    }

    pub(super) fn rejected_in_drains(&self) -> usize {
        self.drains.iter().map(|drain| drain.rejected).sum()
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn per_migration(&self, counts: &BTreeMap<String, usize>) -> f64 {
        counts.values().sum::<usize>() as f64 / self.migrations as f64
    }

    pub(super) fn drain_s(drains: &[Drain], of: fn(&Drain) -> f64) -> f64 {
        median(&mut drains.iter().map(of).collect::<Vec<_>>())
    }

    /// Of each step, the median of what it took and of what the API server worked in it, and the mean number of requests.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn step(&self, at: usize) -> [f64; 3] {
        let steps: Vec<Step> = self.windows().filter_map(|window| window.steps.get(at).copied()).collect();
        let middle = |of: fn(&Step) -> f64| median(&mut steps.iter().map(of).collect::<Vec<_>>());
        let requests: usize = steps.iter().map(|step| step.requests).sum();
        [middle(|step| step.ms), middle(|step| step.server_ms), requests as f64 / steps.len() as f64]
    }
}

#[cfg(test)]
mod tests {
    use sluice_testbed::audit::AuditEvent;

    use super::super::tests::{DRY_RUN, request};
    use super::Figures;

    #[test]
    fn dry_runs_and_events_are_counted_apart() {
        let write = |verb, resource| request("sluice", verb, resource, "", [0, 1]);
        let probe = AuditEvent { uri: DRY_RUN.to_owned(), ..write("create", "headroomprobes") };
        let status = write("patch", "resourcequotas/status");
        let mut figures = Figures::new(2);
        figures.requests([&status, &status, &status, &probe, &write("create", "events")].into_iter());
        assert_eq!(figures.per_migration(&figures.writes), 1.5);
        assert_eq!(figures.per_migration(&figures.dry_runs), 0.5);
        assert_eq!(figures.per_migration(&figures.events), 0.5);
    }
}
