//! Objects that pretend to be what they are not.

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::call::{self, Response};
use sluice_e2e::intruders::{editor, grant, intruder};
use sluice_e2e::tenant::{Tenant, shared};
use sluice_engine::headroom::MARK;
use sluice_testbed::Identity;
use sluice_testbed::kubevirt::MigrationScript;

use crate::tenants::quota_history::QuotaHistory;

/// What a pod is dressed up with.
#[derive(Clone, Copy, Debug)]
enum Costume {
    Labels,
    Owner,
    /// Everything that a genuine target has.
    Everything,
}

#[rstest]
#[case::labels(Costume::Labels)]
#[case::owner_references(Costume::Owner)]
#[case::everything(Costume::Everything)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_the_costume_of_a_target_opens_nothing(#[case] costume: Costume) {
    let tenant = Tenant::on(shared().await.bed, "forged").await;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").script(MigrationScript::Hold).start().await.unwrap();
    tenant.full_quota("full", &["requests.memory"]).await;
    tenant.unlimited().await;
    // The migration is under way: what the costume refers to exists.
    let migration = vm.migrate().await.unwrap();
    let target = migration.until_target_pod().await.unwrap();
    tenant.until_clear().await;
    let locks = AuditTrail::of(&tenant).await.locks().len();
    let history = QuotaHistory::of(&tenant).await;
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(editor(&tenant).await.client().unwrap(), tenant.name());
    for attempt in 0..3 {
        let mut pod = intruder(json!({ "name": format!("forged-{attempt}") }));
        if matches!(costume, Costume::Labels | Costume::Everything) {
            pod.metadata.labels = target.metadata.labels.clone();
        }
        if matches!(costume, Costume::Owner | Costume::Everything) {
            pod.metadata.owner_references = target.metadata.owner_references.clone();
        }
        if matches!(costume, Costume::Everything) {
            pod.metadata.annotations = target.metadata.annotations.clone();
        }
        let refused = pods.create(&PostParams::default(), &pod).await.unwrap_err().to_string();
        assert!(refused.contains("exceeded quota"), "{refused}");
    }
    assert_eq!(AuditTrail::of(&tenant).await.locks().len(), locks, "no lock for any of them");
    assert_eq!(history.end().await.raises("full"), 0);
    assert_eq!(tenant.pods.list(&Default::default()).await.unwrap().items.len(), 2, "source and target");
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
}

async fn tries(who: &Identity, method: &str, path: &str, body: &Value) -> Response {
    let content = if method == "PATCH" { call::MERGE } else { call::JSON };
    let method = method.parse().unwrap();
    call::call(&who.client().unwrap(), method, path, content, body).await.unwrap()
}

/// Even an account that may write the status of quotas: marks and raises are Sluice's alone.
#[tokio::test(flavor = "multi_thread")]
async fn marks_raises_and_probes_cannot_be_written_by_a_tenant() {
    let tenant = Tenant::on(shared().await.bed, "marks").await;
    let editor = editor(&tenant).await;
    tenant.quota("rq", json!({ "pods": "1" })).await;
    let probes = format!("/apis/quota.sluice.dev/v1alpha1/namespaces/{}/headroomprobes", tenant.name());
    let end = Timestamp::now().as_millisecond() / 1000 * 1000 + 5_001;
    let probe = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomProbe",
        "metadata": { "name": "probe" }, "spec": { "mark": end },
    });
    let answer = tries(&editor, "POST", &probes, &probe).await;
    assert_eq!(answer.code, 403, "{answer:?}");
    grant(&tenant, &editor, "", "resourcequotas/status").await;
    let status = format!("/api/v1/namespaces/{}/resourcequotas/rq/status", tenant.name());
    let before = tenant.quotas.get("rq").await.unwrap();
    for (keys, used) in [
        (json!({ MARK: end.to_string() }), json!({ MARK: end.to_string() })),
        (json!({ "pods": "100", MARK: end.to_string() }), json!({ MARK: end.to_string() })),
    ] {
        let body = json!({ "status": { "hard": keys, "used": used } });
        let answer = tries(&editor, "PATCH", &status, &body).await;
        assert_eq!(answer.code, 403, "{answer:?}");
    }
    let now = tenant.quotas.get("rq").await.unwrap();
    assert_eq!(now.resource_version(), before.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_and_quotas_cannot_be_written_by_a_tenant() {
    let tenant = Tenant::on(shared().await.bed, "budget").await;
    let editor = editor(&tenant).await;
    tenant.quota("rq", json!({ "pods": "1" })).await;
    tenant.vmmrq("given", json!({ "pods": "1" })).await;
    let name = tenant.name();
    let vmmrqs = format!("/apis/mtq.kubevirt.io/v1alpha1/namespaces/{name}/{}", names::VMMRQS);
    let policies = format!("/apis/quota.sluice.dev/v1alpha1/{}", names::HEADROOM_POLICIES);
    let quotas = format!("/api/v1/namespaces/{name}/resourcequotas");
    let more = json!({ "spec": { "additionalMigrationResources": { "pods": "100" } } });
    let vmmrq = json!({
        "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
        "metadata": { "name": "taken" }, "spec": more["spec"],
    });
    let policy = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": { "name": name },
        "spec": {
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
            "budget": { "mode": "Unlimited" },
        },
    });
    let status = json!({ "status": { "hard": { "pods": "100" } } });
    let skip = json!({ "metadata": { "annotations": { names::OWN_OPT_OUT: "true" } } });
    for (method, path, body) in [
        ("POST", vmmrqs.clone(), &vmmrq),
        ("PATCH", format!("{vmmrqs}/given"), &more),
        ("PATCH", format!("{vmmrqs}/given/status"), &json!({ "status": {} })),
        ("DELETE", format!("{vmmrqs}/given"), &json!({})),
        ("POST", policies, &policy),
        ("PATCH", format!("{quotas}/rq/status"), &status),
        ("PATCH", format!("{quotas}/rq"), &json!({ "spec": { "hard": { "pods": "100" } } })),
        ("PATCH", format!("{quotas}/rq"), &skip),
        ("PATCH", format!("/api/v1/namespaces/{name}"), &skip),
    ] {
        let answer = tries(&editor, method, &path, body).await;
        assert_eq!(answer.code, 403, "{method} {path}: {answer:?}");
    }
}
