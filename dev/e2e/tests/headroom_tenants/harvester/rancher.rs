//! Rancher rewrites the quota while machines migrate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{MigrationWindow, names};
use sluice_e2e::tenant::{SOON, Tenant, hard, shared, spec_hard, used};
use sluice_testbed::wait;
use tokio::task::JoinHandle;

use super::field::customer_uses_its_quota;
use super::{WANTED, amounts, annotate, evacuate, machine, projected, shapes, until_used};
use crate::chronicle::Chronicle;

/// Does to a quota what Rancher's namespace handler does: replaces its whole spec by what the namespace's annotation
/// wants. It has no watch on quotas; it acts when its agent starts or the namespace changes.
struct SimulatedRancher {
    rewrites: Arc<AtomicUsize>,
    acting: JoinHandle<()>,
}

impl SimulatedRancher {
    /// Acts whenever a window opens: in turns because its agent starts, and because somebody has changed what is wanted.
    fn disturbs(tenant: &Tenant<'_>, quota: &str) -> Self {
        let rewrites = Arc::<AtomicUsize>::default();
        let (client, namespace, quota) = (tenant.client.clone(), tenant.name().to_owned(), quota.to_owned());
        let windows: Api<MigrationWindow> = Api::namespaced(client.clone(), &namespace);
        let count = Arc::clone(&rewrites);
        let acting = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(windows, watcher::Config::default()));
            while let Some(event) = events.next().await {
                if !matches!(event, Ok(watcher::Event::Apply(_))) {
                    continue;
                }
                let (cores, memory) = if count.load(Ordering::SeqCst) % 3 == 1 {
                    ("31000m", "61Gi")
                } else {
                    ("30000m", "61440Mi")
                };
                let wanted = json!({ "limit": { "limitsCpu": cores, "limitsMemory": memory } });
                let namespaces: Api<Namespace> = Api::all(client.clone());
                let patch = json!({ "metadata": { "annotations": { WANTED: wanted.to_string() } } });
                namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                replace(&client, &namespace, &quota).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { rewrites, acting }
    }

    /// How often it has rewritten the quota.
    fn end(self) -> usize {
        self.acting.abort();
        self.rewrites.load(Ordering::SeqCst)
    }
}

/// Replaces the spec by what the annotation wants, again while somebody else is faster.
async fn replace(client: &Client, namespace: &str, name: &str) {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    let annotated = Api::<Namespace>::all(client.clone()).get(namespace).await.unwrap();
    let wanted: Value = serde_json::from_str(&annotated.metadata.annotations.unwrap()[WANTED]).unwrap();
    let text = |key: &str| wanted["limit"][key].as_str().unwrap().to_owned();
    loop {
        let mut quota = quotas.get(name).await.unwrap();
        quota.spec = serde_json::from_value(json!({
            "hard": { "limits.cpu": text("limitsCpu"), "limits.memory": text("limitsMemory") },
        }))
        .unwrap();
        match quotas.replace(name, &PostParams::default(), &quota).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            done => return drop(done.unwrap()),
        }
    }
}

/// F: seven machines are evacuated while Rancher rewrites the quota in the middle of each window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_rancher_rewrites_in_each_window_never_falls_below_its_base() {
    let tenant = Tenant::on(shared().await.bed, "field-f").await;
    let wanted = json!({ "limit": { "limitsCpu": "30000m", "limitsMemory": "61440Mi" } });
    annotate(&tenant, WANTED, Some(&wanted.to_string())).await;
    projected(&tenant, "default-xt5b2", &shapes::customer()).await;
    let vms = customer_uses_its_quota(&tenant).await;
    until_used(&tenant, "default-xt5b2", &[("limits.cpu", "28505m")]).await;
    tenant.unlimited().await;
    let chronicle = Chronicle::of(&tenant).await;
    let rancher = SimulatedRancher::disturbs(&tenant, "default-xt5b2");
    evacuate(&tenant, &vms).await;
    for vm in &vms {
        vm.until_migration(&[]).await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    tenant.until_clear().await;
    let rewrites = rancher.end();
    assert!(rewrites > 0, "Rancher was there");
    // Somebody undoes the last change, and the agent starts once more.
    annotate(&tenant, WANTED, Some(&wanted.to_string())).await;
    replace(&tenant.client, tenant.name(), "default-xt5b2").await;
    let base = |quota: &ResourceQuota| {
        hard(quota) == spec_hard(quota)
            && hard(quota)["limits.cpu"].0 == "30"
            && hard(quota)["limits.memory"].0 == "60Gi"
            && used(quota)["limits.cpu"].0 == "28505m"
    };
    tenant.until_quota("default-xt5b2", "to be exactly its base", base).await;
    let rejected = tenant.rejected_attempts().await;
    let annals = chronicle.end().await;
    println!("{rewrites} rewrites, {} raises, {rejected} rejected attempts", annals.raises("default-xt5b2"));
    annals.assert_never_below("default-xt5b2", &shapes::customer());
}

/// The annotation that keeps Harvester's hands off keeps ours off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_is_opted_out_is_left_alone_until_it_is_not() {
    let tenant = Tenant::on(shared().await.bed, "opted").await;
    let small = amounts(&[("limits.cpu", "3"), ("limits.memory", "5000Mi")]);
    projected(&tenant, "default-z4g94", &small).await;
    let opt = |value: Option<&str>| {
        let patch = json!({ "metadata": { "annotations": { names::HARVESTER_OPT_OUT: value } } });
        let quotas = tenant.quotas.clone();
        async move {
            quotas.patch("default-z4g94", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    };
    opt(Some("true")).await;
    tenant.unlimited().await;
    let vm = machine(&tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).start().await.unwrap();
    let chronicle = Chronicle::of(&tenant).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();
    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let told = |events: &[Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("NoHeadroom")
                && event.message.as_deref().is_some_and(|text| text.contains("default-z4g94"))
        })
    };
    wait::wait_for_all(&events, Default::default(), SOON, "to be told why", told).await.unwrap();
    assert!(migration.target_pod().await.unwrap().is_none());
    assert_eq!(chronicle.end().await.raises("default-z4g94"), 0);
    opt(None).await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
}
