//! What pods without gates come to take more is charged before it is let in.

mod denied_elsewhere;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_e2e::objects::{from_json, is_held};
use sluice_e2e::{Controller, Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, idle, idle_bed, used_of};
use crate::team::Team;

/// Where no pod is ever started: a node that does not report what its containers have, as the simulated
/// ones do not, may not be asked to resize them.
pub async fn pending() -> &'static Bed {
    idle().await.bed
}

/// What a client is told; `None` if the request was done.
type Refusal = Option<(u16, String)>;

fn resources(requests: &[(&str, &str)]) -> Value {
    let requests: serde_json::Map<_, _> =
        requests.iter().map(|(key, amount)| ((*key).to_owned(), json!(amount))).collect();
    json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } })
}

impl Team {
    async fn resize(&self, name: &str, requests: &[(&str, &str)], dry_run: bool) -> Refusal {
        let params = PatchParams { dry_run, ..PatchParams::default() };
        let patch = Patch::Strategic(resources(requests));
        let answer: kube::Result<Pod> = self.pods.patch_subresource("resize", name, &params, &patch).await;
        refusal(answer)
    }

    /// As [`Self::resize`], asked again until there was time to decide, as clients do by themselves after 429.
    async fn decided(&self, name: &str, requests: &[(&str, &str)]) -> Refusal {
        let decided = || async {
            let answer = self.resize(name, requests, false).await;
            (!answer.as_ref().is_some_and(is_late)).then_some(answer)
        };
        wait::eventually(4 * SOON, decided, "a resize to be decided").await.unwrap()
    }

    async fn running(&self, name: &str, requests: &[(&str, &str)]) {
        self.pod(name, requests).await;
        self.until_released(name).await;
    }

    async fn used(&self, quota: &str, key: &str) -> Option<String> {
        used_of(self.quotas.get_opt(quota).await.unwrap().as_ref(), key)
    }

    /// What the pods without gates ask for of CPU, in thousandths.
    async fn taken(&self) -> u64 {
        let pods = self.pods.list(&ListParams::default()).await.unwrap();
        pods.items.iter().filter(|pod| !is_held(pod)).map(milli_cpu).sum()
    }
}

fn milli_cpu(pod: &Pod) -> u64 {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let cpu = &container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"];
    let amount = sluice_engine::Quantity::parse(&cpu.0).unwrap();
    u64::try_from(amount.nanos() / 1_000_000).unwrap()
}

fn refusal<T>(answer: kube::Result<T>) -> Refusal {
    match answer {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
        Err(error) => panic!("no answer: {error}"),
    }
}

/// As on a busy machine.
fn is_late((code, words): &(u16, String)) -> bool {
    *code == 429 || (*code == 500 && words.ends_with("context deadline exceeded"))
}

/// By `growth.quota.sluice.dev`, in these words.
fn denied(code: u16, words: &str) -> Refusal {
    Some((code, format!("admission webhook \"{}\" denied the request: {words}", WebhookEntry::GROWTH.name)))
}

#[tokio::test]
async fn a_resize_takes_what_there_is_and_no_more() {
    let team = Team::plain(pending().await, "resize").await;
    team.quota("compute", &[("requests.cpu", "1"), ("requests.memory", "1Gi")]).await;
    team.running("a", &[("cpu", "300m"), ("memory", "100Mi")]).await;
    team.running("b", &[("cpu", "200m"), ("memory", "100Mi")]).await;
    assert_eq!(team.resize("a", &[("cpu", "700m")], false).await, None);
    assert_eq!(
        team.used("compute", "requests.cpu").await.as_deref(),
        Some("900m"),
        "recorded before it was done"
    );
    let words = "exceeded quota: compute, requested: requests.cpu=101m, used: requests.cpu=900m, limited: requests.cpu=1";
    assert_eq!(team.resize("b", &[("cpu", "301m")], false).await, denied(403, words));
    assert_eq!(team.resize("b", &[("cpu", "300m")], true).await, None, "a dry run");
    assert_eq!(team.used("compute", "requests.cpu").await.as_deref(), Some("900m"), "takes nothing");
    // Less makes room.
    assert_eq!(team.resize("a", &[("cpu", "100m")], false).await, None);
    team.until_used("compute", "requests.cpu", "300m").await;
    assert_eq!(team.resize("b", &[("cpu", "900m")], false).await, None);
    let words = "exceeded quota: compute, requested: requests.memory=901Mi, used: requests.memory=200Mi, \
                 limited: requests.memory=1Gi";
    assert_eq!(team.resize("b", &[("memory", "1001Mi")], false).await, denied(403, words));
}

#[tokio::test]
async fn a_pod_that_waits_may_be_resized_and_is_released_as_it_is_then() {
    let team = Team::plain(pending().await, "resize-gated").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("a", &[("cpu", "5")]).await;
    assert_eq!(team.resize("a", &[("cpu", "6")], false).await, None, "it takes nothing yet");
    assert_eq!(team.resize("a", &[("cpu", "800m")], false).await, None);
    team.until_released("a").await;
    team.until_used("compute", "requests.cpu", "800m").await;
}

#[tokio::test]
async fn another_scope_is_charged_too() {
    let team = Team::plain(pending().await, "hop").await;
    let quota = |name: &str, scope: &str, pods: &str| {
        json!({
            "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota", "metadata": { "name": name },
            "spec": { "hard": { "pods": pods }, "scopes": [scope] },
        })
    };
    for (name, scope) in [("batch", "Terminating"), ("services", "NotTerminating")] {
        let quota: sluice_api::ApplicationAwareResourceQuota = from_json(quota(name, scope, "2"));
        sluice_e2e::objects::create(&team.client, &team.namespace.name, &quota).await.unwrap();
    }
    let hop = async |name: &str| {
        let deadline = json!({ "spec": { "activeDeadlineSeconds": 3600 } });
        refusal(team.pods.patch(name, &PatchParams::default(), &Patch::Merge(deadline)).await)
    };
    for round in ["a", "b", "c"] {
        team.running(round, &[("cpu", "1m")]).await;
        let words = "exceeded quota: batch, requested: pods=1, used: pods=2, limited: pods=2";
        assert_eq!(hop(round).await, if round == "c" { denied(403, words) } else { None }, "{round}");
    }
    team.until_used("batch", "pods", "2").await;
    team.until_used("services", "pods", "1").await;
}

/// All of them ask for the same room, which is enough for a part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_resizes_at_once() {
    const PODS: usize = 500;
    const FIT: usize = 300;
    let bed = idle_bed().await;
    // An administrator's requests wait in no queue of the API server: on a busy machine it may answer nothing else for
    // longer than the controller may be without its lease. That is another story.
    let lease = ["--lease-duration=150s", "--lease-renew-deadline=120s"].map(str::to_owned).to_vec();
    let _running = Running::on(&bed, Setup { controller_args: lease, ..Setup::default() }).await.unwrap();
    let team = Team::on(&bed, "crowd").await;
    team.quota("compute", &[("requests.cpu", "5")]).await;
    let created = (0..PODS).map(|n| {
        let team = &team;
        async move { team.pod(&format!("p{n}"), &[("cpu", "10m")]).await }
    });
    futures::stream::iter(created).buffer_unordered(16).collect::<Vec<_>>().await;
    team.until_released_count(PODS).await;
    team.until_used("compute", "requests.cpu", "5").await;
    let hard = json!({ "spec": { "hard": { "requests.cpu": format!("{}m", PODS * 10 + FIT) } } });
    team.quotas.patch("compute", &PatchParams::default(), &Patch::Merge(hard)).await.unwrap();
    let what = "the controller to have seen the limit";
    wait::wait_for(&team.quotas, "compute", SOON, what, |quota| {
        quota.and_then(|quota| Some(quota.status.as_ref()?.hard.get("requests.cpu")?.0 == "5300m"))
            == Some(true)
    })
    .await
    .unwrap();
    let resizes = (0..PODS).map(|n| {
        let team = &team;
        async move { team.decided(&format!("p{n}"), &[("cpu", "11m")]).await }
    });
    let answers: Vec<Refusal> = futures::stream::iter(resizes).buffer_unordered(PODS).collect().await;
    let done = answers.iter().filter(|answer| answer.is_none()).count();
    let exceeded = answers.iter().flatten().filter(|(code, _)| *code == 403).count();
    assert_eq!(
        (done, exceeded),
        (FIT, PODS - FIT),
        "{:?}",
        answers.iter().flatten().find(|(code, _)| *code != 403)
    );
    assert_eq!(team.taken().await, (PODS * 10 + FIT) as u64);
    team.until_used("compute", "requests.cpu", "5300m").await;
}

/// With a lease that is over soon.
fn setup() -> Setup {
    // What was in flight is over soon too: the API server here commits a resize in milliseconds.
    let lease = [
        "--lease-duration=4s",
        "--lease-renew-deadline=2s",
        "--lease-retry-period=500ms",
        "--in-flight-grace=4",
    ];
    Setup { controller_args: lease.map(str::to_owned).to_vec(), ..Setup::default() }
}

async fn kill(controller: Controller) {
    controller.program.kill();
    controller.program.wait().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_leader_clients_are_told_to_try_again() {
    let bed = idle_bed().await;
    let Running { installation, controller, webhook: _webhook, .. } =
        Running::on(&bed, setup()).await.unwrap();
    let team = Team::plain(&bed, "leaderless").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.running("a", &[("cpu", "100m")]).await;
    kill(controller).await;
    let Some((code, words)) = team.resize("a", &[("cpu", "200m")], false).await else {
        panic!("let in uncharged")
    };
    // What this client makes of the header `Retry-After`, which others wait for by themselves.
    assert_eq!((code, &*words), (429, "the server asks to retry later"));
    // What takes nothing of a quota needs no leader.
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(refusal(team.pods.patch("a", &PatchParams::default(), &Patch::Merge(label)).await), None);
    // A forged address in the Lease: who answers there has no certificate of the installation.
    let forger = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = forger.local_addr().unwrap().to_string();
    let leases: Api<Lease> = Api::namespaced(bed.admin().unwrap(), names::INSTALL_NAMESPACE);
    let forged = json!({
        "metadata": { "annotations": { names::LEADER_ADDRESS_ANNOTATION: address } }, "spec": { "holderIdentity": "forger" },
    });
    leases.patch(names::LEASE, &PatchParams::default(), &Patch::Merge(forged)).await.unwrap();
    let asked = tokio::spawn(async move { forger.accept().await.map(drop) });
    let refused = || async {
        let (code, _) = team.resize("a", &[("cpu", "200m")], false).await?;
        (code == 429 && asked.is_finished()).then_some(())
    };
    wait::eventually(SOON, refused, "the forged address to be tried and not to be believed").await.unwrap();
    let successor = installation.controller().await.unwrap();
    let done = || async { team.resize("a", &[("cpu", "200m")], false).await.is_none().then_some(()) };
    wait::eventually(SOON, done, "the next leader to charge the resize").await.unwrap();
    assert_eq!(team.used("compute", "requests.cpu").await.as_deref(), Some("200m"));
    kill(successor).await;
}

/// Pods are resized up and down without end while leaders are killed: whatever is let in is within the quota.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_leaders_let_nothing_in_that_is_not_charged() {
    const HARD: u64 = 1000;
    let bed = idle_bed().await;
    let Running { installation, controller: mut leader, webhook: _webhook, .. } =
        Running::on(&bed, setup()).await.unwrap();
    let team = Arc::new(Team::plain(&bed, "killed").await);
    team.quota("compute", &[("requests.cpu", "1")]).await;
    for n in 0..6 {
        team.running(&format!("p{n}"), &[("cpu", "100m")]).await;
    }
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6_u64)
        .map(|n| {
            let (team, over) = (Arc::clone(&team), Arc::clone(&over));
            tokio::spawn(async move {
                let mut done = 0;
                for round in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let size = format!("{}m", 100 + (round * 7 + n * 3) % 5 * 60);
                    match team.resize(&format!("p{n}"), &[("cpu", &size)], false).await {
                        None => done += 1,
                        Some((403, _)) => {}
                        Some((429, _)) => tokio::time::sleep(Duration::from_millis(50)).await,
                        Some(other) => panic!("{other:?}"),
                    }
                }
                done
            })
        })
        .collect();
    for _ in 0..3 {
        let successor = installation.controller().await.unwrap();
        let before = team.taken().await;
        assert!(before <= HARD, "{before}m of {HARD}m are taken");
        kill(std::mem::replace(&mut leader, successor)).await;
        let leads = || async {
            let used = team.resize("p0", &[("cpu", "100m")], false).await;
            (used.is_none() && team.taken().await <= HARD).then_some(())
        };
        wait::eventually(SOON, leads, "the next leader to decide").await.unwrap();
    }
    for _ in 0..20 {
        let taken = team.taken().await;
        assert!(taken <= HARD, "{taken}m of {HARD}m are taken");
    }
    over.store(true, Ordering::Relaxed);
    let mut done = 0;
    for client in clients {
        done += client.await.unwrap();
    }
    assert!(done > 0, "no resize was ever done");
    let taken = team.taken().await;
    assert!(taken <= HARD, "{taken}m of {HARD}m are taken");
    let text = if taken == HARD { "1".to_owned() } else { format!("{taken}m") };
    team.until_used("compute", "requests.cpu", &text).await;
    kill(leader).await;
}
