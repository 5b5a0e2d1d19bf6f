//! A lock that stays. Those of Sluice's webhook are over after milliseconds, so tests write the same mark with the same
//! account and renew it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Map, Value, json};
use sluice_api::names;
use sluice_e2e::call;
use sluice_e2e::tenant::{SOON, Tenant, spec_hard};
use sluice_engine::headroom::MARK;
use sluice_testbed::{Identity, wait};
use tokio::task::JoinHandle;

/// How far ahead a mark's end is written: the policy permits 10 s.
const AHEAD: Duration = Duration::from_secs(9);
const RENEWED_EVERY: Duration = Duration::from_secs(3);

/// A marked quota. The mark is renewed until [`HeldLock::release`].
pub struct HeldLock {
    quotas: Api<ResourceQuota>,
    quota: String,
    raised: Value,
    renewing: JoinHandle<()>,
}

impl HeldLock {
    /// Marks a quota and raises keys of it; returns when pods are refused.
    pub async fn hold(tenant: &Tenant<'_>, quota: &str, raised: Value) -> Self {
        let account = tenant.bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
        let quotas: Api<ResourceQuota> = Api::namespaced(account.client().unwrap(), tenant.name());
        let end = mark(&quotas, quota, &raised).await;
        until_in_force(&account, tenant.name(), end).await;
        let (api, name, keys) = (quotas.clone(), quota.to_owned(), raised.clone());
        let renewing = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(RENEWED_EVERY);
            loop {
                ticks.tick().await;
                mark(&api, &name, &keys).await;
            }
        });
        Self { quotas, quota: quota.to_owned(), raised, renewing }
    }

    /// Whether the mark is there.
    pub async fn is_held(&self) -> bool {
        let quota = self.quotas.get(&self.quota).await.unwrap();
        quota.status.and_then(|status| status.hard).is_some_and(|hard| hard.contains_key(MARK))
    }

    /// Restores the quota, which ends the lock.
    pub async fn release(self) {
        self.renewing.abort();
        let _ = self.renewing.await;
        let limits = spec_hard(&self.quotas.get(&self.quota).await.unwrap());
        let keys = self.raised.as_object().unwrap().keys();
        let mut hard: Map<String, Value> = keys.map(|key| (key.clone(), json!(limits[key]))).collect();
        hard.insert(MARK.to_owned(), Value::Null);
        write(&self.quotas, &self.quota, json!({ "hard": hard, "used": { MARK: null } })).await;
    }
}

/// As Sluice does: dry runs of a HeadroomProbe until the policy denies one. That of quota admission, which may know the mark
/// a moment earlier, keeps no pod away.
async fn until_in_force(account: &Identity, namespace: &str, end: i64) {
    let path = format!("/apis/quota.sluice.dev/v1alpha1/namespaces/{namespace}/headroomprobes?dryRun=All");
    let probe = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomProbe",
        "metadata": { "name": "probe" }, "spec": { "mark": end },
    });
    let client = account.client().unwrap();
    let denied = || async {
        let answer = call::post(&client, &path, &probe).await.ok()?;
        (answer.code == 403 && answer.message().contains(names::PROBE_DENIED)).then_some(())
    };
    wait::eventually(SOON, denied, "the lock to be in force").await.unwrap();
}

/// Returns the end of the lock.
async fn mark(quotas: &Api<ResourceQuota>, quota: &str, raised: &Value) -> i64 {
    let end = Timestamp::now().as_millisecond() + i64::try_from(AHEAD.as_millis()).unwrap();
    // Multiples of 1000 are printed with a suffix.
    let end = if end % 1000 == 0 { end + 1 } else { end };
    let mut hard = raised.as_object().unwrap().clone();
    hard.insert(MARK.to_owned(), json!(end.to_string()));
    write(quotas, quota, json!({ "hard": hard, "used": { MARK: end.to_string() } })).await;
    end
}

async fn write(quotas: &Api<ResourceQuota>, quota: &str, status: Value) {
    let params = PatchParams { field_manager: Some("sluice".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "status": status }));
    let written = quotas.patch_status(quota, &params, &patch).await.unwrap();
    assert_eq!(written.name_any(), quota);
}
