//! The API server restarts.

use super::world::{Overseer, delete_released, installed, settles_at, stop};
use crate::context::idle_bed;
use crate::team::Team;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_restarts_while_pods_wait() {
    let bed = idle_bed().await;
    let mut installation = installed(&bed).await;
    // A server that restarts takes longer than a short lease lives.
    installation.add_controller_args(&["--lease-duration=20s", "--lease-renew-deadline=15s"]);
    let team = Team::on(&bed, "restart").await;
    team.quota("compute", &[("pods", "10")]).await;
    team.gated_pods(30).await;
    let overseer = Overseer::of(&team);
    let controller = installation.controller().await.unwrap();
    settles_at(&team, &overseer, 10).await;
    bed.restart_api_server().await.unwrap();
    delete_released(&team, 3).await;
    settles_at(&team, &overseer, 10).await;
    assert!(controller.program.is_running());
    stop(controller).await;
}
