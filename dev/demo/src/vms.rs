//! A namespace that may have two VMs: the third waits, and one migrates meanwhile. By the real virt-controller.

use std::time::Duration;

use anyhow::Context as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::ApplicationAwareResourceQuota;
use sluice_testbed::Bed;

use crate::board::{Board, State};
use crate::examples;
use crate::migration::apply;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::stage::Stage;
use crate::story::{SOON, account};
use crate::{end, watches};

/// The namespace that the files name.
pub const NAMESPACE: &str = "team-c";

examples::examples! {
    TEAM = "vms/00-namespace.yaml";
    QUOTA = "vms/10-quota.yaml";
    TWO = "vms/20-two.yaml";
    THIRD = "vms/30-third.yaml";
    MIGRATION = "vms/40-migration.yaml";
}

/// What the quota's line says while two VMs run.
const FULL: &str = "requests.instances/vmi 2/2";

/// Plays the act on a control plane with KubeVirt, Sluice and nodes.
///
/// # Errors
/// When a step does not come true in time.
pub async fn act(bed: &Bed, pace: Duration, screen: Screen, signals: Signals) -> anyhow::Result<Screen> {
    let client = bed.admin()?;
    let mut stage: Stage<Board> = Stage::open(watches::open(&client, NAMESPACE), screen, signals);
    let played = play(bed, pace, &mut stage).await;
    end(stage, played)
}

async fn play(bed: &Bed, pace: Duration, stage: &mut Stage<Board>) -> anyhow::Result<()> {
    let client = bed.admin()?;
    stage.tell("A namespace that may have two VMs, counted as VMs: their pods do not matter.")?;
    stage.during(apply(&client, TEAM)).await?;
    stage.during(account(&client, NAMESPACE)).await?;
    for file in [QUOTA, TWO] {
        stage.during(apply(&client, file)).await?;
    }
    let two = |board: &Board| runs(board, "first") && runs(board, "second") && is_full(board);
    stage.until(SOON, "two VMs to run and to fill the quota", two).await?;
    stage.pause(pace).await?;

    stage.tell("A third one comes: its pod is there, held, and told why.")?;
    stage.during(apply(&client, THIRD)).await?;
    let is_told = |board: &Board| {
        board.all(&launcher("third"), 1, &[State::Held])
            && board.of(&launcher("third")).all(|row| row.told.is_some())
    };
    stage.until(SOON, "the third VM's pod to be held with a reason", is_told).await?;
    stage.pause(pace).await?;

    stage.tell("first migrates in the full quota: for a while it has two pods, and is one VM.")?;
    stage.during(apply(&client, MIGRATION)).await?;
    let moved = |board: &Board| {
        let launcher = launcher("first");
        let has =
            |states: &[State]| board.of(&launcher).filter(|row| states.contains(&row.state)).count() == 1;
        has(&[State::Running]) && has(&[State::Completed, State::Deleted]) && is_full(board)
    };
    stage.until(SOON, "first to have moved and the quota to be as full as before", moved).await?;
    stage.pause(pace).await?;

    stage.tell("The quota is raised to three: third starts.")?;
    let quotas: Api<ApplicationAwareResourceQuota> = Api::namespaced(client, NAMESPACE);
    let raise = json!({"spec": {"hard": {"requests.instances/vmi": "3"}}});
    let raised = async {
        let patched = quotas.patch("two-vms", &PatchParams::default(), &Patch::Merge(raise)).await;
        patched.context("raising the quota")
    };
    stage.during(raised).await?;
    stage.until(SOON, "the third VM to run", |board| runs(board, "third")).await?;
    stage.pause(pace).await
}

/// What the names of the VM's pods begin with.
fn launcher(vm: &str) -> String {
    format!("virt-launcher-{vm}")
}

fn runs(board: &Board, vm: &str) -> bool {
    board.of(&launcher(vm)).any(|row| row.state == State::Running)
}

fn is_full(board: &Board) -> bool {
    board.quota.as_deref().is_some_and(|line| line.contains(FULL))
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::examples::tests::are_all_of;

    #[test]
    fn every_file_of_the_folder_is_played() {
        are_all_of("vms/", ALL);
    }
}
