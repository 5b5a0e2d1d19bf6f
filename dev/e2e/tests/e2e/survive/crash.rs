//! The controller is killed at each point between the charge and the last release, with fifty pods waiting.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use sluice_testbed::Bed;
use sluice_testbed::proxy::{Action, Rule};
use tokio::sync::Notify;

use super::world::{Overseer, controller_through, delete_released, installed, proxy, settles_at, stop};
use crate::context::idle_bed;
use crate::team::Team;

const CHARGE: (Method, &str) = (Method::PUT, "applicationawareresourcequotas/compute/status");
const RELEASE: (Method, &str) = (Method::PATCH, "/pods/");

#[derive(Clone, Copy, Debug)]
enum When {
    /// The request never reaches the API server.
    Before,
    /// The API server has done it, the controller does not learn of it.
    After,
}

/// Kills the controller at the nth such write, starts another one and sees that all is well.
async fn killed_at(bed: &Bed, write: (Method, &str), nth: usize, when: When) {
    let installation = installed(bed).await;
    let team = Team::on(bed, "crash").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "10"), ("requests.cpu", "4")]).await;
    team.gated_pods(50).await;
    let proxy = proxy(bed).await;
    let path = format!("{}.*{}", team.namespace, write.1);
    let reached = Arc::new(Notify::new());
    let told = Arc::clone(&reached);
    let action = match when {
        When::Before => Action::DropBefore,
        When::After => Action::ApplyThenLoseResponse,
    };
    let rule = Rule::new(action).method(write.0).path(&path).unwrap().nth(nth);
    // Everything after it is lost too: the process is as good as dead from here on.
    let seen = proxy.add(rule.then(move |_| told.notify_one()));
    let first = controller_through(&installation, &proxy).await;
    tokio::time::timeout(Duration::from_secs(30), reached.notified()).await.expect("the write is reached");
    first.program.kill();
    first.program.wait().await;
    assert_eq!(seen.applied(), 1);
    let second = installation.controller().await.unwrap();
    settles_at(&team, &overseer, 10).await;
    stop(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_and_after_the_charge() {
    let bed = idle_bed().await;
    // One write charges all ten that fit; what comes after it are releases.
    killed_at(&bed, CHARGE, 1, When::Before).await;
    killed_at(&bed, CHARGE, 1, When::After).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_the_first_a_middle_and_the_last_release() {
    let bed = idle_bed().await;
    for nth in [1, 5, 10] {
        killed_at(&bed, RELEASE, nth, When::Before).await;
        killed_at(&bed, RELEASE, nth, When::After).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_gracefully_in_the_middle_it_hands_over_at_once() {
    let bed = idle_bed().await;
    let installation = installed(&bed).await;
    let team = Team::on(&bed, "handover").await;
    let overseer = Overseer::of(&team);
    team.quota("compute", &[("pods", "40")]).await;
    team.gated_pods(50).await;
    let first = installation.controller().await.unwrap();
    team.until_used("compute", "pods", "40").await;
    let begin = std::time::Instant::now();
    stop(first).await;
    let second = installation.controller().await.unwrap();
    settles_at(&team, &overseer, 40).await;
    // It did not wait for the first one's lease (4 s here) to run out; the charge alone proves that it leads.
    delete_released(&team, 3).await;
    team.until_released_count(40).await;
    assert!(overseer.most() <= 40);
    println!(
        "handed over and settled {:.1} s after the first was asked to stop",
        begin.elapsed().as_secs_f64()
    );
    stop(second).await;
}
