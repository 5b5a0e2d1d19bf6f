//! Runs the plan: asks the state for actions and executes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use sluice_engine::headroom::Need;
use sluice_engine::{ChargeRules, Resource};
use sluice_index::{Cluster, VmimRecord};
use sluice_runtime::backoff::process_seed;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_window::{Headroom, MigrationRef, Observed, Written};
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::metrics::BlockedMetrics;
use super::super::status_writer::HeadroomStatusWriter;
use super::messages::{Action, BlockedEvent, BlockedFacts, Done, NamespaceFacts};
use super::state::State;
use super::{BlockedConfig, QuotaName};
use crate::gate::Moment;

/// The loop as a running thing; clones share it.
#[derive(Clone)]
pub struct BlockedMigrations {
    state: Arc<Mutex<State>>,
    headroom: Arc<Headroom>,
    rules: latest::Receiver<ChargeRules>,
    publish: Arc<dyn Fn(BlockedEvent) + Send + Sync>,
    settled: Arc<Notify>,
    epoch: Instant,
    metrics: BlockedMetrics,
}

impl BlockedMigrations {
    /// Nothing was decided yet. What is known by `headroom` has to remember what is dirty. `publish` hears what people are to
    /// be told.
    #[must_use]
    pub fn new(
        config: BlockedConfig,
        headroom: Arc<Headroom>,
        metrics: BlockedMetrics,
        rules: latest::Receiver<ChargeRules>,
        publish: impl Fn(BlockedEvent) + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(config, process_seed()))),
            headroom,
            rules,
            publish: Arc::new(publish),
            settled: Arc::default(),
            epoch: Instant::now(),
            metrics,
        }
    }

    /// The state, for metrics and reports.
    #[must_use]
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    fn observed(&self) -> &Arc<Observed> {
        self.headroom.observed()
    }

    fn now(&self) -> Moment {
        Moment {
            mono_ms: u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX),
            unix_ms: Timestamp::now().as_millisecond(),
        }
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
                self.take_dirty();
                let all = interesting(self.observed());
                tracing::info!(namespaces = all.len(), "watching over blocked migrations");
                self.state.lock().lead(all);
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
        let mut requests = JoinSet::new();
        let mut changes = self.observed().changes();
        // What changed since it was looked at is still marked dirty.
        changes.mark_changed();
        loop {
            let due = self.state.lock().next_due_ms(self.now());
            let timer = async {
                match due {
                    // One millisecond late rather than early: an early one would find nothing to do.
                    Some(ms) => tokio::time::sleep(Duration::from_millis(ms + 1)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = self.settled.notified() => {}
                () = timer => {}
                changed = leadership.changed() => if changed.is_err() { return },
            }
            while requests.try_join_next().is_some() {}
            if !leadership.borrow().is_leading() {
                return;
            }
            for action in self.plan(self.take_dirty(), statuses) {
                let (this, token) = (self.clone(), token.clone());
                requests.spawn(async move { this.execute(action, &token).await });
            }
        }
    }

    async fn execute(&self, action: Action, token: &WriteToken) {
        let (namespace, done) = match action {
            Action::Publish(event) => return (self.publish)(event),
            Action::Look(blocked) => {
                let source = self.source(&blocked).await;
                (blocked.namespace, source.map_or(Done::Failed, |source| Done::Looked(blocked.uid, source)))
            }
            Action::Nudge(quota) if !token.is_held() => (quota.namespace, Done::Failed),
            Action::Nudge(quota) => {
                let done = self.nudge(&quota).await;
                (quota.namespace, done)
            }
        };
        let facts = self.facts(&namespace);
        let told = self.state.lock().on_done(&namespace, done, &facts, self.now());
        self.settled.notify_one();
        for action in told {
            if let Action::Publish(event) = action {
                (self.publish)(event);
            }
        }
    }

    async fn nudge(&self, quota: &QuotaName) -> Done {
        let written = self.headroom.nudge(&quota.namespace, &quota.name, &quota.uid).await;
        match written {
            Written::Done(..) => Done::Nudged,
            Written::Refused(why) => {
                tracing::warn!(ns = %quota.namespace, quota = %quota.name, %why, "status of a quota cannot be written");
                Done::Forbidden(why)
            }
            Written::Conflict | Written::Unanswered(_) | Written::Failed(_) => Done::Failed,
        }
    }

    /// What the launcher of this virtual machine takes, as another one of its kind would; `None` if there is none.
    async fn source(&self, blocked: &MigrationRef) -> Option<Option<Need>> {
        let pods = self.headroom.requests().pods_of(&blocked.namespace, &blocked.machine_uid).await;
        let pods = pods.inspect_err(|error| {
            tracing::warn!(ns = %blocked.namespace, vmi = %blocked.machine, %error, "source pod not listed");
        });
        let rules = *self.rules.borrow();
        let needs = pods.ok()?.into_iter().filter_map(|pod| sluice_index::need_of(&pod, rules).ok());
        // Hot-plug and other helpers carry the label too; the launcher is the largest.
        Some(needs.max_by_key(|need| need.charge.get(&Resource::Memory)))
    }

    /// What changed; `None`: look everywhere.
    fn take_dirty(&self) -> Option<BTreeSet<Arc<str>>> {
        let dirty = self.observed().take_dirty();
        (!dirty.all).then_some(dirty.namespaces)
    }

    fn plan(&self, dirty: Option<BTreeSet<Arc<str>>>, statuses: &HeadroomStatusWriter) -> Vec<Action> {
        let mut state = self.state.lock();
        match dirty {
            Some(dirty) => {
                statuses.changed(dirty.iter().cloned());
                state.see(dirty);
            }
            None => {
                statuses.everything();
                let known: Vec<_> = state.known().cloned().collect();
                state.see(known.into_iter().chain(interesting(self.observed())));
            }
        }
        let actions = state.plan(self.now(), |namespace| self.facts(namespace));
        statuses.changed(state.take_told_anew());
        let stats = std::mem::take(&mut state.stats);
        drop(state);
        self.metrics.observe(stats);
        actions
    }

    fn facts(&self, namespace: &str) -> NamespaceFacts {
        self.observed().read(|index| NamespaceFacts {
            opted_out: index.opted_out(namespace),
            quotas: index.quotas_in(namespace),
            budget: index.budget(namespace),
            blocked: blocked(index, namespace),
            limit_ranges: index.limit_ranges.changes(namespace),
        })
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

fn blocked(index: &Cluster, namespace: &str) -> Vec<BlockedFacts> {
    let has_target = |migration: &VmimRecord| index.targets.of_migration(&migration.uid).next().is_some();
    let waiting = index.vmims.waiting_in(namespace).into_iter();
    let facts = waiting.filter(|migration| !has_target(migration)).filter_map(|migration| {
        let machine = index.vmis.get(namespace, &migration.machine)?;
        Some(BlockedFacts {
            migration: MigrationRef::new(migration, machine),
            version: migration.version.to_string().into(),
        })
    });
    facts.collect()
}

/// The namespaces in which there may be something to do.
fn interesting(observed: &Observed) -> BTreeSet<Arc<str>> {
    observed.read(|index| index.vmims.rejected().map(|migration| Arc::clone(&migration.namespace)).collect())
}
