//! Answers to requests that remove gates.

use sluice_engine::{PodId, Uid};
use sluice_index::{PodWire, Source};

use super::State;
use crate::action::Answer;
use crate::config::Moment;
use crate::orders::News;

impl State {
    pub(super) fn on_released(&mut self, id: PodId, uid: &Uid, answer: Answer<PodWire>, now: Moment) {
        if let Some(namespace) = self.accounts.sent_in(uid) {
            let is_slow = match answer {
                Answer::Done(_) => Some(false),
                Answer::Unknown(_) => Some(true),
                _ => None,
            };
            self.releaser.answered(namespace, is_slow, &self.cluster.namespaces);
        }
        let namespace = self.cluster.pods.get(id).filter(|record| record.uid == *uid).map(|it| it.namespace);
        if let Answer::Done(wire) = &answer
            && namespace.is_some()
        {
            // While the request is in flight this is known to be the own release.
            self.see_pod(wire, Source::Answer, now);
        }
        let version = self.accounts.on_answered(uid);
        let Some(namespace) = namespace else { return };
        match answer {
            Answer::Done(_) => {}
            Answer::Stale(Some(wire)) => {
                self.see_pod(&wire, Source::Answer, now);
                let record = self.cluster.pods.get(id).filter(|record| record.uid == *uid).cloned();
                let Some(record) = record else { return };
                if self.accounts.goes_as_decided(&self.cluster, id, &record) {
                    // Another version of what was decided on and is recorded.
                    self.releaser.repeat_changed(namespace, id, now);
                } else {
                    self.give_up_release(id, 0, now);
                }
            }
            Answer::Stale(None) => {
                self.forget_gone(id);
            }
            Answer::Refused(why) => {
                self.releaser.refused(id, why);
                if !self.accounts.may_be_released_still(id, now) {
                    self.give_up_release(id, 1, now);
                } else if self.accounts.stays_charged(&self.cluster, id, now) {
                    self.releaser.repeat_later(id, None, now);
                }
                self.carry_out();
                self.reporter.hear(&self.cluster, News::Held(id, now));
            }
            Answer::Busy(after) => {
                if self.accounts.stays_charged(&self.cluster, id, now) {
                    self.releaser.repeat_later(id, after, now);
                }
            }
            Answer::Unknown(_) => {
                self.accounts.on_outcome_unknown(&self.cluster, id, version, now);
                if self.accounts.stays_charged(&self.cluster, id, now) {
                    self.releaser.repeat_later(id, None, now);
                }
            }
        }
    }

    /// The release was certainly not done: reverts the charge and decides again, later each time. With `from` 0 the first
    /// retry comes at once.
    fn give_up_release(&mut self, id: PodId, from: u32, now: Moment) {
        if self.accounts.is_going(id) {
            let from_ms = self.releaser.back_off(id, from, now);
            self.accounts.give_up_release(&self.cluster, id, from_ms, now);
        }
    }
}
