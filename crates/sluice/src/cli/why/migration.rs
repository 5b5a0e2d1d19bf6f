//! Why a migration does not go: its target waits at the gate, or a native quota has no room for it.

use serde_json::json;
use sluice_gate::Subject;
use sluice_index::{Cluster, LauncherRecord, VmimRecord};

use super::answer::Answer;
use crate::cli::cluster::Connection;
use crate::cli::headroom::{Told, Verdict, cluster, unproven};
use crate::cli::lists::Lists;
use crate::cli::world::World;

pub(super) async fn answer(
    connection: &Connection,
    world: &World,
    answer: &mut Answer,
    name: &str,
) -> anyhow::Result<()> {
    let namespace = connection.namespace.as_str();
    let Some(wire) = world.migrations.iter().find(|known| known.metadata.name.as_deref() == Some(name))
    else {
        return Ok(());
    };
    let migration = VmimRecord::read(wire);
    let uid = wire.metadata.uid.as_deref().unwrap_or_default();
    let is_target = |pod: &&sluice_index::PodWire| {
        let labels = pod.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(sluice_api::names::MIGRATION_JOB_LABEL))
            .is_some_and(|of| of == uid)
    };
    if let Some(target) = world.pods.iter().find(is_target) {
        let pod = target.metadata.name.as_deref().unwrap_or_default();
        answer.lines.push(format!("{name} moves VM {}: its target pod is {pod}.", migration.machine));
        answer.explain(world, Subject::Pod { namespace, name: pod });
        return Ok(());
    }
    let mut lists = Lists::new(connection);
    let cluster = cluster(&mut lists, world, namespace).await?;
    answer.missing.extend(lists.missing());
    let (reason, message) = told(&cluster, world, namespace, (name, &migration.machine));
    answer.is_held = !matches!(reason, "HeadroomAvailable" | "PendingEvaluation");
    answer.lines.push(format!("{name}: {message}."));
    answer.headroom = Some(json!({ "reason": reason, "message": message }));
    Ok(())
}

/// What head-room has for the next launcher of a VM.
fn told(cluster: &Cluster, world: &World, namespace: &str, (migration, vm): (&str, &str)) -> Told {
    let need = cluster.vmis.get(namespace, vm).and_then(|machine| cluster.next_need(machine, world.now));
    let Some(need) = need else {
        let why = format!(
            "what the next pod of VM {vm} takes is not known: it does not run, or KubeVirt cannot be read"
        );
        return ("PendingEvaluation", why);
    };
    let live: Vec<LauncherRecord> = world.pods.iter().map(LauncherRecord::read).collect();
    let live = world.knows_pods.then_some(&live[..]);
    let unproven = unproven(cluster, world.headroom.as_ref(), namespace);
    Verdict::of(cluster, (namespace, &need), live, unproven.as_deref(), world.now).told(migration, vm)
}
