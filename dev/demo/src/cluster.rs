//! Two namespaces that share the limits of one cluster quota.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, Client};
use sluice_api::AAQ;

use crate::board::{Board, State};
use crate::examples::{self, SHOP, SHOP_PODS, SHOP_QUOTA};
use crate::scene::Scene;
use crate::screen::Screen;
use crate::stage::Stage;
use crate::watches;

/// What the names of the files' objects begin with; the name of the quota.
pub const NAME: &str = "shop";

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

/// Plays the act where cluster quotas are allowed. The scene's name is that of the quota, and the beginning of its
/// namespaces' names.
///
/// # Errors
/// When a step does not come true in time.
pub async fn act(scene: &Scene, screen: Screen) -> anyhow::Result<Screen> {
    let name = &scene.name;
    let updates = watches::open_cluster(&scene.client, name, &format!("tenant={name}"), &namespaces(name));
    let mut stage = Stage::open(scene, updates, screen);
    stage.board.cluster = Some(name.clone());
    let played = play(scene, &mut stage).await;
    stage.close(played)
}

async fn play(scene: &Scene, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let ([web, batch], free) = (namespaces(&scene.name), scene.free());
    stage.tell("Two namespaces whose pods may ask for 2 CPUs together: one ApplicationAwareClusterResourceQuota for both.")?;
    stage.board.allow(examples::hard(SHOP_QUOTA, "/spec/quota/hard")?);
    stage.during(scene.apply(&[SHOP, SHOP_QUOTA])).await?;
    for namespace in [&web, &batch] {
        stage.during(scene.account(namespace)).await?;
    }
    // Its status is for people, and up to a second behind what is decided.
    let empty = |board: &Board| says(board, &["(batch 0, web 0)", "held 0"]);
    stage.until("the quota's status to say that nothing is used", empty).await?;

    let words = format!(
        "front (1500m) in {web} and report (500m) in {batch} fit: released at once. \
         import (1 CPU) does not fit any more: held."
    );
    let taken = |board: &Board| {
        let fit = board.all("web/front", 1, free) && board.all("batch/report", 1, free);
        let full = ["requests.cpu 2/2 (batch 500m, web 1500m)", "held 1"];
        fit && board.held("batch/import", 1) && says(board, &full)
    };
    let what =
        "front and report to be released, import to be held with a reason, and the quota's status to say so";
    stage.step(&words, scene.apply(&[SHOP_PODS]), what, taken).await?;

    let words = format!("front is deleted in {web}: import goes in {batch}.");
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &web);
    let deleted = async {
        pods.delete("front", &DeleteParams::default()).await.map(drop).context("deleting pod front")
    };
    let passed = |board: &Board| {
        let gone = board.all("web/front", 1, &[State::Completed, State::Deleted]);
        let left = ["requests.cpu 1500m/2 (batch 1500m, web 0)", "held 0"];
        gone && board.all("batch/import", 1, free) && says(board, &left)
    };
    let what = "front to end, import to be released, and the quota's status to say so";
    stage.step(&words, deleted, what, passed).await?;
    stage.board.kept()
}

/// Whether all this is in what is told of the quota.
fn says(board: &Board, texts: &[&str]) -> bool {
    let line = board.quota.as_deref();
    line.is_some_and(|line| texts.iter().all(|text| line.contains(text)))
}
