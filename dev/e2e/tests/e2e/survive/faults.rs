//! Each write is answered with an error, late, or not at all.

use std::time::Duration;

use hyper::Method;
use sluice_testbed::Bed;
use sluice_testbed::proxy::{Action, Rule};

use super::world::{Overseer, controller_through, installed, proxy, settles_at, stop};
use crate::context::idle_bed;
use crate::team::Team;

/// The first three such writes go wrong in each of the ways.
async fn every_fault(bed: &Bed, method: Method, path: &str) {
    let installation = installed(bed).await;
    for (name, fault) in
        Action::failures().into_iter().chain([("slow", Action::Delay(Duration::from_millis(800)))])
    {
        let team = Team::on(bed, "fault").await;
        let overseer = Overseer::of(&team);
        team.quota("compute", &[("pods", "10")]).await;
        team.gated_pods(20).await;
        let proxy = proxy(bed).await;
        let path = format!("{}.*{path}", team.namespace);
        let rule = Rule::new(fault).method(method.clone()).path(&path).unwrap().times(3);
        let applied = proxy.add(rule);
        let controller = controller_through(&installation, &proxy).await;
        settles_at(&team, &overseer, 10).await;
        assert!(applied.applied() >= 1, "{name}: the fault was never met");
        stop(controller).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_that_go_wrong() {
    let bed = idle_bed().await;
    every_fault(&bed, Method::PUT, "applicationawareresourcequotas/compute/status").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_go_wrong() {
    let bed = idle_bed().await;
    every_fault(&bed, Method::PATCH, "/pods/").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_for_a_while_is_no_hot_loop() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "forbidden").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10")]).await;
    team.gated_pods(20).await;
    let proxy = proxy(&bed).await;
    let path = format!("{}/pods/", team.namespace);
    let forbidden = Rule::answer(403).unwrap().method(Method::PATCH).path(&path).unwrap();
    let refused = proxy.add(forbidden);
    let controller = controller_through(&installation, &proxy).await;
    refused.wait_applied(20, Duration::from_secs(20)).await.unwrap();
    // Twenty pods, each refused with a delay that doubles: after five seconds that is at most six tries each.
    let begin = refused.applied();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let tries = refused.applied();
    assert!(tries <= 20 * 8, "{tries} refused requests ({begin} when it began)");
    proxy.remove(&refused);
    settles_at(&team, &overseer, 10).await;
    stop(controller).await;
}
