//! Events that are to be written: on a pod why it is held, on a quota or the configuration what has become of it.

use std::sync::Arc;

use sluice_engine::{PodId, Uid};
use sluice_index::NamespaceId;

use super::State;
use crate::action::{GateEvent, Regarding, Release};
use crate::config::Moment;
use crate::explain::words::{MOST_BYTES, fit};
use crate::messages::{TARGET_HELD_BYTES, reasons};
use crate::parts::events::{LOOKS, Text, Turn};
use crate::stage::Stage;

impl State {
    /// The events to write now.
    pub(super) fn plan_events(&mut self, now: Moment) -> Vec<GateEvent> {
        let mut events = Vec::new();
        self.events.give_turns(|id| self.cluster.pods.get(id).map(|record| record.namespace), now);
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
        let is_open =
            matches!(self.accounts.stage(id), Stage::Waiting(_)) && !self.accounts.has_pause(namespace);
        let text = text.filter(|_| self.cluster.namespaces.get(namespace).is_some());
        let is_written = self.events.write_about(namespace, id, text.as_ref(), is_open, now);
        let text = text.filter(|_| is_written)?;
        let Release { namespace, name, uid, .. } = self.cluster.address(id)?;
        self.tell_migration(id, &namespace, &text);
        self.tell_machine_of(id, &name, &text);
        let (reason, message) = text;
        Some(GateEvent { regarding: Regarding::Pod(id), namespace, name: name.into(), uid, reason, message })
    }

    /// The VM that does not start because its pod is held is told so, and so is what it was made from.
    fn tell_machine_of(&mut self, id: PodId, pod: &str, (reason, message): &Text) {
        let is_held = matches!(self.accounts.stage(id), Stage::Waiting(_) | Stage::Stuck(_));
        let Some(record) =
            self.cluster.pods.get(id).filter(|record| is_held && self.cluster.is_launcher(record))
        else {
            return;
        };
        let Some(owner) = self.cluster.claimed_owner(record) else { return };
        let Some((name, made_from)) = self.cluster.machines.names(&owner) else { return };
        let message = fit(&[format!("its pod {pod} is held: {message}")], MOST_BYTES, "");
        let about = [
            Some((Regarding::Machine, name, owner.uid)),
            made_from.map(|vm| (Regarding::VirtualMachine, vm.name, vm.uid)),
        ];
        for (regarding, name, uid) in about.into_iter().flatten() {
            let (namespace, message) = (Arc::clone(&owner.namespace), message.clone());
            self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
        }
    }

    /// An event was written, or could not be.
    pub(super) fn on_event_written(&mut self, event: &GateEvent, is_written: bool, now: Moment) {
        self.events.end_request();
        let Regarding::Pod(id) = event.regarding else {
            return self.events.on_announcement(event, is_written, now);
        };
        let Some(record) = self.cluster.pods.get(id).filter(|record| record.uid == event.uid) else { return };
        self.events.on_pod_event(record.namespace, id, is_written, &self.cluster.namespaces, now);
    }

    /// The configuration has an effect that its author should know of.
    pub(crate) fn announce_configuration(&mut self, name: &str, uid: Uid, message: String) {
        let (regarding, reason) = (Regarding::Configuration, reasons::NO_LONGER_TARGETED);
        let (namespace, name) = (Arc::from(""), name.into());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }

    /// What an event about the pod says as things are: the short form of its explanation.
    fn text_about(&self, id: PodId) -> Option<Text> {
        if let Stage::Waiting(class) = self.accounts.stage(id) {
            // Not looked at yet: what is in its way now may be gone when it is.
            self.accounts.queue().class(*class)?.reason()?;
        }
        let most = MOST_BYTES - if self.accounts.is_late_target(id) { TARGET_HELD_BYTES } else { 0 };
        self.pod_explanation(id)?.event(most)
    }
}
