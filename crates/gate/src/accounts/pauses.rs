//! Pauses: while one lasts, those that wait go in their order and at its rate, without a question to their quotas. Charged
//! and recorded they are as ever, so what is counted afterwards is what there is.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::{ClassId, CompiledQuota, PodId, QuotaKind, Unenforced, WaitKey, paused, paused_in};
use sluice_index::{NamespaceId, QuotaRecord};

use super::Accounts;
use crate::accounts::parts::pauses::{Paused, Scope};
use crate::cluster::Cluster;
use crate::config::Moment;
use crate::orders::{News, Order};
use crate::stage::{Stage, Stuck};

/// How a pod goes whose turn it is.
enum Turn {
    /// Charged to the quotas that it waits for in this class.
    Charged(ClassId),
    /// Without a charge: no quota that can be understood is about it.
    Free,
}

impl Accounts {
    /// What a namespace says of a pause.
    pub fn see_pause(&mut self, cluster: &Cluster, id: NamespaceId, meta: &ObjectMeta, now: Moment) {
        self.set_pause(cluster, Scope::One(id), Paused::of(meta, now), now);
    }

    pub fn set_pause(&mut self, cluster: &Cluster, scope: Scope, paused: Option<Paused>, now: Moment) {
        let before = self.pauses.get(scope).cloned();
        let is_news = before != paused;
        let is_other = self.pauses.set(scope, paused);
        if is_news && self.pauses.get(scope).is_some() {
            self.tell_pause(scope);
        } else if let Some(before) = before.filter(|_| is_news) {
            self.tell_end(scope, before);
        }
        if is_other {
            self.on_pause_changed(cluster, scope, now);
        }
    }

    /// Namespaces that are gone are paused no more.
    pub fn forget_pauses_of_gone(&mut self, cluster: &Cluster) {
        let namespaces = &cluster.namespaces;
        self.pauses.keep_only(|id| namespaces.is_targeted(id).is_some());
    }

    pub fn end_pauses(&mut self, cluster: &Cluster, now: Moment) {
        for (scope, paused) in self.pauses.take_ended(now) {
            self.tell_end(scope, paused);
            self.on_pause_changed(cluster, scope, now);
        }
    }

    /// Quotas say that pods do not wait for them, or do again, and who waits takes a place in the line of the pause, or
    /// loses it.
    fn on_pause_changed(&mut self, cluster: &Cluster, scope: Scope, now: Moment) {
        let about = match scope {
            Scope::One(namespace) => vec![namespace],
            Scope::All => cluster.namespaces.iter().map(|(id, _)| id).collect(),
        };
        for id in about {
            self.orders.give(Order::RestateAbout(id));
            let gated = self.gated(cluster, id);
            if !gated.is_empty() {
                self.reclassify_later(cluster, id, gated);
            }
        }
        self.go_on_reclassifying(cluster, now);
    }

    /// Whether no pod waits for quota in this namespace.
    pub fn has_pause(&self, namespace: NamespaceId) -> bool {
        self.pauses.of(namespace).is_some()
    }

    /// Those that wait where a pause is in force and have their turn.
    pub(super) fn let_paused_go(&mut self, cluster: &Cluster, now: Moment) {
        for scope in self.pauses.scopes().collect::<Vec<_>>() {
            while let Some((key, id)) = self.pauses.due(scope, now) {
                match self.turn(cluster, scope, id, &key) {
                    Some(Turn::Charged(class)) => {
                        let Some(decision) = self.stages.queue_mut().let_go(class, &key) else { break };
                        self.pauses.went(scope, now);
                        self.on_decision(cluster, decision, now);
                    }
                    Some(Turn::Free) => {
                        self.pauses.went(scope, now);
                        self.stages.place(id, Stage::Free { awaited: 1, serial: 0 });
                        self.await_lists(cluster, id);
                    }
                    None => self.pauses.pass(scope),
                }
            }
        }
    }

    /// How the pod that had this place goes, if it waits in the scope of the pause.
    fn turn(&self, cluster: &Cluster, scope: Scope, id: PodId, key: &WaitKey) -> Option<Turn> {
        let record = cluster.pods.get(id).filter(|record| record.uid == key.uid)?;
        let is_there = self.pauses.of(record.namespace).is_some_and(|(other, _)| other == scope);
        match self.stages.get(id) {
            Stage::Waiting(class) if is_there => Some(Turn::Charged(*class)),
            Stage::Stuck(Stuck::InvalidQuota(_)) if is_there => Some(Turn::Free),
            _ => None,
        }
    }

    /// What a quota does not enforce because of pauses.
    pub(super) fn unenforced_while_paused(
        &self,
        cluster: &Cluster,
        kind: QuotaKind,
        quota: &QuotaRecord,
        compiled: &CompiledQuota,
    ) -> Option<Unenforced> {
        match kind {
            QuotaKind::Namespace => {
                let (_, pause) = self.pauses.of(quota.namespace()?)?;
                paused(compiled, &pause.until.to_string())
            }
            QuotaKind::Cluster => {
                self.pauses.ends().next()?;
                let selected = quota.namespaces().filter_map(|id| {
                    let namespace = cluster.namespaces.get(id)?;
                    Some((&*namespace.name, self.is_paused_target(cluster, id)))
                });
                paused_in(compiled, selected)
            }
        }
    }

    fn is_paused_target(&self, cluster: &Cluster, namespace: NamespaceId) -> bool {
        cluster.namespaces.is_targeted(namespace) == Some(true) && self.has_pause(namespace)
    }

    /// How many namespaces are paused, and when the last pause ends, in seconds since the epoch; 0 if there is none.
    pub fn paused(&self, cluster: &Cluster) -> (usize, i64) {
        let Some(end) = self.pauses.ends().max() else { return (0, 0) };
        let paused = cluster.namespaces.iter().filter(|(id, _)| self.is_paused_target(cluster, *id));
        (paused.count(), end.as_second())
    }

    /// When the pause that is in force in the namespace ends.
    pub fn pause_end(&self, namespace: NamespaceId) -> Option<Timestamp> {
        self.pauses.of(namespace).map(|(_, pause)| pause.until)
    }

    /// What was set before this process led is told too.
    pub(super) fn tell_pauses(&mut self) {
        for scope in self.pauses.scopes().collect::<Vec<_>>() {
            self.tell_pause(scope);
        }
    }

    fn tell_pause(&mut self, scope: Scope) {
        if let Some(paused) = self.pauses.get(scope).filter(|_| self.leading) {
            self.orders.tell(News::Paused(scope, paused.clone()));
        }
    }

    fn tell_end(&mut self, scope: Scope, paused: Paused) {
        if self.leading && paused.said.is_ok() {
            self.orders.tell(News::PauseEnded(scope, paused));
        }
    }
}
