//! Which namespaces are gated. What the `AAQ` says holds for the whole cluster, so these tests have one of their
//! own and take turns.

mod cluster_quotas;
mod in_force;
mod machines;
mod not_enforced;
mod refused;

use http::Method;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{AAQ, WebhookEntry, names};
use sluice_e2e::call::{APPLY, JSON, JSON_PATCH, call, post};
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, TestNamespace, wait};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::context::SOON;
use crate::team::Team;

struct Cluster {
    running: Running<'static>,
    /// One with the default label, and one with all labels that these tests select.
    labelled: TestNamespace,
    selected: TestNamespace,
    turn: Mutex<()>,
}

/// The cluster of these tests, for one of them at a time. It ends with the process, as the shared one does.
async fn cluster() -> (&'static Bed, MutexGuard<'static, ()>) {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(BedOptions::default()).await.unwrap();
        let running = Running::on(bed, Setup::default()).await.unwrap();
        let labelled = bed.namespace("labelled", TARGETED).await.unwrap();
        let selected = bed.namespace("selected", &[("team", "a"), ("stage", "prod")]).await.unwrap();
        Cluster { running, labelled, selected, turn: Mutex::new(()) }
    };
    let cluster = CLUSTER.get_or_init(start).await;
    let turn = cluster.turn.lock().await;
    // What a test that failed has left behind.
    let aaqs: Api<AAQ> = Api::all(cluster.running.bed.admin().unwrap());
    aaqs.delete_collection(&DeleteParams::default(), &kube::api::ListParams::default()).await.unwrap();
    until_selector(cluster.running.bed, &default_selector()).await;
    // The admission policies follow a moment later.
    until_gated(cluster.running.bed, &cluster.labelled.name, true).await;
    until_gated(cluster.running.bed, &cluster.selected.name, false).await;
    (cluster.running.bed, turn)
}

fn default_selector() -> Value {
    json!({"matchExpressions": [{"key": "application-aware-quota/enable-gating", "operator": "Exists"}]})
}

/// Waits until the gating webhook selects namespaces in exactly this way.
async fn until_selector(bed: &Bed, selector: &Value) {
    let hooks: Api<MutatingWebhookConfiguration> = Api::all(bed.admin().unwrap());
    let what = format!("the selector {selector}");
    let says = |hooks: Option<&MutatingWebhookConfiguration>| {
        let hook = hooks.and_then(|hooks| hooks.webhooks.as_ref()?.first());
        let found = hook.and_then(|hook| hook.namespace_selector.clone()).unwrap_or_default();
        hook.is_some_and(|hook| hook.name == WebhookEntry::GATER.name)
            && serde_json::to_value(found).unwrap() == *selector
    };
    wait::wait_for(&hooks, names::MUTATING_CONFIG, SOON, &what, says).await.unwrap();
}

fn aaq(name: &str, spec: Value) -> Value {
    json!({"apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": {"name": name}, "spec": spec})
}

async fn create_aaq(client: &Client, selector: Value) {
    let spec = if selector.is_null() { json!({}) } else { json!({"namespaceSelector": selector}) };
    // The webhook may still know of one that is gone already.
    let applied = || async { objects::apply_aaq(client, spec.clone()).await.ok() };
    wait::eventually(SOON, applied, "the AAQ to be applied").await.unwrap();
}

async fn select(client: &Client, selector: Value) {
    let path = "/apis/aaq.kubevirt.io/v1alpha1/aaqs/aaq";
    let patch = json!([{"op": "add", "path": "/spec/namespaceSelector", "value": selector}]);
    let answer = call(client, Method::PATCH, path, JSON_PATCH, &patch).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}

/// Whether new pods of a namespace are gated, as soon as this is what is expected: the API server learns of a
/// changed configuration by watch.
async fn until_gated(bed: &Bed, namespace: &str, expected: bool) {
    let pods = Api::namespaced(bed.admin().unwrap(), namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let pod = objects::pod("probe", &[]);
    let probe = || async { pods.create(&dry, &pod).await.ok().filter(|pod| is_held(pod) == expected) };
    let what = format!("pods of {namespace} to be gated: {expected}");
    wait::eventually(SOON, probe, &what).await.unwrap();
}

/// A namespace with labels and a quota that lets nothing in.
async fn team(bed: &Bed, prefix: &str, labels: &[(&str, &str)]) -> Team {
    let namespace = bed.namespace(prefix, labels).await.unwrap();
    let client = bed.admin().unwrap();
    let team = Team {
        pods: Api::namespaced(client.clone(), &namespace.name),
        quotas: Api::namespaced(client.clone(), &namespace.name),
        namespace,
        client,
    };
    team.quota("none", &[("pods", "0")]).await;
    team
}

async fn until_told(team: &Team) {
    wait::wait_for(&team.quotas, "none", SOON, "a held pod", |quota| {
        quota.and_then(|quota| quota.status.as_ref()?.held) == Some(1)
    })
    .await
    .unwrap();
}

async fn label(bed: &Bed, namespace: &TestNamespace, labels: Value) {
    let api: Api<Namespace> = Api::all(bed.admin().unwrap());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    api.patch(&namespace.name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn by_default_namespaces_with_the_label_are_gated_whatever_its_value() {
    let (bed, _turn) = cluster().await;
    for value in ["true", "false", ""] {
        let team = team(bed, "labelled", &[(names::TARGET_LABEL, value)]).await;
        assert!(is_held(&team.pod("p", &[]).await), "{value:?}");
    }
    let other = team(bed, "unlabelled", &[("team", "a")]).await;
    let pod = other.pod("p", &[]).await;
    assert!(!is_held(&pod));
    let stamped = pod.metadata.annotations.unwrap_or_default().contains_key(names::CREATED_BY_ANNOTATION);
    assert!(!stamped, "pods of other namespaces are left alone");
    let answer = create_and_read(bed, json!(null)).await;
    until_selector(bed, &default_selector()).await;
    assert_eq!(answer["spec"].get("namespaceSelector"), None, "an AAQ that says nothing changes nothing");
}

async fn create_and_read(bed: &Bed, selector: Value) -> Value {
    let client = bed.admin().unwrap();
    create_aaq(&client, selector).await;
    let aaqs: Api<AAQ> = Api::all(client);
    serde_json::to_value(aaqs.get(names::AAQ_NAME).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_namespace_that_loses_its_label_has_its_pods_released() {
    let (bed, _turn) = cluster().await;
    let team = team(bed, "unlabel", TARGETED).await;
    assert!(is_held(&team.pod("p", &[]).await));
    until_told(&team).await;
    label(bed, &team.namespace, json!({names::TARGET_LABEL: null})).await;
    team.until_released("p").await;
    until_gated(bed, &team.namespace.name, false).await;
    label(bed, &team.namespace, json!({names::TARGET_LABEL: ""})).await;
    until_gated(bed, &team.namespace.name, true).await;
    assert!(is_held(&team.pod("q", &[]).await));
}

#[tokio::test]
async fn the_selector_of_the_aaq_is_taken_over_word_for_word() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let by_default = team(bed, "default-label", TARGETED).await;
    assert!(is_held(&by_default.pod("p", &[]).await));
    until_told(&by_default).await;
    let selected = team(bed, "selected", &[("team", "a"), ("stage", "prod")]).await;
    assert!(!is_held(&selected.pod("before", &[]).await));

    let wanted = json!({
        "matchLabels": {"team": "a"},
        "matchExpressions": [
            {"key": "stage", "operator": "In", "values": ["test", "prod"]},
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
        ],
    });
    create_aaq(&client, wanted.clone()).await;
    until_selector(bed, &wanted).await;
    // The controller sees it the same way: what is not targeted any more is let go.
    by_default.until_released("p").await;
    until_gated(bed, &by_default.namespace.name, false).await;
    until_gated(bed, &selected.namespace.name, true).await;
    assert!(is_held(&selected.pod("p", &[]).await));
    until_told(&selected).await;

    // An edit counts, and so does the end of the AAQ.
    let other = json!({"matchLabels": {"team": "b"}});
    select(&client, other.clone()).await;
    until_selector(bed, &other).await;
    selected.until_released("p").await;
    let aaqs: Api<AAQ> = Api::all(client);
    aaqs.delete(names::AAQ_NAME, &DeleteParams::default()).await.unwrap();
    until_selector(bed, &default_selector()).await;
    until_gated(bed, &by_default.namespace.name, true).await;
}

#[tokio::test]
async fn an_empty_selector_gates_every_namespace_but_the_own_one() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let plain = team(bed, "plain", &[]).await;
    create_aaq(&client, json!({})).await;
    until_selector(bed, &json!({})).await;
    until_gated(bed, &plain.namespace.name, true).await;
    until_gated(bed, "default", true).await;
    assert!(is_held(&plain.pod("p", &[]).await));
    until_told(&plain).await;

    let install = TestNamespace { name: names::INSTALL_NAMESPACE.to_owned() };
    label(bed, &install, json!({names::TARGET_LABEL: "true"})).await;
    let pod: k8s_openapi::api::core::v1::Pod = objects::from_json(json!({
        "metadata": {"generateName": "own-"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "main", "image": "none", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            }}],
        },
    }));
    let created = objects::create(&client, &install.name, &pod).await.unwrap();
    assert!(!is_held(&created), "Sluice does not wait for itself: {created:?}");
    label(bed, &install, json!({names::TARGET_LABEL: null})).await;

    let (aaqs, params) = (Api::<AAQ>::all(client), DeleteParams::default());
    aaqs.delete(names::AAQ_NAME, &params).await.unwrap();
    plain.until_released("p").await;
}

#[tokio::test]
async fn a_second_aaq_is_refused_and_a_deleted_one_can_be_created_again() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let path = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";
    for _ in 0..3 {
        // It asks for something: one that does not may be the operator's.
        create_aaq(&client, default_selector()).await;
        let refused = || async {
            let answer =
                post(&client, &format!("{path}?dryRun=All"), &aaq("second", json!({}))).await.ok()?;
            (answer.code == 403).then_some(answer)
        };
        let answer = wait::eventually(SOON, refused, "a second AAQ to be refused").await.unwrap();
        assert_eq!(
            answer.message(),
            "admission webhook \"aaq.cr.validator\" denied the request: only a single AAQ CR instance is allowed"
        );
        let change = aaq(names::AAQ_NAME, json!({"priorityClass": "system-cluster-critical"}));
        let one = format!("{path}/aaq?fieldManager=x");
        let answer = call(&client, Method::PATCH, &one, APPLY, &change).await.unwrap();
        assert_eq!(answer.code, 200, "the first one can be changed: {answer:?}");
        let deleted = call(&client, Method::DELETE, &format!("{path}/aaq"), JSON, &json!({})).await.unwrap();
        assert!(deleted.is_ok(), "{deleted:?}");
    }
}
