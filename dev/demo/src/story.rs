//! The first act, the same on every cluster: pods that are held and released in one namespace.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_e2e::objects::{self, is_held};
use sluice_engine::Quantity;
use sluice_testbed::wait;

use crate::board::{Amounts, Board, State};
use crate::examples::{self, QUOTA};
use crate::scene::{SOON, Scene};
use crate::screen::Screen;
use crate::stage::Stage;
use crate::watches;

/// Label of nodes whose kubelet is simulated, and the annotation that ends a pod there.
const SIMULATED: &str = "sluice.dev/simulated";
const COMPLETE: &str = "sluice.dev/complete-after";

/// Plays the act.
///
/// # Errors
/// When a step does not come true in time.
pub async fn act(scene: &Scene, screen: Screen) -> anyhow::Result<Screen> {
    let updates = watches::open(&scene.client, &scene.name);
    let mut stage = Stage::open(scene, updates, screen);
    let played = play(scene, &mut stage).await;
    stage.close(played)
}

async fn play(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let free = scene.free();
    set_up(scene, stage).await?;
    let fit = |board: &Board| board.all("web", 2, free) && board.all("report", 1, free);
    let words = "web (2 × 1 CPU) and report (2 CPUs) fit: released at once.";
    let files = scene.apply(&[examples::WEB, examples::REPORT]);
    stage.step(words, files, "web and report to be released", fit).await?;
    held(scene, stage).await?;
    one_ends(scene, stage).await?;
    stage.board.allow(limits("8")?);
    let gone = |board: &Board| {
        board.all("import", 2, free) && board.all("train", 1, free) && board.all("huge", 1, &[State::Held])
    };
    let raise = scene.raise(QUOTA, "requests.cpu", "8");
    let words = "The quota is raised to 8 CPUs: import and train go.";
    stage.step(words, raise, "import and train to be released", gone).await?;
    stage.tell("huge asks for 10 CPUs: more than the whole quota. It waits and its events say why; nothing else is hurt.")?;
    stage.pause().await?;
    stage.board.kept()
}

async fn set_up(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("A namespace whose pods together may ask for 4 CPUs.")?;
    stage.during(scene.apply(&[examples::TEAM, examples::PRIORITY])).await?;
    stage.during(scene.account(&scene.name)).await?;
    stage.during(gating(scene)).await?;
    stage.board.allow(limits("4")?);
    stage.during(scene.apply(&[examples::LIMITS])).await?;
    stage.until("the status of the quota", |board| board.quota.is_some()).await
}

fn pods(scene: &Scene) -> Api<Pod> {
    Api::namespaced(scene.client.clone(), &scene.name)
}

/// A pod that is only tried gets the gate. Tried until admission knows the new PriorityClass: it looks classes up in
/// a cache that lags, and refuses pods of those it does not find.
async fn gating(scene: &Scene) -> anyhow::Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut probe = objects::pod("probe", &[]);
    if let Some(spec) = &mut probe.spec {
        spec.priority_class_name = Some(format!("{}-urgent", scene.name));
    }
    let pods = pods(scene);
    let tried = || async {
        match pods.create(&dry, &probe).await {
            Err(kube::Error::Api(status)) if status.message.contains("no PriorityClass") => None,
            tried => Some(tried),
        }
    };
    let tried = wait::eventually(SOON, tried, "admission to know the PriorityClass").await?;
    let tried =
        tried.context("creating a pod on trial in a targeted namespace; does Sluice's webhook run?")?;
    ensure!(
        is_held(&tried),
        "a pod in a targeted namespace is not gated: the AAQ object selects other namespaces"
    );
    Ok(())
}

async fn held(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("Five more pods come. The quota is used up: they exist, wait, and are told why.")?;
    stage.during(scene.apply(&[examples::IMPORT, examples::TRAIN])).await?;
    // The oldest of the waiting are not to be those that go first: urgent comes last but one.
    stage.until("the Job's pods", |board| board.of("import").count() == 2).await?;
    stage.during(scene.apply(&[examples::URGENT, examples::HUGE])).await?;
    let all_told = |board: &Board| {
        let held = [("import", 2), ("train", 1), ("urgent", 1), ("huge", 1)];
        held.iter().all(|(name, count)| board.held(name, *count))
    };
    stage.until("five pods to be held with a reason", all_told).await?;
    stage.pause().await
}

async fn one_ends(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let (ended, free) = ([State::Completed, State::Deleted], scene.free());
    let passed = |board: &Board| board.all("report", 1, &ended) && board.all("urgent", 1, free);
    let words = "report ends, 2 CPUs are free: urgent came late, but has the highest priority and goes.";
    stage.step(words, end(scene, "report"), "report to end and urgent to be released", passed).await?;
    let waiting = |name, count| stage.board.all(name, count, &[State::Held]);
    ensure!(
        waiting("import", 2) && waiting("train", 1) && waiting("huge", 1),
        "the order was broken: a pod without priority went with urgent"
    );
    Ok(())
}

/// A simulated kubelet is told to end the pod; a real one has nothing that could end, so it is deleted.
async fn end(scene: &Scene, name: &str) -> anyhow::Result<()> {
    let pods = pods(scene);
    let pod = pods.get(name).await.with_context(|| format!("reading pod {name}"))?;
    let node = pod.spec.and_then(|spec| spec.node_name);
    let simulated = match node {
        Some(node) => {
            let node = Api::<Node>::all(scene.client.clone()).get_metadata(&node).await;
            // Who may not read nodes has no simulated ones.
            node.is_ok_and(|node| node.metadata.labels.is_some_and(|labels| labels.contains_key(SIMULATED)))
        }
        None => false,
    };
    if simulated {
        let annotate = json!({"metadata": {"annotations": {COMPLETE: "0s"}}});
        pods.patch(name, &PatchParams::default(), &Patch::Merge(annotate)).await.map(drop)
    } else {
        pods.delete(name, &DeleteParams::default()).await.map(drop)
    }
    .with_context(|| format!("ending pod {name}"))
}

/// What `10-quota.yaml` says, with other CPUs.
fn limits(cpus: &str) -> anyhow::Result<Amounts> {
    let mut limits = examples::hard(examples::LIMITS, "/spec/hard")?;
    limits.insert("requests.cpu".to_owned(), Quantity::parse(cpus)?);
    Ok(limits)
}
