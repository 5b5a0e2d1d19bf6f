//! Events about pods that are held, and about VMs and migrations that wait for them.

use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::{NamespaceId, VmiRecord};

use super::Reporter;
use crate::action::{GateEvent, Regarding, Release};
use crate::config::Moment;
use crate::explain::words::{MOST_BYTES, fit};
use crate::messages::{Text, reasons};
use crate::stage::Stage;
use crate::view::View;

impl Reporter {
    /// The pod has its turn: the event about it, if one is to be written now. Whose migration or VM it is hears of it too.
    pub(super) fn tell_of_pod(
        &mut self,
        view: View<'_>,
        namespace: NamespaceId,
        id: PodId,
        now: Moment,
    ) -> Option<GateEvent> {
        let text = view.event_about(id);
        // A pod that waits and has no reason was not looked at yet.
        let is_open =
            matches!(view.accounts.stage(id), Stage::Waiting(_)) && !view.accounts.has_pause(namespace);
        let text = text.filter(|_| view.cluster.namespaces.get(namespace).is_some());
        let is_written = self.events.write_about(namespace, id, text.as_ref(), is_open, now);
        let text = text.filter(|_| is_written)?;
        let Release { namespace, name, uid, .. } = view.cluster.address(id)?;
        self.tell_migration(view, id, &namespace, &text);
        self.tell_machine_of(view, id, &name, &text);
        let (reason, message) = text;
        Some(GateEvent { regarding: Regarding::Pod(id), namespace, name: name.into(), uid, reason, message })
    }

    /// The migration is told what its target is, if that is late.
    fn tell_migration(&mut self, view: View<'_>, id: PodId, namespace: &Arc<str>, (reason, message): &Text) {
        if *reason != reasons::TARGET_HELD {
            return;
        }
        let Some(uid) = view.accounts.migration_of(id) else { return };
        let Some(migration) = view.cluster.migrations.get(namespace, uid) else { return };
        let (name, uid) = (Arc::clone(&migration.name), uid.clone());
        let (regarding, namespace, message) = (Regarding::Migration, Arc::clone(namespace), message.clone());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }

    /// The VM that does not start because its pod is held is told so, and so is what it was made from.
    fn tell_machine_of(&mut self, view: View<'_>, id: PodId, pod: &str, (reason, message): &Text) {
        let is_held = matches!(view.accounts.stage(id), Stage::Waiting(_) | Stage::Stuck(_));
        let Some(record) =
            view.cluster.pods.get(id).filter(|record| is_held && view.cluster.is_launcher(record))
        else {
            return;
        };
        let Some(owner) = view.cluster.claimed_owner(record) else { return };
        let Some((name, made_from)) = view.cluster.machines.names(&owner) else { return };
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

    /// The VM is not to have more.
    pub fn tell_machine(&mut self, vmi: &VmiRecord, words: &str) {
        self.events.announce(GateEvent {
            regarding: Regarding::Machine,
            namespace: Arc::clone(&vmi.namespace),
            name: Arc::clone(&vmi.name),
            uid: vmi.uid.clone(),
            reason: reasons::EXCEEDED,
            message: format!("not given more CPUs or memory: {words}"),
        });
    }
}
