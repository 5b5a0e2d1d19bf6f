//! Ends raises that were left: by a process that died, or because a restore was refused.
//!
//! The mark in the quota says when its lock is over; nothing else is remembered of it. Every change of a quota is looked at
//! once, and the ends of locks are waited for.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use sluice_index::Key;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::lease::{Leadership, WriteToken};
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use super::metrics::LoopMetrics;
use crate::headroom::Headroom;
use crate::protocol::{Left, QuotaRef, sweep};
use crate::status_writer::Written;

/// The first wait after a failed write, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What is remembered of quotas that are raised.
#[derive(Debug)]
struct Seen {
    /// Since when it is raised without a mark.
    unmarked: Option<Instant>,
    /// No write before.
    not_before: Instant,
    backoff: Backoff,
}

impl Seen {
    /// A restore ended: no other one before the moment that is returned.
    fn put_off(&mut self, written: &Written) -> Instant {
        let wait = match written {
            Written::Done(..) => {
                self.backoff.reset();
                // The watch may still show the quota as it was before.
                RETRY.0
            }
            Written::Conflict => RETRY.0 / 10,
            Written::Refused(_) | Written::Unanswered(_) | Written::Failed(_) => self.backoff.failed(),
        };
        self.not_before = Instant::now() + wait;
        self.not_before
    }
}

pub struct Sweep {
    headroom: Arc<Headroom>,
    metrics: LoopMetrics,
    seen: BTreeMap<Key, Seen>,
    seed: u64,
}

impl Sweep {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(headroom: Arc<Headroom>, metrics: LoopMetrics) -> Self {
        Self { headroom, metrics, seen: BTreeMap::new(), seed: process_seed() }
    }

    /// Sweeps while this process leads, until `cancel`; then waits for the raises of this process to end.
    pub async fn run(
        mut self,
        (token, mut leadership): (WriteToken, latest::Receiver<Leadership>),
        cancel: CancellationToken,
    ) {
        let headroom = Arc::clone(&self.headroom);
        let work = async {
            if super::blocked_migrations::leads(headroom.observed(), &mut leadership).await {
                self.act(&token, &leadership).await;
            }
            cancel.cancelled().await;
        };
        cancel.run_until_cancelled(work).await;
        headroom.finish().await;
    }

    async fn act(&mut self, token: &WriteToken, leadership: &latest::Receiver<Leadership>) {
        let mut changes = self.headroom.observed().changes();
        while leadership.borrow().is_leading() {
            changes.mark_unchanged();
            let due = self.look(token).await;
            let timer = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = timer => {}
            }
        }
    }

    /// Looks at every quota that is raised, of which there are few, and restores what is left. Returns when to look again.
    async fn look(&mut self, token: &WriteToken) -> Option<Instant> {
        let raised: Vec<_> = self.headroom.observed().read(|index| {
            let keys = index.resource_quotas.raised();
            keys.filter_map(|key| Some((key.clone(), index.quota(&key.namespace, &key.name)?))).collect()
        });
        self.seen.retain(|key, _| raised.iter().any(|(other, _)| other == key));
        let mut due: Option<Instant> = None;
        for (key, quota) in raised {
            let now = Instant::now();
            let seed = self.seed ^ BuildHasherDefault::<DefaultHasher>::default().hash_one(&key);
            let backoff = Backoff::new(RETRY.0, RETRY.1, seed);
            let fresh = Seen { unmarked: None, not_before: now, backoff };
            let seen = self.seen.entry(key.clone()).or_insert(fresh);
            let since = if quota.mark().is_some() { None } else { Some(*seen.unmarked.get_or_insert(now)) };
            seen.unmarked = since;
            let raised_ms = since.map_or(0, |since| millis(now.duration_since(since)));
            let at = match sweep(&quota, self.headroom.server_now_ms(), raised_ms) {
                Left::Nothing => continue,
                Left::Later(ms) => now + Duration::from_millis(ms + 1),
                Left::Now(_) => now,
            };
            let at = at.max(seen.not_before);
            if at > now || !token.is_held() {
                due = Some(due.map_or(at, |earlier| earlier.min(at)));
                continue;
            }
            let cause = if quota.mark().is_some() { "expired" } else { "unmarked" };
            let quota = QuotaRef { name: quota.name, uid: quota.uid };
            let written = self.headroom.sweep(&key.namespace, &quota, raised_ms).await;
            self.report(&key, cause, &written);
            if let Some(again) = self.seen.get_mut(&key).map(|seen| seen.put_off(&written)) {
                due = Some(due.map_or(again, |earlier| earlier.min(again)));
            }
        }
        due
    }

    fn report(&self, key: &Key, cause: &'static str, written: &Written) {
        let (ns, quota) = (&key.namespace, &key.name);
        match written {
            Written::Done(..) => {
                self.metrics.swept(cause);
                tracing::info!(namespace = %ns, %quota, cause, "quota restored");
            }
            Written::Conflict => {}
            Written::Refused(why) | Written::Unanswered(why) | Written::Failed(why) => {
                tracing::warn!(namespace = %ns, %quota, cause, %why, "quota not restored");
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(SignedDuration::try_from(duration).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
