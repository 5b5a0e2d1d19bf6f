//! A namespace that may have two VMs: the third waits, and one migrates meanwhile. By the real virt-controller.

use crate::board::{Board, State};
use crate::examples::{TEAM_C, THIRD_VM, TWO_VMS, TWO_VMS_MIGRATION, TWO_VMS_QUOTA};
use crate::scene::Scene;
use crate::screen::Screen;
use crate::stage::Stage;
use crate::watches;

/// The namespace that the files name.
pub const NAMESPACE: &str = "team-c";

/// What the quota's line says while two VMs run.
const FULL: &str = "requests.instances/vmi 2/2";

/// Plays the act on a control plane with KubeVirt, Sluice and nodes.
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
    let set_up = async {
        scene.apply(&[TEAM_C]).await?;
        scene.account(&scene.name).await?;
        scene.apply(&[TWO_VMS_QUOTA, TWO_VMS]).await
    };
    let words = "A namespace that may have two VMs, counted as VMs: their pods do not matter.";
    let two = |board: &Board| runs(board, "first") && runs(board, "second") && is_full(board);
    stage.step(words, set_up, "two VMs to run and to fill the quota", two).await?;

    let words = "A third one comes: its pod is there, held, and told why.";
    let is_held = |board: &Board| board.held(&launcher("third"), 1);
    let what = "the third VM's pod to be held with a reason";
    stage.step(words, scene.apply(&[THIRD_VM]), what, is_held).await?;

    let words = "first migrates in the full quota: for a while it has two pods, and is one VM.";
    let moved = |board: &Board| {
        let launcher = launcher("first");
        let has =
            |states: &[State]| board.of(&launcher).filter(|row| states.contains(&row.state)).count() == 1;
        has(&[State::Running]) && has(&[State::Completed, State::Deleted]) && is_full(board)
    };
    let what = "first to have moved and the quota to be as full as before";
    stage.step(words, scene.apply(&[TWO_VMS_MIGRATION]), what, moved).await?;

    let words = "The quota is raised to three: third starts.";
    let raise = scene.raise("two-vms", "requests.instances/vmi", "3");
    stage.step(words, raise, "the third VM to run", |board| runs(board, "third")).await
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
