//! Ends raises that were left: by a process that died, or because a restore was refused.
//!
//! The mark in the quota says when its lock is over; nothing else is remembered of it. Every change of a quota is looked at
//! once, and the ends of locks are waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use sluice_index::Key;
use sluice_runtime::lease::{Leadership, WriteToken};
use sluice_runtime::retry::Backoffs;
use sluice_window::protocol::{Left, QuotaRef, sweep};
use sluice_window::{Headroom, Written};
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use super::metrics::SweepMetrics;

/// The first wait after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// What is remembered of quotas that are raised.
#[derive(Debug)]
struct Seen {
    /// Since when it is raised without a mark.
    unmarked: Option<Instant>,
    /// No write before.
    not_before: Instant,
}

/// The loop.
pub struct Sweep {
    headroom: Arc<Headroom>,
    metrics: SweepMetrics,
    seen: BTreeMap<Key, Seen>,
    backoffs: Backoffs<Key>,
}

impl Sweep {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(headroom: Arc<Headroom>, metrics: SweepMetrics) -> Self {
        let backoffs = Backoffs::new(RETRY, sluice_runtime::retry::process_seed());
        Self { headroom, metrics, seen: BTreeMap::new(), backoffs }
    }

    /// Sweeps while this process leads, until `cancel`; then waits for the raises of this process to end.
    pub async fn run(
        mut self,
        (token, mut leadership): (WriteToken, latest::Receiver<Leadership>),
        cancel: CancellationToken,
    ) {
        let headroom = Arc::clone(&self.headroom);
        let work = async {
            if super::blocked::leads(headroom.observed(), &mut leadership).await {
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
            let seen = self.seen.entry(key.clone()).or_insert(Seen { unmarked: None, not_before: now });
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
            let wait =
                self.restore(&key, &QuotaRef { name: quota.name, uid: quota.uid }, raised_ms, cause).await;
            if let Some(seen) = self.seen.get_mut(&key) {
                seen.not_before = Instant::now() + wait;
                due = Some(due.map_or(seen.not_before, |earlier| earlier.min(seen.not_before)));
            }
        }
        due
    }

    /// Returns how long to leave the quota alone.
    async fn restore(
        &mut self,
        key: &Key,
        quota: &QuotaRef,
        raised_ms: u64,
        cause: &'static str,
    ) -> Duration {
        let (ns, name) = (&key.namespace, &key.name);
        match self.headroom.sweep(&key.namespace, quota, raised_ms).await {
            Written::Done(..) => {
                self.metrics.swept(cause);
                tracing::info!(%ns, quota = %name, cause, "quota restored");
                self.backoffs.reset(key);
                // What is seen may still be what was before.
                RETRY
            }
            Written::Conflict => RETRY / 10,
            Written::Refused(why) | Written::Unanswered(why) | Written::Failed(why) => {
                tracing::warn!(%ns, quota = %name, cause, %why, "quota not restored");
                self.backoffs.failed(key.clone())
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(SignedDuration::try_from(duration).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
