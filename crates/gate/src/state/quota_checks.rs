//! Lists of quotas that are read before pods go.
//!
//! Pods and quotas come by different watches, so a quota that was created before a pod may be seen after it. The record of a
//! charge in a quota of the namespace shows that the watch of these has come that far
//! ([`Confirmations`](crate::parts::confirmations::Confirmations)). Where there is no such charge the quotas are read
//! once more, after the decision and before the pod goes; and the watch of cluster quotas has to come to the present. A pod
//! that adds nothing to what its owner is charged needs neither.

use std::collections::HashSet;
use std::sync::Arc;

use sluice_engine::QuotaId;
use sluice_index::{ArqWire, NamespaceId, Source};
use smallvec::SmallVec;

use super::{State, uid_of};
use crate::action::{Action, Answer};
use crate::config::Moment;
use crate::orders::{Decision, Decisions, Listed};

/// A list of all quotas is no dearer than a list for each of some namespaces if
/// there are not more quotas than this for each.
const QUOTAS_PER_LIST: usize = 4;

impl State {
    pub(super) fn plan_checks(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        let accounts = &self.accounts;
        // A namespace is requested again when it is not paused any more.
        let is_put_off = |listed| matches!(listed, Listed::Namespace(id) if accounts.is_paused(id));
        let mut namespaces = Vec::new();
        for listed in self.checks.begin_wanted(now, is_put_off) {
            match listed {
                Listed::Cluster => actions.push(Action::CatchUpClusterQuotas),
                Listed::Targets => actions.push(Action::ListTargets),
                Listed::Namespace(id) => match self.cluster.namespaces.get(id) {
                    Some(namespace) => namespaces.push((id, Arc::clone(&namespace.name))),
                    None => self.checks.forget(listed),
                },
            }
        }
        if namespaces.len() > 1 && self.cluster.quotas.len() <= QUOTAS_PER_LIST * namespaces.len() {
            actions.push(Action::ListQuotas(namespaces));
        } else {
            actions.extend(namespaces.into_iter().map(|namespace| Action::ListQuotas(vec![namespace])));
        }
        actions
    }

    pub(super) fn on_listed(&mut self, ids: &[NamespaceId], answer: Answer<Vec<ArqWire>>, now: Moment) {
        let lists: SmallVec<[Listed; 1]> = ids.iter().copied().map(Listed::Namespace).collect();
        let Some(quotas) = self.take_list(&lists, answer, now) else { return };
        let asked: HashSet<NamespaceId> = ids.iter().copied().collect();
        for quota in &quotas {
            let namespace =
                self.cluster.namespaces.id(quota.metadata.namespace.as_deref().unwrap_or_default());
            let listed = namespace.filter(|id| asked.contains(id)).map(Listed::Namespace);
            if listed.is_some_and(|listed| self.checks.is_to_apply(listed, &uid_of(&quota.metadata))) {
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
        let accounts = &self.accounts;
        let is_waited_for = |decision: &Decision| accounts.is_awaiting(*decision);
        for listed in lists {
            self.checks.failed(*listed, after, is_waited_for, now);
        }
        None
    }

    /// Whatever was in the list is applied: what was decided before it and still stands, stands.
    pub(super) fn on_checked(&mut self, listed: Listed) {
        let confirmed = self.checks.succeeded(listed);
        self.accounts.on_charges_confirmed(&self.cluster, confirmed);
    }

    /// Decisions that charge this quota and that no list of cluster quotas has confirmed yet.
    pub(super) fn unlisted_decisions(&self, id: QuotaId) -> Decisions {
        let is_charged = |decision: &Decision| self.accounts.charges(*decision, id);
        self.checks.unlisted(Listed::Cluster).into_iter().filter(is_charged).collect()
    }
}
