//! What an opening waits for.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use sluice_engine::Uid;
use sluice_engine::headroom::Raise;
use sluice_index::Version;
use sluice_index::headroom::{HeadroomIndex, NativeRecord};
use tokio::time::{Instant, sleep};

use crate::hands::{Hands, MARGIN};
use crate::protocol::{Answer, QuotaRef, marked};
use crate::window::LOCK_TIME;

/// How long our own watch may take to show what we wrote.
const ECHO_TIME: Duration = Duration::from_millis(100);
/// Quota admission learns of a raise by a watch of its own, of which we cannot see how far it is. Ours has shown the
/// raise by then; measured on an idle machine, 5 ms later every API server knew (40 of 40, without: 38 of 40). On a busy one
/// as much longer as our own watch took.
const SETTLE_TIME: Duration = Duration::from_millis(5);
/// How long a target that quota was charged for may take to exist.
const TAKEN_TIME: Duration = Duration::from_millis(300);

impl Hands<'_> {
    pub(crate) async fn wait_for_other(&self) -> Answer {
        let Some(other) = &self.other else { return Answer::Free };
        let (namespace, uid) = (&self.target.namespace, Uid::parse(&other.uid().unwrap_or_default()));
        let is_other =
            |index: &HeadroomIndex| index.windows.get(namespace).is_some_and(|known| known.uid == uid);
        let observed = &self.headroom.observed;
        let left = || self.limit.saturating_duration_since(Instant::now());
        // A window that was opened to wake this very target waits for it: what it raises may be enough any moment.
        let for_target = other.spec.migration.uid == self.target.migration.uid;
        let seen = self.versions(&observed.read(|index| index.quotas.records_in(namespace).to_vec()));
        let raised =
            |index: &HeadroomIndex| for_target && self.versions(index.quotas.records_in(namespace)) != seen;
        // The window may be newer than what our watch has shown so far.
        observed.until(left().min(ECHO_TIME), |index| (is_other(index) || raised(index)).then_some(())).await;
        let over = |index: &HeadroomIndex| (!is_other(index) || raised(index)).then_some(());
        match observed.until(left().min(LOCK_TIME + Duration::from_secs(1)), over).await {
            None if left().is_zero() => Answer::TimeUp,
            _ => Answer::Free,
        }
    }

    fn versions(&self, records: &[Arc<NativeRecord>]) -> Vec<(Arc<str>, Version)> {
        records.iter().map(|record| (Arc::clone(&record.name), record.version)).collect()
    }

    /// Until quota admission knows what was raised: by asking it where that is possible.
    pub(crate) async fn settle(&self, marked: Option<&QuotaRef>) -> Answer {
        let Some(marked) = marked else { return self.settle_unasked().await };
        let lowered = |index: &HeadroomIndex| self.any_lowered(index).then_some(());
        tokio::select! {
            seen = self.see(marked) => if seen { Answer::Settled } else { self.settle_unasked().await },
            Some(()) = self.headroom.observed.until(LOCK_TIME, lowered) => Answer::Lowered,
        }
    }

    /// Until quota admission knows of the room that somebody else's window has made; then the target goes on.
    pub(crate) async fn join(self) {
        let quotas = self.headroom.observed.read(|index| index.quotas_in(&self.target.namespace));
        self.settle(marked(&quotas).as_ref()).await;
    }

    /// Until our own watch has shown the raises, and as much longer.
    async fn settle_unasked(&self) -> Answer {
        let shown = |index: &HeadroomIndex| {
            let is_shown = |after: &NativeRecord| {
                let known = index.quotas.record(&self.target.namespace, &after.name);
                known.is_none_or(|known| !known.version.is_older_than(after.version))
            };
            self.raised.iter().all(|(_, after)| is_shown(after)).then_some(())
        };
        let raised = Instant::now();
        self.headroom.observed.until(ECHO_TIME, shown).await;
        sleep(SETTLE_TIME.max(raised.elapsed())).await;
        Answer::Settled
    }

    pub(crate) async fn await_target(&self) -> Answer {
        let look = |index: &HeadroomIndex| {
            if self.is_seen(index) || self.is_charged(index) {
                Some(Answer::Seen)
            } else {
                self.any_lowered(index).then_some(Answer::Lowered)
            }
        };
        let left = || self.lock_end.saturating_duration_since(Instant::now()).saturating_sub(MARGIN * 2);
        let observed = &self.headroom.observed;
        let first = observed.until(self.target_time.min(left()), |index| {
            look(index).or_else(|| self.is_taken(index).then_some(Answer::NotSeen))
        });
        match first.await {
            // Quota is charged before the pod exists, so this may be the target on its way.
            Some(Answer::NotSeen) => {
                observed.until(TAKEN_TIME.min(left()), look).await.unwrap_or(Answer::NotSeen)
            }
            answer => answer.unwrap_or(Answer::NotSeen),
        }
    }

    /// Whoever was woken has taken the room; it may be another migration's target.
    fn is_taken(&self, index: &HeadroomIndex) -> bool {
        let grew = |(raise, after): &(Raise, NativeRecord)| {
            let known = index.quotas.record(&self.target.namespace, &raise.quota);
            known
                .filter(|known| known.uid == after.uid && !known.version.is_older_than(after.version))
                .is_some_and(|known| {
                    let (known, after) = (known.native(), after.native());
                    raise.keys.iter().any(|raised| known.used.get(&raised.key) > after.used.get(&raised.key))
                })
        };
        self.target.pod.is_none() && self.raised.iter().any(grew)
    }

    /// Quota admission has taken all that was raised. As nobody else is let in, it has taken it for the target that waits
    /// for its answer, which enters even if the quota is restored before it exists.
    fn is_charged(&self, index: &HeadroomIndex) -> bool {
        let is_charged = |(raise, after): &(Raise, NativeRecord)| {
            let known = index.quotas.record(&self.target.namespace, &raise.quota);
            known
                .filter(|known| known.uid == after.uid && after.version.is_older_than(known.version))
                .is_some_and(|known| {
                    let used = known.native().used;
                    let mut keys = raise.keys.iter();
                    // A quota that was only marked does not tell.
                    keys.len() > 0
                        && keys.all(|raised| used.get(&raised.key).is_some_and(|used| *used >= raised.to))
                })
        };
        self.target.pod.is_some() && !self.raised.is_empty() && self.raised.iter().all(is_charged)
    }

    fn is_seen(&self, index: &HeadroomIndex) -> bool {
        match &self.target.pod {
            Some(pod) => index.targets.seen(pod),
            None => index.targets.of_migration(&Uid::parse(&self.target.migration.uid)).next().is_some(),
        }
    }

    fn any_lowered(&self, index: &HeadroomIndex) -> bool {
        self.raised.iter().any(|(raise, after)| self.is_lowered(index, raise, after))
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
}
