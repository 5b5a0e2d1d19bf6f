//! The begin of leading: what was found until now is acted on from now on.

use sluice_engine::{PodId, QuotaId};

use super::Accounts;
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::{News, Order};

impl Accounts {
    /// From now on decisions are made. Returns the quotas in which a predecessor may have charged pods that are still to go:
    /// the room of what they have recorded is to be [kept](Self::reserve_in_flight) before [`Self::take_stock`].
    pub fn begin_leading(&mut self, cluster: &Cluster, is_handed_over: bool, now: Moment) -> Vec<QuotaId> {
        self.leading = true;
        self.expire_rounds(cluster);
        if !is_handed_over {
            self.doubt(cluster, now);
        }
        let quotas = cluster.quotas.iter().map(|(id, _)| id);
        // Pods without an answer of their evaluators may take any part of what is recorded.
        quotas.filter(|id| !is_handed_over || self.has_unanswered(cluster, *id)).collect()
    }

    /// From now on nothing is decided or admitted any more; what is decided is brought to its end.
    pub const fn resign(&mut self) {
        self.is_resigning = true;
    }

    /// See [`State::has_nothing_under_way`](crate::State::has_nothing_under_way).
    pub fn has_nothing_under_way(&self) -> bool {
        self.leading
            && self.sent.are_all_answered()
            && self.pod_growth.is_empty()
            && self.machine_growth.is_empty()
            && self.foreign_charges.is_empty()
    }

    /// Goes on with what a predecessor has left: releases, lists that pods wait for, and events about pods that are held.
    pub fn take_stock(&mut self, cluster: &Cluster, now: Moment) {
        let quotas: Vec<QuotaId> = cluster.quotas.iter().map(|(id, _)| id).collect();
        for id in quotas {
            self.stages.queue_mut().wake(id);
            self.orders.give(Order::Restate(id));
        }
        let pods: Vec<PodId> = cluster.pods.iter().map(|(id, _)| id).collect();
        for id in &pods {
            if self.stages.may_be_released(*id) {
                self.enqueue_release(cluster, *id);
            }
        }
        for id in pods {
            self.await_lists(cluster, id);
        }
        let unreadable =
            cluster.pods.iter().filter(|(_, record)| record.unreadable().is_some()).map(|(id, _)| id);
        for id in self.stages.held().chain(unreadable) {
            self.orders.tell(News::Held(id, now));
        }
        self.tell_pauses();
        // The pods may have been seen before it was known which of them are targets of migrations.
        for id in self.stages.held().collect::<Vec<_>>() {
            self.hold_target(cluster, id);
        }
    }
}
