//! What a process knows of the cluster, as the events of its watches tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use sluice_runtime::watch::{Event, WatchHealth};
use tokio::sync::watch as signal;
use tokio::time::timeout;

use crate::cluster::{Cluster, Kind};
use crate::grants::{BudgetWires, GrantNames};
use crate::kinds::vmi::VmiWire;
use crate::kinds::vmim::VmimWire;
use crate::store::{Affected, Watched as _};

/// What changed since it was last asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Namespaces in which something changed.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Something changed that may matter everywhere: a policy, or what KubeVirt is.
    pub all: bool,
}

/// The index, the health of the watches that feed it, and a signal for every change.
pub struct Observed {
    index: RwLock<Cluster>,
    changes: signal::Sender<u64>,
    dirty: Option<Mutex<Dirty>>,
    watches: Vec<WatchHealth>,
    first: Witness,
}

/// Sees each change before anybody else does.
type Witness = Box<dyn Fn(&Cluster, &[Affected]) + Send + Sync>;

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").field("watches", &self.watches).finish_non_exhaustive()
    }
}

impl Observed {
    /// Nothing is known yet. `watches`: of every kind whose events [`Self::apply`] is going to be given. `remember_dirty`:
    /// the caller is going to ask for what changed.
    #[must_use]
    pub fn new(watches: Vec<WatchHealth>, remember_dirty: bool) -> Arc<Self> {
        Self::shown_first_to(|_, _| (), watches, remember_dirty)
    }

    /// As [`Self::new`]. `first` is shown each change before anybody else can see it; events and readers wait meanwhile.
    #[must_use]
    pub fn shown_first_to(
        first: impl Fn(&Cluster, &[Affected]) + Send + Sync + 'static,
        watches: Vec<WatchHealth>,
        remember_dirty: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            index: RwLock::default(),
            changes: signal::Sender::new(0),
            dirty: remember_dirty.then(Mutex::default),
            watches,
            first: Box::new(first),
        })
    }

    /// Whether everything that a target is judged by was listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.watches.iter().all(WatchHealth::is_synced)
    }

    /// Waits until everything was listed once.
    pub async fn synced(&self) {
        for watch in &self.watches {
            watch.synced().await;
        }
    }

    /// Looks at what is known. Events wait meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&Cluster) -> T) -> T {
        look(&self.index.read())
    }

    /// A number that grows with every change.
    #[must_use]
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What changed since the last call.
    #[must_use]
    pub fn take_dirty(&self) -> Dirty {
        self.dirty.as_ref().map(|dirty| std::mem::take(&mut *dirty.lock())).unwrap_or_default()
    }

    /// Waits until `look` finds something, in at most `time`.
    pub async fn until<T>(&self, time: Duration, look: impl Fn(&Cluster) -> Option<T>) -> Option<T> {
        let mut changes = self.changes();
        let found = async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = self.read(&look) {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(time, found).await.ok().flatten()
    }

    /// Takes in what was read beside the watches, as far as it is newer.
    pub fn learn(&self, namespace: &str, budget: &BudgetWires) {
        let mut index = self.index.write();
        let is_it = |meta: &ObjectMeta, name: &str| meta.name.as_deref() == Some(name);
        let GrantNames { vmmrqs, policies } = &budget.asked;
        for name in vmmrqs {
            if !budget.vmmrqs.iter().any(|wire| is_it(&wire.metadata, name)) {
                index.vmmrqs.remove_named(namespace, name);
            }
        }
        for name in policies {
            if !budget.policies.iter().any(|wire| is_it(&wire.metadata, name)) {
                index.policies.remove_named("", name);
            }
        }
        for vmmrq in &budget.vmmrqs {
            index.vmmrqs.upsert_answered(vmmrq);
        }
        for policy in &budget.policies {
            index.policies.upsert_answered(policy);
        }
        if let Some(namespace) = &budget.namespace {
            index.namespaces.upsert_answered(namespace);
        }
    }

    /// As [`Self::learn`], of the machines and migrations of a namespace.
    pub fn learn_machines(&self, machines: &[VmiWire], migrations: &[VmimWire]) {
        let mut index = self.index.write();
        machines.iter().for_each(|machine| _ = index.vmis.upsert_answered(machine));
        migrations.iter().for_each(|migration| _ = index.vmims.upsert_answered(migration));
    }

    /// Applies an event of the watch of this kind. Events of one kind have to come in their order.
    pub fn apply<K: Kind>(&self, event: &Event<K>) {
        let concerns = |wire: &K| K::records(&self.index.read()).concerns(wire);
        if let Event::InitApply(wire) | Event::Apply(wire) | Event::Delete(wire) = event
            && !concerns(wire)
        {
            return;
        }
        let mut index = self.index.write();
        let changed = K::records_mut(&mut index).apply(event);
        // Also when nothing is missing at the end of a list: callers that wait for the first one have to look again.
        if changed.is_empty() && !matches!(event, Event::InitDone) {
            return;
        }
        let affected: Vec<_> = changed.iter().map(K::Records::affects).collect();
        (self.first)(&index, &affected);
        drop(index);
        self.remember(affected);
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn remember(&self, affected: Vec<Affected>) {
        let Some(dirty) = &self.dirty else { return };
        let mut dirty = dirty.lock();
        for each in affected {
            match each {
                Affected::Namespace(namespace) => _ = dirty.namespaces.insert(namespace),
                Affected::Everywhere => dirty.all = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::headroom_policy::HeadroomPolicyWire;
    use crate::kinds::limit_range::LimitRangeWire;
    use crate::kinds::pod::PodWire;
    use crate::kinds::vmmrq::VmmrqWire;

    fn object<W: serde::de::DeserializeOwned>(version: &str, labels: &Value) -> W {
        let metadata = json!({"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": version, "labels": labels});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// Whether there was a signal, in which namespaces something changed, and whether everywhere.
    fn told(observed: &Observed, changes: &mut signal::Receiver<u64>) -> (bool, Vec<Arc<str>>, bool) {
        let Dirty { namespaces, all } = observed.take_dirty();
        let signalled = changes.has_changed().unwrap();
        changes.mark_unchanged();
        (signalled, namespaces.into_iter().collect(), all)
    }

    #[test]
    fn of_all_pods_only_those_of_machines_are_changes_until_they_are_none_any_more() {
        let observed = Observed::new(Vec::new(), true);
        let mut changes = observed.changes();
        let (job, none) = (json!({"kubevirt.io/migrationJobUID": "m"}), json!({"app": "web"}));
        for (version, labels, is_change) in [("1", &none, false), ("2", &job, true), ("3", &none, true)] {
            observed.apply::<PodWire>(&Event::Apply(object(version, labels)));
            let namespaces = if is_change { vec!["shop".into()] } else { Vec::new() };
            assert_eq!(told(&observed, &mut changes), (is_change, namespaces, false), "version {version}");
        }
        assert_eq!(observed.read(|index| index.launchers.in_namespace("shop").len()), 0);
        observed.apply::<PodWire>(&Event::Delete(object("4", &none)));
        assert_eq!(told(&observed, &mut changes), (false, Vec::new(), false));
    }

    #[test]
    fn of_the_grants_that_were_asked_for_what_is_not_found_is_gone_and_later_ones_stay() {
        let observed = Observed::new(Vec::new(), false);
        let vmmrq = |name: &str| -> VmmrqWire {
            let metadata = json!({"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1"});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let asked = GrantNames { vmmrqs: vec!["old".into(), "kept".into()], policies: Vec::new() };
        for name in ["old", "kept", "new"] {
            observed.apply(&Event::Apply(vmmrq(name)));
        }
        let (vmmrqs, policies) = (vec![vmmrq("kept")], Vec::new());
        observed.learn("shop", &BudgetWires { asked, vmmrqs, policies, namespace: None });
        assert_eq!(observed.read(|index| index.grant_names("shop").vmmrqs), ["kept".into(), "new".into()]);
    }

    #[test]
    fn a_change_is_told_where_it_matters_and_the_end_of_a_list_always() {
        let observed = Observed::new(Vec::new(), true);
        let mut changes = observed.changes();
        observed.apply::<LimitRangeWire>(&Event::Apply(object("1", &json!({}))));
        assert_eq!(told(&observed, &mut changes), (true, vec!["shop".into()], false));
        observed.apply::<LimitRangeWire>(&Event::Apply(object("1", &json!({}))));
        assert_eq!(told(&observed, &mut changes), (false, Vec::new(), false), "it is the same version");
        observed.apply::<HeadroomPolicyWire>(&Event::Apply(object("1", &json!({}))));
        assert_eq!(told(&observed, &mut changes), (true, Vec::new(), true));
        observed.apply::<PodWire>(&Event::Init);
        assert_eq!(told(&observed, &mut changes), (false, Vec::new(), false));
        observed.apply::<PodWire>(&Event::InitDone);
        assert_eq!(told(&observed, &mut changes), (true, Vec::new(), false));
    }
}
