//! The kinds of head-room: managed-tenant-quota's two, and ours.

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{MERGE, Response, call, get, post};
use sluice_manifests::{InstallOptions, render};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::{SOON, kubectl, manifest, shared};

const MTQ: &str = "/apis/mtq.kubevirt.io/v1alpha1";
pub(super) const OWN: &str = "/apis/quota.sluice.dev/v1alpha1";

/// group, kind, plural, short names, categories, scope, printer columns.
type Definition = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const DEFINITIONS: [Definition; 5] = [
    ("mtq.kubevirt.io", "MTQ", "mtqs", &["mtq", "mtqs"], &[], "Cluster", &["Age", "Phase"]),
    (
        "mtq.kubevirt.io",
        "VirtualMachineMigrationResourceQuota",
        "virtualmachinemigrationresourcequotas",
        &["vmmrq", "vmmrqs"],
        &["all"],
        "Namespaced",
        &["Ready", "Reason", "Age"],
    ),
    ("quota.sluice.dev", "HeadroomProbe", "headroomprobes", &[], &[], "Namespaced", &[]),
    ("quota.sluice.dev", "QuotaReview", "quotareviews", &[], &[], "Namespaced", &[]),
    (
        "quota.sluice.dev",
        "HeadroomPolicy",
        "headroompolicies",
        &[],
        &[],
        "Cluster",
        &["Budget", "Namespaces", "Ready", "Reason", "Age"],
    ),
];

#[tokio::test]
async fn definitions_of_headroom_are_what_clients_expect() {
    let crds: Api<CustomResourceDefinition> = Api::all(shared().await.bed.admin().unwrap());
    for (group, kind, plural, short, categories, scope, columns) in DEFINITIONS {
        let crd = crds.get(&format!("{plural}.{group}")).await.unwrap();
        assert_eq!(crd.spec.names.kind, kind);
        assert_eq!(crd.spec.names.list_kind, Some(format!("{kind}List")));
        assert_eq!(crd.spec.names.singular, Some(kind.to_lowercase()));
        assert_eq!(crd.spec.names.short_names.clone().unwrap_or_default(), *short, "{kind}");
        assert_eq!(crd.spec.names.categories.clone().unwrap_or_default(), *categories, "{kind}");
        assert_eq!(crd.spec.scope, scope, "{kind}");
        let [version] = crd.spec.versions.as_slice() else { panic!("{kind} has one version") };
        assert_eq!((version.name.as_str(), version.served, version.storage), ("v1alpha1", true, true));
        let has_status = version.subresources.as_ref().is_some_and(|sub| sub.status.is_some());
        assert_eq!(has_status, !["HeadroomProbe", "QuotaReview"].contains(&kind), "{kind}");
        let shown = version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str());
        assert_eq!(shown.collect::<Vec<_>>(), columns, "{kind}");
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_true = |name: &str| conditions.iter().any(|c| c.type_ == name && c.status == "True");
        assert!(is_true("Established") && is_true("NamesAccepted"), "{kind}: {conditions:?}");
        assert!(!is_true("NonStructuralSchema"), "{kind}: {conditions:?}");
    }
}

/// As users of managed-tenant-quota write them.
const EXAMPLES: &str = r#"
apiVersion: mtq.kubevirt.io/v1alpha1
kind: MTQ
metadata:
  name: mtq
spec:
  imagePullPolicy: IfNotPresent
  infra:
    nodeSelector:
      kubernetes.io/os: linux
    tolerations:
    - key: CriticalAddonsOnly
      operator: Exists
  workload:
    nodeSelector:
      kubernetes.io/os: linux
  certConfig:
    ca:
      duration: 48h0m0s
      renewBefore: 24h0m0s
---
apiVersion: mtq.kubevirt.io/v1alpha1
kind: VirtualMachineMigrationResourceQuota
metadata:
  name: example-vmmrq
spec:
  additionalMigrationResources:
    requests.cpu: 500m
    requests.memory: 512Mi
    limits.cpu: 2
    pods: "1"
    count/pods: 3
    requests.nvidia.com/gpu: 0
    services: 1
---
apiVersion: mtq.kubevirt.io/v1alpha1
kind: VirtualMachineMigrationResourceQuota
metadata:
  name: short-by-a-thousandth
spec:
  additionalMigrationResources:
    requests.memory: 599999999999m
---
apiVersion: mtq.kubevirt.io/v1alpha1
kind: VirtualMachineMigrationResourceQuota
metadata:
  name: nothing
spec: {}
"#;

#[tokio::test]
async fn manifests_of_managed_tenant_quota_apply_as_they_are() {
    let bed = shared().await.bed;
    let namespace = bed.namespace("mtq", &[]).await.unwrap();
    let file = manifest(bed, "mtq-examples.yaml", EXAMPLES);
    let arguments = ["--namespace", &namespace.name, "--filename", &file];
    for words in [&["apply"][..], &["apply", "--server-side", "--force-conflicts"]] {
        kubectl(bed, &[words, &arguments].concat()).await;
    }
    let names = kubectl(bed, &["get", "vmmrq", "--namespace", &namespace.name, "--output=name"]).await;
    assert_eq!(names.lines().count(), 3, "{names}");
    // As with upstream, they are part of everything.
    let all = kubectl(bed, &["get", "all", "--namespace", &namespace.name, "--output=name"]).await;
    assert!(all.contains("/example-vmmrq"), "{all}");
    let path = format!("{MTQ}/namespaces/{namespace}/{}/short-by-a-thousandth", names::VMMRQS);
    let exact = get(&bed.admin().unwrap(), &path).await.unwrap();
    assert_eq!(exact.body["spec"]["additionalMigrationResources"]["requests.memory"], "599999999999m");
    kubectl(bed, &["delete", "mtq", "mtq"]).await;
}

#[tokio::test]
async fn a_status_of_managed_tenant_quota_is_kept_and_ours_is_shown() {
    // Without Sluice, which writes what it finds true.
    let options = BedOptions { kwok: false, scheduler: false, ..BedOptions::default() };
    let bed = &Bed::start(options).await.unwrap();
    let crds = render(&InstallOptions::default()).into_iter();
    bed.apply_objects(crds.filter(|object| object["kind"] == "CustomResourceDefinition")).await.unwrap();
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("vmmrq", &[]).await.unwrap();
    let path = format!("{MTQ}/namespaces/{namespace}/{}", names::VMMRQS);
    assert_eq!(post(&client, &path, &vmmrq("q", json!({"pods": "1"}))).await.unwrap().code, 201);
    let status = json!({
        "additionalMigrationResources": {"requests.memory": "1Gi"},
        "migrationsToBlockingResourceQuotas": {"mig": ["rq"]},
        "originalBlockingResourceQuotas": [{"name": "rq", "spec": {
            "hard": {"requests.memory": "1Gi", "pods": 1},
            "scopes": ["NotTerminating"],
            "scopeSelector": {"matchExpressions": [{"operator": "In", "scopeName": "PriorityClass", "values": ["a"]}]},
        }}],
        "observedGeneration": 1,
        "conditions": [{"type": "Ready", "status": "False", "reason": "NotEnough", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}],
    });
    let patch = json!({"status": status});
    let answer = call(&client, Method::PATCH, &format!("{path}/q/status"), MERGE, &patch).await.unwrap();
    assert_eq!((answer.code, &answer.body["status"]), (200, &status), "{answer:?}");
    let null = json!({"status": {"creationTime": null}});
    assert_eq!(
        call(&client, Method::PATCH, &format!("{path}/q/status"), MERGE, &null).await.unwrap().code,
        200
    );
    let table = kubectl(bed, &["get", "vmmrq", "q", "--namespace", &namespace.name, "--no-headers"]).await;
    assert!(table.contains(" False ") && table.contains(" NotEnough "), "{table}");
}

fn vmmrq(name: &str, amounts: Value) -> Value {
    json!({"apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
        "metadata": {"name": name}, "spec": {"additionalMigrationResources": amounts}})
}

pub(super) fn refused(answer: &Response, text: &str) {
    assert_eq!(answer.code, 422, "{text}: {answer:?}");
    assert!(answer.message().contains(text), "{text} is missing: {}", answer.message());
}

pub(super) fn many(count: u32) -> Value {
    Value::Object((0..count).map(|number| (format!("requests.example.com/r{number}"), json!(1))).collect())
}

#[tokio::test]
async fn amounts_that_are_negative_or_too_many_are_refused() {
    let client = shared().await.bed.admin().unwrap();
    let path = format!("{MTQ}/namespaces/default/{}?dryRun=All", names::VMMRQS);
    for (amounts, text) in [
        (json!({"pods": "-1"}), "an amount must not be negative"),
        (json!({"pods": 1, "requests.cpu": -5}), "an amount must not be negative"),
        (json!({"requests.memory": "-1m"}), "an amount must not be negative"),
        (json!({"requests.memory": "much"}), "requests.memory"),
        (many(65), "must have at most 64 items"),
    ] {
        refused(&post(&client, &path, &vmmrq("q", amounts)).await.unwrap(), text);
    }
    for amounts in [json!({}), json!({"pods": 0, "cpu": "0"}), json!({"memory": "0.5"}), many(64)] {
        let answer = post(&client, &path, &vmmrq("q", amounts)).await.unwrap();
        assert_eq!(answer.code, 201, "{answer:?}");
    }
}

/// Objects that managed-tenant-quota took may say what ours refuses: they stay readable, and their status writable.
#[tokio::test]
async fn a_negative_amount_that_is_stored_stays_readable() {
    let bed =
        Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap();
    let client = bed.admin().unwrap();
    let ours = sluice_api::all_crds().into_iter().find(|crd| crd.spec.names.plural == names::VMMRQS).unwrap();
    let ours = serde_json::to_value(ours).unwrap();
    let rules =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/additionalMigrationResources";
    let mut theirs = ours.clone();
    let amounts = theirs.pointer_mut(rules).and_then(Value::as_object_mut).unwrap();
    assert!(
        amounts.remove("x-kubernetes-validations").is_some() && amounts.remove("maxProperties").is_some()
    );
    bed.apply_objects([theirs]).await.unwrap();
    let path = format!("{MTQ}/namespaces/default/{}", names::VMMRQS);
    let stored = vmmrq("q", json!({"pods": -1, "requests.cpu": "-500m"}));
    assert_eq!(post(&client, &path, &stored).await.unwrap().code, 201);
    bed.apply_objects([ours]).await.unwrap();
    // The new rules are in force a moment later.
    let dry = format!("{path}?dryRun=All");
    let in_force = || async {
        let answer = post(&client, &dry, &vmmrq("other", json!({"pods": -1}))).await.ok()?;
        (answer.code == 422).then_some(())
    };
    wait::eventually(SOON, in_force, "negative amounts to be refused").await.unwrap();

    let read = get(&client, &format!("{path}/q")).await.unwrap();
    assert_eq!(read.body["spec"], stored["spec"], "{read:?}");
    let status = json!({"status": {"observedGeneration": 1}});
    let answer = call(&client, Method::PATCH, &format!("{path}/q/status"), MERGE, &status).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let answer = call(&client, Method::PATCH, &format!("{path}/q"), MERGE, &label).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let worse = json!({"spec": {"additionalMigrationResources": {"pods": -2}}});
    let answer = call(&client, Method::PATCH, &format!("{path}/q"), MERGE, &worse).await.unwrap();
    refused(&answer, "an amount must not be negative");
    let better = json!({"spec": {"additionalMigrationResources": {"pods": 2, "requests.cpu": null}}});
    let answer = call(&client, Method::PATCH, &format!("{path}/q"), MERGE, &better).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
}
