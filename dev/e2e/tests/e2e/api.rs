//! The kinds are what a client written for upstream expects.

mod aaq;
mod cluster_quotas;
mod headroom;
mod headroom_policies;

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};
use sluice_e2e::call::{APPLY, JSON, MERGE, call, get, post};
use sluice_e2e::objects::{self, TARGETED};
use sluice_testbed::wait;

use crate::context::{SOON, kubectl, kubectl_tries, manifest, shared};
use crate::team::Team;

/// kind, plural, short names, scope, printer columns.
type Definition =
    (&'static str, &'static str, &'static [&'static str], &'static str, &'static [&'static str]);

/// As in upstream's API its status is no subresource.
const MIRROR: &str = "ApplicationAwareAppliedClusterResourceQuota";

const DEFINITIONS: &[Definition] = &[
    ("AAQ", "aaqs", &["aaq", "aaqs"], "Cluster", &["Age", "Phase", "Available", "Gate", "VMs"]),
    (
        "ApplicationAwareResourceQuota",
        "applicationawareresourcequotas",
        &["arq", "arqs"],
        "Namespaced",
        &["Request", "Limit", "Held", "Oldest", "Age"],
    ),
    (
        "ApplicationAwareClusterResourceQuota",
        "applicationawareclusterresourcequotas",
        &["acrq", "acrqs"],
        "Cluster",
        &["Request", "Limit", "Held", "Oldest", "Age"],
    ),
    (
        MIRROR,
        "applicationawareappliedclusterresourcequotas",
        &["aacrq", "aacrqs"],
        "Namespaced",
        &["Request", "Limit", "Held", "Age"],
    ),
    ("AAQJobQueueConfig", "aaqjobqueueconfigs", &["aaqjqc", "aaqjqcs"], "Namespaced", &[]),
];

#[tokio::test]
async fn definitions_are_what_a_client_of_upstream_expects() {
    let crds: Api<CustomResourceDefinition> = Api::all(shared().await.bed.admin().unwrap());
    for (kind, plural, short, scope, columns) in DEFINITIONS {
        let crd = crds.get(&format!("{plural}.aaq.kubevirt.io")).await.unwrap();
        assert_eq!(crd.spec.names.kind, *kind);
        assert_eq!(crd.spec.names.list_kind, Some(format!("{kind}List")));
        assert_eq!(crd.spec.names.singular, Some(kind.to_lowercase()));
        assert_eq!(crd.spec.names.short_names.clone().unwrap_or_default(), *short, "{kind}");
        assert_eq!(crd.spec.names.categories, None, "{kind}: `kubectl get all` must not need rights on it");
        assert_eq!(crd.spec.scope, *scope, "{kind}");
        let [version] = crd.spec.versions.as_slice() else { panic!("{kind} has one version") };
        assert_eq!((version.name.as_str(), version.served, version.storage), ("v1alpha1", true, true));
        let has_subresource = version.subresources.as_ref().is_some_and(|sub| sub.status.is_some());
        assert_eq!(has_subresource, *kind != MIRROR, "{kind}");
        let shown = version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str());
        assert_eq!(shown.collect::<Vec<_>>(), *columns, "{kind}");
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
        let of_clusters = kind.contains("ClusterResourceQuota");
        let required: &[&str] = if of_clusters { &["metadata", "spec"] } else { &["spec"] };
        assert_eq!(schema.required.clone().unwrap_or_default(), *required, "{kind}");
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_true = |name: &str| conditions.iter().any(|c| c.type_ == name && c.status == "True");
        assert!(is_true("Established") && is_true("NamesAccepted"), "{kind}: {conditions:?}");
        assert!(!is_true("NonStructuralSchema"), "{kind}: {conditions:?}");
    }
}

#[tokio::test]
async fn kubectl_knows_the_short_names_of_upstream() {
    let bed = shared().await.bed;
    let resources = kubectl(bed, &["api-resources", "--api-group=aaq.kubevirt.io", "--no-headers"]).await;
    for (kind, plural, short, scope, _) in DEFINITIONS {
        let line = resources.lines().find(|line| line.ends_with(&format!(" {kind}")));
        let line = line.unwrap_or_else(|| panic!("{kind} is missing: {resources}"));
        assert!(line.starts_with(plural) && line.contains(&short.join(",")), "{line}");
        assert!(line.contains(if *scope == "Cluster" { " false " } else { " true " }), "{line}");
        for name in *short {
            kubectl(bed, &["get", name, "--namespace=default"]).await;
        }
    }
}

#[tokio::test]
async fn kubectl_get_shows_used_and_hard_and_how_many_wait() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "columns").await;
    team.quota("compute", &[("requests.cpu", "2"), ("limits.memory", "4Gi"), ("pods", "1")]).await;
    team.pod("a", &[("cpu", "500m")]).await;
    team.until_released("a").await;
    team.pod("b", &[("cpu", "500m")]).await;
    wait::wait_for(&team.quotas, "compute", SOON, "one held pod and one counted", |quota| {
        quota.and_then(|quota| quota.status.as_ref()).is_some_and(|status| {
            status.held == Some(1) && status.used.get("pods").is_some_and(|used| used.0 == "1")
        })
    })
    .await
    .unwrap();
    let table = kubectl(bed, &["get", "arq", "--namespace", &team.namespace.name]).await;
    let (head, row) = table.trim_end().split_once('\n').unwrap();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["NAME", "REQUEST", "LIMIT", "HELD", "OLDEST", "AGE"]
    );
    assert!(row.starts_with("compute "), "{table}");
    for shown in ["requests.cpu: 500m/2", "pods: 1/1", "limits.memory: 0/4Gi", " 1 "] {
        assert!(row.contains(shown), "{shown} is missing: {table}");
    }
}

/// As users of upstream write them: integers without quotes, plain, `requests.` and `/vmi` names, both forms of
/// scopes.
const QUOTAS: &str = r#"
apiVersion: aaq.kubevirt.io/v1alpha1
kind: ApplicationAwareResourceQuota
metadata:
  name: example-resource-quota
spec:
  hard:
    pods: 5
    requests.cpu: 2
    requests.memory: 2Gi
    limits.cpu: "4"
    limits.memory: 4Gi
    requests.ephemeral-storage: 1.5Gi
    requests.instances/vmi: "3"
    requests.cpu/vmi: 8
    requests.memory/vmi: 16Gi
    cpu/vmi: "8"
    memory/vmi: 3Gi
    instances/vmi: 1
    requests.nvidia.com/gpu: 4
---
apiVersion: aaq.kubevirt.io/v1alpha1
kind: ApplicationAwareResourceQuota
metadata:
  name: not-terminating
spec:
  hard:
    requests.memory: 1Mi
    count/pods: 20
  scopes:
  - NotTerminating
  - NotBestEffort
---
apiVersion: aaq.kubevirt.io/v1alpha1
kind: ApplicationAwareResourceQuota
metadata:
  name: important
  labels:
    team: a
spec:
  hard:
    pods: "2"
    cpu: 1500m
  scopeSelector:
    matchExpressions:
    - operator: In
      scopeName: PriorityClass
      values: [high, medium]
    - operator: Exists
      scopeName: CrossNamespacePodAffinity
---
apiVersion: aaq.kubevirt.io/v1alpha1
kind: ApplicationAwareResourceQuota
metadata:
  name: empty
spec: {}
---
apiVersion: aaq.kubevirt.io/v1alpha1
kind: AAQJobQueueConfig
metadata:
  name: aaqjqc
spec: {}
"#;

#[tokio::test]
async fn upstreams_manifests_are_accepted_and_kept_as_written() {
    let bed = shared().await.bed;
    let namespace = bed.namespace("examples", TARGETED).await.unwrap();
    let file = manifest(bed, "examples.yaml", QUOTAS);
    let apply = ["apply", "--namespace", &namespace.name, "--filename", &file];
    let (done, stdout, stderr) = kubectl_tries(bed, &apply).await;
    assert!(done && stderr.lines().count() == 1, "{stdout}{stderr}");
    assert!(stderr.contains("cpu/vmi, instances/vmi, memory/vmi, requests.cpu/vmi"), "{stderr}");
    let written: Vec<Value> = serde_saphyr::from_multiple(QUOTAS).unwrap();
    assert_eq!(written.len(), 5);
    for object in &written {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let kept = kubectl(bed, &["get", kind, name, "--namespace", &namespace.name, "--output=json"]).await;
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept["spec"], object["spec"], "{name}");
    }
    let (done, again, stderr) = kubectl_tries(bed, &apply).await;
    assert!(done && stderr.is_empty(), "{again}{stderr}");
    assert_eq!(again.lines().count(), 5, "{again}");
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
}

/// The two example files of upstream, unchanged.
#[tokio::test]
async fn upstreams_examples_apply_unchanged() {
    let bed = shared().await.bed;
    let namespace = bed.namespace("upstream", TARGETED).await.unwrap();
    let files = [
        ("arq", include_str!("../../fixtures/application-aware-quota/arq-example.yaml")),
        ("acrq", include_str!("../../fixtures/application-aware-quota/acrq-example.yaml")),
    ];
    for (kind, text) in files {
        let file = manifest(bed, &format!("{kind}-example.yaml"), text);
        let arguments = ["apply", "--namespace", &namespace.name, "--filename", &file];
        kubectl(bed, &arguments).await;
        let again = kubectl(bed, &arguments).await;
        assert!(again.ends_with(" unchanged\n"), "{again}");
        let get = ["get", kind, "example-resource-quota", "--namespace", &namespace.name, "--output=json"];
        let kept: Value = serde_json::from_str(&kubectl(bed, &get).await).unwrap();
        let written: Value = serde_saphyr::from_str(text).unwrap();
        let amounts = |object: &Value| {
            object.pointer("/spec/quota/hard").or_else(|| object.pointer("/spec/hard")).cloned()
        };
        assert!(amounts(&written).is_some());
        assert_eq!(amounts(&kept), amounts(&written), "{kind}");
    }
    kubectl(bed, &["delete", "acrq", "example-resource-quota"]).await;
}

#[tokio::test]
async fn applying_the_same_again_does_not_make_a_new_generation() {
    let team = Team::on(shared().await.bed, "generation").await;
    let path = format!(
        "/apis/aaq.kubevirt.io/v1alpha1/namespaces/{}/applicationawareresourcequotas/q?fieldManager=me",
        team.namespace.name
    );
    let quota = json!({
        "apiVersion": "aaq.kubevirt.io/v1alpha1",
        "kind": "ApplicationAwareResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": 3, "requests.memory": "1024Mi"}, "scopes": ["NotBestEffort"]},
    });
    let mut generations = Vec::new();
    for _ in 0..3 {
        let answer = call(&team.client, Method::PATCH, &path, APPLY, &quota).await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(answer.body["spec"]["hard"], json!({"pods": 3, "requests.memory": "1024Mi"}));
        generations.push(answer.body["metadata"]["generation"].as_i64().unwrap());
        // The controller's own writes must not count either.
        team.until_used("q", "pods", "0").await;
    }
    assert_eq!(generations, [1, 1, 1]);
}

#[tokio::test]
async fn the_status_of_a_quota_is_written_by_its_subresource_only() {
    let team = Team::on(shared().await.bed, "subresource").await;
    team.quota("q", &[("pods", "3")]).await;
    team.until_used("q", "pods", "0").await;
    let forged = json!({"status": {"used": {"pods": "77"}, "hard": {"pods": "77"}}});
    let path = format!(
        "/apis/aaq.kubevirt.io/v1alpha1/namespaces/{}/applicationawareresourcequotas/q",
        team.namespace.name
    );
    let answer = call(&team.client, Method::PATCH, &path, MERGE, &forged).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(answer.body["status"]["used"], json!({"pods": "0"}), "ignored, as of every kind");
    let spec = json!({"spec": {"hard": {"pods": "99"}}});
    let answer = call(&team.client, Method::PATCH, &format!("{path}/status"), MERGE, &spec).await.unwrap();
    assert_eq!(answer.body["spec"]["hard"], json!({"pods": "3"}), "the subresource changes no spec");
}

#[tokio::test]
async fn every_field_is_explained() {
    let bed = shared().await.bed;
    for field in [
        "arq",
        "arq.spec",
        "arq.spec.hard",
        "arq.spec.scopes",
        "arq.spec.scopeSelector",
        "arq.status.hard",
        "arq.status.used",
        "arq.status.requests",
        "arq.status.held",
        "acrq.spec.quota.hard",
        "acrq.spec.selector.labels",
        "acrq.spec.selector.annotations",
        "acrq.status.total",
        "acrq.status.omittedNamespaces",
        "aacrq.status.namespaces",
        "clusterquotacharges.status.charges",
        "aaq.spec.namespaceSelector",
        "aaq.spec.certConfig.ca.renewBefore",
        "aaq.spec.configuration.vmiCalculatorConfiguration.configName",
        "aaq.spec.configuration.sidecarEvaluators",
        "aaq.spec.tlsSecurityProfile.custom.minTLSVersion",
        "aaqjqc.status.podsInJobQueue",
        "aaqjqc.status.controllerLock",
    ] {
        let text = kubectl(bed, &["explain", field]).await;
        let description = text.split("DESCRIPTION:").nth(1).unwrap_or_else(|| panic!("{field}: {text}"));
        let words = description.split("FIELDS:").next().unwrap_or_default().trim();
        assert!(words.len() > 10 && !words.contains("<empty>"), "{field}: {text}");
    }
}

#[tokio::test]
async fn a_job_queue_config_keeps_its_status() {
    let bed = shared().await.bed;
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("job-queue", &[]).await.unwrap();
    let path = format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/aaqjobqueueconfigs");
    let mut object = json!({
        "apiVersion": "aaq.kubevirt.io/v1alpha1",
        "kind": "AAQJobQueueConfig",
        "metadata": {"name": "aaqjqc"},
    });
    let answer = post(&client, &path, &object).await.unwrap();
    assert_eq!(answer.code, 422, "spec is required: {answer:?}");
    object["spec"] = json!({});
    let answer = post(&client, &path, &object).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    let status = json!({
        "podsInJobQueue": ["a", "b"],
        "controllerLock": {
            "application-aware-resource-quota-lock": true,
            "application-aware-cluster-resource-quota-lock": false,
        },
    });
    let path = format!("{path}/aaqjqc");
    let patch = json!({"status": status});
    let answer = call(&client, Method::PATCH, &format!("{path}/status"), MERGE, &patch).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let kept = get(&client, &path).await.unwrap();
    assert_eq!((&kept.body["spec"], &kept.body["status"]), (&json!({}), &status));
}

#[tokio::test]
async fn a_quota_of_the_wrong_shape_is_refused_by_field() {
    let team = Team::on(shared().await.bed, "shape").await;
    let path = format!(
        "/apis/aaq.kubevirt.io/v1alpha1/namespaces/{}/applicationawareresourcequotas",
        team.namespace
    );
    for (spec, field) in [
        (json!({"hard": {"pods": ["1"]}}), "spec.hard.pods"),
        (json!({"hard": {"pods": 1.5}}), "spec.hard.pods"),
        (json!({"hard": {"pods": "many"}}), "spec.hard.pods"),
        (json!({"hard": "pods=1"}), "spec.hard"),
        (json!({"scopes": "BestEffort"}), "spec.scopes"),
        (
            json!({"scopeSelector": {"matchExpressions": [{"operator": "In"}]}}),
            "spec.scopeSelector.matchExpressions[0].scopeName",
        ),
    ] {
        let mut quota = serde_json::to_value(objects::quota("q", &[])).unwrap();
        quota["spec"] = spec.clone();
        let answer = call(&team.client, Method::POST, &path, JSON, &quota).await.unwrap();
        assert_eq!(answer.code, 422, "{spec}: {answer:?}");
        assert!(answer.message().contains(field), "{spec}: {}", answer.message());
    }
}
