//! `sluice why`: why a pod, a VM, a migration or a quota waits.

pub(in crate::cli) mod answer;
pub(in crate::cli) mod kind;
mod live;
pub(in crate::cli) mod migration;
mod say;
mod workload;

use std::process::ExitCode;

use clap_complete::engine::ArgValueCompleter;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use sluice_gate::{Subject, Topic};
use sluice_index::PodWire;

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
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
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
    // Whoever names no namespace means all that a cluster quota is about. The leader tells nobody of more than one.
    let is_of_all = kind == Kind::ClusterQuota
        && args.cluster.namespace.is_none()
        && Lists::new(&connection).may_list_everywhere::<PodWire>().await?;
    let why_not = match args.recompute || is_of_all {
        true => None,
        false => match live::ask(&connection, kind, name).await? {
            Ok(live) => {
                live.said().print(args.output.output)?;
                return Ok(live.exit().into());
            }
            Err(why) => why,
        },
    };
    let world = match is_of_all {
        true => World::everywhere(&connection).await?,
        false => World::of_namespace(&connection, &connection.namespace).await?,
    };
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
            if world.is_of_all {
                answer.explain(world, Subject::ClusterQuota { name });
            } else {
                answer.take(world.look(|state| state.tell(namespace, Topic::ClusterQuota(name))));
            }
            if answer.is_empty() && world.cluster_quotas.iter().any(|known| known == name) {
                answer.unknown = Some(format!(
                    "cluster quota {name} is not about namespace {namespace}: name one of its namespaces by -n, or none"
                ));
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
            let kind = GroupVersionKind::gvk(group, version, kind);
            workload::answer(connection, world, &mut answer, (&kind, name)).await?;
        }
    }
    if answer.is_empty() && answer.unknown.is_none() {
        answer.unknown = Some(not_found(world, kind, name, namespace));
    }
    Ok(answer)
}

/// What is said of an object that nothing is known of.
fn not_found(world: &World, kind: Kind, name: &str, namespace: &str) -> String {
    let near = match kind {
        Kind::Pod => nearest(name, names_of(&world.pods)),
        Kind::Quota => nearest(name, names_of(&world.quotas)),
        Kind::ClusterQuota => nearest(name, world.cluster_quotas.iter().map(String::as_str)),
        Kind::Vm | Kind::Vmi => nearest(name, names_of(&world.machines)),
        Kind::Migration => nearest(name, names_of(&world.migrations)),
        Kind::Workload(..) => Vec::new(),
    };
    let place = match kind {
        Kind::ClusterQuota => String::new(),
        _ => format!(" in namespace {namespace}"),
    };
    match world.knows_pods {
        true => format!("{name} not found{place}{}", hint(&near)),
        false => format!("{name}{place} is not known: rights are missing"),
    }
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
    let what = format!("virtualmachines.kubevirt.io {name} in namespace {}", connection.namespace);
    let mut lists = Lists::new(connection);
    if let Some(vm) = lists.get(&api, &what, name).await? {
        let status =
            vm.data.pointer("/status/printableStatus").and_then(Value::as_str).unwrap_or("not known");
        answer.lines.push(format!(
            "{name} has no VirtualMachineInstance: nothing of it waits for quota. Its status is {status}."
        ));
    }
    answer.missing.extend(lists.missing());
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
