//! A cluster quota of VMs over two namespaces.

use kube::Api;
use serde_json::json;
use sluice_api::{ApplicationAwareClusterResourceQuota as Acrq, QuotaAmounts, names};
use sluice_e2e::history::History;
use sluice_e2e::objects::from_json;
use sluice_testbed::kubevirt::MigrationScript;
use sluice_testbed::wait;

use crate::context::{Counting, SOON, VMI, until_migrated_once, until_under_way};

const OWNER: (&str, &str) = ("example.com/owner", "vms");
const FULL: [&str; 3] = ["2", "2", "512Mi"];

fn says(amounts: &QuotaAmounts, used: [&str; 3]) -> bool {
    VMI.iter().zip(used).all(|(key, used)| amounts.used.get(*key).is_some_and(|is| is.0 == used))
}

/// Whether the total is this, and of that in each of the namespaces.
fn is_used(quota: &Acrq, total: [&str; 3], each: &[(&str, [&str; 3])]) -> bool {
    let Some(status) = &quota.status else { return false };
    let namespaces = status.namespaces.as_deref().unwrap_or_default();
    let of = |(namespace, used): &(&str, [&str; 3])| {
        namespaces.iter().any(|entry| entry.namespace == *namespace && says(&entry.status, *used))
    };
    says(&status.total, total) && each.iter().all(of)
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_of_two_namespaces_share_a_full_quota_and_migrate_in_it() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let (one, other) = (counting.team_of("one", &[OWNER]).await, counting.team_of("other", &[OWNER]).await);
    let acrqs: Api<Acrq> = Api::all(one.tenant.client.clone());
    let hard: serde_json::Map<_, _> =
        VMI.iter().zip(FULL).map(|(key, hard)| ((*key).to_owned(), json!(hard))).collect();
    let quota: Acrq = from_json(json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": "vms" },
        "spec": { "quota": { "hard": hard }, "selector": { "labels": { "matchLabels": { OWNER.0: OWNER.1 } } } },
    }));
    acrqs.create(&Default::default(), &quota).await.unwrap();
    let until_used = async |total, each: &[_]| {
        let what = format!("{total:?} to be used, {each:?}");
        let is = |quota: Option<&Acrq>| quota.is_some_and(|quota| is_used(quota, total, each));
        wait::wait_for(&acrqs, "vms", SOON, &what, is).await.unwrap();
    };
    let one_vm = ["1", "1", "256Mi"];
    let shared = [(one.tenant.name(), one_vm), (other.tenant.name(), one_vm)];
    let (first, second) = (one.tenant.vm("first").await, other.tenant.vm("second").await);
    until_used(FULL, &shared).await;

    let watch = History::of(acrqs.clone()).await;
    let vms = [first, second];
    for vm in &vms {
        vm.follow(MigrationScript::Hold).await.unwrap();
        vm.migrate().await.unwrap();
    }
    until_under_way(&vms).await;
    let third = one.tenant.kubevirt.vm(one.tenant.name(), "third").create().await.unwrap();
    let held = one.until_held("third").await;
    assert_eq!(
        one.until_told(&held).await,
        "exceeded quota: vms, requested: requests.cpu/vmi=1,requests.instances/vmi=1,requests.memory/vmi=256Mi, \
         used: requests.cpu/vmi=2,requests.instances/vmi=2,requests.memory/vmi=512Mi, \
         limited: requests.cpu/vmi=2,requests.instances/vmi=2,requests.memory/vmi=512Mi"
    );
    for vm in &vms {
        vm.release().await.unwrap();
        until_migrated_once(vm).await;
    }
    for version in watch.end().await.versions("vms") {
        assert!(is_used(version, FULL, &shared), "{version:#?}");
    }
    assert_eq!(one.until_held("third").await.metadata.uid, held.metadata.uid, "it waits still");

    let [_, second] = vms;
    second.delete().await.unwrap();
    third.until_running().await.unwrap();
    until_used(FULL, &[(one.tenant.name(), FULL), (other.tenant.name(), ["0"; 3])]).await;
}
