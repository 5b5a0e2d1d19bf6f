//! Lists that were read before pods go.

use std::collections::HashSet;

use sluice_engine::QuotaId;
use sluice_index::{ArqWire, NamespaceId, Source};
use smallvec::SmallVec;

use super::{State, uid_of};
use crate::action::Answer;
use crate::config::Moment;
use crate::orders::{Decision, Decisions, Listed};

impl State {
    pub(super) fn on_listed(&mut self, ids: &[NamespaceId], answer: Answer<Vec<ArqWire>>, now: Moment) {
        let lists: SmallVec<[Listed; 1]> = ids.iter().copied().map(Listed::Namespace).collect();
        let Some(quotas) = self.take_list(&lists, answer, now) else { return };
        let asked: HashSet<NamespaceId> = ids.iter().copied().collect();
        for quota in &quotas {
            let namespace =
                self.cluster.namespaces.id(quota.metadata.namespace.as_deref().unwrap_or_default());
            let listed = namespace.filter(|id| asked.contains(id));
            if listed.is_some_and(|listed| self.recorder.is_to_apply(listed, &uid_of(&quota.metadata))) {
                self.see_quota(quota, Source::Answer, now);
            }
        }
        for listed in lists {
            self.on_checked(listed);
        }
    }

    fn take_list<T>(&mut self, lists: &[Listed], answer: Answer<T>, now: Moment) -> Option<T> {
        let after = match answer {
            Answer::Done(quotas) => return Some(quotas),
            Answer::Busy(after) => after,
            Answer::Stale(_) | Answer::Refused(_) | Answer::Unknown(_) => None,
        };
        for listed in lists {
            self.recorder.on_list_failed(*listed, after, &self.accounts, now);
        }
        None
    }

    /// Whatever was in the list is applied: what was decided before it and still stands, stands.
    pub(super) fn on_checked(&mut self, listed: Listed) {
        let confirmed = self.recorder.on_list_read(listed);
        self.accounts.on_charges_confirmed(&self.cluster, confirmed);
    }

    /// Decisions that charge this quota and that no list of cluster quotas has confirmed yet.
    pub(super) fn unlisted_decisions(&self, id: QuotaId) -> Decisions {
        let is_charged = |decision: &Decision| self.accounts.charges(*decision, id);
        self.recorder.unlisted().into_iter().filter(is_charged).collect()
    }
}
