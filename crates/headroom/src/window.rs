//! Opening windows: the machine of [`crate::protocol`] with hands.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_api::WindowMigration;
use sluice_engine::Uid;
use sluice_engine::headroom::{Need, Plan, plan};
use sluice_index::headroom::{HeadroomIndex, MigrationRecord};
use sluice_kube_ext::retry::process_seed;
use tokio::sync::{Mutex as Lane, OwnedMutexGuard, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use crate::hands::Hands;
use crate::metrics::HeadroomMetrics;
use crate::observed::Observed;
use crate::protocol::{Command, Ending, Opening};
use crate::requests::Requests;

/// How long the lock of a window holds, if nobody opens it before.
pub const LOCK_TIME: Duration = Duration::from_secs(5);
/// How long an admitted target may take to exist.
const TARGET_TIME: Duration = Duration::from_millis(500);
/// How long virt-controller may take to try again after it was woken.
const WAKE_TIME: Duration = Duration::from_secs(2);

/// Who is to be let in.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The migration that it is for.
    pub migration: WindowMigration,
    /// The pod, if it is known: the API server has named it and waits for an answer.
    pub pod: Option<Uid>,
    /// The username that it is created by.
    pub creator: String,
    /// What it takes.
    pub need: Need,
}

/// Opens windows, one at a time in each namespace.
#[derive(Debug)]
pub struct Headroom {
    pub(crate) observed: Arc<Observed>,
    pub(crate) requests: Requests,
    pub(crate) metrics: HeadroomMetrics,
    pub(crate) holder: String,
    seed: u64,
    count: AtomicU64,
    lanes: Mutex<HashMap<Arc<str>, Weak<Lane<()>>>>,
    tasks: TaskTracker,
}

impl Headroom {
    /// `holder` is the name of this process in windows.
    #[must_use]
    pub fn new(
        observed: Arc<Observed>,
        requests: Requests,
        metrics: HeadroomMetrics,
        holder: String,
    ) -> Arc<Self> {
        Arc::new(Self {
            observed,
            requests,
            metrics,
            holder,
            seed: process_seed(),
            count: AtomicU64::new(0),
            lanes: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// What is known of the cluster.
    #[must_use]
    pub fn observed(&self) -> &Arc<Observed> {
        &self.observed
    }

    /// Whether a quota is in the target's way, or could be before it is let in: twice its need does not fit.
    #[must_use]
    pub fn is_needed(&self, target: &Target) -> bool {
        if !self.observed.is_synced() {
            return true;
        }
        let (quotas, budget) =
            self.observed.read(|index| (index.quotas_in(&target.namespace), index.budget(&target.namespace)));
        !matches!(plan(&target.need, &quotas, &budget), Plan::Fits { tight: false })
    }

    /// Lets a target in that the API server waits to create. Returns as soon as its creation may go on, at the latest
    /// after `patience`; restoring and unlocking go on behind.
    pub async fn admit(self: &Arc<Self>, target: Target, patience: Duration) {
        let limit = Instant::now() + patience;
        let (admit, admitted) = oneshot::channel();
        let this = Arc::clone(self);
        self.tasks.spawn(async move { this.open(target, limit, TARGET_TIME, Some(admit)).await });
        // An error means that the opening ended without an answer: the target goes on all the same.
        let _ = timeout_at(limit, admitted).await;
    }

    /// Makes room for a target that was refused: writing the quota wakes virt-controller, and it tries again.
    pub async fn wake(self: &Arc<Self>, target: Target, patience: Duration) -> Ending {
        let limit = Instant::now() + patience;
        let this = Arc::clone(self);
        // Not abandoned when the caller goes: what was raised has to be restored.
        let opening = self.tasks.spawn(async move { this.open(target, limit, WAKE_TIME, None).await });
        opening.await.unwrap_or_else(|error| Ending::Failed(error.to_string().into()))
    }

    /// A migration, not from a cache.
    ///
    /// # Errors
    /// When it cannot be read; `None` is no error.
    pub async fn migration(&self, namespace: &str, name: &str) -> kube::Result<Option<MigrationRecord>> {
        let wire = self.requests.migration(namespace, name).await?;
        Ok(wire.as_ref().map(MigrationRecord::read))
    }

    /// Waits until every window of this process is closed. New ones can still be opened.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    async fn open(
        self: Arc<Self>,
        target: Target,
        limit: Instant,
        target_time: Duration,
        admit: Option<oneshot::Sender<()>>,
    ) -> Ending {
        let turn = async {
            tokio::select! {
                lane = self.enter(&target.namespace) => Some(lane),
                () = self.until_covered(&target) => None,
            }
        };
        let _lane = match timeout_at(limit, turn).await {
            Ok(Some(lane)) => lane,
            Ok(None) => {
                let hands = Hands::new(&self, target, limit, target_time, admit);
                hands.join().await;
                self.metrics.ended(&Ending::Covered, 0);
                return Ending::Covered;
            }
            Err(_) => {
                self.metrics.ended(&Ending::TimedOut, 0);
                return Ending::TimedOut;
            }
        };
        let mut opening = Opening::new(target.need.clone());
        let mut hands = Hands::new(&self, target, limit, target_time, admit);
        loop {
            match opening.command() {
                Command::Stop(ending) => {
                    hands.report(&opening, &ending);
                    return ending;
                }
                command => opening.take(hands.carry_out(command).await),
            }
        }
    }

    /// Waits until a window that somebody opened to wake this target has made room for it. Whoever is first in the queue
    /// may be waiting for that window to end, and it does not end before the target comes.
    async fn until_covered(&self, target: &Target) {
        let (namespace, uid) = (&target.namespace, Uid::parse(&target.migration.uid));
        let covered = |index: &HeadroomIndex| {
            let window = index.windows.get(namespace)?;
            let is_ours = window.migration_uid == uid && *window.holder != *self.holder;
            let planned = plan(&target.need, &index.quotas_in(namespace), &index.budget(namespace));
            (is_ours && matches!(planned, Plan::Fits { .. })).then_some(())
        };
        while self.observed.until(LOCK_TIME, covered).await.is_none() {}
    }

    /// Waits for one's turn in a namespace.
    async fn enter(&self, namespace: &Arc<str>) -> OwnedMutexGuard<()> {
        let lane = {
            let mut lanes = self.lanes.lock();
            lanes.retain(|_, lane| lane.strong_count() > 0);
            match lanes.get(namespace).and_then(Weak::upgrade) {
                Some(lane) => lane,
                None => {
                    let lane = Arc::new(Lane::new(()));
                    lanes.insert(Arc::clone(namespace), Arc::downgrade(&lane));
                    lane
                }
            }
        };
        lane.lock_owned().await
    }

    /// A text that no other window has.
    pub(crate) fn nonce(&self) -> String {
        format!("{:016x}-{}", self.seed, self.count.fetch_add(1, Relaxed))
    }
}
