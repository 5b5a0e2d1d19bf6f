//! Targets that are still there although their migration is over and the machine runs elsewhere: they take room that no
//! migration needs, and nothing is raised in their namespace while they are above its quota.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Uid;
use sluice_engine::headroom::Stake;
use sluice_index::Cluster;
use sluice_runtime::events::Report;
use tokio::time::Instant;

use super::metrics::LoopMetrics;
use crate::events;

/// KubeVirt's controller deletes the target of a migration that has failed;
/// a launcher without a guest ends by itself within five minutes.
const TOLD_AFTER: Duration = Duration::from_secs(60);

/// Those that were seen, by uid.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    seen: BTreeMap<Uid, Seen>,
    metrics: LoopMetrics,
}

#[derive(Debug)]
struct Seen {
    namespace: Arc<str>,
    name: Arc<str>,
    since: Instant,
    told: bool,
}

impl Leftovers {
    pub(super) fn new(metrics: LoopMetrics) -> Self {
        Self { seen: BTreeMap::new(), metrics }
    }

    /// Looks at a namespace. `now`: seconds since the epoch.
    pub(super) fn look(&mut self, index: &Cluster, namespace: &Arc<str>, now: i64) {
        let found = leftovers(index, namespace, now);
        self.seen.retain(|uid, seen| seen.namespace != *namespace || found.iter().any(|(it, _)| it == uid));
        for (uid, name) in found {
            let namespace = Arc::clone(namespace);
            let fresh = || Seen { namespace, name, since: Instant::now(), told: false };
            self.seen.entry(uid).or_insert_with(fresh);
        }
    }

    /// What is to be told now, once of each.
    pub(super) fn tell(&mut self) -> Vec<Report> {
        let mut reports = Vec::new();
        let due = |seen: &Seen| seen.since.elapsed() >= TOLD_AFTER;
        let mut lasting = 0;
        for (uid, seen) in self.seen.iter_mut().filter(|(_, seen)| due(seen)) {
            lasting += 1;
            if !std::mem::replace(&mut seen.told, true) {
                reports.push(events::left(&seen.namespace, &seen.name, uid));
            }
        }
        self.metrics.left_targets.set(lasting);
        reports
    }

    /// When there is something to tell although nothing changes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.seen.values().filter(|seen| !seen.told).map(|seen| seen.since + TOLD_AFTER).min()
    }
}

/// The launchers of a namespace that were created for a migration which is over, do not run their machine, and do not end.
fn leftovers(index: &Cluster, namespace: &str, now: i64) -> Vec<(Uid, Arc<str>)> {
    let launchers = index.launchers.in_namespace(namespace);
    let is_over = |uid: &Uid| index.vmims.by_uid(uid).is_none_or(|migration| migration.is_final());
    let over = launchers.iter().filter(|pod| {
        pod.machine.is_some() && pod.counts(now) && pod.migration.as_ref().is_some_and(is_over)
    });
    let mut over = over.peekable();
    if over.peek().is_none() {
        return Vec::new();
    }
    let account = index.account(namespace, None, now);
    let stays = |name: &Arc<str>| {
        account.pods.iter().any(|pod| pod.name == *name && matches!(pod.stake, Stake::Stays))
    };
    over.filter(|pod| stays(&pod.name)).map(|pod| (pod.uid.clone(), Arc::clone(&pod.name))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_index::Watched as _;

    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn meta(name: &str) -> Value {
        json!({ "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1" })
    }

    /// A machine on `node-1`, and a launcher on another node for the migration `move`.
    fn scene() -> Cluster {
        let mut index = Cluster::default();
        index.vmis.upsert(&object(json!({
            "metadata": meta("web"), "status": { "phase": "Running", "nodeName": "node-1" },
        })));
        let mut target = meta("target");
        target["labels"] = json!({ "kubevirt.io/migrationJobUID": "move" });
        target["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web",
            "uid": "web", "controller": true,
        }]);
        index.launchers.upsert(&object(json!({ "metadata": target, "spec": { "nodeName": "node-2" } })));
        index
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_left_for_a_minute_is_told_once() {
        let (mut index, mut leftovers, shop) = (scene(), Leftovers::default(), Arc::from("shop"));
        index.vmims.upsert(&object(json!({ "metadata": meta("move"), "spec": { "vmiName": "web" } })));
        leftovers.look(&index, &shop, 0);
        assert_eq!(leftovers.due(), None, "it is under way");
        index.vmims.remove_named("shop", "move");
        leftovers.look(&index, &shop, 0);
        assert!(leftovers.tell().is_empty(), "KubeVirt's controller is about to delete it");
        tokio::time::advance(TOLD_AFTER).await;
        leftovers.look(&index, &shop, 0);
        let told = leftovers.tell();
        assert_eq!(told.len(), 1);
        assert!(told[0].note.starts_with("pod target was the target of a migration that is over"));
        assert_eq!(
            (leftovers.tell().len(), leftovers.due(), leftovers.metrics.left_targets.get()),
            (0, None, 1)
        );
        index.launchers.remove_named("shop", "target");
        leftovers.look(&index, &shop, 0);
        assert_eq!((leftovers.tell().len(), leftovers.metrics.left_targets.get()), (0, 0));
    }
}
