//! API servers that cannot be addressed one by one: behind a balancer a proof says nothing of the others.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{AAQ, AaqCondition, HeadroomPolicy, names};
use sluice_e2e::audit::{AuditTrail, until_refused};
use sluice_e2e::tenant::{SOON, Tenant};
use sluice_e2e::{build, objects};
use sluice_engine::headroom::MARK;
use sluice_testbed::wait;

use crate::context::{Alone, MEMORY, alone, metric, rejected, until_told, vmmrqs};

const HIDDEN: &str = "sluice_headroom_api_servers_hidden";
const NAME: &str = "apiserver-behind-a-balancer";

/// The Leases with which API servers announce themselves.
fn leases(alone: &Alone) -> Api<Lease> {
    Api::namespaced(alone.bed.admin().unwrap(), "kube-system")
}

/// Another API server renews its Lease.
async fn renew(alone: &Alone) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": NAME, "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" } },
        "spec": {
            "holderIdentity": NAME, "leaseDurationSeconds": 3600, "renewTime": format!("{:.6}", Timestamp::now()),
        },
    });
    leases(alone).patch(NAME, &PatchParams::apply("test").force(), &Patch::Apply(lease)).await.unwrap();
}

/// Probes that quota admission refused because the mark was known.
async fn denied_probes(tenant: &Tenant<'_>) -> usize {
    let events = tenant.bed.audit_events_with(tenant.name()).await.unwrap();
    let denied = events.iter().filter(|event| {
        event.resource == names::HEADROOM_PROBES
            && event.namespace == tenant.name()
            && event.message.contains(&format!("limited: {MARK}="))
    });
    denied.count()
}

fn is_not_proven(reason: &str, message: &str) -> bool {
    reason == "NotProven" && message.contains("--balancer-proofs")
}

/// `why` says that nothing is raised and what to do, and `drain-check` that the machine stays.
async fn assert_commands_tell(alone: &Alone, tenant: &Tenant<'_>, migration: &str) {
    let said = async |arguments: &[&str]| {
        renew(alone).await;
        let mut command = tokio::process::Command::new(build::sluice().unwrap());
        command.args(arguments).arg("--kubeconfig").arg(alone.bed.admin_kubeconfig()).kill_on_drop(true);
        let done = tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap();
        assert_eq!(done.status.code(), Some(3), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let why = ["why", "migration", migration, "-n", tenant.name()];
    let text = said(&why).await;
    let begin = format!(
        "{migration}: gets no head-room, VM web keeps running: Sluice raises no quota in this cluster: 2 API servers"
    );
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains("name each with --api-server, or set --balancer-proofs"), "{text}");
    let value: Value = serde_json::from_str(&said(&[&why[..], &["-o", "json"]].concat()).await).unwrap();
    assert_eq!(value["headroom"]["reason"], "HeadroomNotProven", "{value:#}");
    let node = tenant.kubevirt.get(tenant.name(), "web").node().await.unwrap();
    let value: Value = serde_json::from_str(&said(&["drain-check", &node, "-o", "json"]).await).unwrap();
    let rows = value["items"].as_array().unwrap();
    let row = rows.iter().find(|row| row["namespace"] == tenant.name()).unwrap();
    let told = ["native", "headroom", "result", "reason"].map(|field| row[field].as_str().unwrap());
    assert_eq!(told, ["full", "not proven", "STUCK", "HeadroomNotProven"], "{row:#}");
}

/// The Leases of API servers count for the whole cluster.
#[tokio::test(flavor = "multi_thread")]
async fn with_more_api_servers_than_addresses_nothing_is_raised_unless_balancers_are_trusted() {
    let alone = alone().await;
    renew(&alone).await;
    let tenant = Tenant::on(alone.bed, "balancer").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let webhook = alone.webhook(&[]).await;
    let hidden = || async {
        renew(&alone).await;
        (metric(&webhook.admin, HIDDEN).await > 0.5).then_some(())
    };
    wait::eventually(SOON, hidden, "the webhook to miss an API server").await.unwrap();
    let blocked = rejected(&vm).await;
    until_refused(&tenant, 3).await;
    // The controller is asked to wait for it too: it says why nothing is raised, and does not nudge a migration.
    tenant.vmmrq("grant", json!({ MEMORY: "1Gi" })).await;
    objects::apply_aaq(&tenant.client, json!({})).await.unwrap();
    let policies: Api<HeadroomPolicy> = Api::all(tenant.client.clone());
    let aaqs: Api<AAQ> = Api::all(tenant.client.clone());
    let is_said = || async {
        renew(&alone).await;
        let policy = policies.get(tenant.name()).await.ok()?.status?.conditions;
        let vmmrq = vmmrqs(&tenant).get("grant").await.ok()?.status?.conditions;
        let aaq = aaqs.get(names::AAQ_NAME).await.ok()?.status?.conditions?;
        let is = |said: &Condition| said.type_ == "Ready" && is_not_proven(&said.reason, &said.message);
        let is_of_aaq = |said: &AaqCondition| {
            let (reason, message) = (said.reason.as_deref(), said.message.as_deref());
            said.type_ == names::HEADROOM
                && said.status == "False"
                && is_not_proven(reason.unwrap_or_default(), message.unwrap_or_default())
        };
        let is_said = policy.iter().any(is) && vmmrq.iter().any(is) && aaq.iter().any(is_of_aaq);
        is_said.then_some(())
    };
    wait::eventually(SOON, is_said, "policy, grant and AAQ to say that nothing is proven").await.unwrap();
    let logged = webhook.program.log();
    assert!(logged.contains("no quota is raised: API servers cannot be asked"), "{logged}");
    let told = until_told(&tenant, "VirtualMachineInstanceMigration", "HeadroomNotProven").await;
    assert!(told.message.unwrap().contains("can be addressed"));
    assert_eq!(AuditTrail::of(&tenant).await.status_writes().count(), 0, "no nudges");
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0);
    assert_commands_tell(&alone, &tenant, blocked.name()).await;
    blocked.abort().await.unwrap();
    drop(webhook);

    let webhook = alone.webhook(&["--balancer-proofs=3"]).await;
    webhook.until_proven().await.unwrap();
    renew(&alone).await;
    assert!(metric(&webhook.admin, HIDDEN).await < 0.5);
    let refused = tenant.rejected_attempts().await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    tenant.until_clear().await;
    assert_eq!(tenant.rejected_attempts().await, refused);
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 1);
    assert_eq!(denied_probes(&tenant).await, 3, "the one address is asked three times");
    aaqs.delete(names::AAQ_NAME, &DeleteParams::default()).await.unwrap();
    leases(&alone).delete(NAME, &DeleteParams::default()).await.unwrap();
}
