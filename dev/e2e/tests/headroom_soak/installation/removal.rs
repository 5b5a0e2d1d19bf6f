//! `sluice uninstall` on a cluster that is busy: 3,000 pods wait, a quota that Rancher guards is raised for a migration, and
//! pods go on being created.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use sluice_e2e::objects::{self, TARGETED, is_held, pod_without_node};
use sluice_e2e::removal::{assert_nothing_of_ours, rows, uninstall};
use sluice_e2e::simulated_rancher::{SimulatedRancher, Validator};
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::tenant::{self, Tenant, hard, used};
use sluice_e2e::{Installation, Setup};
use sluice_engine::headroom::MARK;
use sluice_manifests::{InstallOptions, rancher_objects};
use sluice_testbed::Bed;

const WAITING: usize = 3000;
const BETWEEN: Duration = Duration::from_millis(50);
/// So long another webhook thinks about a target: the quota stays raised until then.
const THINKS: Duration = Duration::from_secs(6);
const KEYS: [&str; 2] = ["requests.memory", "pods"];

/// A namespace in which pods wait.
async fn waiting(bed: &Bed) -> Api<Pod> {
    let namespace = bed.namespace("waits", TARGETED).await.unwrap();
    let client = bed.admin().unwrap();
    objects::create(&client, &namespace.name, &objects::quota("none", &[("pods", "0")])).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, &namespace.name);
    let create = |n: usize| {
        let pods = &pods;
        async move {
            let created = pods
                .create(&PostParams::default(), &pod_without_node(&format!("waits-{n}"), &[]))
                .await
                .unwrap();
            assert!(is_held(&created), "{n}");
        }
    };
    stream::iter(0..WAITING).map(create).buffer_unordered(16).collect::<()>().await;
    pods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_pods_go_and_a_raise_ends_beside_rancher() {
    let bed = tenant::own().await;
    let installation = Installation::apply(&bed, Setup::default()).await.unwrap();
    bed.apply_objects(rancher_objects(&InstallOptions::default())).await.unwrap();
    let _controller = installation.controller().await.unwrap();
    let webhook = installation.webhook().await.unwrap();
    installation.until_gating().await.unwrap();
    installation.until_guarded().await.unwrap();
    webhook.until_proven().await.unwrap();

    let tenant = Tenant::on(&bed, "raised").await;
    let vm = tenant.vm("web").await;
    let usage = tenant.usage(&KEYS).await;
    let rancher = SimulatedRancher::start(&bed, tenant.name(), Validator::Present).await.unwrap();
    let limits: BTreeMap<_, _> = usage.into_iter().map(|(key, amount)| (key, amount.0)).collect();
    rancher.create_quota("rq", &limits).await.unwrap();
    tenant.until_quota("rq", "its first status", |quota| used(quota).len() == KEYS.len()).await;
    tenant.unlimited().await;
    let options =
        WebhookOptions::new("thinks.simulated.test", tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    let thinking = SimulatedWebhook::start(&bed, options, |_| Verdict::allow().after(THINKS));
    let thinking = thinking.await.unwrap();
    let pods = waiting(&bed).await;

    let migration = vm.migrate().await.unwrap();
    tenant.until_quota("rq", "a raise", |quota| hard(quota).contains_key(MARK)).await;
    let (over, began) = (AtomicBool::new(false), Instant::now());
    let creating = async {
        let mut ticks = tokio::time::interval(BETWEEN);
        let mut count = 0;
        while !over.load(SeqCst) {
            ticks.tick().await;
            let created =
                pods.create(&PostParams::default(), &pod_without_node(&format!("p-{count}"), &[])).await;
            assert!(created.is_ok(), "pod {count} is refused: {created:?}");
            count += 1;
        }
        count
    };
    let removing = async {
        // The account that reads metrics in tests is not Sluice's, so the namespace is left.
        let report = uninstall(&bed, 3, &[]).await;
        over.store(true, SeqCst);
        report
    };
    let (created, report) = tokio::join!(creating, removing);
    println!("removed in {:?}, while {created} pods were created", began.elapsed());
    let left = rows(&report, "leave");
    assert!(left.len() == 1 && left[0]["kind"] == "Namespace", "{report:#}");

    let all = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), WAITING + created);
    assert_eq!(all.iter().filter(|pod| is_held(pod)).count(), 0, "pods that are held");
    // Its target was asked for while the quota was raised for it.
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    let quota = tenant.quotas.get("rq").await.unwrap();
    assert!(!hard(&quota).contains_key(MARK) && !used(&quota).contains_key(MARK), "{quota:#?}");
    assert!(rancher.reviews() > 0, "Rancher's webhook was asked");
    assert_nothing_of_ours(&tenant.client).await;
    thinking.stop().await.unwrap();
}
