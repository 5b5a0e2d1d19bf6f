//! The story, the same on every cluster.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_api::ApplicationAwareResourceQuota;
use sluice_e2e::objects::{self, is_held};
use sluice_engine::Quantity;
use sluice_testbed::wait;

use crate::board::{Amounts, Board, State};
use crate::examples::{self, QUOTA};
use crate::stage::Stage;

/// Label of nodes whose kubelet is simulated, and the annotation that ends a pod there.
const SIMULATED: &str = "sluice.dev/simulated";
const COMPLETE: &str = "sluice.dev/complete-after";
/// Deadline of everything that should take milliseconds.
pub const SOON: Duration = Duration::from_secs(60);

/// Where the story plays.
pub struct Scene {
    /// Who plays.
    pub client: Client,
    /// The namespace; it and its objects are created by the story.
    pub namespace: String,
    /// Whether there are nodes on which released pods surely start at once.
    pub nodes: bool,
    /// Time to read after each step.
    pub pace: Duration,
}

impl Scene {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The states that a released pod reaches here.
    pub const fn free(&self) -> &'static [State] {
        if self.nodes { &[State::Running] } else { &[State::Released, State::Running] }
    }

    async fn apply(&self, stage: &mut Stage<Board>, files: &[(&str, &str)]) -> anyhow::Result<()> {
        for file in files {
            let names = (examples::NAMESPACE, self.namespace.as_str());
            stage.during(examples::apply(&self.client, *file, names)).await?;
        }
        Ok(())
    }
}

/// Plays the whole story.
///
/// # Errors
/// When a step does not come true in time.
pub async fn play(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("A namespace whose pods together may ask for 4 CPUs.")?;
    set_up(scene, stage).await?;
    fitting(scene, stage).await?;
    held(scene, stage).await?;
    one_ends(scene, stage).await?;
    raised(scene, stage).await?;
    stage.tell("huge asks for 10 CPUs: more than the whole quota. It waits and its events say why; nothing else is hurt.")?;
    stage.pause(scene.pace).await?;
    kept(&stage.board)
}

/// The promise, from what was observed.
///
/// # Errors
/// When more was in use at any time than allowed.
pub fn kept(board: &Board) -> anyhow::Result<()> {
    let breaches = board.breaches.join("; ");
    ensure!(breaches.is_empty(), "the promise was broken: {breaches}");
    Ok(())
}

async fn set_up(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    scene.apply(stage, &[examples::TEAM, examples::PRIORITY]).await?;
    stage.during(account(&scene.client, &scene.namespace)).await?;
    stage.during(gating(scene)).await?;
    stage.board.allow(limits("4")?);
    scene.apply(stage, &[examples::LIMITS]).await?;
    stage.until(SOON, "the status of the quota", |board| board.quota.is_some()).await
}

/// Pods of a namespace are refused until it has its service account.
///
/// # Errors
/// When it is not there in time.
pub async fn account(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let there = wait::wait_for(&accounts, "default", SOON, "the default service account", |a| a.is_some());
    there.await.map(drop)
}

/// A pod that is only tried gets the gate. Tried until admission knows the new PriorityClass: it looks classes up in
/// a cache that lags, and refuses pods of those it does not find.
async fn gating(scene: &Scene) -> anyhow::Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut probe = objects::pod("probe", &[]);
    if let Some(spec) = &mut probe.spec {
        spec.priority_class_name = Some(format!("{}-urgent", scene.namespace));
    }
    let pods = scene.pods();
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

async fn fitting(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("web (2 × 1 CPU) and report (2 CPUs) fit: released at once.")?;
    scene.apply(stage, &[examples::WEB, examples::REPORT]).await?;
    let free = scene.free();
    let fit = |board: &Board| board.all("web", 2, free) && board.all("report", 1, free);
    stage.until(SOON, "web and report to be released", fit).await?;
    stage.pause(scene.pace).await
}

async fn held(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("Five more pods come. The quota is used up: they exist, wait, and are told why.")?;
    scene.apply(stage, &[examples::IMPORT, examples::TRAIN]).await?;
    // The oldest of the waiting are not to be those that go first: urgent comes last but one.
    stage.until(SOON, "the Job's pods", |board| board.of("import").count() == 2).await?;
    scene.apply(stage, &[examples::URGENT, examples::HUGE]).await?;
    let all_told = |board: &Board| {
        let told = |name: &str| board.of(name).all(|row| row.told.is_some());
        let held = |name: &str, count| board.all(name, count, &[State::Held]) && told(name);
        held("import", 2) && held("train", 1) && held("urgent", 1) && held("huge", 1)
    };
    stage.until(SOON, "five pods to be held with a reason", all_told).await?;
    stage.pause(scene.pace).await
}

async fn one_ends(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("report ends, 2 CPUs are free: urgent came late, but has the highest priority and goes.")?;
    stage.during(end(scene, "report")).await?;
    let free = scene.free();
    let passed = |board: &Board| {
        board.all("report", 1, &[State::Completed, State::Deleted]) && board.all("urgent", 1, free)
    };
    stage.until(SOON, "report to end and urgent to be released", passed).await?;
    stage.pause(scene.pace).await?;
    let waiting = |name, count| stage.board.all(name, count, &[State::Held]);
    ensure!(
        waiting("import", 2) && waiting("train", 1) && waiting("huge", 1),
        "the order was broken: a pod without priority went with urgent"
    );
    Ok(())
}

/// A simulated kubelet is told to end the pod; a real one has nothing that could end, so it is deleted.
async fn end(scene: &Scene, name: &str) -> anyhow::Result<()> {
    let pods = scene.pods();
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

async fn raised(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    stage.tell("The quota is raised to 8 CPUs: import and train go.")?;
    stage.board.allow(limits("8")?);
    let quotas: Api<ApplicationAwareResourceQuota> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let raise = json!({"spec": {"hard": {"requests.cpu": "8"}}});
    let raised = async {
        let patched = quotas.patch(QUOTA, &PatchParams::default(), &Patch::Merge(raise)).await;
        patched.context("raising the quota")
    };
    stage.during(raised).await?;
    let free = scene.free();
    let gone = |board: &Board| {
        board.all("import", 2, free) && board.all("train", 1, free) && board.all("huge", 1, &[State::Held])
    };
    stage.until(SOON, "import and train to be released", gone).await?;
    stage.pause(scene.pace).await
}

/// What `10-quota.yaml` says, with other CPUs.
fn limits(cpus: &str) -> anyhow::Result<Amounts> {
    let mut limits = hard(examples::LIMITS, "/spec/hard")?;
    limits.insert("requests.cpu".to_owned(), Quantity::parse(cpus)?);
    Ok(limits)
}

/// The limits that a file's quota has at this place.
///
/// # Errors
/// When there are none.
pub fn hard(example: (&str, &str), place: &str) -> anyhow::Result<Amounts> {
    let objects = examples::objects(example, (examples::NAMESPACE, examples::NAMESPACE))?;
    let hard = objects.first().and_then(|quota| quota.pointer(place)).and_then(|hard| hard.as_object());
    let hard = hard.with_context(|| format!("examples/{} has no {place}", example.0))?;
    let read = |(key, amount): (&String, &serde_json::Value)| {
        let amount = Quantity::parse(amount.as_str().unwrap_or_default());
        Ok((key.clone(), amount.with_context(|| format!("reading {key} of examples/{}", example.0))?))
    };
    hard.iter().map(read).collect()
}
