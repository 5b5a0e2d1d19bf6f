//! Two controllers at once.

use std::time::Duration;

use super::world::{Overseer, controller_identity, delete_released, installed, kill, settles_at, stop};
use crate::context::idle_bed;
use crate::team::Team;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_when_the_leader_is_killed() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "standby").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    let leader = installation.controller().await.unwrap();
    let standby = installation.controller().await.unwrap();
    team.gated_pods(5).await;
    team.until_released_count(5).await;
    kill(leader).await;
    for n in 100..150 {
        team.gated_pod(&format!("p{n}"), &[("cpu", "100m")]).await;
    }
    settles_at(&team, &overseer, 10).await;
    stop(standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_frozen_ends_and_releases_nothing() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "frozen").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    let leader = installation.controller().await.unwrap();
    let standby = installation.controller().await.unwrap();
    team.gated_pods(3).await;
    team.until_released_count(3).await;
    leader.program.pause();
    for n in 100..140 {
        team.gated_pod(&format!("p{n}"), &[("cpu", "100m")]).await;
    }
    settles_at(&team, &overseer, 10).await;
    leader.program.resume();
    let exit = tokio::time::timeout(Duration::from_secs(20), leader.program.wait()).await;
    assert_ne!(exit.expect("a leader that lost its lease ends").code, 0);
    settles_at(&team, &overseer, 10).await;
    stop(standby).await;
}

/// Two controllers that both believe to lead, because their leases are in different namespaces: the status'
/// version is what keeps them from releasing more than fits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leaders_release_no_more_than_fits() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "two").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    let identity = controller_identity(&bed).await;
    let admin = bed.admin_kubeconfig().to_owned();
    let first = installation.controller_with(identity.kubeconfig(), &[]).await.unwrap();
    let second = installation.controller_with(&admin, &["--namespace=default"]).await.unwrap();
    team.gated_pods(50).await;
    settles_at(&team, &overseer, 10).await;
    // Pods that end make room, which both see.
    delete_released(&team, 5).await;
    settles_at(&team, &overseer, 10).await;
    kill(first).await;
    kill(second).await;
}
