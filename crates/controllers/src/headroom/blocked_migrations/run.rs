//! Runs one task for each namespace in which migrations wait, and tells it what changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::ChargeRules;
use sluice_engine::headroom::Need;
use sluice_index::{Cluster, Version, VmimRecord};
use sluice_runtime::backoff::process_seed;
use sluice_runtime::events::Report;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_window::protocol::QuotaRef;
use sluice_window::{Headroom, MigrationRef, Observed, Written};
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::namespace::{Facts, Namespace};
use super::sources::Sources;
use super::{Summaries, Summary};
use crate::headroom::events;
use crate::headroom::metrics::BlockedMetrics;
use crate::headroom::status_writer::HeadroomStatusWriter;

/// The loop as a running thing; clones share it.
#[derive(Clone)]
pub struct BlockedMigrations {
    summaries: Summaries,
    headroom: Arc<Headroom>,
    rules: latest::Receiver<ChargeRules>,
    tell: Arc<dyn Fn(Report) + Send + Sync>,
    epoch: Instant,
    metrics: BlockedMetrics,
}

impl BlockedMigrations {
    /// Nothing was decided yet. What is known by `headroom` has to remember what is dirty. `tell` hears what people are to
    /// be told.
    #[must_use]
    pub fn new(
        headroom: Arc<Headroom>,
        metrics: BlockedMetrics,
        rules: latest::Receiver<ChargeRules>,
        tell: impl Fn(Report) + Send + Sync + 'static,
    ) -> Self {
        let (summaries, tell) = (Summaries::default(), Arc::new(tell));
        Self { summaries, headroom, rules, tell, epoch: Instant::now(), metrics }
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
        statuses: HeadroomStatusWriter,
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
        statuses: &HeadroomStatusWriter,
        leadership: &mut latest::Receiver<Leadership>,
    ) {
        let mut tasks = JoinSet::new();
        let mut running: HashMap<Arc<str>, Arc<Notify>> = HashMap::new();
        let mut changes = self.observed().changes();
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
        statuses: HeadroomStatusWriter,
    ) -> Arc<str> {
        let (mut state, mut sources) = (Namespace::new(process_seed()), Sources::new(process_seed()));
        loop {
            let waiting = self.observed().read(|index| blocked(index, &namespace));
            for one in sources.missing(waiting, self.now_ms()) {
                let source = self.source(&one.0).await;
                sources.found(one, source, self.now_ms());
            }
            let facts = self.facts(&namespace, &sources);
            let look = state.look(&facts, self.now_ms());
            self.metrics.looked(look.counts);
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
                match look.due.into_iter().chain(sources.due(self.now_ms())).min() {
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
        self.metrics.nudge();
        match self.headroom.nudge(namespace, &quota.name, &quota.uid).await {
            Written::Done(..) => _ = state.nudged(Ok(()), self.now_ms()),
            Written::Refused(why) => {
                tracing::warn!(ns = %namespace, quota = %quota.name, %why, "status of a quota cannot be written");
                self.metrics.forbidden();
                if let Some(said) = state.nudged(Err(why), self.now_ms()) {
                    let blocked = facts.blocked.iter().map(|(migration, _)| migration);
                    events::forbidden(namespace, quota, blocked, &said).into_iter().for_each(&*self.tell);
                }
            }
            // The migrations for which it was meant have their own time to try again.
            Written::Conflict | Written::Unanswered(_) | Written::Failed(_) => {}
        }
    }

    async fn source(&self, blocked: &MigrationRef) -> Option<Option<Need>> {
        let rules = *self.rules.borrow();
        let source = self.headroom.requests().source(&blocked.namespace, &blocked.machine_uid, rules).await;
        let log = |error: &kube::Error| {
            tracing::warn!(ns = %blocked.namespace, vmi = %blocked.machine, %error, "source pod not listed");
        };
        source.inspect_err(log).ok()
    }

    fn facts(&self, namespace: &str, sources: &Sources) -> Facts {
        self.observed().read(|index| {
            let blocked = blocked(index, namespace).into_iter().map(|(migration, _)| {
                let need = sources.of(&migration);
                (migration, need)
            });
            Facts {
                quotas: index.quotas_in(namespace),
                budget: index.budget(namespace),
                blocked: blocked.collect(),
                limit_ranges: index.limit_ranges.fingerprint(namespace),
            }
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

/// Migrations that a quota rejected and that have no target, by priority, then age, then name; and their versions.
fn blocked(index: &Cluster, namespace: &str) -> Vec<(MigrationRef, Version)> {
    let has_target = |migration: &VmimRecord| index.targets.of_migration(&migration.uid).next().is_some();
    let waiting = index.vmims.waiting_in(namespace).into_iter();
    let found = waiting.filter(|migration| !has_target(migration)).filter_map(|migration| {
        let machine = index.vmis.get(namespace, &migration.machine)?;
        Some((MigrationRef::new(migration, machine), migration.version))
    });
    found.collect()
}

/// The namespaces in which there may be something to do.
fn interesting(observed: &Observed) -> BTreeSet<Arc<str>> {
    observed.read(|index| index.vmims.rejected().map(|migration| Arc::clone(&migration.namespace)).collect())
}
