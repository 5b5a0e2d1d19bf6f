//! The report's test 1 while a quota is raised: it is changed by hand, and the agent, which starts anew, changes it back.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_e2e::simulated_rancher::Validator;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::tenant::{hard, spec_hard};
use sluice_engine::headroom::MARK;

use super::two_cores;
use crate::tenants::scene::{Scene, amounts};

const QUOTA: &str = "default-k4n2w";
const ONE: [(&str, &str); 1] = [("limits.cpu", "2")];
/// How long another webhook takes for each pod: for so long the quota stays raised.
const SLOW: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_outlives_a_change_by_hand_and_the_agent_that_takes_it_back() {
    let scene = Scene::new("test1sub1", Validator::Absent).await;
    let tenant = &scene.tenant;
    scene.rancher.want(Some(&json!({ "limitsCpu": "2000m" }))).await.unwrap();
    scene.quota(QUOTA, &amounts(&ONE)).await;
    let vm = two_cores(tenant, "vm1").start().await.unwrap();
    scene.until_used(QUOTA, &ONE).await;
    tenant.unlimited().await;
    let options =
        WebhookOptions::new("slow.simulated.test", tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    let slow = SimulatedWebhook::start(tenant.bed, options, |_| Verdict::allow().after(SLOW)).await.unwrap();
    // By hand there are 3 cores for a moment, and 2 are used. A pod of the target's own size, on its way before the raise,
    // would be the thief that is told of.
    let recording = scene.record("1500m").await;
    let migration = vm.migrate().await.unwrap();
    tenant.until_quota(QUOTA, "to be raised", |quota| hard(quota).contains_key(MARK)).await;
    let by_hand = Patch::Merge(json!({ "spec": { "hard": { "limits.cpu": "3" } } }));
    let by_hand = tenant.quotas.patch(QUOTA, &PatchParams::default(), &by_hand).await.unwrap();
    assert!(hard(&by_hand).contains_key(MARK), "it is raised still: {by_hand:#?}");
    scene.rancher.synchronize().await.unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    scene.until_used(QUOTA, &ONE).await;
    let seen = scene.finish(recording, QUOTA, &amounts(&ONE)).await;
    assert_eq!(seen.raises(QUOTA), 1);
    assert_eq!(seen.limits(QUOTA, "limits.cpu"), ["2", "3", "2"]);
    let now = tenant.quotas.get(QUOTA).await.unwrap();
    assert_eq!((spec_hard(&now), hard(&now)["limits.cpu"].0.as_str()), (hard(&now), "2"));
    slow.stop().await.unwrap();
}
