//! What a managed-tenant-quota that crashed left behind: namespaces that are locked, quotas that are raised.
//!
//! Nothing is touched while a managed-tenant-quota is alive, or soon after a lock was created: then it may be about to
//! end it itself.

mod apply;
mod plan;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use sluice_api::names;
use sluice_kube_ext::events::{Recorder, Report, Severity};
use sluice_kube_ext::lease::{Leadership, WriteToken};
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::retry::{Backoff, process_seed};
use sluice_window::Observed;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::metrics::SweepMetrics;
use super::sights::{Sights, Sources};
use apply::Hands;
use plan::{Lock, Step, plan};

/// What is done about what is left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// Quotas are restored and locks removed.
    #[default]
    Clean,
    /// What would be done is printed.
    List,
    /// Nothing.
    Ignore,
}

/// What the loop needs from its process.
pub struct Environment {
    /// What is known of the cluster.
    pub observed: Arc<Observed>,
    /// What else is watched.
    pub sources: Sources,
    /// For requests.
    pub client: kube::Client,
    /// Held while this process leads.
    pub token: WriteToken,
    /// Says when this process leads.
    pub leadership: watch::Receiver<Leadership>,
    /// Counts what is written.
    pub writes: ApiWrites,
    /// Tells people.
    pub events: Recorder,
    /// Counts what was cleaned up.
    pub metrics: SweepMetrics,
}

impl Leftovers {
    /// Ends what managed-tenant-quota left behind, while this process leads, until `cancel`. A lock that is younger than
    /// `lock_age` may belong to a managed-tenant-quota that is still about to end it.
    pub async fn end(self, lock_age: Duration, mut environment: Environment, cancel: CancellationToken) {
        let Environment { observed, sources, leadership, .. } = &mut environment;
        let leads = tokio::select! {
            () = cancel.cancelled() => return,
            leads = super::blocked::leads(observed, sources, leadership) => leads,
        };
        if !leads {
            return cancel.cancelled().await;
        }
        let Environment { sources, client, token, writes, events, metrics, .. } = environment;
        let changes = sources.changes.subscribe();
        Loop::new((self, lock_age), sources.sights, changes, (client, token, writes), events, metrics)
            .run(cancel)
            .await;
    }
}

/// What the loop works with.
struct Loop {
    mode: Leftovers,
    lock_age: Duration,
    sights: Arc<Mutex<Sights>>,
    changes: watch::Receiver<u64>,
    hands: Hands,
    token: WriteToken,
    events: Recorder,
    metrics: SweepMetrics,
}

/// A namespace with something left in it, and its lock.
type Found = BTreeMap<String, Option<(Lock, Option<Timestamp>)>>;

/// When to look again.
enum Again {
    /// When something changes.
    OnChange,
    /// After a failure.
    Later,
    /// At this moment of the API server's clock, which is so far away.
    In(Duration),
}

impl Loop {
    fn new(
        (mode, lock_age): (Leftovers, Duration),
        sights: Arc<Mutex<Sights>>,
        changes: watch::Receiver<u64>,
        (client, token, writes): (kube::Client, WriteToken, ApiWrites),
        events: Recorder,
        metrics: SweepMetrics,
    ) -> Self {
        Self { mode, lock_age, sights, changes, hands: Hands { client, writes }, token, events, metrics }
    }

    /// Runs until `cancel`. Start it on the leader, when the watches have listed everything once.
    async fn run(mut self, cancel: CancellationToken) {
        if self.mode == Leftovers::Ignore {
            return cancel.cancelled().await;
        }
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300), process_seed());
        let mut done = Found::new();
        loop {
            self.changes.mark_unchanged();
            let found = found(&self.sights.lock());
            let again = self.round(&found, &mut done).await;
            let pause = match again {
                Again::OnChange => {
                    backoff.reset();
                    None
                }
                Again::Later => Some(backoff.failed()),
                // A managed-tenant-quota that goes on renewing is looked at ever more rarely.
                Again::In(time) => Some(time.max(backoff.failed())),
            };
            let timer = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = timer => {}
                () = until_other(&mut self.changes, &self.sights, &found) => {}
            }
        }
    }

    async fn round(&self, found: &Found, done: &mut Found) -> Again {
        done.retain(|namespace, what| found.get(namespace) == Some(what));
        let open: Vec<_> = found.iter().filter(|(namespace, _)| !done.contains_key(*namespace)).collect();
        if open.is_empty() {
            return Again::OnChange;
        }
        let (now, alive) = match self.hands.alive_until().await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(%error, "cannot tell whether a managed-tenant-quota is alive");
                return Again::Later;
            }
        };
        if let Some(end) = alive.filter(|end| *end >= now) {
            return Again::In(after(now, end));
        }
        let mut again = Again::OnChange;
        for (namespace, lock) in open {
            let due =
                lock.as_ref().and_then(|(_, created)| created.as_ref()?.checked_add(self.lock_age).ok());
            if let Some(due) = due.filter(|due| *due > now) {
                again = match again {
                    Again::In(time) => Again::In(time.min(after(now, due))),
                    Again::OnChange => Again::In(after(now, due)),
                    Again::Later => Again::Later,
                };
                continue;
            }
            match self.end(namespace, lock.as_ref().map(|(lock, _)| lock.clone())).await {
                // What cannot be ended, and what is only listed, is not looked at again until it goes.
                Ok(()) => _ = done.insert(namespace.clone(), lock.clone()),
                Err(error) => {
                    tracing::warn!(ns = %namespace, %error, "cannot end what managed-tenant-quota left");
                    again = Again::Later;
                }
            }
        }
        again
    }

    /// Ends what is left in a namespace, or says how.
    async fn end(&self, namespace: &str, lock: Option<Lock>) -> kube::Result<()> {
        let left = self.hands.left(namespace, lock).await?;
        for step in plan(&left) {
            let what = step.sentence();
            if self.mode == Leftovers::List {
                tracing::info!(ns = namespace, step = %what, "would be done about what managed-tenant-quota left");
                self.print(namespace, &what);
                continue;
            }
            if !self.token.is_held() {
                return Ok(());
            }
            self.hands.carry_out(namespace, &step).await?;
            tracing::info!(ns = namespace, step = %what, "ended what managed-tenant-quota left");
            if matches!(step, Step::DeleteLock(_) | Step::ClearRecord { .. }) {
                self.metrics.leftovers.inc();
            }
            self.tell(namespace, &step, what);
        }
        Ok(())
    }

    #[allow(clippy::print_stdout, reason = "the list is what the flag asks for")]
    fn print(&self, namespace: &str, what: &str) {
        println!("{namespace}: {what}");
    }

    fn tell(&self, namespace: &str, step: &Step, note: String) {
        let record = match step {
            Step::Say { record, .. } => record.clone(),
            Step::ClearRecord { name, uid, .. } => Some((name.clone(), uid.clone())),
            _ => None,
        };
        let severity = if matches!(step, Step::Say { .. }) { Severity::Warning } else { Severity::Normal };
        let regarding = match record {
            Some((name, uid)) => ObjectReference {
                api_version: Some(format!("{}/{}", names::MTQ_GROUP, names::MTQ_VERSION)),
                kind: Some("VirtualMachineMigrationResourceQuota".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(name),
                uid: Some(uid),
                ..ObjectReference::default()
            },
            None => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(namespace.to_owned()),
                ..ObjectReference::default()
            },
        };
        self.events.report(Report {
            regarding,
            related: None,
            severity,
            reason: "ManagedTenantQuotaLeftover".to_owned(),
            action: "CleanUp".to_owned(),
            note,
        });
    }
}

/// Until there is something left somewhere else than `before`, or not there any more.
async fn until_other(changes: &mut watch::Receiver<u64>, sights: &Mutex<Sights>, before: &Found) {
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        if found(&sights.lock()) != *before {
            return;
        }
    }
}

fn after(now: Timestamp, then: Timestamp) -> Duration {
    let left = then.duration_since(now) + SignedDuration::from_secs(1);
    Duration::try_from(left).unwrap_or_default()
}

fn found(sights: &Sights) -> Found {
    let mut found = Found::new();
    for ((namespace, _), object) in sights.vmmrqs.iter() {
        let status = object.status.as_ref();
        if status.is_some_and(|status| !status.original_blocking_resource_quotas.is_empty()) {
            found.insert(namespace.to_string(), None);
        }
    }
    for (_, object) in sights.locks.iter() {
        if let Some(namespace) = read::locked_namespace(&object.name_any()) {
            let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            found.insert(namespace.to_owned(), Some((read::lock(object), created)));
        }
    }
    found
}
