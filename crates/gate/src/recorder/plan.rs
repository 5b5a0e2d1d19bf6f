//! Which writes of quotas' status are needed now.

use sluice_engine::QuotaId;
use sluice_index::{QuotaRecord, Told};

use super::Recorder;
use super::says::{says, tells_of_pods};
use crate::accounts::Accounts;
use crate::action::{Record, RecordedIn};
use crate::cluster::Cluster;
use crate::config::Moment;

/// Quotas that are looked at before others get at the state.
const MAX_PER_STEP: usize = 256;
/// The least time after a write before one that only tells something else of pods (milliseconds).
const TOLD_SPACING_MS: u64 = 10_000;

/// Whether what the quota does not enforce is to be told, since it was not said before.
pub type IsNews = bool;

impl Recorder {
    /// The writes that statuses need now: of some of the quotas that may need one, in turn.
    pub fn plan(&mut self, cluster: &Cluster, accounts: &Accounts, now: Moment) -> Vec<(Record, IsNews)> {
        let mut records = Vec::new();
        for _ in 0..MAX_PER_STEP {
            let Some(id) = self.writes.next() else { break };
            records.extend(self.plan_record(cluster, accounts, id, now));
        }
        records
    }

    /// The write that a quota's record needs now, if any.
    fn plan_record(
        &mut self,
        cluster: &Cluster,
        accounts: &Accounts,
        id: QuotaId,
        now: Moment,
    ) -> Option<(Record, IsNews)> {
        if self.writes.is_in_flight(id) {
            // The answer of the write, or the timer that a failure sets, marks the quota again.
            return None;
        }
        let quota = cluster.quotas.get(id)?;
        let name = cluster.quota_ref(id)?;
        let target = accounts.record_of(cluster, id)?;
        let held = accounts.held_by(id);
        let object = recorded_in(quota);
        let unenforced = quota.recorded.unenforced.as_deref();
        let unenforced_reason = target.unenforced.as_ref().map(|told| told.reason);
        self.overwrites.unenforced(id, unenforced_reason, unenforced.map(|told| &*told.reason));
        // Even a charge that changes no sum is written: only a write that succeeds proves that no other
        // leader has charged meanwhile.
        let is_charge = self.writes.has_pending(id);
        let is_new = matches!(object, RecordedIn::NewCharge { .. });
        let held_told = accounts.held_told(cluster, id);
        let is_right = !is_charge && !is_new && says(quota, &target, held);
        let unevaluated = accounts.unevaluated_told(cluster, id);
        if is_right && tells_of_pods(quota, held_told.as_ref(), unevaluated.as_deref()) {
            return None;
        }
        let spacing_ms = if is_charge {
            cluster.config.charge_spacing_ms.max(self.overwrites.charge_delay_ms(id, now))
        } else if is_right {
            TOLD_SPACING_MS
        } else {
            cluster.config.status_spacing_ms.max(self.overwrites.delay_ms(id, now))
        };
        let charged = if is_new {
            self.writes.begin_without_charge(id, spacing_ms, now).then_some(0)
        } else {
            self.writes.begin(id, spacing_ms, now)
        };
        let since = |told: Option<&Told>| told.map_or_else(|| now.unix_s(), |told| told.since);
        let machines = quota.recorded.machines.zip(target.machines);
        let machines_since = machines.and_then(|(told, calculator)| told.since_as(calculator));
        let record = Record {
            quota: id,
            name,
            uid: quota.uid.clone(),
            object,
            target,
            held,
            held_told,
            held_told_since: since(quota.recorded.pods_held.as_deref()),
            unevaluated,
            unevaluated_since: since(quota.recorded.unevaluated.as_deref()),
            charges: self.writes.charges_after(quota.recorded.charges, charged?),
            uncounted_since: since(quota.recorded.uncounted.as_deref()),
            machines_since: machines_since.unwrap_or_else(|| now.unix_s()),
            unenforced_since: since(unenforced),
        };
        // Another client may take it out of the status again and again, and a write may be repeated.
        let is_news = unenforced_reason.is_some_and(|reason| self.overwrites.is_unenforced_news(id, reason));
        self.writes.ask(&record);
        Some((record, is_news))
    }
}

fn recorded_in(quota: &QuotaRecord) -> RecordedIn {
    match quota.cluster() {
        None => RecordedIn::Status(quota.version),
        Some(cluster) => match &cluster.charge {
            Some(object) => RecordedIn::Charge(object.clone()),
            None => RecordedIn::NewCharge { unshown: (!cluster.is_shown).then_some(quota.version) },
        },
    }
}
