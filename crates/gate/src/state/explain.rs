//! Explanations, for those that ask (see [`view`](crate::view)).

use std::sync::Arc;

use sluice_engine::{Amount, Quantity, QuotaId, StatusTarget};

use super::State;
use crate::config::Moment;
use crate::explain::{Explanation, PodExplanation, Subject, Taker, Told, Topic};
use crate::view::View;

/// Rounds after which deciding in memory ends, whatever is left: more than any cluster needs.
const ROUNDS: usize = 1_000_000;

impl State {
    /// Leads in memory: decides until there is nothing more to decide. What is to be done is not done. What is recorded
    /// above what pods take stays taken: a caller that knows all pods leaves out what is recorded.
    pub fn decide_in_memory(&mut self, now: Moment) {
        self.lead(now);
        for _ in 0..ROUNDS {
            drop(self.plan(now));
            let is_settled = self.is_leading() && self.accounts.is_settled();
            if is_settled && !self.accounts.queue().has_news() {
                break;
            }
        }
    }

    /// Everything as it is.
    pub(super) const fn view(&self) -> View<'_> {
        View { cluster: &self.cluster, accounts: &self.accounts, releaser: &self.releaser }
    }

    /// Explains a subject; `None`: nothing is known of such an object.
    #[must_use]
    pub fn explain(&self, subject: Subject<'_>) -> Option<Explanation> {
        self.view().explain(subject)
    }

    /// What is told of a subject in a namespace; `None`: this process does not lead.
    #[must_use]
    pub fn tell(&self, namespace: &str, topic: Topic<'_>) -> Option<Told> {
        self.view().tell(namespace, topic)
    }

    /// The pods with this controller's gate, without their places, the oldest first.
    #[must_use]
    pub fn held_pods(&self) -> Vec<PodExplanation> {
        self.view().held_pods()
    }

    /// Who takes most of the fullest key of a quota of a namespace, so many of them, and what all others take; none of a
    /// quota that is not known.
    #[must_use]
    pub fn takers_of_quota(
        &self,
        namespace: &str,
        name: &str,
        most: usize,
    ) -> (Vec<Taker>, Option<(usize, Quantity)>) {
        self.view().takers_of_quota(namespace, name, most)
    }

    /// Namespace and name of each pod that is counted by a quota, and what it takes of a key; pods of a VM alike.
    #[must_use]
    pub fn takers_of_key(&self, key: &str) -> Vec<(Arc<str>, Box<str>, Amount)> {
        self.view().takers_of_key(key)
    }

    /// The status that a quota should have but for what it does not enforce; `None` as long as its sums are not complete.
    #[must_use]
    pub fn amounts_of(&self, id: QuotaId) -> Option<StatusTarget> {
        self.accounts.amounts_of(&self.cluster, id)
    }
}
