//! Runs the gate: asks the state for actions and has them executed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use sluice_engine::{ChargeRules, NamespacePattern};
use sluice_index::{Aaqs, PodWire};
use sluice_runtime::lease::Leadership;
use sluice_runtime::watch::WatchHealth;
use tokio::sync::{Notify, oneshot, watch as latest};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::action::{Action, Outcome};
use super::admission::{Asked, Change, Judgement, Ticket, UNSEEN};
use super::apply::Apply;
use super::audit::audit_for_ever;
use super::config::{GateConfig, Moment};
use super::metrics::{GateMetrics, Work};
use super::state::State;
use super::targeting::targeting;

/// How long a stopping leader waits for requests that are under way.
const DRAIN: Duration = Duration::from_secs(6);

/// So long the watch of pods may take to come to the present by itself, as it does where pods change all the time; then they
/// are listed, which in a large cluster takes longer.
const CATCH_UP: Duration = Duration::from_millis(250);

/// So long an update of a pod waits for its charge to be recorded.
const RECORDED_IN: Duration = Duration::from_millis(2_500);

/// So long an update of a pod waits for the watch to have come to the version that it is about.
const SEEN_IN: Duration = Duration::from_secs(1);

/// So long a new leader waits for lists of namespaces and configurations.
const OTHERS_CATCH_UP: Duration = Duration::from_secs(5);

/// A leader that cannot begin says so this often.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The gate as a running thing; clones share it.
#[derive(Clone)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    config: Arc<RwLock<GateConfig>>,
    news: Arc<Notify>,
    epoch: Instant,
    metrics: GateMetrics,
    pub(super) exempt: Arc<[NamespacePattern]>,
    /// Locked before the state is.
    pub(super) aaqs: Arc<Mutex<Aaqs>>,
    watches: GateWatches,
    /// Who waits for which answer. Locked while the state is locked.
    asking: Arc<Mutex<HashMap<Ticket, oneshot::Sender<Judgement>>>>,
    /// Told when there is something else to show of cluster quotas.
    clusters_changed: Arc<Notify>,
}

/// The health of the watches that feed the gate.
#[derive(Clone, Debug)]
pub struct GateWatches {
    /// Of pods.
    pub pods: WatchHealth,
    /// Of namespaces.
    pub namespaces: WatchHealth,
    /// Of `ApplicationAwareResourceQuota`s.
    pub quotas: WatchHealth,
    /// Of `ApplicationAwareClusterResourceQuota`s.
    pub cluster_quotas: WatchHealth,
    /// Of `ClusterQuotaCharge`s.
    pub charges: WatchHealth,
    /// Of `AAQ`s.
    pub aaqs: WatchHealth,
}

impl Gate {
    /// A gate that has seen nothing yet.
    ///
    /// Pods of the namespaces that are `exempt` are never held; that of the installation must be one of them.
    #[must_use]
    pub fn new(
        config: GateConfig,
        exempt: &[NamespacePattern],
        metrics: GateMetrics,
        watches: GateWatches,
    ) -> Self {
        let exempt: Arc<[NamespacePattern]> = exempt.into();
        let targeting = targeting(&Aaqs::default(), &exempt);
        Self {
            config: Arc::new(RwLock::new(config.clone())),
            state: Arc::new(Mutex::new(State::new(config, targeting))),
            news: Arc::new(Notify::new()),
            epoch: Instant::now(),
            metrics,
            exempt,
            aaqs: Arc::default(),
            watches,
            asking: Arc::default(),
            clusters_changed: Arc::default(),
        }
    }

    /// The state, for metrics and tests.
    #[must_use]
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// Waits until this moment of its clock (milliseconds), or for ever.
    pub(crate) async fn until(&self, at_ms: Option<u64>) {
        match at_ms {
            // One millisecond late rather than early: an early one would find nothing to do.
            Some(ms) => tokio::time::sleep_until((self.epoch + Duration::from_millis(ms + 1)).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until there is something else to show of cluster quotas.
    pub(crate) async fn clusters_changed(&self) {
        self.clusters_changed.notified().await;
    }

    /// Judges an update of a pod. If it takes more of a quota, it is charged, and recorded as charged, before this returns.
    pub async fn admit(&self, before: &PodWire, after: &PodWire, dry_run: bool) -> Judgement {
        let change = Change::read(before, after, dry_run, &self.config.read(), self.now());
        let judgement = self.admit_as_seen(&change).await;
        if judgement != UNSEEN {
            return judgement;
        }
        let version = before.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        match version {
            Some(version) if timeout(SEEN_IN, self.watches.pods.reached(version)).await.is_ok() => {
                self.admit_as_seen(&change).await
            }
            _ => judgement,
        }
    }

    async fn admit_as_seen(&self, change: &Change) -> Judgement {
        let asked = self.locked(Work::Admit, |state, now| match state.ask(change, now) {
            Asked::Judged(judgement) => Err(judgement),
            Asked::Recording(ticket) => {
                let (sender, answer) = oneshot::channel();
                self.asking.lock().insert(ticket, sender);
                Ok((ticket, answer))
            }
        });
        let (ticket, answer) = match asked {
            Ok(recording) => recording,
            Err(judgement) => return judgement,
        };
        self.news.notify_one();
        match timeout(RECORDED_IN, answer).await {
            Ok(answer) => answer.unwrap_or(Judgement::Undecided("the process ends")),
            Err(_) => {
                let mut state = self.state.lock();
                self.asking.lock().remove(&ticket);
                state.abandon(ticket);
                Judgement::Undecided("the quota's status could not be written in time")
            }
        }
    }

    fn answer(&self, ticket: Ticket, judgement: Judgement) {
        if let Some(sender) = self.asking.lock().remove(&ticket) {
            // It fails when the webhook has closed its connection.
            let _ = sender.send(judgement);
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment {
            mono_ms: u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX),
            unix_ms: Timestamp::now().as_millisecond(),
        }
    }

    /// Has the state locked for this work, and measures how long.
    pub(super) fn locked<T>(&self, work: Work, run: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = self.state.lock();
        let begin = Instant::now();
        let made = run(&mut state, self.now());
        let have_clusters_changed = state.have_clusters_changed();
        drop(state);
        if have_clusters_changed {
            self.clusters_changed.notify_one();
        }
        self.metrics.observe_held(work, begin.elapsed());
        made
    }

    /// Changes the state, and has it decide.
    pub(super) fn change(&self, work: Work, change: impl FnOnce(&mut State, Moment)) {
        self.locked(work, change);
        self.news.notify_one();
    }

    /// Charges by these rules, and by others when they change: then all pods are listed and read again.
    pub async fn follow_rules(self, mut rules: latest::Receiver<ChargeRules>, cancel: CancellationToken) {
        let follow = async {
            while rules.changed().await.is_ok() {
                let now = *rules.borrow_and_update();
                self.config.write().rules = now;
                self.change(Work::Watch, |state, _| state.charge_by(now));
                self.watches.pods.list_again().await;
            }
        };
        cancel.run_until_cancelled(follow).await;
        // The process goes on with the last rules.
        cancel.cancelled().await;
    }

    /// Decides and acts while this process leads, until `cancel`. Then waits, for a while, for requests that
    /// are under way.
    pub async fn decide(
        self,
        apply: Apply,
        mut leadership: latest::Receiver<Leadership>,
        cancel: CancellationToken,
    ) {
        let mut requests = JoinSet::new();
        // Nothing waits for these: a stopping leader leaves them.
        let mut events = JoinSet::new();
        let audits = audit_for_ever(&self);
        tokio::pin!(audits);
        let mut led = false;
        loop {
            let due = {
                let state = self.state.lock();
                let now = self.now();
                state.next_due_ms(now).map(|ms| now.mono_ms.saturating_add(ms))
            };
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.news.notified() => {}
                () = self.until(due) => {}
                changed = leadership.changed() => if changed.is_err() { break },
                never = &mut audits => match never {},
            }
            while requests.try_join_next().is_some() {}
            while events.try_join_next().is_some() {}
            if leadership.borrow().is_leading() && !led {
                tokio::select! {
                    () = cancel.cancelled() => break,
                    () = self.catch_up(&apply) => {}
                }
                led = true;
                self.change(Work::Plan, State::lead);
                tracing::info!(held = self.state.lock().held(), "deciding");
            }
            for action in self.plan() {
                if let Action::Answer(ticket, judgement) = action {
                    self.answer(ticket, judgement);
                    continue;
                }
                let (gate, apply, cancel) = (self.clone(), apply.clone(), cancel.clone());
                let tasks = if matches!(action, Action::WriteEvent(_)) { &mut events } else { &mut requests };
                tasks.spawn(async move {
                    let outcome = match action {
                        Action::CatchUp => {
                            let caught_up = cancel.run_until_cancelled(gate.pods_catch_up(&apply)).await;
                            caught_up.map(|()| Outcome::CaughtUp)
                        }
                        action => apply.execute(action).await,
                    };
                    if let Some(outcome) = outcome {
                        gate.change(Work::Settle, |state, now| state.on_outcome(outcome, now));
                    }
                });
            }
        }
        let drained = async { while requests.join_next().await.is_some() {} };
        if timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("stopping while requests are still under way");
        }
    }

    /// Waits until everything is in the state that there was when this began: what a predecessor has recorded, and which
    /// pods have ended and were released up to then. What it does later, if a request of it is still under way, is
    /// honoured by what it has recorded.
    async fn catch_up(&self, apply: &Apply) {
        let watches = &self.watches;
        // Nothing is given away twice because a namespace or a selector is seen late; so a list of these that fails, as
        // where a kind is gone, keeps no leader from its work.
        let others = [&watches.namespaces, &watches.aaqs].map(|watch| async {
            watch.synced().await;
            let _ = timeout(OTHERS_CATCH_UP, watch.list_again()).await;
        });
        let quotas = [&watches.quotas, &watches.cluster_quotas, &watches.charges];
        let quotas = join_all(quotas.map(WatchHealth::list_again));
        let all = async { tokio::join!(self.pods_catch_up(apply), quotas, join_all(others)) };
        tokio::pin!(all);
        while timeout(TOLD_EVERY, &mut all).await.is_err() {
            let missing = |watch: &WatchHealth| watch.check().err().unwrap_or_default();
            let (pods, quotas) = (missing(&watches.pods), missing(&watches.quotas));
            let (cluster_quotas, charges) = (missing(&watches.cluster_quotas), missing(&watches.charges));
            tracing::warn!(
                %pods, %quotas, %cluster_quotas, %charges,
                "leading, but not deciding before pods and quotas are listed"
            );
        }
    }

    /// Returns when the watch of pods has handed on everything that there was when this began.
    async fn pods_catch_up(&self, apply: &Apply) {
        let pods = &self.watches.pods;
        pods.synced().await;
        if let Some(version) = apply.newest_version().await
            && timeout(CATCH_UP, pods.reached(version)).await.is_ok()
        {
            return;
        }
        pods.list_again().await;
    }

    fn plan(&self) -> Vec<super::Action> {
        let (actions, stats) =
            self.locked(Work::Plan, |state, now| (state.plan(now), std::mem::take(&mut state.stats)));
        self.metrics.observe(stats);
        actions
    }
}
