//! What people may do with quotas: those who edit or view a namespace, and those who create namespaces.

use std::collections::BTreeSet;

use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, call, get, post};
use sluice_testbed::wait;

use super::OWN;
use super::asked::{check, granted};
use crate::context::{SOON, shared};
use crate::team::Team;

#[tokio::test]
async fn a_tenant_who_may_edit_sees_its_quota_and_cannot_touch_it() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "tenant").await;
    team.quota("q", &[("pods", "1")]).await;
    team.until_used("q", "pods", "0").await;
    let tenant = bed.tenant(&team.namespace).await.unwrap();
    let namespace = &team.namespace.name;
    let arq = "aaq.kubevirt.io:applicationawareresourcequotas";
    let may: Vec<String> = ["get", "list", "watch"].map(|verb| format!("{verb} {arq} {namespace}")).into();
    check(&tenant, &may.iter().map(String::as_str).collect::<Vec<_>>(), true).await;
    let mut may_not = Vec::new();
    let kinds = [
        arq,
        "aaq.kubevirt.io:applicationawareresourcequotas/status",
        "aaq.kubevirt.io:aaqjobqueueconfigs",
        "aaq.kubevirt.io:aaqjobqueueconfigs/status",
        "aaq.kubevirt.io:aaqs",
        "aaq.kubevirt.io:applicationawareclusterresourcequotas",
        "aaq.kubevirt.io:applicationawareclusterresourcequotas/status",
        "aaq.kubevirt.io:applicationawareappliedclusterresourcequotas",
        "mtq.kubevirt.io:mtqs",
        "mtq.kubevirt.io:virtualmachinemigrationresourcequotas",
        "mtq.kubevirt.io:virtualmachinemigrationresourcequotas/status",
        "quota.sluice.dev:clusterquotacharges",
        "quota.sluice.dev:clusterquotacharges/status",
        "quota.sluice.dev:headroomprobes",
        "quota.sluice.dev:gateprobes",
        "quota.sluice.dev:headroompolicies",
        "quota.sluice.dev:headroompolicies/status",
        "quota.sluice.dev:evaluators",
        "quota.sluice.dev:evaluators/status",
    ];
    for kind in kinds {
        for verb in ["create", "update", "patch", "delete", "deletecollection"] {
            may_not.push(format!("{verb} {kind} {namespace}"));
        }
    }
    for line in ["update coordination.k8s.io:leases", "get :secrets", "get :pods"] {
        may_not.push(format!("{line} {OWN}"));
    }
    may_not.push(format!("get {arq} default"));
    may_not.push(format!("update :namespaces {namespace} {namespace}"));
    check(&tenant, &may_not.iter().map(String::as_str).collect::<Vec<_>>(), false).await;

    // And for real.
    let client = tenant.client().unwrap();
    let base = format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}");
    let quota = format!("{base}/applicationawareresourcequotas/q");
    let read = get(&client, &quota).await.unwrap();
    assert_eq!((read.code, &read.body["status"]["used"]["pods"]), (200, &json!("0")), "{read:?}");
    let raised: Value = json!({"spec": {"hard": {"pods": "9"}}});
    let forged: Value = json!({"status": {"used": {"pods": "0"}}});
    for (path, body) in [(quota.clone(), &raised), (format!("{quota}/status"), &forged)] {
        let answer = call(&client, http::Method::PATCH, &path, MERGE, body).await.unwrap();
        assert_eq!(answer.code, 403, "{path}: {answer:?}");
    }
    let answer = call(&client, http::Method::DELETE, &quota, JSON, &json!({})).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
    let amounts = json!({"additionalMigrationResources": {"pods": "100"}});
    let vmmrq = json!({"apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
        "metadata": {"name": "free"}, "spec": amounts});
    let path = format!("/apis/mtq.kubevirt.io/v1alpha1/namespaces/{namespace}/{}", names::VMMRQS);
    assert_eq!(post(&client, &path, &vmmrq).await.unwrap().code, 403);
    let config = json!({
        "apiVersion": names::API_VERSION, "kind": "AAQJobQueueConfig", "metadata": {"name": "aaqjqc"}, "spec": {},
    });
    let answer = post(&client, &format!("{base}/aaqjobqueueconfigs"), &config).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
}

/// One whose pods are never gated would be a way past every quota.
#[tokio::test]
async fn who_may_create_namespaces_creates_none_that_is_exempt() {
    let bed = shared().await.bed;
    let maker = bed.client_as_user("maker", &["makers"]).unwrap().client().unwrap();
    let admin = bed.admin().unwrap();
    let rights = |name: &str, verb: &str, names: Value| {
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
            "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": [verb], "resourceNames": names }] })
    };
    let bound = |name: &str| {
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [
                { "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "maker" },
                { "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name },
            ] })
    };
    bed.apply_objects([rights("makers", "create", json!([])), bound("makers")]).await.unwrap();
    let tries_with = async |client: &Client, name: &str, annotations: Value| {
        let metadata = json!({ "name": name, "annotations": annotations });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        post(client, "/api/v1/namespaces?dryRun=All", &namespace).await.unwrap()
    };
    let tries = async |client: &Client, name: &str| tries_with(client, name, json!({})).await;
    let may = || async { tries(&maker, "mine").await.is_ok().then_some(()) };
    wait::eventually(SOON, may, "the maker's rights").await.unwrap();
    for name in ["kube-mine", "openshift-mine", "trident", "rook-ceph"] {
        let answer = tries(&maker, name).await;
        assert!(answer.code == 403 && answer.message().contains(names::EXEMPT_NAMES_POLICY), "{answer:?}");
        let answer = tries(&admin, name).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    bed.apply_objects([rights("exempters", "exempt", json!(["trident"])), bound("exempters")]).await.unwrap();
    let may = || async { tries(&maker, "trident").await.is_ok().then_some(()) };
    wait::eventually(SOON, may, "the maker's right to exempt it").await.unwrap();
    assert_eq!(tries(&maker, "rook-ceph").await.code, 403);
    // Operators that live in such a namespace create others with no right but that; a tenant's account is none of them.
    for (namespace, is_let) in [("tigera-operator", true), ("team", false)] {
        let account = bed.client_as_user(&format!("system:serviceaccount:{namespace}:operator"), &["makers"]);
        let account = account.unwrap().client().unwrap();
        assert_eq!(tries(&account, "calico-system").await.is_ok(), is_let, "{namespace}");
    }
    // OpenShift creates what a tenant requests as an administrator.
    let requested = json!({ "openshift.io/requester": "jane" });
    assert_eq!(tries_with(&admin, "cilium", requested).await.code, 403);
    assert!(tries_with(&admin, "mine", json!({ "openshift.io/requester": "jane" })).await.is_ok());
}

#[tokio::test]
async fn who_may_view_a_namespace_sees_its_quotas_and_may_ask() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "viewer").await;
    team.quota("q", &[("pods", "1")]).await;
    let viewer = bed.client_as_user("viewer", &["viewers"]).unwrap();
    bed.apply_objects([json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "view", "namespace": team.namespace.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
    })])
    .await
    .unwrap();
    let client = viewer.client().unwrap();
    let namespace = &team.namespace.name;
    let path =
        format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/applicationawareresourcequotas/q");
    let seen = || async { get(&client, &path).await.ok().filter(|answer| answer.code == 200) };
    wait::eventually(SOON, seen, "the viewer's rights").await.unwrap();
    let granted = granted(bed, &viewer, namespace).await;
    let ours = granted.into_iter().filter(|line| line.contains("kubevirt.io") || line.contains("sluice.dev"));
    let kinds = [
        "aaq.kubevirt.io:applicationawareresourcequotas",
        "aaq.kubevirt.io:applicationawareappliedclusterresourcequotas",
        "mtq.kubevirt.io:virtualmachinemigrationresourcequotas",
    ];
    let expected =
        kinds.iter().flat_map(|kind| ["get", "list", "watch"].map(|verb| format!("{verb} {kind}")));
    let asks = "create quota.sluice.dev:quotareviews".to_owned();
    assert_eq!(ours.collect::<BTreeSet<_>>(), expected.chain([asks]).collect());
}
