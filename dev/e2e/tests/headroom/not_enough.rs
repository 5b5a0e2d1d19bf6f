//! What people are told when head-room is not enough, and when it is looked at again.

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::objects;
use sluice_e2e::tenant::SOON;
use sluice_engine::{Amount, Quantity};
use sluice_testbed::wait;

use crate::context::{
    MEMORY, MI, crowded, grant, missing, rejected, set_limit, shared_metric, until_condition, until_missing,
    until_missing_amount, until_told,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousandth_of_a_byte_less_is_not_enough() {
    let (tenant, vm) = crowded("exact").await;
    let exactly = missing(&tenant).await;
    grant(&tenant, &format!("{}m", exactly * 1000 - 1)).await;
    let migration = rejected(&vm).await;
    until_missing_amount(&tenant, "1m").await;
    until_condition(&tenant, "NotEnough", "True", "its events say what is missing").await;
    assert!(migration.target_pod().await.unwrap().is_none());
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0);
    grant(&tenant, &exactly.to_string()).await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    until_condition(&tenant, "NotEnough", "False", "no migration lacks head-room").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_name_key_quota_and_amount_and_the_old_one_is_found_as_it_was() {
    let (tenant, vm) = crowded("told").await;
    let exactly = missing(&tenant).await;
    let migration = rejected(&vm).await;
    for (kind, name) in
        [("VirtualMachineInstanceMigration", migration.name()), ("VirtualMachineInstance", vm.name())]
    {
        let event = until_told(&tenant, kind, "NotEnoughHeadroom").await;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.involved_object.name.as_deref(), Some(name));
        let text = event.message.unwrap();
        assert!([MEMORY, "quota rq", migration.name()].iter().all(|part| text.contains(part)), "{text}");
        let amount = Quantity::parse(text.rsplit(' ').next().unwrap()).unwrap();
        assert_eq!(
            Amount::from(amount),
            Amount::from(Quantity::parse(&exactly.to_string()).unwrap()),
            "{text}"
        );
    }
    let legacy = until_told(&tenant, "Pod", "NotEnoughResourceToRelease").await;
    assert_eq!(legacy.type_.as_deref(), Some("Warning"));
    assert_eq!(legacy.involved_object.name, None);
    assert_eq!(legacy.involved_object.namespace.as_deref(), Some(tenant.name()));
    assert!(shared_metric("sluice_blocked_migrations").await >= 1.0);
    assert_eq!(AuditTrail::of(&tenant).await.status_writes().count(), 0);
    migration.abort().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_matters_is_looked_at_again() {
    let (tenant, vm) = crowded("again").await;
    let exactly = missing(&tenant).await;
    grant(&tenant, "1Mi").await;
    let migration = rejected(&vm).await;
    until_missing(&tenant, exactly - MI).await;
    grant(&tenant, "2Mi").await;
    until_missing(&tenant, exactly - 2 * MI).await;
    set_limit(&tenant, "701Mi").await;
    until_missing(&tenant, exactly - 3 * MI).await;
    let guest = objects::pod("guest", &[("memory", "16Mi")]);
    tenant.pods.create(&PostParams::default(), &guest).await.unwrap();
    until_missing(&tenant, exactly + 13 * MI).await;
    migration.abort().await.unwrap();
    until_condition(&tenant, "NotEnough", "False", "no migration lacks head-room").await;
    let migration = rejected(&vm).await;
    until_missing(&tenant, exactly + 13 * MI).await;
    grant(&tenant, "1Gi").await;
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
}

async fn refusals(client: &kube::Client, namespace: &str) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let selector = "reason=NoHeadroom,involvedObject.kind=VirtualMachineInstanceMigration";
    events.list(&ListParams::default().fields(selector)).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_opted_out_is_told_once_and_passes_when_the_annotation_goes() {
    let (tenant, vm) = crowded("optout").await;
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    let opt = |value: serde_json::Value| {
        Patch::Merge(json!({ "metadata": { "annotations": { names::OWN_OPT_OUT: value } } }))
    };
    namespaces.patch(tenant.name(), &PatchParams::default(), &opt(json!("true"))).await.unwrap();
    grant(&tenant, "1Gi").await;
    until_condition(&tenant, "Ready", "False", "by an annotation").await;
    let migration = rejected(&vm).await;
    until_told(&tenant, "VirtualMachineInstanceMigration", "NoHeadroom").await;
    // Three changes that are looked at, each of which we answer with the status of the grant.
    for mebibytes in [1025, 1026, 1027] {
        grant(&tenant, &format!("{mebibytes}Mi")).await;
        let wanted = format!("{mebibytes}Mi");
        let answered = |vmmrq: Option<&sluice_api::VirtualMachineMigrationResourceQuota>| {
            let status = vmmrq.and_then(|vmmrq| vmmrq.status.as_ref());
            status.is_some_and(|status| {
                status.additional_migration_resources.get(MEMORY).is_some_and(|amount| amount.0 == wanted)
            })
        };
        let api = crate::context::vmmrqs(&tenant);
        wait::wait_for(&api, "grant", SOON, "the status of the grant", answered).await.unwrap();
    }
    let told = refusals(&tenant.client, tenant.name()).await;
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].series.is_none() && told[0].count.unwrap_or(1) <= 1, "{told:#?}");
    assert_eq!(AuditTrail::of(&tenant).await.status_writes().count(), 0);
    namespaces.patch(tenant.name(), &PatchParams::default(), &opt(json!(null))).await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    until_condition(&tenant, "Ready", "True", "may take these amounts").await;
}
