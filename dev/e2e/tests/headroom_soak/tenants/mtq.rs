//! What managed-tenant-quota does, case by case as its own suite has it (F4 to F21, F25).

mod abuse;
mod event;
mod many;
mod single;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use sluice_e2e::tenant::{Tenant, spec_hard, used};
use sluice_engine::{Amount, Format};
use sluice_testbed::kubevirt::Vm;

/// What a quota counts now, as the spec of a budget.
fn amounts(quota: &ResourceQuota) -> BTreeMap<String, String> {
    used(quota).into_iter().map(|(key, amount)| (key, amount.0)).collect()
}

/// An exact number as text.
fn text(nanos: i128) -> String {
    Amount::from_nanos(nanos).quantity(Format::DecimalSi).to_string()
}

/// Rejected first, then released by the budgets that `grant` makes; with them there, not rejected at all.
async fn passes(tenant: &Tenant<'_>, vm: &Vm, quotas: &[ResourceQuota], grants: &[Value]) {
    let rejected = vm.migrate().await.unwrap();
    rejected.until_rejected().await.unwrap();
    assert!(rejected.target_pod().await.unwrap().is_none());
    for (number, grant) in grants.iter().enumerate() {
        tenant.vmmrq(&format!("grant-{number}"), grant.clone()).await;
    }
    rejected.until_succeeded().await.unwrap();
    assert!(!rejected.rejected().await.unwrap(), "the condition is gone");
    until_as_before(tenant, vm, quotas).await;
    for _ in 0..2 {
        let before = tenant.rejected_attempts().await;
        let next = vm.migrate().await.unwrap();
        next.until_succeeded().await.unwrap();
        assert!(!next.rejected().await.unwrap());
        until_as_before(tenant, vm, quotas).await;
        assert_eq!(tenant.rejected_attempts().await, before, "room was made before it was looked for");
    }
}

/// What a quota counts of the keys that it limits; a nudge leaves a number of its own in the status.
fn counted(quota: &ResourceQuota) -> BTreeMap<String, Quantity> {
    let limited = spec_hard(quota);
    used(quota).into_iter().filter(|(key, _)| limited.contains_key(key)).collect()
}

/// Waits until only one pod of the machine is counted and nothing is raised; the spec is as it was.
async fn until_as_before(tenant: &Tenant<'_>, vm: &Vm, quotas: &[ResourceQuota]) {
    vm.until_alone().await.unwrap();
    tenant.until_clear().await;
    for quota in quotas {
        let name = quota.metadata.name.as_deref().unwrap();
        let same = |now: &ResourceQuota| counted(now) == counted(quota);
        let now = tenant.until_quota(name, "the source to be given back", same).await;
        assert_eq!(spec_hard(&now), spec_hard(quota));
        assert_eq!(now.metadata.generation, quota.metadata.generation);
    }
}

/// One budget of exactly one pod.
pub fn one_pod(quotas: &[ResourceQuota]) -> Value {
    let all: BTreeMap<_, _> = quotas.iter().flat_map(amounts).collect();
    json!(all)
}
