//! Waits for the target that was let in: whether it has come, and if not, who took its room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_engine::Uid;
use sluice_index::{Cluster, LauncherRecord};
use tokio::time::Instant;

use super::{Executor, shown};
use crate::protocol::{Done, Ending, QuotaRef, WindowSession};

/// So long before the end of the lock a raise is ended: ends are whole seconds, and each API server has its own clock.
const MARGIN: Duration = Duration::from_millis(2_500);
/// How long the API server waits for the webhooks that are asked beside ours, and some time to create the pod.
const HOLD_TIME: Duration = Duration::from_millis(10_500);
/// How long a pod for which a quota was charged may take to be seen.
const CONFIRM_TIME: Duration = Duration::from_secs(2);

impl Executor<'_> {
    pub(super) async fn await_target(&self, session: &WindowSession) -> Done {
        let namespace = self.target.namespace();
        let hold_end = self.let_in_at.unwrap_or_else(Instant::now) + HOLD_TIME;
        let closing = self.lock_end.checked_sub(MARGIN).unwrap_or(self.lock_end);
        let left = closing.min(hold_end).saturating_duration_since(Instant::now());
        let was_there = AtomicBool::new(false);
        let look = |index: &Cluster| {
            if self.is_seen(index) {
                return Some(Ending::Entered);
            }
            // KubeVirt creates no target for a migration that is over. The watch may not have shown the migration yet.
            let migration = index.vmims.by_uid(&self.target.migration.uid);
            let is_there = migration.is_some_and(|migration| !migration.is_final());
            if was_there.fetch_or(is_there, Ordering::Relaxed) && !is_there {
                return Some(Ending::NotSeen);
            }
            // The watch may not have shown the raise yet; without a quota it is over.
            let quota = |quota: &QuotaRef| {
                shown(index, namespace, quota)?;
                Some(self.newest(index, quota)?.native())
            };
            // Quotas that are only marked do not tell.
            let mut charged =
                session.raised().iter().filter_map(|reference| quota(reference)?.is_charged()).peekable();
            if charged.peek().is_some() && charged.all(|is_charged| is_charged) {
                return Some(Ending::Taken);
            }
            let own = |reference: &QuotaRef| {
                quota(reference).is_some_and(|known| known.mark().is_some_and(|mark| session.is_own(mark)))
            };
            // A raise was ended by another process, or its quota is gone:
            // what is left of the session would only lock the namespace.
            (!session.raised().iter().all(own)).then_some(Ending::NotSeen)
        };
        let ending = tokio::select! {
            found = self.tools.observed.until(left, look) => match found {
                Some(ending) => ending,
                None if closing < hold_end => return Done::Closing,
                None => Ending::NotSeen,
            },
            () = self.attempt.failed() => Ending::Denied,
        };
        // The raise is about to end: later attempts need one of their own.
        self.attempt.close();
        Done::Ended(ending)
    }

    /// Without the target, which the watch may be late to show, the room was taken by another pod, or by none: an admission
    /// step after the quota may have refused the target, and the quota counts it until its next sync.
    pub(super) async fn confirm(&self, session: &WindowSession) -> Done {
        let seen = |index: &Cluster| self.is_seen(index).then_some(());
        let found = tokio::select! {
            found = self.tools.observed.until(CONFIRM_TIME, seen) => found,
            () = self.attempt.failed() => None,
        };
        if found.is_some() {
            return Done::Ended(Ending::Entered);
        }
        let namespace = self.target.namespace();
        let Ok(pods) = self.tools.pods(namespace).await else {
            return Done::Ended(Ending::NotSeen);
        };
        let now = self.tools.server_now_ms().div_euclid(1000);
        let (is_there, account, quotas) = self.tools.observed.read(|index| {
            let raised = session.raised().iter().filter_map(|quota| index.quota(namespace, &quota.name));
            let is_there = pods.iter().any(|pod| self.is_target(index, pod));
            (is_there, index.account(namespace, Some(&pods), now), raised.collect::<Vec<_>>())
        });
        if is_there {
            return Done::Ended(Ending::Entered);
        }
        let mut raised =
            self.raises.iter().flat_map(|raise| raise.keys.iter().map(|key| (&raise.uid, &key.key)));
        let is_held = |(uid, key): (&Uid, &Arc<str>)| {
            quotas.iter().find(|quota| quota.uid == *uid).is_some_and(|quota| account.holds(quota, key))
        };
        let by_none = !raised.any(is_held);
        Done::Ended(if by_none { Ending::Denied } else { Ending::NotSeen })
    }

    fn is_seen(&self, index: &Cluster) -> bool {
        index.launchers.of_migration(&self.target.migration.uid).any(|pod| self.is_target(index, pod))
    }

    /// Whether KubeVirt's controller has created this pod for the migration since room was made: it is the one that was
    /// asked about, or that of another attempt, whichever replica was asked about it.
    fn is_target(&self, index: &Cluster, pod: &LauncherRecord) -> bool {
        let (migration, controller) = (&self.target.migration, index.kubevirt_controller());
        pod.migration.as_ref() == Some(&migration.uid)
            && pod.namespace == migration.namespace
            && !self.before.contains(&pod.uid)
            && if self.target.attaches {
                pod.launcher.is_some()
            } else {
                pod.machine.as_ref() == Some(&migration.machine_uid)
            }
            && pod.created_by.as_deref().is_none_or(|name| controller.as_deref() == Some(name))
    }
}
