//! Answers of a namespace as it was understood last: what `sluice why` answers, and what more a page shows of it.

use sluice_dashboard::{Answer, Asked, Link, QuotaTold, SubjectKind, Told};
use sluice_engine::QuotaKind;
use sluice_gate::{Explanation, PodExplanation, QuotaName, Subject, Verdict, plain};
use sluice_index::VmimRecord;

use crate::cli::cluster::Connection;
use crate::cli::why::answer::Answer as Whys;
use crate::cli::why::{self, Kind};
use crate::cli::world::World;

/// So many pods that wait are shown of a quota: each is placed among all others.
const QUEUED: usize = 100;
/// So many pods and VMs are shown that take something.
const TAKERS: usize = 40;

pub async fn answer(connection: &Connection, world: &World, missing: &[String], asked: &Asked) -> Answer {
    match asked {
        Asked::Quota { namespace, name } => Answer::Quota(Box::new(QuotaTold {
            missing: joined(world, missing),
            ..quota(world, namespace, name)
        })),
        Asked::Why { kind, name, .. } => {
            let kind = match kind {
                SubjectKind::Pod => Kind::Pod,
                SubjectKind::Vm => Kind::Vm,
                SubjectKind::Migration => Kind::Migration,
            };
            match why::answer(connection, world, kind, name).await {
                Ok(whys) => {
                    let mut told = told(world, kind, name, whys);
                    told.missing.extend(joined(world, missing));
                    Answer::Why(told)
                }
                Err(error) => Answer::Failed(plain(&format!("{error:#}"))),
            }
        }
    }
}

fn joined(world: &World, missing: &[String]) -> Vec<String> {
    world.missing.iter().chain(missing).cloned().collect()
}

fn quota(world: &World, namespace: &str, name: &str) -> QuotaTold {
    let own = QuotaName { kind: QuotaKind::Namespace, name: name.into() };
    world.look(|state| {
        let held = state.held_pods();
        let waits = |pod: &&PodExplanation| match &pod.verdict {
            Verdict::NoRoom(obstacles) => obstacles.iter().any(|it| it.quota == own),
            _ => pod.quotas.contains(&own),
        };
        let waiting: Vec<&PodExplanation> = held.iter().filter(waits).collect();
        let placed = waiting.iter().take(QUEUED).map(|pod| {
            match state.explain(Subject::Pod { namespace, name: &pod.name }) {
                Some(Explanation::Pod(placed)) => placed,
                _ => (*pod).clone(),
            }
        });
        let mut queue: Vec<PodExplanation> = placed.collect();
        queue.sort_by_key(|pod| (pod.wait.as_ref().map_or(usize::MAX, |wait| wait.place), pod.since));
        let (takers, others) = state.takers_of_quota(namespace, name, TAKERS);
        QuotaTold {
            explanation: state.explain(Subject::Quota { namespace, name }),
            takers: takers.into_iter().map(|taker| (taker.name, taker.amount)).collect(),
            others,
            waiting: waiting.len(),
            queue,
            assumed: world.assumed.clone(),
            ..QuotaTold::default()
        }
    })
}

fn told(world: &World, kind: Kind, name: &str, whys: Whys) -> Told {
    Told {
        chain: chain(world, kind, name, &whys),
        lines: whys.lines,
        explanations: whys.explanations,
        unknown: whys.unknown,
        assumed: world.assumed.clone(),
        missing: whys.missing,
    }
}

/// From the subject over its VM and its pod to the quotas.
fn chain(world: &World, kind: Kind, name: &str, whys: &Whys) -> Vec<Link> {
    let mut chain = Vec::new();
    let pods = || {
        whys.explanations.iter().filter_map(|explanation| match explanation {
            Explanation::Pod(pod) => Some(pod),
            Explanation::Quota(_) => None,
        })
    };
    let pod = pods().find(|pod| pod.verdict.is_held()).or_else(|| pods().next());
    if whys.unknown.is_some() {
        return chain;
    }
    let machine = match kind {
        Kind::Migration => {
            let wire = world.migrations.iter().find(|known| known.metadata.name.as_deref() == Some(name));
            wire.map(|wire| {
                let record = VmimRecord::read(wire);
                let state = wire.status.phase.clone().unwrap_or_else(|| "Pending".to_owned());
                let is_held = whys.is_held || pod.is_some_and(|pod| pod.verdict.is_held());
                chain.push(Link { what: "migration", name: name.to_owned(), state, is_held });
                record.machine.to_string()
            })
        }
        Kind::Pod => pod.and_then(|pod| machine_of(world, &pod.name)),
        _ => Some(name.to_owned()),
    };
    chain.extend(machine.map(|machine| machine_link(world, machine)));
    if let Some(pod) = pod {
        chain.extend(pod_links(pod));
    }
    chain
}

/// The VirtualMachineInstance that controls a pod.
fn machine_of(world: &World, pod: &str) -> Option<String> {
    let pod = world.pods.iter().find(|known| known.metadata.name.as_deref() == Some(pod))?;
    let owner =
        pod.metadata.owner_references.iter().flatten().find(|it| it.kind == "VirtualMachineInstance")?;
    Some(owner.name.clone())
}

fn machine_link(world: &World, machine: String) -> Link {
    let known = world.machines.iter().find(|known| known.metadata.name.as_deref() == Some(&machine));
    let state = match known {
        Some(known) => known.status.phase.clone().unwrap_or_else(|| "no phase yet".to_owned()),
        None => "no instance".to_owned(),
    };
    Link { what: "VM", name: machine, state, is_held: false }
}

fn pod_links(pod: &PodExplanation) -> Vec<Link> {
    let is_held = pod.verdict.is_held();
    let state = pod.verdict.reason().to_owned();
    let mut links = vec![Link { what: "pod", name: pod.name.to_string(), state, is_held }];
    match &pod.verdict {
        Verdict::NoRoom(obstacles) => links.extend(obstacles.iter().map(|obstacle| Link {
            what: "quota",
            name: obstacle.quota.for_people(),
            state: obstacle.reason().to_owned(),
            is_held: true,
        })),
        _ => links.extend(pod.quotas.iter().map(|quota| Link {
            what: "quota",
            name: quota.for_people(),
            state: "counts it".to_owned(),
            is_held: false,
        })),
    }
    links
}
