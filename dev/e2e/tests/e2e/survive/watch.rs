//! Watches that end, expire or are late.

use sluice_testbed::proxy::{Action, Rule};

use super::world::{Overseer, controller_through, delete_released, installed, proxy, settles_at, stop};
use crate::context::idle_bed;
use crate::team::Team;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_cut_or_expire_lose_nothing() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "expired").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    let proxy = proxy(&bed).await;
    let controller = controller_through(&installation, &proxy).await;
    team.gated_pods(12).await;
    settles_at(&team, &overseer, 10).await;
    for round in 0..4 {
        if round % 2 == 0 {
            proxy.expire_watches();
        } else {
            proxy.cut_watches();
        }
        delete_released(&team, 3).await;
        for n in 0..3 {
            team.gated_pod(&format!("r{round}-{n}"), &[("cpu", "100m")]).await;
        }
        settles_at(&team, &overseer, 10).await;
    }
    stop(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_that_closes_with_410_at_once_still_converges() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "gone").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    team.gated_pods(20).await;
    let proxy = proxy(&bed).await;
    let gone = Rule::new(Action::WatchError410 { after_events: 1 });
    let met = proxy.add(gone.when(|request| request.is_watch() && request.path.contains("/pods")).times(3));
    let controller = controller_through(&installation, &proxy).await;
    settles_at(&team, &overseer, 10).await;
    assert!(met.applied() >= 1);
    stop(controller).await;
}

/// The pod watch is late: releases are not seen. No second batch is released on the same usage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_watch_releases_no_second_batch() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "late").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    team.gated_pods(30).await;
    let proxy = proxy(&bed).await;
    let controller = controller_through(&installation, &proxy).await;
    proxy.hold_watch_events("/pods");
    team.until_released_count(10).await;
    for n in 200..210 {
        team.gated_pod(&format!("p{n}"), &[("cpu", "100m")]).await;
    }
    proxy.release_watch_events();
    settles_at(&team, &overseer, 10).await;
    stop(controller).await;
}
