//! Keeps the status of `Evaluator`s up to date while it leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_api::{Evaluator, names};
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
use super::status::Target;

/// What the gate makes of rules, by name.
type Figures = BTreeMap<Arc<str>, RuleFigures>;

/// How many pods rules match is looked at so often.
const PACE: Duration = Duration::from_secs(5);
/// After writes, so that another writer of the same fields is not answered at its own speed.
const PAUSE: Duration = Duration::from_secs(1);

impl EvaluatorObjects {
    /// Writes whether each rule is in force, and how many pods it matches and holds by the gate, until `cancel`.
    pub async fn tell(
        self: Arc<Self>,
        gate: Gate,
        (client, clock): (Client, Arc<ServerClock>),
        (token, mut leadership): (WriteToken, watch::Receiver<Leadership>),
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let mut changed = self.objects.subscribe();
        let mut backoff = Backoff::new(PAUSE, Duration::from_secs(60), process_seed());
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut figures = None;
        let telling = async {
            loop {
                let patches = self.patches(&mut changed, figures.as_ref(), &clock);
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
        changed: &mut watch::Receiver<super::Objects>,
        figures: Option<&Figures>,
        clock: &ServerClock,
    ) -> Vec<(Arc<str>, Value)> {
        let objects = changed.borrow_and_update();
        let now = clock.reckoned();
        let patched = objects.places(self.most).into_iter().filter_map(|(name, object, place)| {
            let of_rule = figures.map(|figures| figures.get(name).cloned().unwrap_or_default());
            let target = Target { place, figures: of_rule.as_ref(), most: self.most };
            Some((Arc::clone(name), super::status::patch(object, target, now)?))
        });
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
