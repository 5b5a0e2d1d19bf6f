//! Which namespaces are left alone for a while: where raising did not help, and where locks would take too much time.
//!
//! Everything rests on what the watch of quotas shows, so that all replicas come to the same result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_runtime::backoff::{Backoff, Retry};

/// Locked time that may be used at once; milliseconds.
const BURST_MS: u64 = 600;
/// Of each second, so many milliseconds may be locked in the long run.
const REFILL_MS_PER_S: u64 = 60;
/// A lock that let its target in counts for no more than this: what is longer is another webhook that the API server waits
/// for, or an API server that has more to do than it can. By itself a lock takes a tenth of it. KubeVirt migrates five
/// machines at a time, and a migration takes some seconds: so drains need no rest, however long their locks are.
const MOST_HELPFUL_MS: u64 = 80;
/// After a lock in vain, its namespace rests for so many times as long as it was locked, at least.
const REST_FACTOR: u64 = 10;
/// A lock that was held for so long in vain was left by a process that died, or held for a webhook that does not answer:
/// neither is a tenant's doing, so only the waits double.
const LEFT_MS: u64 = 9_000;
/// Failures that are longer ago count for nothing.
const FORGOTTEN_MS: u64 = 600_000;
/// After a lock in vain. [`REST_FACTOR`] alone bounds how much of the time is locked, so the doubling ends early: a
/// namespace that keeps quota admission busy needs several tries, and KubeVirt drains its node meanwhile.
const AFTER_IN_VAIN: Retry = rest_up_to(10);
/// After a theft, a lock that was left, or a refused write. A lock that helps does not end the count: one honest migration
/// between two thefts would.
const AFTER_LOSS: Retry = rest_up_to(60);
const fn rest_up_to(seconds: u64) -> Retry {
    Retry::new(Backoff::exact(Duration::from_secs(1), Duration::from_secs(seconds)))
        .forgetting_after(FORGOTTEN_MS)
}

/// With more namespaces than these, those of which nothing has to be remembered are dropped.
const MANY: usize = 1024;

/// What is used of the keys that a target takes, in nano-units, of each quota that is marked.
pub type Usage = BTreeMap<Uid, i128>;

/// What is remembered of the locks of namespaces. Times are in milliseconds, of a clock that is not set back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Rests {
    namespaces: BTreeMap<Arc<str>, Rest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rest {
    /// When the lock was seen, and what was used of each marked quota when it was last seen.
    locked: Option<(u64, Usage)>,
    /// More is used of one of them since: only the target gets in.
    charged: bool,
    debt_ms: u64,
    debt_at: u64,
    in_vain: Retry,
    /// Another pod took the room, or the process that locked died.
    lost: Retry,
    /// Writing was refused since the last lock.
    refused: Retry,
    /// What the outcome depends on, as it was when it did not help.
    situation: u64,
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            locked: None,
            charged: false,
            debt_ms: 0,
            debt_at: 0,
            in_vain: AFTER_IN_VAIN,
            lost: AFTER_LOSS,
            refused: AFTER_LOSS,
            situation: 0,
        }
    }
}

impl Rest {
    fn debt(&self, now_ms: u64) -> u64 {
        self.debt_ms.saturating_sub(now_ms.saturating_sub(self.debt_at) * REFILL_MS_PER_S / 1000)
    }

    fn unlocked(&mut self, since: u64, now_ms: u64) {
        let locked = now_ms.saturating_sub(since);
        if self.charged {
            self.count(locked.min(MOST_HELPFUL_MS), now_ms);
        } else if locked >= LEFT_MS {
            self.lost.failed(now_ms);
        } else {
            self.count(locked, now_ms);
            self.in_vain.failed_for(now_ms, locked.saturating_mul(REST_FACTOR));
        }
    }

    fn count(&mut self, locked: u64, now_ms: u64) {
        self.debt_ms = self.debt(now_ms).saturating_add(locked);
        self.debt_at = now_ms;
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        let waits = [&self.in_vain, &self.lost, &self.refused].iter().any(|retry| retry.is_waiting(now_ms));
        self.locked.is_none() && self.debt(now_ms) == 0 && !waits
    }
}

impl Rests {
    /// A quota of the namespace was seen. `usage`: of its marked quotas; `None` if none is marked.
    /// `situation` stands for all that the outcome depends on and a tenant cannot change.
    pub fn see(&mut self, namespace: &Arc<str>, usage: Option<Usage>, situation: u64, now_ms: u64) {
        let rest = self.namespaces.entry(Arc::clone(namespace)).or_default();
        if let Some(usage) = usage {
            match &mut rest.locked {
                Some((_, before)) => {
                    let is_more =
                        |(quota, used): (&Uid, &i128)| before.get(quota).is_some_and(|known| used > known);
                    rest.charged |= usage.iter().any(is_more);
                    *before = usage;
                }
                None => {
                    (rest.locked, rest.charged) = (Some((now_ms, usage)), false);
                    rest.refused = AFTER_LOSS;
                }
            }
        } else if let Some((since, _)) = rest.locked.take() {
            rest.situation = situation;
            rest.unlocked(since, now_ms);
            if self.namespaces.len() > MANY {
                self.namespaces.retain(|_, rest| !rest.is_idle(now_ms));
            }
        }
    }

    /// Nothing could be raised: writing is refused.
    pub fn refused(&mut self, namespace: &Arc<str>, now_ms: u64) {
        self.namespaces.entry(Arc::clone(namespace)).or_default().refused.failed(now_ms);
    }

    /// The room was taken by a pod that it was not made for.
    pub fn taken(&mut self, namespace: &Arc<str>, situation: u64, now_ms: u64) {
        let rest = self.namespaces.entry(Arc::clone(namespace)).or_default();
        rest.situation = situation;
        rest.lost.failed(now_ms);
    }

    /// Whether nothing is to be raised in the namespace now.
    #[must_use]
    pub fn is_resting(&self, namespace: &str, situation: u64, now_ms: u64) -> bool {
        self.left(namespace, situation, now_ms) > 0
    }

    /// For how many milliseconds nothing is to be raised in the namespace.
    #[must_use]
    pub fn left(&self, namespace: &str, situation: u64, now_ms: u64) -> u64 {
        let Some(rest) = self.namespaces.get(namespace) else { return 0 };
        let in_vain = match rest.situation == situation {
            true => rest.in_vain.not_before_ms().max(rest.lost.not_before_ms()),
            false => 0,
        };
        let too_long =
            rest.debt(now_ms).saturating_sub(BURST_MS).saturating_mul(1000).div_ceil(REFILL_MS_PER_S);
        in_vain.max(rest.refused.not_before_ms()).saturating_sub(now_ms).max(too_long)
    }

    /// Whether something is remembered of the namespace.
    #[must_use]
    pub fn knows(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace)
    }

    /// How many namespaces something is remembered of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.namespaces.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }
}
