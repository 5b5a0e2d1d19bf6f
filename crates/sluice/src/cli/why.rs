//! `sluice why`: why a pod, a VM, a migration or a quota waits.

pub(in crate::cli) mod answer;
pub(in crate::cli) mod kind;
mod live;
pub(in crate::cli) mod migration;
mod say;

use std::process::ExitCode;

use clap_complete::engine::ArgValueCompleter;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use sluice_gate::{Subject, Topic};
use sluice_runtime::client::with_deadline;

use super::cluster::{ClusterArgs, Connection};
use super::completion::NamesOf;
use super::lists::Lists;
use super::nearest::{hint, nearest};
use super::printed::OutputArgs;
use super::world::{World, names_of, pods_of_machines};
use crate::explain::machine_summary;
use answer::Answer;
pub(in crate::cli) use kind::Kind;

/// Flags of `sluice why`.
#[derive(Debug, clap::Args)]
pub struct WhyArgs {
    /// TYPE NAME, or TYPE/NAME: pod, vm, vmi, migration, quota, clusterquota; or deployment, statefulset, daemonset,
    /// replicaset, job for their pods
    #[arg(required = true, num_args = 1..=2, value_names = ["TYPE", "NAME"],
        add = ArgValueCompleter::new(NamesOf::Subject))]
    subject: Vec<String>,
    /// Do not ask the controller that leads: recompute the answer from lists of objects
    #[arg(long)]
    recompute: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The arguments say nothing that can be asked about.
#[derive(Debug, thiserror::Error)]
#[error(
    "write TYPE NAME or TYPE/NAME, with one of these types: pod, vm, vmi, migration, quota, clusterquota, deployment, \
    statefulset, daemonset, replicaset, job"
)]
struct WrongSubject;

fn subject(words: &[String]) -> Option<(Kind, &str)> {
    let (kind, name) = match words {
        [both] => both.split_once('/')?,
        [kind, name] => (kind.as_str(), name.as_str()),
        _ => return None,
    };
    Some((Kind::read(kind)?, name)).filter(|_| !name.is_empty() && !name.contains('/'))
}

/// Explains, and prints it.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: WhyArgs) -> anyhow::Result<ExitCode> {
    let Some((kind, name)) = subject(&args.subject) else {
        eprintln!("error: {WrongSubject}");
        return Ok(ExitCode::from(2));
    };
    let connection = args.cluster.connect().await?;
    let why_not = match args.recompute {
        true => None,
        false => match live::ask(&connection, kind, name).await? {
            Ok(live) => {
                live.said().print(args.output.output)?;
                return Ok(live.exit().into());
            }
            Err(why) => why,
        },
    };
    let world = World::of_namespace(&connection, &connection.namespace).await?;
    let answer = answer(&connection, &world, kind, name).await?;
    answer.said(&world, why_not).print(args.output.output)?;
    Ok(answer.exit(&world).into())
}

/// Answers about an object of the connection's namespace.
pub(in crate::cli) async fn answer(
    connection: &Connection,
    world: &World,
    kind: Kind,
    name: &str,
) -> anyhow::Result<Answer> {
    let namespace = connection.namespace.as_str();
    let mut answer = Answer::default();
    match kind {
        Kind::Pod => answer.explain(world, Subject::Pod { namespace, name }),
        Kind::Quota => answer.explain(world, Subject::Quota { namespace, name }),
        Kind::ClusterQuota => {
            answer.take(world.look(|state| state.tell(namespace, Topic::ClusterQuota(name))));
            if answer.is_empty() {
                // It selects other namespaces.
                answer.explain(world, Subject::ClusterQuota { name });
            }
        }
        Kind::Vmi => answer.machine(world, namespace, name),
        Kind::Vm => {
            answer.machine(world, namespace, name);
            if answer.is_empty() {
                vm_alone(connection, &mut answer, name).await?;
            }
        }
        Kind::Migration => migration::answer(connection, world, &mut answer, name).await?,
        Kind::Workload(group, version, kind) => {
            workload(connection, world, &mut answer, (GroupVersionKind::gvk(group, version, kind), name))
                .await?;
        }
    }
    if answer.is_empty() {
        let near = match kind {
            Kind::Pod => nearest(name, names_of(&world.pods)),
            Kind::Quota => nearest(name, names_of(&world.quotas)),
            Kind::ClusterQuota => nearest(name, world.cluster_quotas.iter().map(String::as_str)),
            Kind::Vm | Kind::Vmi => nearest(name, names_of(&world.machines)),
            Kind::Migration => nearest(name, names_of(&world.migrations)),
            Kind::Workload(..) => Vec::new(),
        };
        answer.unknown = Some(format!("{name} not found in namespace {namespace}{}", hint(&near)));
    }
    Ok(answer)
}

impl Answer {
    /// The pods of a VirtualMachineInstance.
    fn machine(&mut self, world: &World, namespace: &str, name: &str) {
        let machine = world.machines.iter().find(|machine| machine.metadata.name.as_deref() == Some(name));
        let Some(uid) = machine.and_then(|machine| machine.metadata.uid.as_deref()) else { return };
        for pod in pods_of_machines(&world.pods).remove(uid).unwrap_or_default() {
            self.explain(world, Subject::Pod { namespace, name: &pod });
        }
        self.lines.extend(machine_summary(name, &self.explanations));
    }
}

/// A VirtualMachine without an instance.
async fn vm_alone(connection: &Connection, answer: &mut Answer, name: &str) -> anyhow::Result<()> {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(connection.client.clone(), &connection.namespace, &resource);
    let mut lists = Lists::new(connection);
    if let Some(vm) = lists.get(&api, &resource.plural, name).await? {
        let status =
            vm.data.pointer("/status/printableStatus").and_then(Value::as_str).unwrap_or("not known");
        answer.lines.push(format!(
            "{name} has no VirtualMachineInstance: nothing of it waits for quota. Its status is {status}."
        ));
    }
    answer.missing.extend(lists.missing());
    Ok(())
}

/// The pods that a controller selects.
async fn workload(
    connection: &Connection,
    world: &World,
    answer: &mut Answer,
    (kind, name): (GroupVersionKind, &str),
) -> anyhow::Result<()> {
    let (client, namespace) = (connection.client.clone(), connection.namespace.as_str());
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut lists = Lists::new(connection);
    let found = lists.get(&api, &resource.plural, name).await?;
    answer.missing.extend(lists.missing());
    let Some(object) = found else { return Ok(()) };
    let labels = object.data.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels =
        labels.into_iter().flatten().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let selector = labels.collect::<Vec<_>>().join(",");
    if selector.is_empty() {
        answer.lines.push(format!("{name} selects no pods by labels."));
        return Ok(());
    }
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(client, namespace);
    let params = ListParams::default().labels(&selector);
    let pods = with_deadline(connection.deadline, pods.list_metadata(&params)).await?;
    let names: Vec<String> = pods.items.iter().map(|pod| pod.name_any()).collect();
    for pod in &names {
        answer.explain(world, Subject::Pod { namespace, name: pod });
    }
    let held = answer.explanations.iter().filter(|explanation| explanation.is_held()).count();
    answer.lines.push(format!("{name} has {} pods, {held} of them wait.", names.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_type_and_a_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |text: &str| subject(&words(text)).map(|(kind, name)| (kind, name.to_owned()));
        assert_eq!(read("pod a"), Some((Kind::Pod, "a".to_owned())));
        assert_eq!(read("PODS/a"), Some((Kind::Pod, "a".to_owned())));
        assert_eq!(read("virtualmachines.kubevirt.io/db"), Some((Kind::Vm, "db".to_owned())));
        assert_eq!(read("deploy web"), Some((Kind::Workload("apps", "v1", "Deployment"), "web".to_owned())));
        for wrong in ["pod", "pod/", "node n", "pod a/b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
