//! Keeps the status of `Evaluator`s up to date while it leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_api::{Evaluator, names};
use sluice_evaluators::{EvaluatorMetrics, EvaluatorState};
use sluice_gate::{Gate, RuleFigures};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::objects;
use sluice_runtime::retry::{Failure, classify};
use sluice_runtime::status_write::patch_status;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::EvaluatorObjects;
use super::status::{Sidecar, Target};

/// What the gate makes of them, by name.
type Figures = BTreeMap<Arc<str>, RuleFigures>;

/// How many pods they match is looked at so often.
const PACE: Duration = Duration::from_secs(5);
/// After writes, so that another writer of the same fields is not answered at its own speed.
const PAUSE: Duration = Duration::from_secs(1);

impl EvaluatorObjects {
    /// Writes whether each is in force, and how many pods it matches and holds by the gate, until `cancel`. `states`: of the
    /// sidecars, by their places.
    pub async fn tell(
        self: Arc<Self>,
        (gate, mut states, metrics): (Gate, watch::Receiver<Vec<EvaluatorState>>, EvaluatorMetrics),
        (client, clock): (Client, Arc<ServerClock>),
        (token, mut leadership): (WriteToken, watch::Receiver<Leadership>),
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let mut changed = self.objects.subscribe();
        let mut in_force = gate.evaluators_in_force();
        let mut backoff = Backoff::new(PAUSE, Duration::from_secs(60), process_seed());
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut figures = None;
        let telling = async {
            loop {
                let known = (&mut changed, &mut in_force, &mut states);
                let patches = self.patches(known, (figures.as_ref(), &metrics), &clock);
                if !patches.is_empty() && token.is_held() {
                    let mut failed = false;
                    for (name, patch) in patches {
                        failed |= !write(&client, &writes, &name, &patch).await;
                    }
                    if failed {
                        sleep(backoff.failed()).await;
                        continue;
                    }
                    backoff.reset();
                    sleep(PAUSE).await;
                }
                let ended = tokio::select! {
                    changed = changed.changed() => changed.is_err(),
                    Ok(()) = states.changed() => false,
                    Ok(()) = in_force.changed() => false,
                    led = leadership.changed() => led.is_err(),
                    _ = ticks.tick(), if token.is_held() && self.are_there() => {
                        figures = Some(gate.rule_figures().into_iter().collect());
                        false
                    }
                };
                if ended {
                    return;
                }
            }
        };
        cancel.run_until_cancelled(telling).await;
    }

    fn are_there(&self) -> bool {
        !self.objects.borrow().known.is_empty()
    }

    fn patches(
        &self,
        (changed, in_force, states): (
            &mut watch::Receiver<super::Objects>,
            &mut watch::Receiver<u64>,
            &mut watch::Receiver<Vec<EvaluatorState>>,
        ),
        (figures, metrics): (Option<&Figures>, &EvaluatorMetrics),
        clock: &ServerClock,
    ) -> Vec<(Arc<str>, Value)> {
        let objects = changed.borrow_and_update();
        let states = states.borrow_and_update();
        let is_in_force = *in_force.borrow_and_update() == objects.changes;
        let now = clock.reckoned();
        let failures: Vec<_> = states.iter().map(EvaluatorState::failure).collect();
        let sidecar_of = |name: &Arc<str>, object: &super::Object| {
            if matches!(object.kind, super::Kind::Rule(_)) {
                return Sidecar::Unknown;
            }
            let place = self.sidecars.iter().position(|sidecar| sidecar == name);
            match place.and_then(|place| Some((states.get(place)?, failures.get(place)?))) {
                Some((_, Some(failure))) => Sidecar::Fails(failure),
                Some((state, None)) if state.is_ready() => Sidecar::Works,
                _ => Sidecar::Unknown,
            }
        };
        let patched = objects.places(&self.sidecars, self.most_rules).into_iter().filter_map(
            |(name, object, place)| {
                let of_rule = figures.map(|figures| figures.get(name).cloned().unwrap_or_default());
                let p99 = metrics.p99(name);
                let at = self.sidecars.iter().position(|sidecar| sidecar == name);
                let differs = at.and_then(|at| states.get(at)?.differs.as_deref());
                let target = Target {
                    name,
                    place,
                    is_in_force,
                    p99: p99.as_deref(),
                    differs,
                    spec: &object.spec,
                    has_other_container: at.is_some_and(|at| at < self.without_object),
                    figures: of_rule.as_ref(),
                    most: self.most_rules,
                    sidecar: sidecar_of(name, object),
                };
                Some((Arc::clone(name), super::status::patch(object, target, now)?))
            },
        );
        patched.collect()
    }
}

/// Whether it does not have to be tried again.
async fn write(client: &Client, writes: &ApiWrites, name: &str, patch: &Value) -> bool {
    let of = (names::EVALUATORS, &objects::<Evaluator>(None), name);
    match patch_status(client, writes, of, patch).await {
        Ok(()) => true,
        // The watch tells of what is there now.
        Err(error) if matches!(classify(&error), Failure::Conflict | Failure::NotFound) => true,
        Err(error) => {
            tracing::warn!(evaluator = name, %error, "status not written");
            false
        }
    }
}
