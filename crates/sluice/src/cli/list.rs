//! `sluice list held`: the pods that wait, and why.

use std::process::ExitCode;

use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use sluice_gate::{Explanation, Lack, PodExplanation, Verdict, duration};

use super::cluster::ClusterArgs;
use super::completion::NamesOf;
use super::printed::{Exit, Format, OutputArgs, print, print_value, table};
use super::world::World;

/// What can be listed.
#[derive(Debug, clap::Subcommand)]
pub enum ListCommand {
    /// The pods that wait behind the gate, the oldest first
    ///
    /// Exit code: 0: none waits; 1: an error; 2: wrong arguments; 3: pods wait; 4: pods may not be listed.
    Held(Box<HeldArgs>),
}

/// Flags of `sluice list held`.
#[derive(Debug, clap::Args)]
pub struct HeldArgs {
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only those that wait for this quota
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(NamesOf::Quotas))]
    quota: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Lists.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(ListCommand::Held(args): ListCommand) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let world = match args.all_namespaces {
        true => World::everywhere(&connection).await?,
        false => World::of_namespace(&connection, &connection.namespace).await?,
    };
    let mut held = world.look(sluice_gate::State::held_pods);
    if let Some(quota) = &args.quota {
        held.retain(|pod| pod.quotas.iter().any(|known| *known.name == **quota));
    }
    let is_held = !held.is_empty();
    match args.output.output {
        Format::Json | Format::Yaml => {
            let items: Vec<_> = held.into_iter().map(|pod| Explanation::Pod(pod).json()).collect();
            let value = json!({
                "apiVersion": "cli.sluice.dev/v1", "kind": "HeldPodList", "items": items, "missingRights": world.missing,
            });
            print_value(&value, args.output.output)?;
        }
        Format::Name => {
            let name = |pod: &PodExplanation| match args.all_namespaces {
                true => format!("{}/{}\n", pod.namespace, pod.name),
                false => format!("pod/{}\n", pod.name),
            };
            print(&held.iter().map(name).collect::<String>())?;
        }
        _ if !is_held && world.knows_pods => {
            eprintln!("no pods wait {}", place(args.all_namespaces, &connection.namespace));
        }
        format => print(&table(&rows(&held, world.now, args.all_namespaces, format == Format::Wide)))?,
    }
    world.tell_what_is_missing();
    let exit = match (world.knows_pods, is_held) {
        (false, _) => Exit::Unknown,
        (true, true) => Exit::Held,
        (true, false) => Exit::Good,
    };
    Ok(exit.into())
}

/// Where was looked, for people.
pub(super) fn place(is_everywhere: bool, namespace: &str) -> String {
    if is_everywhere { "in any namespace".to_owned() } else { format!("in namespace {namespace}") }
}

fn rows(held: &[PodExplanation], now: i64, namespaces: bool, wide: bool) -> Vec<Vec<String>> {
    let head = ["NAMESPACE", "POD", "HELD", "REASON", "QUOTA", "KEY", "SHORT BY", "MESSAGE"];
    let shown = |column: usize| (column > 0 || namespaces) && (column < 7 || wide);
    let chosen = |row: Vec<String>| {
        row.into_iter().enumerate().filter(|(column, _)| shown(*column)).map(|(_, cell)| cell).collect()
    };
    let rows = held.iter().map(|pod| {
        let first = match &pod.verdict {
            Verdict::NoRoom(obstacles) => obstacles.first(),
            _ => None,
        };
        let key = first.and_then(|obstacle| obstacle.keys.first());
        vec![
            pod.namespace.to_string(),
            pod.name.to_string(),
            duration(now - pod.since),
            pod.verdict.reason().to_owned(),
            first.map(|obstacle| obstacle.quota.for_people()).unwrap_or_default(),
            key.map(|key| key.key.to_string()).unwrap_or_default(),
            key.filter(|_| first.is_some_and(|it| it.lack == Lack::Exceeded))
                .map(|key| key.short_by.to_string())
                .unwrap_or_default(),
            pod.verdict.sentence(1024),
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).map(chosen).collect()
}
