//! Carries out the commands of one opening.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use sluice_api::{MigrationWindow, MigrationWindowSpec, WindowQuota, names};
use sluice_engine::Uid;
use sluice_engine::headroom::{Grant, Plan, Raise, plan};
use sluice_index::headroom::{HeadroomIndex, NativeRecord};
use sluice_index::wire::NativeQuotaWire;
use sluice_kube_ext::retry::{Failure, classify};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::patches;
use crate::protocol::{Answer, Command, Ending, Opening, QuotaRef};
use crate::requests::Opened;
use crate::window::{Headroom, LOCK_TIME, Target};

/// Limit for the proof, and for the drain.
const PROOF_TIME: Duration = Duration::from_secs(1);
/// How long our own watch may take to show what we wrote.
const ECHO_TIME: Duration = Duration::from_millis(100);
/// Quota admission learns of a raise by a watch of its own, of which we cannot see how far it is. Ours has shown the
/// raise by then; measured, 5 ms later every API server knew (40 of 40, without: 38 of 40).
const SETTLE_TIME: Duration = Duration::from_millis(5);
/// Restoring stops this long before the lock ends: nothing is sent that could arrive after it.
const MARGIN: Duration = Duration::from_millis(500);
/// The schema's limit for `spec.quotas` of a window.
const MOST_QUOTAS: usize = 64;
/// Before each try to delete the window; after the last one it is left to expire.
const DELETE_PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(200)];

/// The state of the I/O of one opening.
pub(crate) struct Hands<'h> {
    headroom: &'h Headroom,
    target: Target,
    limit: Instant,
    target_time: Duration,
    admit: Option<oneshot::Sender<()>>,
    /// Our window, once it exists.
    window: Option<Opened>,
    /// The nonce of the window that we may have created without knowing.
    nonce: String,
    /// Somebody else's window.
    other: Option<MigrationWindow>,
    /// The quotas as they were last read.
    records: HashMap<Arc<str>, NativeRecord>,
    /// What was raised, and the quota as it was right after.
    raised: Vec<(Raise, NativeRecord)>,
    locked_at: Instant,
    raised_at: Option<Instant>,
    lock_end: Instant,
}

impl<'h> Hands<'h> {
    pub(crate) fn new(
        headroom: &'h Headroom,
        target: Target,
        limit: Instant,
        target_time: Duration,
        admit: Option<oneshot::Sender<()>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            headroom,
            target,
            limit,
            target_time,
            admit,
            window: None,
            nonce: headroom.nonce(),
            other: None,
            records: HashMap::new(),
            raised: Vec::new(),
            locked_at: now,
            raised_at: None,
            lock_end: now,
        }
    }

    pub(crate) async fn carry_out(&mut self, command: Command) -> Answer {
        match command {
            Command::Lock => self.lock().await,
            Command::WaitForOther => self.wait_for_other().await,
            Command::ClearOther => self.clear_other().await,
            Command::Prove => self.prove().await,
            Command::Drain => self.drain().await,
            Command::Read => self.read().await,
            Command::ReadBudget => self.read_budget().await,
            Command::Raise(raise) => self.raise(raise).await,
            Command::Settle => self.settle().await,
            Command::Admit => self.let_in(),
            Command::Await => self.await_target().await,
            Command::Restore(quota) => self.restore(&quota).await,
            Command::Unlock => self.unlock().await,
            Command::Stop(_) => Answer::Unlocked,
        }
    }

    async fn lock(&mut self) -> Answer {
        if Instant::now() >= self.limit {
            return Answer::TimeUp;
        }
        let requests = &self.headroom.requests;
        let now = match requests.clock().await {
            Ok(now) => now,
            Err(error) => return failed("asking for the API server's clock", &error),
        };
        let window = self.window_object(names::WINDOW_NAME, lock_until(now));
        self.locked_at = Instant::now();
        match requests.create(&self.target.namespace, &window).await {
            Ok(opened) => self.locked(opened),
            Err(error) => match classify(&error) {
                Failure::AlreadyExists | Failure::Conflict => self.held().await,
                failure if failure.may_have_applied() => self.held().await,
                _ => failed("creating the window", &error),
            },
        }
    }

    fn locked(&mut self, opened: Opened) -> Answer {
        self.headroom.metrics.opened();
        self.window = Some(opened);
        Answer::Locked
    }

    /// Looks who holds the window.
    async fn held(&mut self) -> Answer {
        let (window, date) = match self.headroom.requests.window(&self.target.namespace).await {
            Ok(Some(found)) => found,
            Ok(None) => return Answer::Free,
            Err(error) => return failed("reading the window", &error),
        };
        if window.spec.nonce == self.nonce {
            let opened = crate::requests::opened(&self.target.namespace, window);
            return self.locked(opened);
        }
        let answer = if is_over(&window, date) {
            Answer::HeldExpired
        } else if window.spec.migration.uid == self.target.migration.uid {
            Answer::HeldForTarget
        } else {
            Answer::Held
        };
        self.other = Some(window);
        answer
    }

    async fn wait_for_other(&self) -> Answer {
        let Some(other) = &self.other else { return Answer::Free };
        let (namespace, uid) = (&self.target.namespace, Uid::parse(&other.uid().unwrap_or_default()));
        let is_other =
            |index: &HeadroomIndex| index.windows.get(namespace).is_some_and(|known| known.uid == uid);
        let observed = &self.headroom.observed;
        let left = || self.limit.saturating_duration_since(Instant::now());
        // It may be newer than what our watch has shown so far.
        observed.until(left().min(ECHO_TIME), |index| is_other(index).then_some(())).await;
        let gone = |index: &HeadroomIndex| (!is_other(index)).then_some(());
        match observed.until(left().min(LOCK_TIME + Duration::from_secs(1)), gone).await {
            None if left().is_zero() => Answer::TimeUp,
            _ => Answer::Free,
        }
    }

    async fn clear_other(&self) -> Answer {
        match self.headroom.clear(&self.target.namespace).await {
            Ok(_) => Answer::Free,
            Err(error) => Answer::Failed(error.to_string().into()),
        }
    }

    async fn prove(&mut self) -> Answer {
        let Some(window) = &self.window else { return Answer::Failed("there is no window".into()) };
        let probe = self.window_object(names::PROBE_NAME, window.until);
        match self.headroom.requests.prove(window, &probe, PROOF_TIME).await {
            Ok(left) => {
                self.lock_end = Instant::now() + left;
                self.headroom.metrics.proven(self.locked_at.elapsed());
                Answer::Proven(left)
            }
            Err(why) => Answer::Failed(why),
        }
    }

    async fn drain(&self) -> Answer {
        let Some(window) = &self.window else { return Answer::Failed("there is no window".into()) };
        let drain = self.window_object(names::DRAIN_NAME, window.until);
        match self.headroom.requests.drain(window, &drain, PROOF_TIME).await {
            Ok(()) => Answer::Drained,
            Err(why) => Answer::Failed(why),
        }
    }

    async fn read(&mut self) -> Answer {
        let wires: Vec<NativeQuotaWire> = match self.headroom.requests.quotas(&self.target.namespace).await {
            Ok(wires) => wires,
            Err(error) => return failed("listing the namespace's quotas", &error),
        };
        self.await_own_window().await;
        let records = wires.iter().map(NativeRecord::read);
        self.records = records.map(|record| (Arc::clone(&record.name), record)).collect();
        let (budget, namespace_opted_out) = self
            .headroom
            .observed
            .read(|index| (index.budget(&self.target.namespace), index.opted_out(&self.target.namespace)));
        let mut quotas: Vec<_> = self.records.values().map(NativeRecord::native).collect();
        quotas.sort_by(|a, b| a.name.cmp(&b.name));
        for quota in &mut quotas {
            quota.opted_out |= namespace_opted_out;
        }
        Answer::Quotas { quotas, budget, left: self.lock_end.saturating_duration_since(Instant::now()) }
    }

    async fn read_budget(&self) -> Answer {
        let namespace = &self.target.namespace;
        match self.headroom.requests.budget(namespace).await {
            Ok(budget) => {
                self.headroom.observed.learn(&budget);
                Answer::BudgetRead
            }
            Err(error) => failed("reading the namespace's budget", &error),
        }
    }

    /// Of two windows that share a pool, the later one has to know of the earlier one. When our watch has shown ours, it
    /// has shown all before it.
    async fn await_own_window(&self) {
        let Some(window) = &self.window else { return };
        let namespace = &self.target.namespace;
        let budget = self.headroom.observed.read(|index| index.budget(namespace));
        if budget.grants.iter().any(|grant| matches!(grant, Grant::Pool { .. })) {
            let uid = Uid::parse(&window.uid);
            let shown = |index: &HeadroomIndex| {
                index.windows.get(namespace).filter(|known| known.uid == uid).map(drop)
            };
            self.headroom.observed.until(PROOF_TIME, shown).await;
        }
    }

    async fn raise(&mut self, raise: Raise) -> Answer {
        let Some(record) = self.records.get(&raise.quota) else { return Answer::Conflict };
        let patch = patches::raise(record, &raise);
        self.raised_at.get_or_insert_with(Instant::now);
        let requests = &self.headroom.requests;
        let namespace = &self.target.namespace;
        match requests.patch_quota_status::<NativeQuotaWire>(namespace, &raise.quota, &patch, true).await {
            Ok(wire) => {
                self.headroom.metrics.raise();
                self.raised.retain(|(other, _)| other.quota != raise.quota);
                self.raised.push((raise, NativeRecord::read(&wire)));
                Answer::Raised
            }
            Err(error) => match classify(&error) {
                Failure::Invalid | Failure::Conflict | Failure::NotFound => Answer::Conflict,
                Failure::Forbidden => Answer::Forbidden(text("raising a quota", &error)),
                failure if failure.is_transient() => Answer::Conflict,
                _ => failed("raising a quota", &error),
            },
        }
    }

    async fn settle(&self) -> Answer {
        let shown = |index: &HeadroomIndex| {
            let is_shown = |after: &NativeRecord| {
                let known = index.quotas.record(&self.target.namespace, &after.name);
                known.is_none_or(|known| !known.version.is_older_than(after.version))
            };
            self.raised.iter().all(|(_, after)| is_shown(after)).then_some(())
        };
        self.headroom.observed.until(ECHO_TIME, shown).await;
        sleep(SETTLE_TIME).await;
        Answer::Settled
    }

    fn let_in(&mut self) -> Answer {
        if let Some(admit) = self.admit.take() {
            // Nobody waits any more when the API server has given up; then the target is not seen.
            let _ = admit.send(());
        }
        Answer::Admitted
    }

    async fn await_target(&self) -> Answer {
        let look = |index: &HeadroomIndex| {
            if self.is_seen(index) {
                Some(Answer::Seen)
            } else {
                self.raised
                    .iter()
                    .any(|(raise, after)| self.is_lowered(index, raise, after))
                    .then_some(Answer::Lowered)
            }
        };
        let left = self.lock_end.saturating_duration_since(Instant::now()).saturating_sub(MARGIN * 2);
        self.headroom.observed.until(self.target_time.min(left), look).await.unwrap_or(Answer::NotSeen)
    }

    fn is_seen(&self, index: &HeadroomIndex) -> bool {
        match &self.target.pod {
            Some(pod) => index.targets.seen(pod),
            None => index.targets.of_migration(&Uid::parse(&self.target.migration.uid)).next().is_some(),
        }
    }

    /// A quota is not raised any more, and nothing entered it since.
    fn is_lowered(&self, index: &HeadroomIndex, raise: &Raise, after: &NativeRecord) -> bool {
        let Some(known) = index.quotas.record(&self.target.namespace, &raise.quota) else { return false };
        if known.uid != after.uid
            || known.version.is_older_than(after.version)
            || known.version == after.version
        {
            return false;
        }
        let (known, after) = (known.native(), after.native());
        raise.keys.iter().any(|raised| {
            let hard = known.status_hard.get(&raised.key);
            hard.is_some_and(|hard| *hard < raised.to)
                && known.used.get(&raised.key) <= after.used.get(&raised.key)
        })
    }

    async fn restore(&mut self, quota: &QuotaRef) -> Answer {
        let known = self.records.get(&quota.name).cloned().filter(|record| record.uid == quota.uid);
        let end = self.lock_end.checked_sub(MARGIN).unwrap_or(self.lock_end).max(Instant::now() + MARGIN);
        match self.headroom.restore(&self.target.namespace, quota, known, end).await {
            Ok(record) => Answer::Restored(record.as_ref().map(NativeRecord::native)),
            Err(why) => {
                self.headroom.metrics.left();
                tracing::warn!(namespace = %self.target.namespace, quota = %quota.name, %why, "quota left raised");
                Answer::Failed(why)
            }
        }
    }

    async fn unlock(&mut self) -> Answer {
        let Some(window) = &self.window else { return Answer::Unlocked };
        if let Some(at) = self.raised_at {
            self.headroom.metrics.restored(at.elapsed());
        }
        let mut last = None;
        for pause in DELETE_PAUSES {
            sleep(pause).await;
            match self.headroom.requests.delete(&window.namespace, &window.uid, &window.version).await {
                Ok(()) => {
                    self.headroom.metrics.closed(self.locked_at.elapsed());
                    return Answer::Unlocked;
                }
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Answer::Unlocked, |error| failed("deleting the window", &error))
    }

    fn window_object(&self, name: &str, until: Timestamp) -> MigrationWindow {
        let namespace = &self.target.namespace;
        let planned = self
            .headroom
            .observed
            .read(|index| plan(&self.target.need, &index.quotas_in(namespace), &index.budget(namespace)));
        let raises = if let Plan::Raise(raises) = planned { raises } else { Vec::new() };
        let mut window = MigrationWindow::new(
            name,
            MigrationWindowSpec {
                holder: self.headroom.holder.clone(),
                nonce: self.nonce.clone(),
                creator: self.target.creator.clone(),
                until: Time(until),
                migration: self.target.migration.clone(),
                quotas: raises.iter().take(MOST_QUOTAS).map(recorded).collect(),
            },
        );
        window.metadata.namespace = Some(namespace.to_string());
        window
    }

    /// Counts and logs how it ended.
    pub(crate) fn report(&self, opening: &Opening, ending: &Ending) {
        self.headroom.metrics.ended(ending, opening.thefts().len());
        let target = &self.target;
        tracing::info!(
            namespace = %target.namespace,
            migration = %target.migration.name,
            vmi = %target.migration.vmi,
            raised = self.raised.len(),
            open_ms = u64::try_from(self.locked_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            ending = ?ending,
            "window closed"
        );
        for theft in opening.thefts() {
            tracing::warn!(
                namespace = %target.namespace, quota = %theft.quota.name, key = %theft.key,
                "a raised quota grew by more than the target"
            );
        }
    }
}

fn recorded(raise: &Raise) -> WindowQuota {
    let text = |to: &sluice_engine::Quantity| {
        k8s_openapi::apimachinery::pkg::api::resource::Quantity(to.to_string())
    };
    WindowQuota {
        name: raise.quota.to_string(),
        uid: raise.uid.to_string(),
        raise: raise.keys.iter().map(|key| (key.key.to_string(), text(&key.to))).collect(),
    }
}

/// When a lock taken now ends: whole seconds, as the admission policy compares with creation times.
fn lock_until(now: Timestamp) -> Timestamp {
    let seconds = now.as_second().saturating_add_unsigned(LOCK_TIME.as_secs());
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Whether the time of a window was over when the API server gave its answer.
pub(crate) fn is_over(window: &MigrationWindow, date: Option<Timestamp>) -> bool {
    date.is_some_and(|date| date >= window.spec.until.0)
}

fn failed(tried: &str, error: &kube::Error) -> Answer {
    Answer::Failed(text(tried, error))
}

fn text(tried: &str, error: &kube::Error) -> Arc<str> {
    format!("{tried}: {error}").into()
}
