//! Runs the gate: asks the state for actions and has them executed.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Fuse, FusedFuture as _, join_all};
use sluice_engine::{ChargeRules, Uid};
use sluice_index::Version;
use sluice_runtime::lease::Leadership;
use sluice_runtime::watch::WatchHealth;
use tokio::sync::watch as latest;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::action::{Action, Answer, Outcome, RecordedIn, RecordedObject};
use super::apply::Apply;
use super::audit::audit_for_ever;
use super::handle::Gate;
use super::metrics::Work;
use super::state::State;

/// How long a stopping leader waits for requests that are under way.
const DRAIN: Duration = Duration::from_secs(6);

/// So long the watch of pods may take to come to the present by itself, as it does where pods change all the time; then they
/// are listed, which in a large cluster takes longer.
const CATCH_UP: Duration = Duration::from_millis(250);

/// So long a new leader waits for lists of namespaces and configurations.
const OTHERS_CATCH_UP: Duration = Duration::from_secs(5);

/// A leader that cannot begin says so this often.
const TOLD_EVERY: Duration = Duration::from_secs(10);

impl Gate {
    /// Charges by these rules, and by others when they change: then all pods are listed and read again.
    pub async fn follow_rules(self, mut rules: latest::Receiver<ChargeRules>, cancel: CancellationToken) {
        let follow = async {
            while rules.changed().await.is_ok() {
                let now = *rules.borrow_and_update();
                self.config.write().rules = now;
                self.change(Work::Watch, |state, _| state.charge_by(now));
                // Rules of evaluators rest on what Kubernetes counts.
                self.evaluate_again();
                self.watches.pods.list_again().await;
                self.locked(Work::Watch, |state, _| state.is_charged_by());
            }
        };
        cancel.run_until_cancelled(follow).await;
        // The process goes on with the last rules.
        cancel.cancelled().await;
    }

    /// Decides and acts while this process leads, until `cancel`. Then waits, for a while, until nothing is under way any
    /// more. Returns whether that is so: then the next leader need not keep room for what this one has asked for.
    pub async fn decide(
        self,
        apply: Apply,
        mut leadership: latest::Receiver<Leadership>,
        cancel: CancellationToken,
    ) -> bool {
        let _ = self.reader.set(apply.clone());
        let mut requests = JoinSet::new();
        // Nothing waits for these: a stopping leader leaves them.
        let mut events = JoinSet::new();
        let audits = audit_for_ever(&self);
        tokio::pin!(audits);
        // `is_given`: the previous leader released the lease when it had nothing under way.
        let (mut led, mut is_given) = (false, false);
        // The loop goes on while the new leader catches up, so that it asks evaluators as every follower does.
        let mut catching_up: Fuse<BoxFuture<'_, bool>> = Fuse::terminated();
        let mut resigns_until = None;
        loop {
            let due = {
                let state = self.state.lock();
                let now = self.now();
                state.next_due_ms(now).map(|ms| now.mono_ms.saturating_add(ms))
            };
            tokio::select! {
                () = cancel.cancelled(), if resigns_until.is_none() => {
                    resigns_until = Some(Instant::now() + DRAIN);
                    self.change(Work::Plan, |state, _| state.resign());
                }
                () = sleep_until(resigns_until.unwrap_or_else(Instant::now)), if resigns_until.is_some() => break,
                () = self.news.notified() => {}
                () = self.until(due) => {}
                changed = leadership.changed() => if changed.is_err() { break },
                is_all_seen = &mut catching_up, if resigns_until.is_none() && leadership.borrow().is_leading() => {
                    led = true;
                    let is_handed_over = is_given && is_all_seen;
                    let lead = if is_handed_over { State::lead_after_handover } else { State::lead };
                    self.change(Work::Plan, lead);
                    tracing::info!(held = self.state.lock().held(), is_handed_over, "deciding");
                }
                never = &mut audits => match never {},
            }
            while requests.try_join_next().is_some() {}
            while events.try_join_next().is_some() {}
            if leadership.borrow().is_leading() && !led && catching_up.is_terminated() {
                is_given = leadership.borrow().is_handed_over();
                self.change(Work::Plan, |state, _| state.expect_to_lead());
                catching_up = self.catch_up(&apply).boxed().fuse();
            }
            for action in self.plan() {
                if let Action::Answer(ticket, judgement) = action {
                    self.answer(ticket, judgement);
                    continue;
                }
                let (gate, apply, cancel) = (self.clone(), apply.clone(), cancel.clone());
                let based_on = based_on(&action);
                let tasks = if matches!(action, Action::WriteEvent(_)) { &mut events } else { &mut requests };
                tasks.spawn(async move {
                    let outcome = match action {
                        Action::CatchUp => {
                            let caught_up = cancel.run_until_cancelled(gate.pods_catch_up(&apply)).await;
                            caught_up.map(|()| Outcome::CaughtUp)
                        }
                        Action::CatchUpClusterQuotas => {
                            let caught_up =
                                cancel.run_until_cancelled(gate.cluster_quotas_catch_up(&apply)).await;
                            caught_up.map(|()| Outcome::ClusterQuotasCaughtUp)
                        }
                        Action::ListTargets => {
                            let watches = &gate.watches;
                            // Where the kind is gone, as while Sluice is removed, what was selected last holds.
                            let aaqs = timeout(OTHERS_CATCH_UP, watches.aaqs.list_again());
                            let both = async { tokio::join!(watches.namespaces.list_again(), aaqs) };
                            cancel.run_until_cancelled(both).await.map(|_| Outcome::TargetsListed)
                        }
                        Action::ReadRound(read) => Some(gate.read_round(&apply, read).await),
                        Action::Evaluate(question) => Some(gate.evaluate(&apply, *question).await),
                        action => apply.execute(action).await,
                    };
                    if let Some(outcome) = outcome {
                        if let Some((from, to)) = based_on.and_then(|known| went_back(known, &outcome)) {
                            gate.watches.quotas.answered_with_earlier(from.number(), to.number());
                        }
                        gate.change(Work::Settle, |state, now| state.on_outcome(outcome, now));
                    }
                });
            }
            let is_settled = || {
                let state = self.state.lock();
                !state.is_leading() || state.has_nothing_under_way()
            };
            if resigns_until.is_some() && is_settled() {
                break;
            }
        }
        let until = resigns_until.unwrap_or_else(|| Instant::now() + DRAIN);
        let drained = async { while requests.join_next().await.is_some() {} };
        let is_drained = timeout_at(until, drained).await.is_ok();
        if !is_drained {
            tracing::warn!("stopping while requests are still under way");
        }
        is_drained && self.state.lock().has_nothing_under_way()
    }

    /// Waits until everything is in the state that there was when this began: what a predecessor has recorded, and which
    /// pods have ended and were released up to then. What it does later, if a request of it is still under way, is
    /// honoured by what it has recorded. Returns whether all of it is seen.
    async fn catch_up(&self, apply: &Apply) -> bool {
        let watches = &self.watches;
        // Nothing is given away twice because a namespace, a selector or a VM is seen late, where room is kept for what is
        // recorded; so a list of these that fails, as where a kind is gone, keeps no leader from its work.
        let others = [&watches.namespaces, &watches.aaqs, &watches.machines, &watches.kubevirts];
        let others = others.map(|watch| async {
            watch.synced().await;
            timeout(OTHERS_CATCH_UP, watch.list_again()).await.is_ok()
        });
        let quotas = [&watches.quotas, &watches.cluster_quotas, &watches.charges, &watches.evaluators];
        let quotas = join_all(quotas.map(WatchHealth::list_again));
        let all = async {
            tokio::join!(self.pods_catch_up(apply), quotas, join_all(others), self.claims_are_known())
        };
        tokio::pin!(all);
        loop {
            if let Ok(((), _, others, ())) = timeout(TOLD_EVERY, &mut all).await {
                return others.into_iter().all(|is_listed| is_listed);
            }
            let missing = |watch: &WatchHealth| watch.check().err().unwrap_or_default();
            let (pods, quotas) = (missing(&watches.pods), missing(&watches.quotas));
            let (cluster_quotas, charges) = (missing(&watches.cluster_quotas), missing(&watches.charges));
            let evaluators = missing(&watches.evaluators);
            tracing::warn!(
                %pods, %quotas, %cluster_quotas, %charges, %evaluators,
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

    /// Returns when the watch of cluster quotas has handed on every specification that there was when this began. Mostly it
    /// has already: they change seldom.
    async fn cluster_quotas_catch_up(&self, apply: &Apply) {
        if let Some(listed) = apply.cluster_quota_generations().await
            && self.state.lock().index().2.know_clusters(&listed)
        {
            return;
        }
        self.watches.cluster_quotas.list_again().await;
    }

    /// Waits until it is known which keys claims count to: without it a new leader would write other texts than its
    /// predecessor, and the same ones a moment later. Nothing is decided by that, so it is not waited for long.
    async fn claims_are_known(&self) {
        let _ = timeout(OTHERS_CATCH_UP, self.watches.device_classes.synced()).await;
    }

    fn plan(&self) -> Vec<super::Action> {
        let (actions, stats) = self.locked(Work::Plan, |state, now| (state.plan(now), state.take_stats()));
        self.metrics.observe(stats);
        actions
    }
}

/// The version of the quota that an action writes.
fn based_on(action: &Action) -> Option<Version> {
    match action {
        Action::Record(record) => match record.object {
            RecordedIn::Status(version) => Some(version),
            RecordedIn::Charge(_) | RecordedIn::NewCharge { .. } => None,
        },
        _ => None,
    }
}

/// The version that the quota had, and the earlier one in which it was read after that: etcd was restored. A watch need not
/// notice that, since API servers let it go on from a version that is not there yet.
fn went_back(known: Version, outcome: &Outcome) -> Option<(Version, Version)> {
    let Outcome::Recorded(_, uid, Answer::Stale(Some(RecordedObject::Quota(quota)))) = outcome else {
        return None;
    };
    let now = Version::parse(quota.metadata.resource_version.as_deref());
    let is_same = quota.metadata.uid.as_deref().map(Uid::parse).as_ref() == Some(uid);
    (is_same && now.is_older_than(known)).then_some((known, now))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use sluice_engine::QuotaId;
    use sluice_runtime::clock::ServerClock;
    use tokio::time::Instant;

    use super::*;

    /// Another quota of the same name, and one that has changed, are no sign of another store.
    #[test]
    fn only_the_same_quota_in_an_earlier_version_is_of_another_store() {
        let version = |number: &str| Version::parse(Some(number));
        let reread = |uid: &str, number: &str| {
            let metadata = json!({ "name": "q", "namespace": "team", "uid": uid, "resourceVersion": number });
            let quota = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            let answer = Answer::Stale(Some(RecordedObject::Quota(quota)));
            let outcome = Outcome::Recorded(QuotaId(0), Uid::parse("a"), answer);
            went_back(version("7"), &outcome)
        };
        assert_eq!(reread("a", "5"), Some((version("7"), version("5"))));
        for (uid, number) in [("a", "7"), ("a", "9"), ("b", "5"), ("a", "")] {
            assert_eq!(reread(uid, number), None, "{uid} {number}");
        }
        let gone = Outcome::Recorded(QuotaId(0), Uid::parse("a"), Answer::Stale(None));
        assert_eq!(went_back(version("7"), &gone), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_waits_for_device_classes_and_not_for_ever() {
        let gate = Gate::unfed(Arc::new(ServerClock::default()));
        let began = Instant::now();
        gate.claims_are_known().await;
        assert_eq!(began.elapsed(), OTHERS_CATCH_UP);
    }
}
