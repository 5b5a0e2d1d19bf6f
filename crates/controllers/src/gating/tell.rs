//! Keeps the status of the `AAQ` up to date while it leads.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_api::{AAQ, names};
use sluice_evaluators::EvaluatorState;
use sluice_index::{AaqRecord, AaqWire};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::objects;
use sluice_runtime::retry::{Failure, classify};
use sluice_runtime::status_write::patch_status;
use sluice_runtime::watch::Event;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::GatingWatch;
use super::status::{Facts, patch};

/// After writes, so that another writer of the same fields is not answered at its own speed.
const PAUSE: Duration = Duration::from_secs(1);

/// Waits until the end of a pause.
async fn until(end: Option<Timestamp>, clock: &ServerClock) {
    match end {
        Some(end) => sleep(end.duration_since(clock.reckoned()).try_into().unwrap_or_default()).await,
        None => pending().await,
    }
}

impl GatingWatch {
    pub fn on_aaqs(&self, event: &Event<AaqWire>) {
        self.aaqs.send_if_modified(|aaqs| aaqs.apply(event));
    }

    /// Writes who gates pods, how virtual machines are counted, whether head-room is given (`proofs`: why not), and which
    /// `sidecars` answer, into the status of each `AAQ`: when one changes, and each time that API servers were asked.
    /// What could not be written is tried again then. Pauses begin and end by the API server's clock, as they do for the
    /// gate.
    pub async fn tell(
        self: Arc<Self>,
        (client, clock): (Client, Arc<ServerClock>),
        (mut proofs, mut sidecars): (watch::Receiver<Option<Arc<str>>>, watch::Receiver<Vec<EvaluatorState>>),
        token: WriteToken,
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let mut changed = self.aaqs.subscribe();
        let mut asked = self.known.subscribe();
        let telling = async {
            loop {
                let (now, findings) = (Timestamp::now(), self.findings());
                let unproven = proofs.borrow_and_update().clone();
                let states = sidecars.borrow_and_update().clone();
                let (patches, end): (Vec<(Arc<str>, Value)>, _) = {
                    let aaqs = changed.borrow_and_update();
                    let (in_force, pause) = (aaqs.in_force(), aaqs.pause(clock.reckoned()));
                    let wanted = |aaq: &Arc<AaqRecord>| {
                        let stated = aaq.stated.as_ref()?;
                        let (machines, unproven) = (in_force.as_ref(), unproven.as_deref());
                        let facts = Facts { machines, unproven, sidecars: &states };
                        let patch = patch(stated, &findings, facts, &pause, now)?;
                        Some((Arc::clone(&aaq.name), patch))
                    };
                    let patches = aaqs.all().iter().filter_map(wanted).collect();
                    (patches, pause.ok().flatten().map(|pause| pause.until))
                };
                if !patches.is_empty() && token.is_held() {
                    for (name, patch) in patches {
                        write(&client, &writes, &name, &patch).await;
                    }
                    sleep(PAUSE).await;
                }
                let ended = tokio::select! {
                    changed = changed.changed() => changed.is_err(),
                    asked = asked.changed() => asked.is_err(),
                    proven = proofs.changed() => proven.is_err(),
                    Ok(()) = sidecars.changed() => false,
                    () = until(end, &clock) => false,
                };
                if ended {
                    return;
                }
            }
        };
        cancel.run_until_cancelled(telling).await;
    }
}

async fn write(client: &Client, writes: &ApiWrites, name: &str, patch: &Value) {
    match patch_status(client, writes, (names::AAQS, &objects::<AAQ>(None), name), patch).await {
        Ok(()) => {}
        // The watch tells of what is there now.
        Err(error) if matches!(classify(&error), Failure::Conflict | Failure::NotFound) => {}
        Err(error) => tracing::warn!(aaq = name, %error, "status not written"),
    }
}
