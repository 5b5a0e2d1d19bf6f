//! Answers to writes of quotas' status.

use sluice_engine::{QuotaId, Uid};
use sluice_index::Source;

use super::quotas::version;
use super::{State, uid_of};
use crate::action::{Answer, Record, RecordedObject};
use crate::config::Moment;
use crate::recorder::{InFlight, is_as_written, is_no_news};

impl State {
    pub(super) fn on_recorded(
        &mut self,
        id: QuotaId,
        uid: &Uid,
        answer: Answer<RecordedObject>,
        now: Moment,
    ) {
        self.recorder.end_request(id);
        if self.cluster.quotas.get(id).is_none_or(|quota| quota.uid != *uid) {
            return;
        }
        let Some(InFlight { charged, overtaken, asked }) = self.recorder.answered(id) else { return };
        // What was in this answer may be what has been seen to end since it was asked for,
        // and will not be seen to end again.
        let cluster = self.cluster.quotas.get(id).and_then(|quota| quota.cluster());
        let may_be_gone = overtaken && cluster.is_some_and(|cluster| cluster.charge.is_none());
        let is_new = asked.as_ref().is_some_and(Record::is_new);
        let first = match (&answer, &asked) {
            (Answer::Done(RecordedObject::Charge(wire)), Some(asked)) if asked.is_first() => {
                Some(uid_of(&wire.metadata))
            }
            _ => None,
        };
        match answer {
            Answer::Done(object) => {
                self.recorder.reset_failures(id);
                let confirmed = match object {
                    RecordedObject::Quota(wire) => {
                        self.cluster.quotas.upsert(&wire, Source::Answer, &mut self.cluster.namespaces);
                        self.recorder.recorded(version(&wire), charged)
                    }
                    RecordedObject::Charge(wire) => {
                        if !may_be_gone {
                            self.cluster.quotas.upsert_charge(&wire, Source::Answer);
                        }
                        charged
                    }
                };
                self.accounts.on_charges_confirmed(&self.cluster, confirmed);
                if let Some(asked) =
                    asked.filter(|asked| !may_be_gone && !is_as_written(&self.cluster, asked))
                {
                    self.on_status_not_kept(asked.quota, now);
                }
                self.recorder.restate(id);
            }
            Answer::Stale(object) => {
                let is_failure =
                    object.as_ref().zip(asked).is_some_and(|(now, asked)| is_no_news(now, &asked));
                // The limits may be others now: whatever was not charged is decided on again.
                let mut undone = charged;
                undone.append(&mut self.recorder.take_pending(id));
                self.accounts.revert_decisions(&self.cluster, &undone, now);
                self.carry_out();
                match object {
                    Some(RecordedObject::Quota(wire)) => self.see_quota(&wire, Source::Answer, now),
                    Some(RecordedObject::Charge(_)) if may_be_gone => {}
                    Some(RecordedObject::Charge(wire)) => self.see_charge(&wire, Source::Answer, now),
                    None => self.on_record_gone(id, now),
                }
                if is_failure {
                    self.recorder.retry_later(id, Vec::new(), None, now);
                } else {
                    self.recorder.reset_failures(id);
                    self.recorder.restate(id);
                }
            }
            failed => {
                let after = if let Answer::Busy(after) = failed { after } else { None };
                let again = if overtaken {
                    self.accounts.revert_decisions(&self.cluster, &charged, now);
                    self.carry_out();
                    Vec::new()
                } else {
                    charged
                };
                self.recorder.retry_later(id, again, after, now);
            }
        }
        if is_new {
            self.on_creation_answered(id, first.as_ref(), now);
        }
    }

    /// The object that records the charges does not exist: a quota of a namespace has gone with it.
    fn on_record_gone(&mut self, id: QuotaId, now: Moment) {
        let Some(quota) = self.cluster.quotas.get(id) else { return };
        if quota.namespace().is_some() {
            return self.forget_quota(id, now);
        }
        let uid = quota.uid.clone();
        if self.cluster.quotas.remove_charge(&uid).is_some() {
            self.on_charge_lost(id, now);
        }
    }
}
