//! Two namespaces that share the limits of one cluster quota.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, Client};
use sluice_api::AAQ;

use crate::board::{Board, State};
use crate::examples;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::stage::Stage;
use crate::story::{SOON, Scene, account, hard, kept};
use crate::{end, watches};

/// What the names of the files' objects begin with; the name of the quota.
pub const NAME: &str = "shop";

examples::examples! {
    ALLOW = "cluster-quota/00-allow.yaml";
    NAMESPACES = "cluster-quota/10-namespaces.yaml";
    QUOTA = "cluster-quota/20-quota.yaml";
    PODS = "cluster-quota/30-pods.yaml";
}

/// The namespaces of a quota of this name.
pub fn namespaces(name: &str) -> [String; 2] {
    ["web", "batch"].map(|namespace| format!("{name}-{namespace}"))
}

/// Whether an `AAQ` says that cluster quotas have an effect.
///
/// # Errors
/// When `AAQ`s cannot be listed.
pub async fn are_allowed(client: &Client) -> anyhow::Result<bool> {
    let listed = Api::<AAQ>::all(client.clone()).list(&Default::default()).await.context("listing AAQs")?;
    let configurations = listed.items.into_iter().filter_map(|aaq| aaq.spec.configuration);
    let mut says = configurations.map(|it| it.allow_application_aware_cluster_resource_quota);
    Ok(says.any(|says| says == Some(true)))
}

/// Has the `AAQ` say that they do.
///
/// # Errors
/// When the API server refuses that.
pub async fn allow(client: &Client) -> anyhow::Result<()> {
    examples::apply(client, ALLOW, (NAME, NAME)).await
}

/// Plays the act where cluster quotas are allowed. The scene's namespace is the name of the quota, and the beginning of its
/// namespaces' names.
///
/// # Errors
/// When a step does not come true in time.
pub async fn act(scene: &Scene, screen: Screen, signals: Signals) -> anyhow::Result<Screen> {
    let name = &scene.namespace;
    let updates = watches::open_cluster(&scene.client, name, &format!("tenant={name}"), &namespaces(name));
    let mut stage: Stage<Board> = Stage::open(updates, screen, signals);
    stage.board.cluster = Some(name.clone());
    let played = play(scene, &mut stage).await;
    end(stage, played)
}

async fn play(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    set_up(scene, stage).await?;
    shared(scene, stage).await?;
    one_ends(scene, stage).await?;
    kept(&stage.board)
}

async fn set_up(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let name = &scene.namespace;
    stage.tell("Two namespaces whose pods may ask for 2 CPUs together: one ApplicationAwareClusterResourceQuota for both.")?;
    stage.board.allow(hard(QUOTA, "/spec/quota/hard")?);
    for file in [NAMESPACES, QUOTA] {
        stage.during(examples::apply(&scene.client, file, (NAME, name))).await?;
    }
    for namespace in namespaces(name) {
        stage.during(account(&scene.client, &namespace)).await?;
    }
    // Its status is for people, and up to a second behind what is decided.
    says(stage, &["(batch 0, web 0)", "held 0"]).await
}

async fn shared(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let (name, free) = (&scene.namespace, scene.free());
    let [web, batch] = namespaces(name);
    stage.tell(&format!(
        "front (1500m) in {web} and report (500m) in {batch} fit: released at once. import (1 CPU) does not fit any more: held."
    ))?;
    stage.during(examples::apply(&scene.client, PODS, (NAME, name))).await?;
    let is_told = |board: &Board| board.of("batch/import").all(|row| row.told.is_some());
    let taken = |board: &Board| {
        let fit = board.all("web/front", 1, free) && board.all("batch/report", 1, free);
        fit && board.all("batch/import", 1, &[State::Held]) && is_told(board)
    };
    stage.until(SOON, "front and report to be released, and import to be held with a reason", taken).await?;
    says(stage, &["requests.cpu 2/2 (batch 500m, web 1500m)", "held 1"]).await?;
    stage.pause(scene.pace).await
}

async fn one_ends(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let [web, batch] = namespaces(&scene.namespace);
    stage.tell(&format!("front is deleted in {web}: import goes in {batch}."))?;
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &web);
    let deleted =
        async { pods.delete("front", &DeleteParams::default()).await.context("deleting pod front") };
    stage.during(deleted).await?;
    let (gone, free) = ([State::Completed, State::Deleted], scene.free());
    let passed = |board: &Board| board.all("web/front", 1, &gone) && board.all("batch/import", 1, free);
    stage.until(SOON, "front to end and import to be released", passed).await?;
    says(stage, &["requests.cpu 1500m/2 (batch 1500m, web 0)", "held 0"]).await?;
    stage.pause(scene.pace).await
}

/// Waits until all this is in what is told of the quota.
async fn says(stage: &mut Stage<Board>, texts: &[&str]) -> anyhow::Result<()> {
    let what = format!("the quota's status to say {}", texts.join(" and "));
    let says = |board: &Board| {
        let line = board.quota.as_deref();
        line.is_some_and(|line| texts.iter().all(|text| line.contains(text)))
    };
    stage.until(SOON, &what, says).await
}

#[cfg(test)]
mod tests {
    use super::{ALL, ALLOW, NAME};
    use crate::examples::objects;
    use crate::examples::tests::are_all_of;

    #[test]
    fn every_file_of_the_folder_is_played() {
        are_all_of("cluster-quota/", ALL);
    }

    #[test]
    fn another_name_leaves_no_trace_of_the_first() {
        for example in ALL.iter().filter(|example| **example != ALLOW) {
            let text = serde_json::to_string(&objects(*example, (NAME, "other-1")).unwrap()).unwrap();
            assert!(!text.contains("shop") && text.contains("other-1"), "{text}");
        }
    }
}
