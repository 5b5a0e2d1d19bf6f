//! Objects that pretend to be what they are not.

use kube::ResourceExt as _;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{self, Answer};
use sluice_e2e::tenant::{Tenant, shared};
use sluice_testbed::Identity;
use sluice_testbed::kubevirt::MigrationScript;

use crate::chronicle::Chronicle;
use crate::trail::Trail;
use sluice_e2e::intruders::{editor, intruder};

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
    let opened = Trail::of(&tenant).await.windows();
    let chronicle = Chronicle::of(&tenant).await;
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
    assert_eq!(Trail::of(&tenant).await.windows(), opened, "no window for any of them");
    assert_eq!(chronicle.end().await.raises("full"), 0);
    assert_eq!(tenant.pods.list(&Default::default()).await.unwrap().items.len(), 2, "source and target");
    vm.release().await.unwrap();
    migration.until_succeeded().await.unwrap();
}

fn window(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "holder": "me", "nonce": "mine", "creator": "me", "until": "2099-01-01T00:00:00Z",
            "migration": { "name": "none", "uid": "none", "vmi": "none" },
        },
    })
}

async fn tries(who: &Identity, method: &str, path: &str, body: &Value) -> Answer {
    let content = if method == "PATCH" { call::MERGE } else { call::JSON };
    let method = method.parse().unwrap();
    call::call(&who.client().unwrap(), method, path, content, body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_can_neither_be_made_nor_changed_nor_removed_by_a_tenant() {
    let tenant = Tenant::on(shared().await.bed, "windows").await;
    let editor = editor(&tenant).await;
    let windows =
        format!("/apis/quota.sluice.dev/v1alpha1/namespaces/{}/{}", tenant.name(), names::MIGRATION_WINDOWS);
    for name in [names::WINDOW_NAME, names::PROBE_NAME, names::DRAIN_NAME] {
        let answer = tries(&editor, "POST", &windows, &window(tenant.name(), name)).await;
        assert_eq!(answer.code, 403, "{answer:?}");
    }
    let object = serde_json::from_value(window(tenant.name(), names::WINDOW_NAME)).unwrap();
    let made = tenant.windows.create(&PostParams::default(), &object).await.unwrap();
    let path = format!("{windows}/{}", names::WINDOW_NAME);
    let sooner = json!({ "spec": { "until": "2020-01-01T00:00:00Z" } });
    for (method, body) in [("PATCH", &sooner), ("PUT", &json!(made)), ("DELETE", &json!({}))] {
        let answer = tries(&editor, method, &path, body).await;
        assert_eq!(answer.code, 403, "{method}: {answer:?}");
    }
    let now = tenant.windows.get(names::WINDOW_NAME).await.unwrap();
    assert_eq!((now.uid(), now.resource_version()), (made.uid(), made.resource_version()));
    tenant.windows.delete(names::WINDOW_NAME, &Default::default()).await.unwrap();
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
