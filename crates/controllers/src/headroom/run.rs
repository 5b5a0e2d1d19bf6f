//! Runs the reactive path and the sweep: asks the state for actions and has them executed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use sluice_headroom::Observed;
use sluice_kube_ext::events::Recorder;
use sluice_kube_ext::lease::{Leadership, WriteToken};
use sluice_kube_ext::metrics::ApiWrites;
use sluice_kube_ext::retry::process_seed;
use sluice_kube_ext::watch::WatchHealth;
use tokio::sync::{Notify, watch as latest};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::action::Action;
use super::apply::Apply;
use super::config::ReactiveConfig;
use super::leftovers::{self, Leftovers};
use super::metrics::ReactiveMetrics;
use super::observe::{Sources, facts, interesting};
use super::report::{self, Reporter};
use super::state::State;
use crate::gate::Moment;

/// How long a stopping leader waits for what is under way.
const DRAIN: Duration = Duration::from_secs(6);

/// The reactive path and the sweep as a running thing; clones share it.
#[derive(Clone)]
pub struct Reactive {
    state: Arc<Mutex<State>>,
    observed: Arc<Observed>,
    pub(super) sources: Sources,
    settled: Arc<Notify>,
    epoch: Instant,
    metrics: ReactiveMetrics,
}

impl Reactive {
    /// Nothing was decided yet. `observed` has to remember what is dirty.
    #[must_use]
    pub fn new(config: ReactiveConfig, observed: Arc<Observed>, metrics: ReactiveMetrics) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(config, process_seed()))),
            observed,
            sources: Sources::new(),
            settled: Arc::default(),
            epoch: Instant::now(),
            metrics,
        }
    }

    /// The state, for metrics.
    #[must_use]
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// The health of the watches that are not those of [`Observed`].
    #[must_use]
    pub fn watches(&self) -> Vec<WatchHealth> {
        self.sources.watches().to_vec()
    }

    /// Watches until `cancel`. Every replica does that, leader or not.
    pub async fn observe(self, client: kube::Client, cancel: CancellationToken) {
        self.sources.observe(client, cancel).await;
    }

    /// Keeps conditions up to date until `cancel`, while `token` is held.
    pub async fn report(
        self,
        reporter: Reporter,
        client: kube::Client,
        token: WriteToken,
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let sources =
            report::Sources { state: self.state, observed: self.observed, sights: self.sources.sights };
        reporter.run(sources, client, token, writes, cancel).await;
    }

    /// Ends what managed-tenant-quota left behind, while this process leads, until `cancel`. A lock that is younger than
    /// `lock_age` may belong to somebody who is still about to end it.
    pub async fn end_leftovers(
        self,
        (mode, lock_age): (Leftovers, Duration),
        apply: Apply,
        events: Recorder,
        mut leadership: latest::Receiver<Leadership>,
        cancel: CancellationToken,
    ) {
        tokio::select! {
            () = cancel.cancelled() => return,
            leads = self.leads(&mut leadership) => if !leads {
                return cancel.cancelled().await;
            },
        }
        let (sights, metrics) = (Arc::clone(&self.sources.sights), self.metrics.clone());
        let changes = self.sources.changes.subscribe();
        leftovers::Loop::new((mode, lock_age), sights, changes, apply.parts(), events, metrics)
            .run(cancel)
            .await;
    }

    fn now(&self) -> Moment {
        Moment {
            mono_ms: u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX),
            unix_ms: Timestamp::now().as_millisecond(),
        }
    }

    /// Waits until this process leads and everything was listed once that decisions are made from. Returns `false` if it
    /// never will.
    async fn leads(&self, leadership: &mut latest::Receiver<Leadership>) -> bool {
        if leadership.wait_for(Leadership::is_leading).await.is_err() {
            return false;
        }
        for watch in self.observed.watches().iter().chain(self.sources.watches()) {
            watch.synced().await;
        }
        true
    }

    /// Decides and acts while this process leads, until `cancel`. Then waits, for a while, for windows that are open.
    pub async fn decide(
        self,
        apply: Apply,
        reporter: Reporter,
        mut leadership: latest::Receiver<Leadership>,
        cancel: CancellationToken,
    ) {
        let mut requests = JoinSet::new();
        let work = async {
            if self.leads(&mut leadership).await {
                self.take_dirty();
                let all = interesting(&self.observed);
                tracing::info!(namespaces = all.len(), "watching over head-room");
                self.state.lock().lead(all);
                reporter.everything();
                self.act(&apply, &reporter, &mut leadership, &mut requests).await;
            }
            cancel.cancelled().await;
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
        let drained = async {
            while requests.join_next().await.is_some() {}
            apply.finish().await;
        };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("stopping while windows are still open");
        }
    }

    /// Goes on until leadership ends.
    async fn act(
        &self,
        apply: &Apply,
        reporter: &Reporter,
        leadership: &mut latest::Receiver<Leadership>,
        requests: &mut JoinSet<()>,
    ) {
        let mut changes = self.observed.changes();
        let mut sights = self.sources.changes.subscribe();
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
                changed = sights.changed() => if changed.is_err() { return },
                () = self.settled.notified() => {}
                () = timer => {}
                changed = leadership.changed() => if changed.is_err() { return },
            }
            while requests.try_join_next().is_some() {}
            if !leadership.borrow().is_leading() {
                return;
            }
            for action in self.plan(self.take_dirty(), reporter) {
                self.start(action, apply, requests);
            }
        }
    }

    fn start(&self, action: Action, apply: &Apply, requests: &mut JoinSet<()>) {
        let (reactive, apply) = (self.clone(), apply.clone());
        requests.spawn(async move {
            let Some(outcome) = apply.execute(action).await else { return };
            let told = reactive.state.lock().settle(outcome, reactive.now());
            reactive.settled.notify_one();
            for tell in told {
                apply.execute(tell).await;
            }
        });
    }

    /// What changed; `None`: look everywhere.
    fn take_dirty(&self) -> Option<BTreeSet<Arc<str>>> {
        let index = self.observed.take_dirty();
        let mut sights = self.sources.sights.lock();
        let mut namespaces = std::mem::take(&mut sights.dirty);
        let all = std::mem::take(&mut sights.all) || index.all;
        drop(sights);
        namespaces.extend(index.namespaces);
        (!all).then_some(namespaces)
    }

    fn plan(&self, dirty: Option<BTreeSet<Arc<str>>>, reporter: &Reporter) -> Vec<Action> {
        let mut state = self.state.lock();
        match dirty {
            Some(dirty) => {
                reporter.changed(dirty.iter().cloned());
                state.see(dirty);
            }
            None => {
                reporter.everything();
                let known: Vec<_> = state.known().cloned().collect();
                state.see(known.into_iter().chain(interesting(&self.observed)));
            }
        }
        let actions =
            state.plan(self.now(), |namespace| facts(&self.observed, &self.sources.sights, namespace));
        reporter.changed(state.take_told_anew());
        let stats = std::mem::take(&mut state.stats);
        drop(state);
        self.metrics.observe(stats);
        actions
    }
}
