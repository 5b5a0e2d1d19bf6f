//! Carries out the commands of one opening.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_api::{MigrationWindow, MigrationWindowSpec, WindowQuota, names};
use sluice_engine::headroom::{Raise, reserve};
use sluice_index::headroom::NativeRecord;
use sluice_index::wire::NativeQuotaWire;
use sluice_kube_ext::retry::{Failure, classify};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::dry_runs::{Drained, is_of_mark};
use crate::patches;
use crate::protocol::{Answer, Command, Ending, Opening, QuotaRef};
use crate::requests::Opened;
use crate::window::{Headroom, LOCK_TIME, Target};

/// Limit for the proof, and for the drain.
pub(crate) const PROOF_TIME: Duration = Duration::from_secs(1);
/// Restoring stops this long before the lock ends: nothing is sent that could arrive after it.
pub(crate) const MARGIN: Duration = Duration::from_millis(500);
/// Before the next try to create a window that was refused because of the mark of one that is gone; it doubles.
const FIRST_MARK_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_MARK_PAUSE: Duration = Duration::from_millis(200);
/// The schema's limit for `spec.quotas` of a window.
const MOST_QUOTAS: usize = 64;
/// Before each try to delete the window; after the last one it is left to expire.
const DELETE_PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(200)];

/// The state of the I/O of one opening.
pub(crate) struct Hands<'h> {
    pub(crate) headroom: &'h Headroom,
    pub(crate) target: Target,
    pub(crate) limit: Instant,
    pub(crate) target_time: Duration,
    admit: Option<oneshot::Sender<()>>,
    /// Our window, once it exists.
    pub(crate) window: Option<Opened>,
    /// The nonce of the window that we may have created without knowing.
    nonce: String,
    /// Somebody else's window.
    pub(crate) other: Option<MigrationWindow>,
    /// The quotas as they were last read.
    pub(crate) records: HashMap<Arc<str>, NativeRecord>,
    /// What was raised, and the quota as it was right after.
    pub(crate) raised: Vec<(Raise, NativeRecord)>,
    /// Quota admission of some API server still had the mark of an earlier raise when this window began.
    has_old_mark: bool,
    mark_pause: Duration,
    locked_at: Instant,
    raised_at: Option<Instant>,
    pub(crate) lock_end: Instant,
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
            has_old_mark: false,
            mark_pause: FIRST_MARK_PAUSE,
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
            Command::Recall => self.recall(),
            Command::Read => self.read().await,
            Command::Catchup => self.catch_up().await,
            Command::ReadBudget => self.read_budget().await,
            Command::Raise(raise) => self.raise(raise).await,
            Command::Settle(marked) => self.settle(marked.as_ref()).await,
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
                Failure::Forbidden if names_mark(&error) => self.behind_mark().await,
                _ => failed("creating the window", &error),
            },
        }
    }

    fn locked(&mut self, opened: Opened) -> Answer {
        self.headroom.metrics.opened();
        self.window = Some(opened);
        Answer::Locked
    }

    /// Quota admission judges before it is found that there is a window already. The mark of a window that is gone is known
    /// for some milliseconds more.
    async fn behind_mark(&mut self) -> Answer {
        let answer = self.held().await;
        if answer == Answer::Free {
            sleep(self.mark_pause).await;
            self.mark_pause = (self.mark_pause * 2).min(LONGEST_MARK_PAUSE);
        }
        answer
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

    async fn drain(&mut self) -> Answer {
        let Some(window) = &self.window else { return Answer::Failed("there is no window".into()) };
        let drain = self.window_object(names::DRAIN_NAME, window.until);
        match self.headroom.requests.drain(window, &drain, PROOF_TIME).await {
            Ok(drained) => {
                self.has_old_mark = drained == Drained::BehindMark;
                Answer::Drained
            }
            Err(why) => Answer::Failed(why),
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
                failure if failure.may_have_applied() => Answer::Unanswered,
                Failure::Throttled { .. } => Answer::Conflict,
                _ => failed("raising a quota", &error),
            },
        }
    }

    fn let_in(&mut self) -> Answer {
        if let Some(admit) = self.admit.take() {
            // Nobody waits any more when the API server has given up; then the target is not seen.
            let _ = admit.send(());
        }
        Answer::Admitted
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

    /// Asks every API server until quota admission has seen the mark of this quota. `false` if it did not in time.
    pub(crate) async fn see(&self, marked: &QuotaRef) -> bool {
        if self.has_old_mark {
            return false;
        }
        let (requests, namespace) = (&self.headroom.requests, &self.target.namespace);
        // Nothing depends on its time: it is never created.
        let drain = self.window_object(names::DRAIN_NAME, lock_until(Timestamp::now()));
        match requests.see_mark(namespace, &drain, &marked.name, Instant::now() + PROOF_TIME).await {
            Ok(()) => true,
            Err(why) => {
                tracing::warn!(namespace = %self.target.namespace, quota = %marked.name, %why, "raise not seen");
                false
            }
        }
    }

    fn window_object(&self, name: &str, until: Timestamp) -> MigrationWindow {
        let namespace = &self.target.namespace;
        let quotas = self.headroom.observed.read(|index| index.quotas_in(namespace));
        let raises = reserve(&self.target.need, &quotas);
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

fn names_mark(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is_of_mark(&status.message))
}

pub(crate) fn failed(tried: &str, error: &kube::Error) -> Answer {
    Answer::Failed(text(tried, error))
}

fn text(tried: &str, error: &kube::Error) -> Arc<str> {
    format!("{tried}: {error}").into()
}
