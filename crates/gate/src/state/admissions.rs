//! Ends questions about updates of pods: the webhook does not wait any more, or the pod was read to see what became of it.

use sluice_engine::{PodId, Uid};
use sluice_index::{PodWire, Source};

use super::State;
use crate::action::Answer;
use crate::admission::Ticket;
use crate::config::Moment;

impl State {
    /// The webhook does not wait for the answer to this question any more.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        self.accounts.abandon(ticket);
    }

    /// The pod was read when no update of it that was admitted could be in flight any more.
    pub(super) fn on_read(&mut self, id: PodId, uid: &Uid, answer: Answer<PodWire>, now: Moment) {
        if self.cluster.pods.get(id).is_none_or(|record| record.uid != *uid) {
            return;
        }
        match answer {
            Answer::Done(pod) | Answer::Stale(Some(pod)) => {
                self.see_pod(&pod, Source::Answer, now);
                self.accounts.on_read(id, now);
            }
            Answer::Stale(None) => {
                if !self.forget_gone(id) {
                    self.accounts.read_later(id, now);
                }
            }
            Answer::Refused(_) | Answer::Busy(_) | Answer::Unknown(_) => self.accounts.read_later(id, now),
        }
    }
}
