//! Which containers of `Evaluator`s the controller's pods are to have.

use std::collections::BTreeMap;

use kube::Api;
use sluice_api::{MOST_SIDECARS, names};
use sluice_manifests::{AskedOfPods, NoPlace, OfEvaluator};
use sluice_runtime::watch::{WatchHealth, WatchOptions};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::left_out::LeftOut;
use super::named::{Evaluators, NamedSidecar};
use super::observe::{PATIENCE, Sources, World};
use super::wire::{DefinitionWire, EvaluatorWire};

impl Sources {
    /// Which containers they name. That they cannot be read is told, and keeps nothing else from being made.
    pub(super) async fn follow_evaluators(&self, cancel: &CancellationToken) {
        let crd = WatchOptions::default().fields(format!("metadata.name={}", names::EVALUATOR_DEFINITION));
        let stays = |definition: DefinitionWire| definition.metadata.deletion_timestamp.is_none();
        let (served, named) =
            (WatchHealth::new("customresourcedefinitions"), WatchHealth::new(names::EVALUATORS));
        let unread = async {
            let (mut since, mut told) = (None, None);
            loop {
                let changes = (served.unread_changed(), named.unread_changed());
                let why = [&served, &named].into_iter().find_map(WatchHealth::unread);
                since = why.as_ref().and(since).or_else(|| why.as_ref().map(|_| Instant::now()));
                let due = since.map(|since| since + PATIENCE);
                let lasting = why.filter(|_| due.is_some_and(|due| due <= Instant::now()));
                if lasting != told {
                    told.clone_from(&lasting);
                    self.change(|world| world.evaluators.unread = lasting);
                }
                let due = due.filter(|due| *due > Instant::now());
                tokio::select! {
                    () = changes.0 => {}
                    () = changes.1 => {}
                    () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                }
            }
        };
        tokio::join!(
            self.follow_in(Api::all(self.client.clone()), crd, (stays, &served), cancel, |world, found| {
                world.evaluators.is_served = Some(found.into_values().any(|stays| stays));
            }),
            self.follow_in(
                Api::all(self.client.clone()),
                WatchOptions { absent_is_empty: true, ..WatchOptions::default() },
                (EvaluatorWire::sidecar, &named),
                cancel,
                |world, evaluators| world.evaluators.named = Some(evaluators),
            ),
            cancel.run_until_cancelled(unread),
        );
    }
}

/// Has `asked` name these containers. Returns what is to be told of them; `None` as long as something was not looked for.
///
/// They change only while it is known what `Evaluator`s there are, and the policy is in force by which not everybody who may
/// write one names a container. Otherwise those stay that the pods have: what they count would be counted without them. Pods
/// that one without a container selects wait.
pub(super) fn place(world: &World, left_out: &LeftOut, asked: &mut AskedOfPods) -> Option<Vec<String>> {
    let Evaluators { named, is_served, unread } = &world.evaluators;
    let running = running(world);
    let (eldest_first, mut told) = match (named, is_served, unread) {
        (Some(named), Some(true), None) if world.admission.guards_containers => {
            (wanted(named, left_out), vec![])
        }
        (Some(named), Some(true), None) => {
            let why = format!(
                "{} and its binding are not in force yet: until then containers that Evaluators name stay as they are, and \
                 pods that new ones select wait",
                names::EVALUATOR_POLICY
            );
            let wanted = wanted(named, left_out);
            let is_other = !is_same(&wanted, &running);
            // What such a one selects waits. Nobody's program runs for that.
            let is_new = |it: &OfEvaluator| running.iter().all(|running| running.name() != it.name());
            let new = wanted.into_iter().filter(is_new).map(|it| OfEvaluator { runs: false, ..it }).collect();
            ([running, new].concat(), is_other.then_some(why).into_iter().collect())
        }
        (_, Some(false), _) => {
            let why = format!(
                "the CRD {} is not there, or is being deleted: containers that Evaluators have named stay as they are: \
                 apply the CRDs again, and the Evaluators, or delete the Deployment",
                names::EVALUATOR_DEFINITION
            );
            let is_told = !running.is_empty();
            (running, is_told.then_some(why).into_iter().collect())
        }
        (_, _, Some(why)) => {
            let why = format!(
                "Evaluators cannot be read ({why}): containers that they name stay as they are: apply the manifest or \
                 the chart again, with its rights"
            );
            (running, vec![why])
        }
        (_, _, None) => return None,
    };
    let NoPlace { too_many, too_large } = asked.find_places(eldest_first);
    told.extend(too_many.iter().map(|name| {
        format!(
            "the container of the Evaluator {name} does not run, and nothing is held for it: at most {MOST_SIDECARS} run, \
             those of the AAQ first: delete one, or set its mode to Off"
        )
    }));
    told.extend(too_large.iter().map(|name| {
        format!(
            "the container of the Evaluator {name} is left out, and pods that it selects wait: with it the Deployment would \
             be larger than an object may be: give it shorter args and env, or delete it"
        )
    }));
    let reasons = asked.of_evaluators.iter().filter_map(|it| Some((it.name(), left_out.why(&it.container)?)));
    told.extend(reasons.map(|(name, why)| {
        format!(
            "the container of the Evaluator {name} is left out, and pods that it selects wait: the API server refuses the \
             Deployment with it ({why}): correct it, or delete it"
        )
    }));
    Some(told)
}

/// The containers that `Evaluator`s name, the eldest first.
fn wanted(named: &BTreeMap<String, NamedSidecar>, left_out: &LeftOut) -> Vec<OfEvaluator> {
    let mut named: Vec<_> = named.iter().collect();
    named.sort_by_key(|(name, evaluator)| (evaluator.created, *name));
    let containers = named.into_iter().filter_map(|(_, it)| Some((it.container.clone()?, it.is_refused)));
    containers
        .map(|(container, is_refused)| {
            let runs = !is_refused && left_out.why(&container).is_none();
            OfEvaluator { container, runs }
        })
        .collect()
}

/// Those that the pods have.
fn running(world: &World) -> Vec<OfEvaluator> {
    let [controller, _] = world.deployment_names();
    let live = world.deployment(controller).flatten();
    let pod = live.and_then(|live| live.content.pointer("/spec/template/spec"));
    pod.map(OfEvaluator::all_in).unwrap_or_default()
}

fn is_same(one: &[OfEvaluator], other: &[OfEvaluator]) -> bool {
    let sorted = |all: &[OfEvaluator]| {
        let mut all: Vec<_> = all.iter().map(|it| (it.name().to_owned(), it.runs)).collect();
        all.sort();
        all
    };
    sorted(one) == sorted(other)
}
