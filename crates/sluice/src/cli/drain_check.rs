//! `sluice drain-check`: which VMs of a node can leave it, by their quotas. Room on nodes is the scheduler's.

use std::collections::BTreeMap;
use std::process::ExitCode;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};
use sluice_engine::headroom::{NativeQuota, Need, Plan, plan};
use sluice_engine::{Amount, Resource};
use sluice_index::Cluster;
use sluice_runtime::client::with_deadline;

use super::cluster::{ClusterArgs, Connection};
use super::lists::Lists;
use super::printed::{Exit, Format, OutputArgs, print, print_value, table};
use super::why::migration::{cluster, of_plan};
use super::world::World;

/// Flags of `sluice drain-check`.
#[derive(Debug, clap::Args)]
pub struct DrainCheckArgs {
    /// The node
    node: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What comes of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Row {
    pub namespace: String,
    pub vm: String,
    pub result: &'static str,
    pub message: String,
}

impl Row {
    /// Whether it can leave the node.
    pub fn is_good(&self) -> bool {
        matches!(self.result, NOW | IN_TURN)
    }
}

const NOW: &str = "now";
const IN_TURN: &str = "in turn";
const STUCK: &str = "STUCK";
const NOT_KNOWN: &str = "not known";
const NOT_MIGRATABLE: &str = "not migratable";

/// Tells of each VM of the node.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: DrainCheckArgs) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let (rows, missing) = look(&connection, &args.node).await?;
    say(&rows, &missing, args.output.output)?;
    let exit = rows.iter().map(|row| match row.result {
        NOW | IN_TURN => Exit::Good,
        NOT_KNOWN => Exit::Unknown,
        _ => Exit::Held,
    });
    let exit = if missing.is_empty() { exit.max().unwrap_or(Exit::Good) } else { Exit::Unknown };
    Ok(exit.into())
}

/// What comes of each VM of a node, and the rights that were missing.
pub(in crate::cli) async fn look(
    connection: &Connection,
    node: &str,
) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let mut by_namespace: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for (namespace, vm, can_migrate) in on_node(connection, node).await? {
        by_namespace.entry(namespace).or_default().push((vm, can_migrate));
    }
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for (namespace, machines) in by_namespace {
        let world = World::of_namespace(connection, &namespace).await?;
        let mut lists = Lists::new(connection);
        let cluster = cluster(&mut lists, &world, &namespace).await?;
        missing.extend(world.missing.iter().cloned().chain(lists.missing()));
        rows.extend(of_namespace(&cluster, &namespace, &machines, world.now));
    }
    missing.sort();
    missing.dedup();
    Ok((rows, missing))
}

/// Namespace and name of the VMs that run on a node, and whether KubeVirt can migrate them.
async fn on_node(connection: &Connection, node: &str) -> anyhow::Result<Vec<(String, String, bool)>> {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"));
    let api: Api<DynamicObject> = Api::all_with(connection.client.clone(), &resource);
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(500));
    loop {
        let list = with_deadline(connection.deadline, api.list(&params)).await?;
        let is_here =
            |vmi: &&DynamicObject| vmi.data.pointer("/status/nodeName").and_then(Value::as_str) == Some(node);
        found.extend(list.items.iter().filter(is_here).map(|vmi| {
            let conditions = vmi.data.pointer("/status/conditions").and_then(Value::as_array);
            let cannot = conditions.into_iter().flatten().any(|condition| {
                condition.get("type").is_some_and(|kind| kind == "LiveMigratable")
                    && condition.get("status").is_some_and(|status| status == "False")
            });
            let metadata = &vmi.metadata;
            (
                metadata.namespace.clone().unwrap_or_default(),
                metadata.name.clone().unwrap_or_default(),
                !cannot,
            )
        }));
        params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(found);
        }
    }
}

/// Each VM alone, and then with those before it: what fits alone and not beside others goes in turn.
fn of_namespace(cluster: &Cluster, namespace: &str, machines: &[(String, bool)], now: i64) -> Vec<Row> {
    let (quotas, budget) = (cluster.quotas_in(namespace), cluster.budget(namespace, now));
    let mut beside = quotas.clone();
    let mut rows = Vec::new();
    for (vm, can_migrate) in machines {
        let row = |result, message| Row { namespace: namespace.to_owned(), vm: vm.clone(), result, message };
        if !can_migrate {
            rows.push(row(NOT_MIGRATABLE, "LiveMigratable is False".to_owned()));
            continue;
        }
        let need = cluster.vmis.get(namespace, vm).and_then(|machine| cluster.next_need(machine, now));
        let Some(need) = need else {
            rows.push(row(NOT_KNOWN, "what its next pod takes is not known".to_owned()));
            continue;
        };
        let alone = plan(&need, &quotas, &budget);
        let is_free = |plan: &Plan| matches!(plan, Plan::Fits { .. } | Plan::Raise(_));
        let result = match (is_free(&alone), is_free(&plan(&need, &beside, &budget))) {
            (true, true) => NOW,
            (true, false) => IN_TURN,
            (false, _) => STUCK,
        };
        if result == NOW {
            take(&mut beside, &need);
        }
        rows.push(row(result, of_plan(alone, "of a drain", vm).1));
    }
    rows
}

/// The next pod of a VM is there.
fn take(quotas: &mut [NativeQuota], need: &Need) {
    for quota in quotas.iter_mut().filter(|quota| quota.scopes.matches(&need.facts)) {
        for (key, used) in &mut quota.used {
            if let Some(amount) = need.charge.get(&Resource::from_quota_key(key)) {
                *used = Amount::from(*used).saturating_add(amount).quantity(used.format());
            }
        }
    }
}

fn say(rows: &[Row], missing: &[String], format: Format) -> anyhow::Result<()> {
    let many = |result: &str| rows.iter().filter(|row| row.result == result).count();
    match format {
        Format::Json | Format::Yaml => {
            let items = rows.iter().map(|row| {
                json!({ "namespace": row.namespace, "vm": row.vm, "result": row.result, "message": row.message })
            });
            let value = json!({
                "apiVersion": "cli.sluice.dev/v1", "kind": "DrainCheck", "items": items.collect::<Vec<_>>(),
                "missingRights": missing,
            });
            print_value(&value, format)?;
        }
        Format::Name => {
            let stuck = rows.iter().filter(|row| row.result == STUCK);
            print(&stuck.map(|row| format!("{}/{}\n", row.namespace, row.vm)).collect::<String>())?;
        }
        Format::Table | Format::Wide => {
            let head = ["NAMESPACE", "VM", "RESULT", "WHY"].map(str::to_owned).to_vec();
            let cells = rows.iter().map(|row| {
                vec![row.namespace.clone(), row.vm.clone(), row.result.to_owned(), row.message.clone()]
            });
            let text = table(&std::iter::once(head).chain(cells).collect::<Vec<_>>());
            print(&format!(
                "{} VMs. Native quotas only: room on other nodes is the scheduler's.\n{text}{} now, {} in turn, \
                 {} stuck, {} not known, {} cannot migrate.\n",
                rows.len(),
                many(NOW),
                many(IN_TURN),
                many(STUCK),
                many(NOT_KNOWN),
                many(NOT_MIGRATABLE)
            ))?;
        }
    }
    missing.iter().for_each(|right| eprintln!("missing right: {right}"));
    Ok(())
}
