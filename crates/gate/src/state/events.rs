//! Events that are to be written: on a pod why it is held, on a quota or the configuration what has become of it.

use std::sync::Arc;

use sluice_engine::{ClassId, PodId, QuotaId, QuotaKind, Reason, ShareId, Uid};
use sluice_index::{NamespaceId, PodRecord};

use super::State;
use super::machines::unknown_text;
use crate::action::{GateEvent, Regarding, Release};
use crate::config::Moment;
use crate::messages::{HELD_CLAIMS, Lack, exceeded, never_fits, reasons};
use crate::parts::events::{LOOKS, Text, Turn};
use crate::stage::{Stage, Stuck};

impl State {
    /// The reason for holding the class is another one: events say so about its first pods. The rest of a long queue has
    /// news when it is its turn to have any.
    pub(super) fn on_class_held(&mut self, class: ClassId, now: Moment) {
        let Some(class) = self.stages.queue().class(class) else { return };
        for pod in class.pods().take(self.config.notified_pods) {
            self.events.news(pod, now);
        }
    }

    /// The events to write now.
    pub(super) fn plan_events(&mut self, now: Moment) -> Vec<GateEvent> {
        let mut events = Vec::new();
        self.events.give_turns(|id| self.pods.get(id).map(|record| record.namespace), now);
        for _ in 0..LOOKS {
            match self.events.next_turn(now) {
                Some(Turn::Announcement(event)) => events.push(event),
                Some(Turn::Pod(namespace, id)) => events.extend(self.plan_pod_event(namespace, id, now)),
                None => break,
            }
        }
        events
    }

    fn plan_pod_event(&mut self, namespace: NamespaceId, id: PodId, now: Moment) -> Option<GateEvent> {
        let text = self.text_about(id).map(|text| self.text_about_held(id, text));
        // A pod that waits and has no reason was not looked at yet.
        let is_open = matches!(self.stages.get(id), Stage::Waiting(_));
        let text = text.filter(|_| self.namespaces.get(namespace).is_some());
        let is_written = self.events.write_about(namespace, id, text.as_ref(), is_open, now);
        let text = text.filter(|_| is_written)?;
        let Release { namespace, name, uid, .. } = self.address(id)?;
        self.tell_migration(id, &namespace, &text);
        let (reason, message) = text;
        Some(GateEvent { regarding: Regarding::Pod(id), namespace, name: name.into(), uid, reason, message })
    }

    /// An event was written, or could not be.
    pub(super) fn on_event_written(&mut self, event: &GateEvent, is_written: bool, now: Moment) {
        self.events.end_request();
        let Regarding::Pod(id) = event.regarding else {
            return self.events.on_announcement(event, is_written, now);
        };
        let Some(record) = self.pods.get(id).filter(|record| record.uid == event.uid) else { return };
        self.events.on_pod_event(record.namespace, id, is_written, &self.namespaces, now);
    }

    /// The configuration has an effect that its author should know of.
    pub(crate) fn announce_configuration(&mut self, name: &str, uid: Uid, message: String) {
        let (regarding, reason) = (Regarding::Configuration, reasons::NO_LONGER_TARGETED);
        let (namespace, name) = (Arc::from(""), name.into());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }

    /// What an event about the pod says as things are.
    fn text_about(&self, id: PodId) -> Option<Text> {
        let record = self.pods.get(id)?;
        match self.stages.get(id) {
            Stage::Waiting(class) => {
                let (reason, message) = self.text_about_class(*class)?;
                let claims =
                    if record.has_ephemeral_volumes { format!("; {HELD_CLAIMS}") } else { String::new() };
                Some((reason, message + &claims))
            }
            Stage::Stuck(Stuck::InvalidQuota(quota)) => {
                Some((reasons::INVALID_QUOTA, format!("held: {}", self.invalid_message(*quota))))
            }
            Stage::Stuck(Stuck::Unreadable(field)) => {
                Some((reasons::UNREADABLE, format!("held: {field}; correct the pod and create it again")))
            }
            Stage::Stuck(Stuck::Machine(unknown)) => Some((reasons::UNKNOWN_MACHINE, unknown_text(unknown))),
            Stage::Stuck(Stuck::BackingOff) | Stage::Assumed { .. } | Stage::Free { .. } => {
                let why = self.releases.refusal(id)?;
                Some((reasons::REFUSED, format!("the API server refuses to release the pod: {why}")))
            }
            Stage::Counted { quotas, .. } if !quotas.is_empty() => {
                let field = record.unreadable.as_ref()?;
                Some((reasons::UNREADABLE, format!("counted with the largest amount there is: {field}")))
            }
            Stage::Counted { .. } | Stage::Foreign | Stage::Stuck(_) => None,
        }
    }

    fn text_about_class(&self, class: ClassId) -> Option<Text> {
        let class = self.stages.queue().class(class)?;
        let why = class.reason()?;
        let (reason, message) = self.text_about_lack(why, class.quotas().share())?;
        let quota = self.quotas.get(why.quota)?;
        let kind = if quota.cluster().is_some() { QuotaKind::Cluster } else { QuotaKind::Namespace };
        Some(match never_fits(kind, quota.compiled.as_ref().ok()?, why) {
            Some(remedy) => (reasons::EXCEEDS_LIMIT, format!("{message}; {remedy}")),
            None => (reason, message),
        })
    }

    /// Why there is no room for a pod of a namespace.
    pub(super) fn text_about_lack(&self, reason: &Reason, share: ShareId) -> Option<Text> {
        let quota = self.quotas.get(reason.quota)?;
        let compiled = quota.compiled.as_ref().ok()?;
        // It may have gone since the queue was looked at, and its handle may be another pod's.
        let waits = |pod: &PodId| matches!(self.stages.get(*pod), Stage::Waiting(_));
        // A tenant is told nothing of another one's pods.
        let is_of_the_same = |pod: &&PodRecord| pod.namespace.share() == share;
        let own = reason.behind.filter(waits).and_then(|pod| self.pods.get(pod)).filter(is_of_the_same);
        let lack = match (reason.behind, own) {
            (None, _) => Lack::Exceeded,
            (Some(_), Some(pod)) => Lack::KeptForOwn(&pod.name),
            (Some(_), None) => Lack::KeptForOther,
        };
        Some((lack.reason(), exceeded(&quota.name, compiled, reason, lack)))
    }

    pub(super) fn invalid_message(&self, quota: QuotaId) -> String {
        let invalid =
            self.quotas.get(quota).and_then(|quota| Some((&quota.name, quota.compiled.as_ref().err()?)));
        let Some((name, error)) = invalid else { return String::new() };
        format!("quota {name} cannot be enforced: {error}; correct or delete it")
    }
}
