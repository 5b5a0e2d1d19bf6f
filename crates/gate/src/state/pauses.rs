//! Pauses: while one lasts, those that wait go in their order and at its rate, without a question to their quotas. Charged
//! and recorded they are as ever, so what is counted afterwards is what there is.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::{ClassId, CompiledQuota, PodId, QuotaKind, Unenforced, WaitKey, paused, paused_in};
use sluice_index::{NamespaceId, QuotaRecord};

use super::State;
use crate::action::{GateEvent, Regarding};
use crate::config::Moment;
use crate::messages::reasons;
use crate::parts::pauses::{Paused, Scope};
use crate::stage::{Stage, Stuck};

/// How a pod goes whose turn it is.
enum Turn {
    /// Charged to the quotas that it waits for in this class.
    Charged(ClassId),
    /// Without a charge: no quota that can be understood is about it.
    Free,
}

impl State {
    /// What the `AAQ` that counts says of a pause.
    pub(crate) fn pause_all(&mut self, paused: Option<Paused>, now: Moment) {
        self.set_pause(Scope::All, paused, now);
    }

    /// What a namespace says of a pause.
    pub(super) fn see_pause(&mut self, id: NamespaceId, meta: &ObjectMeta, now: Moment) {
        self.set_pause(Scope::One(id), Paused::of(meta, now), now);
    }

    fn set_pause(&mut self, scope: Scope, paused: Option<Paused>, now: Moment) {
        let before = self.pauses.get(scope).cloned();
        let is_news = before != paused;
        let is_other = self.pauses.set(scope, paused);
        if is_news && self.pauses.get(scope).is_some() {
            self.announce_pause(scope);
        } else if let Some(before) = before.filter(|_| is_news) {
            self.announce_end(scope, &before);
        }
        if is_other {
            self.on_pause_changed(scope, now);
        }
    }

    /// Namespaces that are gone are paused no more.
    pub(super) fn forget_pauses_of_gone(&mut self) {
        let namespaces = &self.cluster.namespaces;
        self.pauses.keep_only(|id| namespaces.is_targeted(id).is_some());
    }

    pub(super) fn end_pauses(&mut self, now: Moment) {
        for (scope, paused) in self.pauses.take_ended(now) {
            self.announce_end(scope, &paused);
            self.on_pause_changed(scope, now);
        }
    }

    /// Quotas say that pods do not wait for them, or do again, and who waits takes a place in the line of the pause, or
    /// loses it.
    fn on_pause_changed(&mut self, scope: Scope, now: Moment) {
        let about = match scope {
            Scope::One(namespace) => vec![namespace],
            Scope::All => self.cluster.namespaces.iter().map(|(id, _)| id).collect(),
        };
        for id in about {
            self.restate_quotas_about(id);
            let gated = self.gated(id);
            if !gated.is_empty() {
                self.reclassify_later(id, gated);
            }
        }
        self.go_on_reclassifying(now);
    }

    /// Whether no pod waits for quota in this namespace.
    pub(super) fn has_pause(&self, namespace: NamespaceId) -> bool {
        self.pauses.of(namespace).is_some()
    }

    /// Those that wait where a pause is in force and have their turn.
    pub(super) fn let_paused_go(&mut self, now: Moment) {
        for scope in self.pauses.scopes().collect::<Vec<_>>() {
            while let Some((key, id)) = self.pauses.due(scope, now) {
                match self.turn(scope, id, &key) {
                    Some(Turn::Charged(class)) => {
                        let Some(decision) = self.stages.queue_mut().let_go(class, &key) else { break };
                        self.pauses.went(scope, now);
                        self.on_decision(decision, now);
                    }
                    Some(Turn::Free) => {
                        self.pauses.went(scope, now);
                        self.stages.place(id, Stage::Free { awaited: 1, serial: 0 });
                        self.await_lists(id);
                    }
                    None => self.pauses.pass(scope),
                }
            }
        }
    }

    /// How the pod that had this place goes, if it waits in the scope of the pause.
    fn turn(&self, scope: Scope, id: PodId, key: &WaitKey) -> Option<Turn> {
        let record = self.cluster.pods.get(id).filter(|record| record.uid == key.uid)?;
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
                    let namespace = self.cluster.namespaces.get(id)?;
                    Some((&*namespace.name, self.is_paused_target(id)))
                });
                paused_in(compiled, selected)
            }
        }
    }

    fn is_paused_target(&self, namespace: NamespaceId) -> bool {
        self.cluster.namespaces.is_targeted(namespace) == Some(true) && self.has_pause(namespace)
    }

    /// How many namespaces are paused, and when the last pause ends, in seconds since the epoch; 0 if there is none.
    pub(crate) fn paused(&self) -> (usize, i64) {
        let end = self.pauses.ends().max().map_or(0, |end| end.as_second());
        let all = self.cluster.namespaces.iter().filter(|_| end > 0);
        (all.filter(|(id, _)| self.is_paused_target(*id)).count(), end)
    }

    /// What was set before this process led is told too.
    pub(super) fn announce_pauses(&mut self) {
        for scope in self.pauses.scopes().collect::<Vec<_>>() {
            self.announce_pause(scope);
        }
    }

    fn announce_pause(&mut self, scope: Scope) {
        let Some(paused) = self.pauses.get(scope).cloned() else { return };
        let (reason, message) = match &paused.said {
            Ok(pause) => (
                reasons::PAUSED,
                format!(
                    "no pod waits for quota until {}: those that wait go in order, at most {} a second; usage is counted \
                     and may exceed the limits",
                    pause.until, pause.rate
                ),
            ),
            Err(error) => (reasons::PAUSE_IGNORED, format!("not paused: {error}")),
        };
        self.announce_about(scope, &paused, reason, message);
    }

    fn announce_end(&mut self, scope: Scope, paused: &Paused) {
        if paused.said.is_ok() {
            let message =
                "pods wait for quota again; those that went are counted, and none is evicted".to_owned();
            self.announce_about(scope, paused, reasons::PAUSE_ENDED, message);
        }
    }

    fn announce_about(&mut self, scope: Scope, paused: &Paused, reason: &'static str, message: String) {
        if !self.leading {
            return;
        }
        let regarding = match scope {
            Scope::All => Regarding::Configuration,
            Scope::One(_) => Regarding::Namespace,
        };
        let (namespace, name) = (Arc::from(""), Arc::clone(&paused.name));
        let uid = paused.uid.clone();
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }
}
