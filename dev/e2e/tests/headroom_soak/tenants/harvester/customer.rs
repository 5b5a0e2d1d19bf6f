//! A and F: the customer's namespace, whose quota Rancher wrote again and again.

use rstest::rstest;
use serde_json::json;
use sluice_e2e::simulated_rancher::Validator;
use sluice_e2e::tenant::{hard, spec_hard};
use sluice_testbed::kubevirt::Vm;

use super::four_cores;
use crate::tenants::scene::{Scene, amounts, other_pod};

/// Seven machines, and pods that attach volumes.
async fn use_the_quota(scene: &Scene, quota: &str, volumes: usize, used: &[(&str, &str)]) -> Vec<Vm> {
    let machines: Vec<_> = (0..7).map(|number| four_cores(&scene.tenant, &format!("vm{number}"))).collect();
    let vms = scene.start(machines).await;
    for number in 0..volumes {
        let pod = other_pod(&format!("hp-volume-{number}"), "100m", "80M");
        scene.tenant.pods.create(&Default::default(), &pod).await.unwrap();
    }
    scene.until_used(quota, used).await;
    vms
}

/// Old Harvester took 4 cores from a quota that Rancher had already set back, and left 26.
#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machines_migrate_in_a_quota_that_is_below_its_usage(#[case] validator: Validator) {
    const QUOTA: &str = "default-4tmmk";
    let scene = Scene::new("field-a", validator).await;
    scene.quota(QUOTA, &amounts(&[("limits.cpu", "30"), ("limits.memory", "60Gi")])).await;
    let used = [("limits.cpu", "28505m"), ("limits.memory", "62900279552")];
    let vms = use_the_quota(&scene, QUOTA, 4, &used).await;
    let low = json!({ "limitsCpu": "26", "limitsMemory": "54242646Ki" });
    scene.rancher.want(Some(&low)).await.unwrap();
    scene.rancher.synchronize().await.unwrap();
    let lowered = |quota: &_| hard(quota) == spec_hard(quota) && hard(quota)["limits.cpu"].0 == "26";
    scene.tenant.until_quota(QUOTA, "26 cores to be enforced", lowered).await;
    scene.tenant.unlimited().await;
    let recording = scene.record("4").await;
    for vm in &vms[..3] {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        scene.until_used(QUOTA, &used).await;
    }
    let floor = amounts(&[("limits.cpu", "26"), ("limits.memory", "54242646Ki")]);
    let seen = scene.finish(recording, QUOTA, &floor).await;
    seen.assert_spec_untouched(QUOTA);
    // What is not a migration stays limited, in the words of the report.
    let cold = four_cores(&scene.tenant, "more").create().await.unwrap();
    let refused = cold.until_event("FailedCreate").await.unwrap().message.unwrap();
    let message = "exceeded quota: default-4tmmk, requested: limits.cpu=4015m,limits.memory=8940039936, \
                   used: limits.cpu=28505m,limits.memory=62900279552, \
                   limited: limits.cpu=26,limits.memory=54242646Ki";
    assert!(refused.contains(message), "{refused}");
}

/// Rancher's agent starts, and what is wanted changes, whenever the quota is raised.
#[rstest]
#[case::without_webhook(Validator::Absent)]
#[case::with_ranchers_webhook(Validator::Present)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_machines_are_evacuated_while_rancher_rewrites_the_quota(#[case] validator: Validator) {
    const QUOTA: &str = "default-xt5b2";
    let scene = Scene::new("field-f", validator).await;
    let wanted = json!({ "limitsCpu": "30000m", "limitsMemory": "61440Mi" });
    let more = json!({ "limitsCpu": "31000m", "limitsMemory": "62464Mi" });
    scene.rancher.want(Some(&wanted)).await.unwrap();
    let base = amounts(&[("limits.cpu", "30"), ("limits.memory", "60Gi")]);
    scene.quota(QUOTA, &base).await;
    let used = [("limits.cpu", "28405m"), ("limits.memory", "62820279552")];
    let vms = use_the_quota(&scene, QUOTA, 3, &used).await;
    scene.tenant.unlimited().await;
    // More than is free beside 31 cores, less than a target needs.
    let recording = scene.record("4").await;
    let rewriting = scene.rancher.rewrite_while_raised(vec![more, wanted.clone()]);
    scene.evacuate(&vms).await;
    scene.tenant.until_clear().await;
    assert!(rewriting.end().await.unwrap() > 0, "Rancher was there");
    scene.rancher.want(Some(&wanted)).await.unwrap();
    scene.rancher.synchronize().await.unwrap();
    scene.until_used(QUOTA, &used).await;
    let seen = scene.finish(recording, QUOTA, &base).await;
    assert!(seen.raises(QUOTA) > 0);
    let now = scene.tenant.quotas.get(QUOTA).await.unwrap();
    assert_eq!((hard(&now)["limits.cpu"].0.as_str(), hard(&now)["limits.memory"].0.as_str()), ("30", "60Gi"));
}
