//! Leader election over a `coordination.k8s.io/v1` Lease.
//!
//! A candidate that follows watches the lease, and reads it now and then in case the watch stands still.
//!
//! Every write is a replace with the `resourceVersion` that was read, so the server lets one candidate win. A leader that
//! cannot renew in time, or finds another holder, ends with an error; the process is expected to exit on it (see
//! [`crate::shutdown::Tasks`]). What to do when is decided in [`plan`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::{draw, process_seed};
use crate::client::with_deadline;
use crate::retry::{Failure, classify};

mod changes;
mod error;
mod leadership;
mod options;
pub mod plan;
mod token;

use changes::Changes;
pub use error::LeaseError;
pub use leadership::Leadership;
pub use options::{LeaseOptions, unique_identity};
pub use plan::Timings;
use plan::{Candidate, Record, Step};
pub use token::WriteToken;

/// With which a holder says, before it gives its lease back, that nothing of what it has asked for can be done any more.
#[derive(Clone, Debug, Default)]
pub struct Handover(Arc<AtomicBool>);

impl Handover {
    pub fn nothing_is_under_way(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A candidate for one lease.
pub struct Election {
    api: Api<Lease>,
    name: String,
    full_name: String,
    timings: Timings,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    handover: Option<&'static str>,
    has_nothing_under_way: Handover,
    candidate: Candidate,
    /// The object as last read or written; `None` means: read before the next decision.
    fresh: Option<Option<Lease>>,
    /// While another candidate holds it.
    changes: Changes,
    token: WriteToken,
    leadership: watch::Sender<Leadership>,
    last_error: String,
    seed: u64,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election")
            .field("lease", &self.full_name)
            .field("candidate", &self.candidate)
            .finish()
    }
}

impl Election {
    /// Prepares a candidate; nothing is sent before [`Election::run`]. Give it a client that other writes do not keep busy.
    ///
    /// # Errors
    /// When the times of `options` do not fit together.
    pub fn new(client: Client, options: LeaseOptions) -> Result<Self, LeaseError> {
        if !options.timings.are_sound() {
            return Err(LeaseError::Timings(options.timings));
        }
        Ok(Self {
            api: Api::namespaced(client, &options.namespace),
            full_name: format!("{}/{}", options.namespace, options.name),
            name: options.name,
            timings: options.timings,
            labels: options.labels,
            annotations: options.annotations,
            handover: options.handover,
            has_nothing_under_way: Handover::default(),
            candidate: Candidate::new(options.identity, options.timings),
            fresh: None,
            changes: Changes::default(),
            token: WriteToken::new(),
            leadership: watch::Sender::new(Leadership::Following { leader: None }),
            last_error: "none".to_owned(),
            seed: process_seed(),
        })
    }

    /// The token that writers ask.
    pub fn token(&self) -> WriteToken {
        self.token.clone()
    }

    /// With which we say that we have nothing under way.
    pub fn handover(&self) -> Handover {
        self.has_nothing_under_way.clone()
    }

    /// Changes of leadership.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Competes for the lease and renews it until `cancel`; then releases it if it is held.
    ///
    /// Stop the writers before cancelling: the next leader starts as soon as the lease is released.
    ///
    /// # Errors
    /// When a lease that was held could not be renewed in time or has another holder: the process must exit.
    pub async fn run(mut self, cancel: CancellationToken) -> Result<(), LeaseError> {
        let ended = loop {
            let attempt = tokio::select! {
                biased;
                () = cancel.cancelled() => break Ok(()),
                attempt = self.attempt() => attempt,
            };
            let wait = match attempt {
                Ok(wait) => self.within_hold(wait),
                Err(lost) => break Err(lost),
            };
            tokio::select! {
                () = cancel.cancelled() => break Ok(()),
                () = tokio::time::sleep(wait) => {}
                lease = self.changes.next() => {
                    self.candidate.saw(Some(record_of(&lease)), self.token.now());
                    self.fresh = Some(Some(lease));
                }
            }
        };
        let led = self.leadership.borrow().is_leading();
        self.token.revoke();
        self.leadership.send_replace(Leadership::Following { leader: None });
        if led && ended.is_ok() {
            self.release().await;
        }
        ended
    }

    fn now(&self) -> Duration {
        self.token.now()
    }

    fn is_leading(&self) -> bool {
        self.candidate.held_until().is_some()
    }

    /// A leader must notice the end of its time when it comes, not a request or a pause later.
    fn within_hold(&self, wait: Duration) -> Duration {
        match self.candidate.held_until() {
            Some(until) => wait.min(until.saturating_sub(self.now())),
            None => wait,
        }
    }

    /// Reads if needed, decides, writes. Returns the pause before the next attempt.
    async fn attempt(&mut self) -> Result<Duration, LeaseError> {
        if self.candidate.held_until().is_some_and(|until| self.now() >= until) {
            return Err(LeaseError::NotRenewed {
                name: self.full_name.clone(),
                after: self.timings.renew_deadline,
                last: self.last_error.clone(),
            });
        }
        let limit = self.within_hold(self.timings.renew_deadline / 2);
        let lease = match self.fresh.take() {
            Some(lease) => lease,
            None => match with_deadline(limit, self.api.get_opt(&self.name)).await {
                Ok(lease) => {
                    self.candidate.saw(lease.as_ref().map(record_of), self.now());
                    lease
                }
                Err(error) => return Ok(self.note(&error)),
            },
        };
        let Some(step) = self.candidate.next(self.now()) else {
            return Ok(self.timings.retry);
        };
        match step {
            Step::Wait { .. } | Step::Take { .. } if self.is_leading() => Err(LeaseError::Taken {
                name: self.full_name.clone(),
                holder: self.candidate.holder().unwrap_or_default().to_owned(),
            }),
            Step::Wait { until } => {
                let version = lease.and_then(|lease| lease.metadata.resource_version).unwrap_or_default();
                self.changes.since(&self.api, &self.name, &version, limit).await;
                Ok(self.follow(until))
            }
            step => Ok(self.write(step, lease, limit).await),
        }
    }

    fn follow(&mut self, until: Duration) -> Duration {
        let leader = self.candidate.holder().map(ToOwned::to_owned);
        self.leadership.send_if_modified(|state| {
            let next = Leadership::Following { leader };
            let changed = *state != next;
            *state = next;
            changed
        });
        self.pause().min(until.saturating_sub(self.now()) + Duration::from_millis(1))
    }

    async fn write(&mut self, step: Step, lease: Option<Lease>, limit: Duration) -> Duration {
        let is_handed_over = matches!(step, Step::Take { .. }) && self.was_handed_over(lease.as_ref());
        let wanted = self.claim(&step, lease);
        let sent = self.now();
        let params = PostParams::default();
        let answer = match step {
            Step::Create => with_deadline(limit, self.api.create(&params, &wanted)).await,
            _ => with_deadline(limit, self.api.replace(&self.name, &params, &wanted)).await,
        };
        let written = match answer {
            Ok(written) => written,
            Err(error) => return self.note(&error),
        };
        self.changes.end();
        self.candidate.wrote(record_of(&written), sent, self.now());
        self.fresh = Some(Some(written));
        if let Some(until) = self.candidate.held_until() {
            self.token.hold_until(until);
        }
        let term = self.candidate.term();
        let name = &self.full_name;
        self.leadership.send_if_modified(|state| {
            let changed = !matches!(state, Leadership::Leading { term: known, .. } if *known == term);
            if changed {
                tracing::info!(lease = %name, term, is_handed_over, "leading");
                *state = Leadership::Leading { term, is_handed_over };
            }
            changed
        });
        self.timings.retry
    }

    /// Whether the last holder has given the lease back and said, of its own term, that it had nothing under way.
    fn was_handed_over(&self, lease: Option<&Lease>) -> bool {
        let Some((annotation, lease)) = self.handover.zip(lease) else { return false };
        let said = lease.metadata.annotations.as_ref().and_then(|known| known.get(annotation));
        let Record { holder, transitions, .. } = record_of(lease);
        // The last term there can be says nothing of the one after it.
        holder.is_empty()
            && transitions < i32::MAX
            && said.is_some_and(|term| *term == transitions.to_string())
    }

    /// The object to write: what was read, with our claim in it.
    fn claim(&self, step: &Step, lease: Option<Lease>) -> Lease {
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        let now = MicroTime(jiff::Timestamp::now());
        let mut spec = lease.spec.take().unwrap_or_default();
        match step {
            Step::Take { version, transitions } => {
                lease.metadata.resource_version = Some(version.clone());
                spec.lease_transitions = Some(*transitions);
                spec.acquire_time = Some(now.clone());
            }
            Step::Renew { version, transitions } => {
                lease.metadata.resource_version = Some(version.clone());
                spec.lease_transitions = Some(*transitions);
            }
            Step::Create | Step::Wait { .. } => {
                // After a deletion the term goes on, so that it never repeats within one process.
                let term = if self.is_leading() { self.candidate.term().saturating_add(1) } else { 0 };
                spec.lease_transitions = Some(term);
                spec.acquire_time = Some(now.clone());
            }
        }
        lease.metadata.labels.get_or_insert_default().extend(self.labels.clone());
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.extend(self.annotations.clone());
        if let Some(handover) = self.handover {
            annotations.remove(handover);
        }
        spec.holder_identity = Some(self.candidate.me().to_owned());
        spec.lease_duration_seconds = i32::try_from(self.timings.duration.as_secs()).ok();
        spec.renew_time = Some(now);
        lease.spec = Some(spec);
        lease
    }

    /// Notes a failed call. Another candidate's write is looked at soon, anything else after the usual pause.
    fn note(&mut self, error: &kube::Error) -> Duration {
        self.fresh = None;
        self.last_error = error.to_string();
        let failure = classify(error);
        if matches!(failure, Failure::Conflict | Failure::AlreadyExists | Failure::NotFound) {
            tracing::debug!(lease = %self.full_name, %error, "lease changed meanwhile");
            return self.pause() / 8;
        }
        tracing::warn!(lease = %self.full_name, %error, leading = self.is_leading(), "lease request failed");
        match failure {
            Failure::Throttled { retry_after: Some(wait) } if !self.is_leading() => self.pause().max(wait),
            _ => self.pause(),
        }
    }

    /// The retry pause; candidates other than the leader spread theirs over up to twice the time.
    fn pause(&mut self) -> Duration {
        if self.is_leading() {
            return self.timings.retry;
        }
        self.seed = self.seed.wrapping_add(1);
        self.timings.retry + self.timings.retry.mul_f64(draw(self.seed))
    }

    /// Erases our name, so that the next leader need not wait for the lease to run out.
    async fn release(&mut self) {
        let limit = Duration::from_secs(3);
        let outcome = with_deadline(limit, async {
            // A renewal may have been cut off by the cancellation, so what we have in memory can be outdated.
            let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(self.candidate.me()) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(jiff::Timestamp::now()));
            let term = spec.lease_transitions.unwrap_or(0);
            if let Some(handover) = self.handover
                && self.has_nothing_under_way.0.load(Ordering::Acquire)
            {
                let annotations = lease.metadata.annotations.get_or_insert_default();
                annotations.insert(handover.to_owned(), term.to_string());
            }
            self.api.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
        })
        .await;
        match outcome {
            Ok(()) => tracing::info!(lease = %self.full_name, "released"),
            Err(error) => {
                tracing::warn!(lease = %self.full_name, %error, "could not release the lease; it will run out");
            }
        }
    }
}

fn record_of(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    Record {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
