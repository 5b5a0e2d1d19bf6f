//! What a drain is judged by, read with the rights of the user.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList};
use serde_json::Value;
use sluice_engine::headroom::NativeQuota;
use sluice_engine::{Amount, Resource};
use sluice_gate::State;
use sluice_index::QuotaScope;

use super::predicted::{Machine, Observed, Own};
use crate::cli::cluster::Connection;
use crate::cli::headroom::{learn, learn_sharers, unproven};
use crate::cli::lists::{ListError, Lists, right};
use crate::cli::nearest::nearest;
use crate::cli::world::World;

/// The VMs of a node and what their quotas depend on, and the rights that were missing.
pub(super) async fn observe(connection: &Connection, node: &str) -> anyhow::Result<(Observed, Vec<String>)> {
    let (mut lists, mut missing) = (Lists::new(connection), BTreeSet::new());
    let machines = on_node(&mut lists, node).await?;
    let namespaces: BTreeSet<&str> = machines.iter().map(|machine| &*machine.namespace).collect();
    let mut observed = Observed { now: connection.now(), ..Observed::default() };
    let mut told = None;
    for namespace in &namespaces {
        let world = World::of_namespace(connection, namespace).await?;
        observed.quotas.extend(learn(&mut observed.cluster, &mut lists, &world, namespace).await?);
        missing.extend(world.missing.iter().cloned());
        let own = world.look(|state| own(state, namespace));
        if let Some(own) = own {
            if world.counts_machines {
                observed.counting_machines.insert((*namespace).to_owned());
            } else {
                observed.own.insert((*namespace).to_owned(), own);
            }
        }
        observed.pods.extend(world.pods);
        told = world.headroom;
    }
    observed.quotas.extend(learn_sharers(&mut observed.cluster, &mut lists, &namespaces).await?);
    for namespace in &namespaces {
        if let Some(why) = unproven(&observed.cluster, told.as_ref(), namespace) {
            observed.unproven.insert((*namespace).to_owned(), why);
        }
    }
    missing.extend(lists.missing());
    observed.machines = machines;
    Ok((observed, missing.into_iter().collect()))
}

/// Sluice's quotas about a namespace, with what is taken of them; `None`: it is not targeted.
fn own(state: &State, namespace: &str) -> Option<Vec<Own>> {
    let (_, namespaces, quotas) = state.index();
    let id = namespaces.id(namespace)?;
    namespaces.is_targeted(id).filter(|targeted| *targeted)?;
    let about = namespaces.get(id)?.quotas().iter();
    let own = about.filter_map(|id| {
        let (record, ledger) = (quotas.get(*id)?, state.queue().ledger(*id)?);
        let compiled = record.compiled.as_ref().ok()?;
        let name = match record.scope {
            QuotaScope::Namespace(_) => Arc::clone(&record.name),
            QuotaScope::Cluster(_) => format!("cluster {}", record.name).into(),
        };
        let mut quota = NativeQuota::new(name, record.uid.clone());
        quota.scopes = compiled.scopes.clone();
        for entry in &compiled.entries {
            let line = ledger.line(&Resource::from_quota_key(&entry.key));
            let used = line.map_or(Amount::ZERO, |line| line.used());
            quota.spec_hard.insert(Arc::clone(&entry.key), entry.hard);
            quota.status_hard.insert(Arc::clone(&entry.key), entry.hard);
            quota.used.insert(Arc::clone(&entry.key), used.quantity(entry.hard.format()));
        }
        Some(Arc::new(quota))
    });
    Some(own.collect())
}

/// Whether there is such a node, else those with near names; and the rights that were missing.
pub(super) async fn knows_node(
    connection: &Connection,
    node: &str,
) -> Result<(Result<(), Vec<String>>, Vec<String>), ListError> {
    let mut lists = Lists::new(connection);
    let api = Api::<Node>::all(connection.client.clone());
    let is_there = lists.get(&api, &format!("nodes {node}"), node).await?.is_some();
    if is_there || !lists.missing().is_empty() {
        return Ok((Ok(()), lists.missing()));
    }
    let nodes = lists.all_of_cluster::<Node>().await?.unwrap_or_default();
    let names = nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    Ok((Err(nearest(node, names)), Vec::new()))
}

/// The VMs that run on a node.
async fn on_node(lists: &mut Lists<'_>, node: &str) -> Result<Vec<Machine>, ListError> {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"));
    let api: Api<DynamicObject> = Api::all_with(lists.connection.client.clone(), &resource);
    let api = &api;
    // Of VMs of other nodes nothing is kept.
    let page = |page: ListParams| async move {
        let list = api.list(&page).await?;
        let items = list.items.iter().filter_map(|vmi| machine(vmi, node)).collect();
        Ok(ObjectList { types: list.types, metadata: list.metadata, items })
    };
    Ok(lists.pages_of(&right(&resource.group, &resource.plural), page).await?.unwrap_or_default())
}

/// A VM, if it runs on the node.
fn machine(vmi: &DynamicObject, node: &str) -> Option<Machine> {
    vmi.data.pointer("/status/nodeName").and_then(Value::as_str).filter(|name| *name == node)?;
    let conditions = vmi.data.pointer("/status/conditions").and_then(Value::as_array);
    let cannot = conditions.into_iter().flatten().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "LiveMigratable")
            && condition.get("status").is_some_and(|status| status == "False")
    });
    Some(Machine {
        namespace: vmi.metadata.namespace.clone().unwrap_or_default(),
        name: vmi.metadata.name.clone().unwrap_or_default(),
        can_migrate: !cannot,
    })
}
