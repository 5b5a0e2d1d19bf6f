//! A tenant that tries to get in beside a target, and what a locked namespace refuses.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_e2e::audit::{AuditTrail, assert_none_rejected};
use sluice_e2e::call;
use sluice_e2e::intruders::{Flood, editor, intruder};
use sluice_e2e::tenant::{Tenant, shared};

use super::{counted, one_pod};
use crate::tenants::held_lock::HeldLock;
use crate::tenants::quota_history::QuotaHistory;

/// managed-tenant-quota's suite asks for this long.
const LOCKED_FOR: Duration = Duration::from_secs(5);
const MIGRATIONS: usize = 5;

/// F18: a quota of exactly one machine, a budget of one more, and a loop that creates pods of 50Mi.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_of_a_tight_loop_gets_in_while_a_machine_migrates_five_times() {
    let tenant = Tenant::on(shared().await.bed, "abuse").await;
    let vm = tenant.vm("web").await;
    let quotas = [tenant.full_quota("rq", &["requests.memory"]).await];
    tenant.vmmrq("one", one_pod(&quotas)).await;
    let editor = editor(&tenant).await;
    let history = QuotaHistory::of(&tenant).await;
    let abuse = Flood::of_loops(&tenant, &editor, 1);
    for _ in 0..MIGRATIONS {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        let one = |now: &_| counted(now) == counted(&quotas[0]);
        tenant.until_quota("rq", "the source to be given back", one).await;
    }
    let tally = abuse.end().await;
    tenant.until_clear().await;
    let seen = history.end().await;
    assert_eq!(tally.let_in(), 0, "{tally:?}");
    assert!(tally.over_quota() > 0, "the loop ran");
    seen.assert_spec_untouched("rq");
    assert_none_rejected(&tenant).await;
    let trail = AuditTrail::of(&tenant).await;
    let locks = trail.locks();
    assert!(locks.len() >= MIGRATIONS, "{locks:#?}");
    assert!(locks.iter().all(|lock| lock.duration() < SignedDuration::from_secs(10)), "{locks:#?}");
    trail.assert_no_spec_written();
}

/// F20, F21: from the first one on, every pod is refused for as long as the lock is there, and so is that of a new machine.
/// Here the mark in the quota is the lock; it leaves room for many such pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pod_is_refused_from_the_first_one_on_while_a_namespace_is_locked() {
    let tenant = Tenant::on(shared().await.bed, "locked").await;
    tenant.quota("rq", json!({ "requests.memory": "1Gi", "pods": "3" })).await;
    let editor = editor(&tenant).await;
    let client = editor.client().unwrap();
    let path = format!("/api/v1/namespaces/{}/pods", tenant.name());
    let pod = serde_json::to_value(intruder(json!({ "generateName": "abuse-" }))).unwrap();
    let lock = HeldLock::hold(&tenant, "rq", json!({ "requests.memory": "100Gi", "pods": "1000" })).await;
    let (begun, mut refused) = (Instant::now(), 0_usize);
    while begun.elapsed() < LOCKED_FOR {
        let answer = call::post(&client, &path, &pod).await.unwrap();
        assert_eq!(answer.code, 403, "after {refused} refusals: {answer:?}");
        assert!(answer.message().contains("is reserved for the target pod"), "{answer:?}");
        refused += 1;
    }
    assert!(refused > 0);
    let vm = tenant.kubevirt.vm(tenant.name(), "new").create().await.unwrap();
    let told = |vmi: &kube::api::DynamicObject| {
        let conditions = vmi.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            let said = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "Synchronized"
                && condition["status"] == "False"
                && said.contains("is reserved for the target pod")
        })
    };
    vm.until("to say that the namespace is locked", told).await.unwrap();
    assert!(lock.is_held().await, "all the time");
    assert!(tenant.pods.list(&Default::default()).await.unwrap().items.is_empty());
    lock.release().await;
    tenant.until_clear().await;
    vm.until_running().await.unwrap();
    tenant.pods.create(&PostParams::default(), &intruder(json!({ "name": "own" }))).await.unwrap();
}
