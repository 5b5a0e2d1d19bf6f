//! `sluice uninstall` is killed after each of its writes and run again, until there is nothing left to write.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use sluice_e2e::call::get;
use sluice_e2e::removal::{assert_nothing_of_ours, command, items, rows, uninstall};
use sluice_e2e::{Running, Setup};
use sluice_testbed::proxy::{Action, FaultProxy, Recorded, Rule};
use tokio::sync::Notify;

use crate::context::{gates, idle_bed};
use crate::pods::pod;
use crate::team::Team;

const WAITING: usize = 5;
/// More than all that is installed.
const MOST: usize = 300;
/// One run, up to its first write.
const RUN: Duration = Duration::from_secs(120);

/// Changes something: questions are created too, but never stored.
fn changes_something(request: &Recorded) -> bool {
    request.is_write() && !request.path.contains("accessreviews") && !request.query.contains("dryRun")
}

/// Runs the command until its first write is done and kills it before it learns of that; false if it ends without a write.
async fn killed_after_a_write(proxy: &FaultProxy) -> bool {
    let written = Arc::new(Notify::new());
    let told = Arc::clone(&written);
    let rule = Rule::new(Action::ApplyThenLoseResponse).when(changes_something).nth(1);
    let seen = proxy.add(rule.then(move |_| told.notify_one()));
    let mut command = command(proxy.kubeconfig());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    tokio::select! {
        () = written.notified() => {}
        ended = tokio::time::timeout(RUN, running.wait()) => {
            let code = ended.expect("a run that comes to its first write").unwrap().code();
            assert_eq!((code, seen.applied()), (Some(3), 0), "the namespace alone is left");
            return false;
        }
    }
    running.kill().await.unwrap();
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_after_each_write_the_command_refuses_nothing_and_ends_with_nothing_of_ours() {
    let bed = idle_bed().await;
    let _world = Running::on(&bed, Setup::default()).await.unwrap();
    let team = Team::on(&bed, "leaving").await;
    team.quota("none", &[("pods", "0")]).await;
    for n in 0..WAITING {
        assert_eq!(gates(&team.create(&pod(&format!("waits-{n}"))).await.body).len(), 1);
    }
    let proxy = FaultProxy::start(&bed, bed.admin_identity()).await.unwrap();
    let over = AtomicBool::new(false);
    let creating = async {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        let mut count = 0;
        while !over.load(SeqCst) {
            tick.tick().await;
            let answer = team.create(&pod(&format!("p-{count}"))).await;
            assert!(answer.is_ok(), "pod {count} is refused: {answer:?}");
            count += 1;
        }
        count
    };
    let removing = async {
        let mut kills = 0;
        while killed_after_a_write(&proxy).await {
            kills += 1;
            assert!(kills < MOST, "it comes to no end");
        }
        over.store(true, SeqCst);
        kills
    };
    let (created, kills) = tokio::join!(creating, removing);
    println!("killed after {kills} writes, while {created} pods were created");
    assert!(kills > 30, "{kills} writes: no installation was there");
    let report = uninstall(&bed, 3, &[]).await;
    assert_eq!(rows(&report, "delete").len(), 0, "{report:#}");
    let pods = get(&team.client, &team.path("pods")).await.unwrap();
    assert_eq!(items(&pods.body), WAITING + created);
    let held = pods.body["items"].as_array().unwrap().iter().filter(|pod| !gates(pod).is_empty()).count();
    assert_eq!(held, 0, "pods that are held");
    assert_nothing_of_ours(&team.client).await;
    assert!(team.quotas.get("none").await.is_ok(), "quotas stay");
}
