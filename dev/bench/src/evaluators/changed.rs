//! The time that a changed rule takes in a large cluster until it is enforced everywhere, and how long a quota releases
//! nothing meanwhile: while pods are read by the changed rule, and from the moment when it is in force.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_testbed::wait;

use crate::fake_api::{FakeApiServer, Size, World};
use crate::report::{Run, say, tail};
use crate::scale::controller::{Controller, quiet};

const STARTED: Duration = Duration::from_secs(600);
const CHANGED: Duration = Duration::from_secs(300);
const QUIET: Duration = Duration::from_secs(120);
/// In so many namespaces, from the first to the last one of the list, the bench waits for the release of a pod.
const PLACES: usize = 5;
/// What the rule charges for each begun core of a pod, before it changes and then.
const CORES: [u64; 2] = [1, 2];

/// Starts a controller, and changes the rule beside it.
pub(super) async fn measure(run: &Run) -> anyhow::Result<Value> {
    let small = Size { namespaces: 200, pods: 3_000, waiting: 100 };
    let size = run.either(small, Size { namespaces: 10_000, pods: 150_000, waiting: 5_000 });
    say(&format!("evaluators: {} pods in {} namespaces, the rule changes", size.pods, size.namespaces));
    let server = FakeApiServer::start(size).await?;
    let [before, after] = CORES;
    ensure!(server.change(|world| world.set_rule(&rule(before))), "the rule is not created");
    let controller = Controller::start(&server, &[])?;
    let measured = async {
        controller.settled(&server, STARTED, "the status of every quota to be written").await?;
        enforced(&server, &controller, before).await?;
        quiet(&server, QUIET).await?;
        let unpaused = releases(&server).await?;
        enforced(&server, &controller, before).await?;
        quiet(&server, QUIET).await?;
        let (times, writes) = (in_force(&controller), server.read(World::quota_writes));
        let began = Instant::now();
        ensure!(server.change(|world| world.set_rule(&rule(after))), "the rule is not replaced");
        let is_in_force = || async { (in_force(&controller) > times).then_some(()) };
        let read = async {
            wait::eventually(CHANGED, is_in_force, "the changed rule to be in force").await?;
            Ok(began.elapsed().as_secs_f64())
        };
        let (prepared, read) = tokio::try_join!(releases(&server), read)?;
        let (paused, end) = tokio::try_join!(releases(&server), enforced(&server, &controller, after))?;
        let excess = server.read(World::excess);
        ensure!(excess == 0, "{excess} pods were released although their quota was full");
        let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        Ok(json!({
            "pods": size.pods, "namespaces": size.namespaces, "peak_mib": controller.peak_mib()?,
            "read_s": read, "enforced_s": end.saturating_duration_since(began).as_secs_f64(),
            "quota_writes": server.read(World::quota_writes).saturating_sub(writes),
            "while_read_s": longest(&prepared), "while_read_s_by_place": prepared,
            "paused_s": longest(&paused), "paused_s_by_place": paused,
            "unpaused_s": longest(&unpaused), "unpaused_s_by_place": unpaused,
        }))
    };
    let log = || format!("log of the controller ends with:\n{}", tail(&controller.log()));
    measured.await.with_context(log)
}

/// So many cores of `limits.cpu` for each begun core, beside what Kubernetes counts.
fn rule(cores: u64) -> Value {
    json!({
        "strategy": "Retain",
        "cel": {
            "match": "pod.spec.containers.exists(c, c.image.startsWith('registry.example.com/'))",
            "charge": {"limits.cpu": format!("native['requests.cpu'].ceil() * {cores}")},
        },
    })
}

/// How often the controller has logged that evaluators are in force.
fn in_force(controller: &Controller) -> usize {
    controller.log().matches("evaluators in force").count()
}

/// Waits until the status of each quota has the sum by this rule, and returns when that was. The metric of unanswered pods
/// confirms it for pods that wait. The bench scrapes it last, because a scrape takes the controller's time.
async fn enforced(server: &FakeApiServer, controller: &Controller, cores: u64) -> anyhow::Result<Instant> {
    let probe = || async {
        // Each pod has a limit of one core, and requests less.
        if !server.read(|world| world.is_charged(1 + cores)) {
            return None;
        }
        let since = Instant::now();
        let open = controller.samples().await.ok()?.sum("sluice_evaluator_unanswered_pods", &[]);
        (open == Some(0.0)).then_some(since)
    };
    wait::eventually(CHANGED, probe, "all pods to be charged by the rule, and all statuses to say so").await
}

/// Ends a running pod in each of some namespaces where another pod waits for room. Returns the seconds until the controller
/// has released that pod, of each namespace, to 25 ms.
async fn releases(server: &FakeApiServer) -> anyhow::Result<Vec<f64>> {
    let waiting = server.read(World::waiting);
    let last = waiting.len().saturating_sub(1);
    let chosen = (0..PLACES).filter_map(|place| waiting.get(place * last / (PLACES - 1)).copied());
    let held: Vec<(u64, u64)> =
        chosen.map(|namespace| (namespace, server.read(|world| world.held(namespace)))).collect();
    ensure!(held.len() == PLACES, "pods wait in {} namespaces", waiting.len());
    let began = Instant::now();
    for (namespace, _) in &held {
        ensure!(server.change(|world| world.end(*namespace)), "no pod runs in namespace {namespace}");
    }
    let mut times = vec![None; held.len()];
    let probe = || {
        for (time, (namespace, held)) in times.iter_mut().zip(&held) {
            if time.is_none() && server.read(|world| world.held(*namespace)) < *held {
                *time = Some(began.elapsed().as_secs_f64());
            }
        }
        let all = times.iter().copied().collect::<Option<Vec<f64>>>();
        async move { all }
    };
    wait::eventually(CHANGED, probe, "a pod to be released in each namespace where one has ended").await
}
