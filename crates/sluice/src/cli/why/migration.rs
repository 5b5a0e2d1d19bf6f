//! Why a migration does not go: its target waits at the gate, or a native quota has no room for it.

use kube::Api;
use serde_json::json;
use sluice_engine::headroom::{Plan, Refusal, plan, sentence};
use sluice_gate::Subject;
use sluice_index::{
    Cluster, HeadroomPolicyWire, NamespaceWire, ResourceQuotaWire, VmimRecord, VmmrqWire, Watched as _,
};

use super::answer::Answer;
use crate::cli::cluster::Connection;
use crate::cli::lists::{Lists, Where};
use crate::cli::world::World;

/// A word for programs, and a sentence.
type Told = (&'static str, String);

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
    let (reason, message) = told(&cluster, namespace, name, &migration.machine, world.now);
    answer.is_held = !matches!(reason, "HeadroomAvailable" | "PendingEvaluation");
    answer.lines.push(format!("{name}: {message}."));
    answer.headroom = Some(json!({ "reason": reason, "message": message }));
    Ok(())
}

/// What head-room decides from, as far as it may be read.
pub(in crate::cli) async fn cluster(
    lists: &mut Lists<'_>,
    world: &World,
    namespace: &str,
) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster::default();
    let place = Where::Namespace(namespace);
    for quota in lists.all::<ResourceQuotaWire>(place).await?.unwrap_or_default() {
        cluster.resource_quotas.upsert(&quota);
    }
    for quota in lists.all::<VmmrqWire>(place).await?.unwrap_or_default() {
        cluster.vmmrqs.upsert(&quota);
    }
    for policy in lists.all_of_cluster::<HeadroomPolicyWire>().await?.unwrap_or_default() {
        cluster.policies.upsert(&policy);
    }
    let namespaces = Api::<NamespaceWire>::all(lists.connection.client.clone());
    if let Some(wire) = lists.get(&namespaces, "namespaces", namespace).await? {
        cluster.namespaces.upsert(&wire);
    }
    for wire in &world.kubevirts {
        cluster.kubevirts.upsert(wire);
    }
    for wire in &world.machines {
        cluster.vmis.upsert(wire);
    }
    for wire in &world.pods {
        cluster.launchers.upsert(wire);
    }
    for wire in &world.migrations {
        cluster.vmims.upsert(wire);
    }
    Ok(cluster)
}

/// What head-room has for the next launcher of a VM.
fn told(cluster: &Cluster, namespace: &str, migration: &str, vm: &str, now: i64) -> Told {
    let need = cluster.vmis.get(namespace, vm).and_then(|machine| cluster.next_need(machine, now));
    let Some(need) = need else {
        let why = format!(
            "what the next pod of VM {vm} takes is not known: it does not run, or KubeVirt cannot be read"
        );
        return ("PendingEvaluation", why);
    };
    of_plan(plan(&need, &cluster.quotas_in(namespace), &cluster.budget(namespace, now)), migration, vm)
}

pub(in crate::cli) fn of_plan(plan: Plan, migration: &str, vm: &str) -> Told {
    match plan {
        Plan::Fits { .. } => {
            ("HeadroomAvailable", format!("the quotas have room for the next pod of VM {vm}"))
        }
        Plan::Raise(raises) => {
            let quotas: Vec<&str> = raises.iter().map(|raise| &*raise.quota).collect();
            let message = format!(
                "head-room is granted: quotas {} are raised for the next pod of VM {vm} when KubeVirt creates it",
                quotas.join(", ")
            );
            ("HeadroomAvailable", message)
        }
        Plan::NotEnough(shortages) => {
            let message = format!(
                "waits for head-room, VM {vm} keeps running: {}",
                sentence(migration, vm, &shortages)
            );
            ("HeadroomExhausted", message)
        }
        Plan::Refused(refusals) => {
            let is_opted_out = refusals.iter().any(|why| matches!(why, Refusal::OptedOut { .. }));
            let reason = if is_opted_out { "HeadroomOptedOut" } else { "HeadroomRefused" };
            let why: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            (reason, format!("gets no head-room, VM {vm} keeps running: {}", why.join("; ")))
        }
    }
}
