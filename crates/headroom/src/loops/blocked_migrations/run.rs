//! Runs one task for each namespace in which migrations wait, and tells it what changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_index::{Cluster, Observed};
use sluice_runtime::backoff::process_seed;
use sluice_runtime::events::Report;
use sluice_runtime::lease::{Leadership, WriteToken};
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::namespace::{Blocked, Facts, Namespace};
use super::{Summaries, Summary};
use crate::events;
use crate::headroom::Headroom;
use crate::loops::grant_status::GrantStatus;
use crate::loops::metrics::LoopMetrics;
use crate::protocol::QuotaRef;
use crate::status_writer::Written;
use crate::target::MigrationRef;

/// The loop as a running thing; clones share it.
#[derive(Clone)]
pub struct BlockedMigrations {
    summaries: Summaries,
    headroom: Arc<Headroom>,
    tell: Arc<dyn Fn(Report) + Send + Sync>,
    epoch: Instant,
    metrics: LoopMetrics,
}

impl BlockedMigrations {
    /// Nothing was decided yet. What `headroom` observes has to remember where something changes
    /// ([`Observed::take_dirty`]). `tell` hears what people are to be told.
    #[must_use]
    pub fn new(
        headroom: Arc<Headroom>,
        metrics: LoopMetrics,
        tell: impl Fn(Report) + Send + Sync + 'static,
    ) -> Self {
        let (summaries, tell) = (Summaries::default(), Arc::new(tell));
        Self { summaries, headroom, tell, epoch: Instant::now(), metrics }
    }

    /// What is to be said about namespaces, for metrics and conditions.
    #[must_use]
    pub fn summaries(&self) -> Summaries {
        Arc::clone(&self.summaries)
    }

    fn observed(&self) -> &Arc<Observed> {
        self.headroom.observed()
    }

    /// Decides and acts while this process leads, until `cancel`.
    pub async fn run(
        self,
        (token, mut leadership): (WriteToken, latest::Receiver<Leadership>),
        statuses: GrantStatus,
        cancel: CancellationToken,
    ) {
        let work = async {
            if leads(self.observed(), &mut leadership).await {
                statuses.everything();
                self.act(&token, &statuses, &mut leadership).await;
            }
            cancel.cancelled().await;
        };
        cancel.run_until_cancelled(work).await;
    }

    /// Goes on until leadership ends.
    async fn act(
        &self,
        token: &WriteToken,
        statuses: &GrantStatus,
        leadership: &mut latest::Receiver<Leadership>,
    ) {
        let mut tasks = JoinSet::new();
        let mut running: HashMap<Arc<str>, Arc<Notify>> = HashMap::new();
        let mut changes = self.observed().changes();
        let mut proofs = self.headroom.proofs();
        let mut due = interesting(self.observed());
        tracing::info!(namespaces = due.len(), "watching over blocked migrations");
        while leadership.borrow().is_leading() {
            for namespace in std::mem::take(&mut due) {
                if let Some(changed) = running.get(&namespace) {
                    changed.notify_one();
                } else if self.observed().read(|index| !blocked(index, &namespace).is_empty()) {
                    let changed = Arc::new(Notify::new());
                    running.insert(Arc::clone(&namespace), Arc::clone(&changed));
                    tasks.spawn(self.clone().help(namespace, changed, token.clone(), statuses.clone()));
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                Some(Ok(ended)) = tasks.join_next() => {
                    running.remove(&ended);
                    due.insert(ended);
                }
                changed = leadership.changed() => if changed.is_err() { return },
                changed = proofs.changed() => {
                    if changed.is_err() { return }
                    statuses.everything();
                    due.extend(running.keys().cloned());
                }
                () = statuses.freed() => due.extend(running.keys().cloned()),
            }
            let dirty = self.observed().take_dirty();
            statuses.changed(dirty.namespaces.iter().cloned());
            due.extend(dirty.namespaces);
            if dirty.all {
                statuses.everything();
                due.extend(interesting(self.observed()));
                due.extend(running.keys().cloned());
            }
        }
    }

    /// Helps the migrations of a namespace until none waits. Returns the namespace.
    async fn help(
        self,
        namespace: Arc<str>,
        changed: Arc<Notify>,
        token: WriteToken,
        statuses: GrantStatus,
    ) -> Arc<str> {
        let mut state = Namespace::new(process_seed());
        loop {
            let facts = self.facts(&namespace);
            let look = state.look(&facts, self.now_ms());
            self.metrics.rejected.inc_by(look.added);
            look.tell.into_iter().for_each(&*self.tell);
            if self.is_said_anew(&namespace, look.summary) {
                statuses.changed([Arc::clone(&namespace)]);
            }
            if facts.blocked.is_empty() {
                return namespace;
            }
            if let Some(quota) = look.nudge {
                self.nudge(&namespace, &quota, &mut state, (&facts, &token)).await;
                continue;
            }
            let timer = async {
                match look.due {
                    // One millisecond late rather than early: an early one would find nothing to do.
                    Some(ms) => tokio::time::sleep_until(self.epoch + Duration::from_millis(ms + 1)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed.notified() => {}
                () = timer => {}
            }
        }
    }

    /// Keeps what is to be said about a namespace. Returns whether it is something else than before.
    fn is_said_anew(&self, namespace: &Arc<str>, summary: Summary) -> bool {
        let mut summaries = self.summaries.lock();
        let is_news = summaries.get(namespace) != Some(&summary);
        if summary == Summary::default() {
            return summaries.remove(namespace).is_some();
        }
        summaries.insert(Arc::clone(namespace), summary);
        is_news
    }

    async fn nudge(
        &self,
        namespace: &Arc<str>,
        quota: &QuotaRef,
        state: &mut Namespace,
        (facts, token): (&Facts, &WriteToken),
    ) {
        if !token.is_held() {
            return;
        }
        self.metrics.nudges.inc();
        match self.headroom.nudge(namespace, &quota.name, &quota.uid).await {
            Written::Done(..) => _ = state.nudged(Ok(()), self.now_ms()),
            Written::Refused(why) => {
                tracing::warn!(%namespace, quota = %quota.name, %why, "status of a quota cannot be written");
                self.metrics.forbidden.inc();
                if let Some(said) = state.nudged(Err(why), self.now_ms()) {
                    let blocked = facts.blocked.iter().map(|blocked| &blocked.migration);
                    events::forbidden(namespace, quota, blocked, &said).into_iter().for_each(&*self.tell);
                }
            }
            // The migrations for which it was meant have their own time to try again.
            Written::Conflict | Written::Unanswered(_) | Written::Failed(_) => {}
        }
    }

    fn facts(&self, namespace: &str) -> Facts {
        let unproven = self.headroom.proofs().borrow().clone();
        let rests_for = self.headroom.locks().rests_for(namespace);
        self.observed().read(|index| Facts {
            quotas: index.quotas_in(namespace),
            budget: index.budget(namespace, self.headroom.server_now_ms().div_euclid(1000)),
            blocked: blocked(index, namespace),
            limit_ranges: index.limit_ranges.fingerprint(namespace),
            unproven,
            rests_for,
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Waits until this process leads and everything was listed once that decisions are made from. Returns `false` if it
/// never will.
pub(in super::super) async fn leads(
    observed: &Observed,
    leadership: &mut latest::Receiver<Leadership>,
) -> bool {
    if leadership.wait_for(Leadership::is_leading).await.is_err() {
        return false;
    }
    observed.synced().await;
    true
}

/// Migrations that a quota rejected and that wait for their target or for the pod that attaches volumes to it, by priority,
/// then age, then name.
///
/// KubeVirt marks a migration as rejected only while it has no target (`handlePendingPodTimeout` and
/// `handleTargetPodCreation` in `pkg/virt-controller/watch/migration/migration.go`), and its controller looks again at
/// marked ones only when a quota changes. So a migration whose target came at the first attempt, and whose attachment pod
/// is refused, cannot be woken: its controller tries again by its own back-off, and the webhook gives that attempt its room.
fn blocked(index: &Cluster, namespace: &str) -> Vec<Blocked> {
    let waiting = index.vmims.waiting_in(namespace).into_iter();
    let found = waiting.filter_map(|migration| {
        let machine = index.vmis.get(namespace, &migration.machine)?;
        index.lacks_target(migration, machine).then(|| Blocked {
            migration: MigrationRef::new(migration, machine),
            keeps_state: machine.keeps_state,
        })
    });
    found.collect()
}

/// The namespaces in which there may be something to do.
fn interesting(observed: &Observed) -> BTreeSet<Arc<str>> {
    observed.read(|index| index.vmims.rejected().map(|migration| Arc::clone(&migration.namespace)).collect())
}
