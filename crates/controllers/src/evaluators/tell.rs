//! Keeps the status of `Evaluator`s up to date while it leads.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_api::{Evaluator, names};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::objects;
use sluice_runtime::retry::{Failure, classify};
use sluice_runtime::status_write::patch_status;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::EvaluatorObjects;

/// After writes, so that another writer of the same fields is not answered at its own speed.
const PAUSE: Duration = Duration::from_secs(1);

impl EvaluatorObjects {
    /// Writes whether each rule is in force, until `cancel`.
    pub async fn tell(
        self: Arc<Self>,
        (client, clock): (Client, Arc<ServerClock>),
        (token, mut leadership): (WriteToken, watch::Receiver<Leadership>),
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let mut changed = self.objects.subscribe();
        let mut backoff = Backoff::new(PAUSE, Duration::from_secs(60), process_seed());
        let telling = async {
            loop {
                let patches = self.patches(&mut changed, &clock);
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
                };
                if ended {
                    return;
                }
            }
        };
        cancel.run_until_cancelled(telling).await;
    }

    fn patches(
        &self,
        changed: &mut watch::Receiver<super::Objects>,
        clock: &ServerClock,
    ) -> Vec<(Arc<str>, Value)> {
        let objects = changed.borrow_and_update();
        let now = clock.reckoned();
        let patched = objects.places(self.most).into_iter().filter_map(|(name, object, place)| {
            let patch = super::status::patch(object.stated.as_ref()?, (&object.rule, place), self.most, now)?;
            Some((Arc::clone(name), patch))
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
