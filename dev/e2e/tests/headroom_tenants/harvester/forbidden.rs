//! Somebody's webhook or policy forbids to write the status of the quotas that Rancher owns.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_e2e::installation::get;
use sluice_e2e::tenant::{SOON, Tenant, shared};
use sluice_testbed::wait;

use super::{amounts, machine, projected};
use crate::trail::{Trail, assert_none_rejected};

const SAYS: &str = "users are forbidden from changing resources managed by Rancher";

/// Forbids it to everybody but Kubernetes itself, in one namespace.
async fn fence(tenant: &Tenant<'_>) {
    let name = format!("fence-{}", tenant.name());
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["resourcequotas", "resourcequotas/status"],
            }] },
            "validations": [{
                "expression": format!("!request.userInfo.username.startsWith('{}')", account("")),
                "message": SAYS, "reason": "Forbidden",
            }],
        },
    });
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": tenant.name() } });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": {
            "policyName": name, "validationActions": ["Deny"], "matchResources": { "namespaceSelector": selector },
        },
    });
    tenant.bed.apply_objects([policy, binding]).await.unwrap();
    let probe = tenant.bed.client_as_user(&account("probe"), &["system:masters"]).unwrap().client().unwrap();
    let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> = Api::namespaced(probe, tenant.name());
    let denied = || async {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let nothing: Value = json!({ "status": { "hard": { "limits.cpu": "3" } } });
        quotas.patch_status("default-z4g94", &dry, &Patch::Merge(nothing)).await.err().map(drop)
    };
    wait::eventually(SOON, denied, "the fence to be in force").await.unwrap();
}

fn account(name: &str) -> String {
    format!("system:serviceaccount:{}:{name}", names::INSTALL_NAMESPACE)
}

/// Sum of a counter over all its labels.
fn counter(metrics: &str, name: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_forbids_to_write_a_status_is_named_and_only_his_quota_suffers() {
    let cluster = shared().await;
    let tenant = Tenant::on(cluster.bed, "fenced").await;
    let small = amounts(&[("limits.cpu", "3"), ("limits.memory", "5000Mi")]);
    projected(&tenant, "default-z4g94", &small).await;
    let vm = machine(&tenant, "vm1", (2, "4Gi"), ("125m", "2730Mi")).start().await.unwrap();
    tenant.vmmrq("grant", json!({ "limits.cpu": "10", "limits.memory": "20Gi" })).await;
    fence(&tenant).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_rejected().await.unwrap();

    let events: Api<Event> = Api::namespaced(tenant.client.clone(), tenant.name());
    let told = |events: &[Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("HeadroomForbidden")
                && event.involved_object.name.as_deref() == Some("default-z4g94")
                && event.message.as_deref().is_some_and(|text| text.contains(SAYS))
        })
    };
    wait::wait_for_all(&events, Default::default(), SOON, "the event", told).await.unwrap();
    let vmmrqs: Api<Vmmrq> = Api::namespaced(tenant.client.clone(), tenant.name());
    let not_ready = |vmmrq: Option<&Vmmrq>| {
        let conditions = vmmrq.and_then(|vmmrq| Some(vmmrq.status.as_ref()?.conditions.clone()));
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "Ready" && condition.status == "False" && condition.message.contains(SAYS)
        })
    };
    wait::wait_for(&vmmrqs, "grant", SOON, "the condition", not_ready).await.unwrap();
    let (_, metrics) = get(&cluster.controller.admin, names::PATH_METRICS).await.unwrap();
    assert!(counter(&metrics, "sluice_headroom_forbidden_total") >= 1.0, "{metrics}");

    // Others are let through meanwhile, and this one is not hammered.
    let free = Tenant::on(cluster.bed, "free").await;
    let other = free.vm("web").await;
    free.full_quota("full", &["requests.memory"]).await;
    free.unlimited().await;
    for _ in 0..3 {
        other.migrate().await.unwrap().until_succeeded().await.unwrap();
        other.until_alone().await.unwrap();
    }
    free.until_clear().await;
    assert_none_rejected(&free, 3).await;
    assert!(migration.target_pod().await.unwrap().is_none());
    // Each attempt of virt-controller (its own back-off doubles) may cost one write, each of ours one more.
    let (writes, attempts) = (Trail::of(&tenant).await.status_writes(), tenant.rejected_attempts().await);
    println!("{writes} status writes for {attempts} rejected attempts");
    assert!(writes <= attempts + 4, "{writes} writes for {attempts} attempts");
}
