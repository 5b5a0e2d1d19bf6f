//! Lists of quotas that are read before pods go without a charge.
//!
//! A pod that no known quota is about may have been created right after a quota that was not seen yet: the
//! two come by different watches. So the quotas are read once more before such pods go.

use std::sync::Arc;

use sluice_index::NamespaceId;
use sluice_index::QuotaWire;

use super::State;
use crate::gate::action::{Action, Answer};
use crate::gate::config::Moment;
use crate::gate::stage::Stage;

impl State {
    pub(super) fn plan_checks(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        for id in self.checks.take_wanted(now) {
            if self.reclassification.is_paused(id) {
                // It is checked when that is over.
                continue;
            }
            let Some(namespace) = self.namespaces.get(id) else {
                self.checks.not_needed(id);
                continue;
            };
            let is_free = |stage: &Stage| matches!(stage, Stage::Free { cleared: false });
            let free = namespace.pods().iter().filter(|pod| is_free(self.stages.get(**pod)));
            let pods: Vec<_> =
                free.filter_map(|pod| Some((*pod, self.pods.get(*pod)?.uid.clone()))).collect();
            if pods.is_empty() {
                self.checks.not_needed(id);
                continue;
            }
            actions.push(Action::ListQuotas(id, Arc::clone(&namespace.name)));
            self.checks.begin(id, pods);
        }
        actions
    }

    pub(super) fn on_listed(&mut self, id: NamespaceId, answer: Answer<Vec<QuotaWire>>, now: Moment) {
        let Some(pods) = self.checks.answered(id) else { return };
        match answer {
            Answer::Done(quotas) => {
                for quota in &quotas {
                    self.apply_quota(quota, now);
                }
                for (pod, uid) in pods {
                    let is_same = self.pods.get(pod).is_some_and(|record| record.uid == uid);
                    if is_same && self.stages.clear(pod) {
                        self.releases.enqueue(pod);
                    }
                }
                self.checks.succeeded(id);
            }
            Answer::Busy(after) => self.checks.failed(id, after, now),
            Answer::Stale(_) | Answer::Refused(_) | Answer::Unknown(_) => self.checks.failed(id, None, now),
        }
    }
}
