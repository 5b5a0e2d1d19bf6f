//! Cluster quotas, their mirrors and their charges, as the API server keeps, refuses and shows them.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, Response, call, call_for_table, get, post};
use sluice_e2e::objects::TARGETED;
use sluice_e2e::{Installation, Setup};
use sluice_testbed::TestNamespace;

use crate::context::{idle_bed, kubectl_tries, manifest, shared};

const ACRQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/applicationawareclusterresourcequotas";

/// Of namespaces that are not there: no other test is limited.
fn nowhere() -> Value {
    json!({ "labels": { "matchLabels": { "team": "absent" } } })
}

fn acrq(name: &str, quota: Value, selector: Value) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": name }, "spec": { "quota": quota, "selector": selector },
    })
}

fn pods(amount: impl Into<Value>) -> Value {
    json!({ "hard": { "pods": amount.into() } })
}

fn mirrors(namespace: &str) -> String {
    format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/{}", names::AACRQS)
}

fn mirror(status: &Value) -> Value {
    let mut object = acrq("q", pods("3"), nowhere());
    object["kind"] = json!("ApplicationAwareAppliedClusterResourceQuota");
    object["status"] = status.clone();
    object
}

fn charges(namespace: &str) -> String {
    format!("/apis/quota.sluice.dev/v1alpha1/namespaces/{namespace}/{}", names::CLUSTER_QUOTA_CHARGES)
}

fn charge(name: &str) -> Value {
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "ClusterQuotaCharge",
        "metadata": { "name": name }, "spec": { "quota": "of-many" },
    })
}

fn used(pods: &str) -> Value {
    json!({ "hard": { "pods": "3" }, "used": { "pods": pods } })
}

fn status() -> Value {
    json!({
        "total": used("2"), "namespaces": [{ "namespace": "a", "status": used("2") }], "omittedNamespaces": 7,
        "requests": "pods: 2/3", "held": 4,
    })
}

/// What would become of the object.
async fn tries(client: &Client, path: &str, object: &Value) -> Response {
    post(client, &format!("{path}?dryRun=All"), object).await.unwrap()
}

/// What would become of the object after the merge patch.
async fn patched(client: &Client, path: &str, patch: &Value) -> Response {
    call(client, Method::PATCH, &format!("{path}?dryRun=All"), MERGE, patch).await.unwrap()
}

async fn created(client: &Client, path: &str, object: &Value) -> String {
    let answer = post(client, path, object).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    format!("{path}/{}", object["metadata"]["name"].as_str().unwrap())
}

async fn delete(client: &Client, path: &str) {
    assert!(call(client, Method::DELETE, path, JSON, &json!({})).await.unwrap().is_ok());
}

#[tokio::test]
async fn upstreams_cluster_quotas_are_accepted_and_kept_as_written() {
    let client = shared().await.bed.admin().unwrap();
    let hard = json!({ "pods": 10, "limits.cpu": "1", "requests.memory": "1Gi", "cpu/vmi": "1" });
    let scopes = json!([{ "operator": "In", "scopeName": "PriorityClass", "values": ["high"] }]);
    let quota = json!({
        "hard": hard, "scopes": ["NotTerminating"], "scopeSelector": { "matchExpressions": scopes },
    });
    let by_name = json!({ "matchLabels": { "kubernetes.io/metadata.name": "default" } });
    let excluding = json!({ "matchExpressions": [{ "key": "do.not/include", "operator": "DoesNotExist" }] });
    for selector in [
        json!({ "annotations": null, "labels": by_name }),
        json!({ "annotations": { "openshift.io/requester": "alice" }, "labels": null }),
        json!({ "annotations": { "example.com/team": "" }, "labels": excluding }),
        json!({ "labels": {} }),
    ] {
        let object = acrq("upstreams", quota.clone(), selector);
        let answer = tries(&client, ACRQS, &object).await;
        assert_eq!((answer.code, &answer.body["spec"]), (201, &object["spec"]), "{answer:?}");
    }
}

#[tokio::test]
async fn a_cluster_quota_that_could_not_be_enforced_is_refused_by_field() {
    let client = shared().await.bed.admin().unwrap();
    let one = |selector: Value| acrq("refused", pods("1"), selector);
    let without = |field: &str| {
        let mut object = acrq("refused", pods("1"), nowhere());
        object["spec"].as_object_mut().unwrap().remove(field);
        object
    };
    let operator = json!([{ "key": "a", "operator": "Sometimes" }]);
    for (object, code, words) in [
        (without("quota"), 422, "spec.quota: Required value"),
        (without("selector"), 422, "spec.selector: Required value"),
        (acrq("refused", pods("many"), nowhere()), 422, "spec.quota.hard.pods"),
        (acrq("refused", pods("-1"), nowhere()), 403, "spec.quota.hard[pods]: Invalid value"),
        (acrq("refused", json!({ "hard": { "illegal": 1 } }), nowhere()), 403, "spec.quota.hard[illegal]"),
        (acrq("refused", json!({ "scopes": ["Nonsense"] }), nowhere()), 403, "spec.quota.scopes"),
        (
            one(json!({ "labels": { "matchExpressions": operator } })),
            403,
            "Expressions[0].operator: Invalid value",
        ),
        (
            one(json!({ "annotations": { "a b": "c" } })),
            403,
            "spec.selector.annotations: Invalid value: \"a b\"",
        ),
        (
            one(json!({})),
            403,
            "spec.selector: Required value: must name labels or annotations, set labels: {}",
        ),
        (one(json!({ "annotations": null, "labels": null })), 403, "spec.selector: Required value"),
    ] {
        let answer = tries(&client, ACRQS, &object).await;
        assert_eq!(answer.code, code, "{object}: {answer:?}");
        assert!(answer.message().contains(words), "{words}: {}", answer.message());
    }
}

#[tokio::test]
async fn who_limits_what_is_not_counted_or_not_allowed_is_warned() {
    let bed = shared().await.bed;
    let quota = json!({ "hard": { "cpu/vmi": 5, "pods": 1 } });
    let file = manifest(bed, "cluster-quota.json", &acrq("warned", quota, nowhere()).to_string());
    let (done, stdout, stderr) =
        kubectl_tries(bed, &["create", "--dry-run=server", "--filename", &file]).await;
    assert!(done, "{stdout}{stderr}");
    let [uncounted, not_allowed] = stderr.trim_end().lines().collect::<Vec<_>>()[..] else {
        panic!("{stderr}")
    };
    assert!(uncounted.starts_with("Warning: spec.quota.hard: not enforced: cpu/vmi: "), "{stderr}");
    assert!(not_allowed.starts_with("Warning: spec: not enforced: no AAQ allows cluster quotas"), "{stderr}");
}

#[tokio::test]
async fn status_is_a_subresource_of_cluster_quotas_and_charges_and_a_field_of_mirrors() {
    // No controller writes there.
    let bed = idle_bed().await;
    let setup = Setup { without_webhook: true, ..Setup::default() };
    let _installation = Installation::apply(&bed, setup).await.unwrap();
    let client = bed.admin().unwrap();
    let patch = json!({ "spec": { "quota": { "hard": { "pods": "77" } } }, "status": status() });
    let quota = created(&client, ACRQS, &acrq("subresource", pods("3"), nowhere())).await;
    let main = patched(&client, &quota, &patch).await.body;
    assert_eq!(
        (&main["spec"]["quota"]["hard"], &main["status"]["held"]),
        (&json!({ "pods": "77" }), &json!(null))
    );
    let sub = patched(&client, &format!("{quota}/status"), &patch).await.body;
    assert_eq!((&sub["spec"]["quota"]["hard"], &sub["status"]), (&json!({ "pods": "3" }), &status()));
    // As Go's types write it, and what they always have.
    let of_go = json!({ "status": { "total": {}, "namespaces": [] } });
    assert!(patched(&client, &format!("{quota}/status"), &of_go).await.is_ok());
    let wrong = json!({ "status": { "namespaces": [] } });
    let answer = patched(&client, &format!("{quota}/status"), &wrong).await;
    assert!(answer.code == 422 && answer.message().contains("status.total: Required value"), "{answer:?}");
    delete(&client, &quota).await;

    let team = bed.namespace("mirrors", TARGETED).await.unwrap();
    let mirrors = mirrors(&team.name);
    let answer = tries(&client, &mirrors, &mirror(&status())).await;
    assert_eq!((answer.code, &answer.body["status"]), (201, &status()), "{answer:?}");
    assert_eq!(get(&client, &format!("{mirrors}/q/status")).await.unwrap().code, 404);

    let record = created(&client, &charges(&team.name), &charge("subresource")).await;
    let charged =
        json!({ "status": { "hard": { "pods": 3 }, "used": { "pods": "2" }, "charges": 1_000_000 } });
    assert_eq!(patched(&client, &record, &charged).await.body["status"], json!(null));
    assert_eq!(
        patched(&client, &format!("{record}/status"), &charged).await.body["status"],
        charged["status"]
    );
}

#[tokio::test]
async fn a_table_shows_used_and_hard_and_how_many_wait() {
    let bed = shared().await.bed;
    let client = bed.admin().unwrap();
    let team = bed.namespace("tables", TARGETED).await.unwrap();
    let quota = created(&client, ACRQS, &acrq("table", pods("3"), nowhere())).await;
    let record = created(&client, &charges(&team.name), &charge("table")).await;
    let status = status();
    let mirror = mirror(&status);
    let limits = ["Name", "Request", "Limit", "Held", "Age"];
    let held_since = ["Name", "Request", "Limit", "Held", "Oldest", "Age"];
    for (method, path, body, columns, cells) in [
        (
            Method::PATCH,
            format!("{quota}/status"),
            json!({ "status": status }),
            &held_since[..],
            json!(["table", "pods: 2/3", null, 4, null]),
        ),
        (Method::POST, mirrors(&team.name), mirror, &limits[..], json!(["q", "pods: 2/3", null, 4])),
        (
            Method::PATCH,
            format!("{record}/status"),
            json!({ "status": { "charges": 5 } }),
            &["Name", "Quota", "Charges", "Age"][..],
            json!(["table", "of-many", 5]),
        ),
    ] {
        let content_type = if method == Method::PATCH { MERGE } else { JSON };
        let path = format!("{path}?dryRun=All");
        let table = call_for_table(&client, method, &path, content_type, &body).await.unwrap();
        assert!(table.is_ok() && table.body["kind"] == "Table", "{path}: {table:?}");
        let shown = table.body["columnDefinitions"].as_array().unwrap().iter();
        assert_eq!(
            shown.map(|column| column["name"].as_str().unwrap()).collect::<Vec<_>>(),
            columns,
            "{path}"
        );
        let row = table.body["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(row.split_last().unwrap().1, cells.as_array().unwrap(), "{path}");
    }
    delete(&client, &quota).await;
}

async fn controller() -> Client {
    let identity = shared().await.bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await;
    identity.unwrap().client().unwrap()
}

/// What the controller asks for, and what it is answered.
async fn asks(team: &TestNamespace, quota: &str) -> Vec<(u16, u16, String)> {
    let client = controller().await;
    let (there, mirrors) = (json!({ "status": { "total": {} } }), mirrors(&team.name));
    let (home, away) = (charges(names::INSTALL_NAMESPACE), charges(&team.name));
    let mut asked = Vec::new();
    let mut expect =
        |expected: u16, what: &str, answer: Response| asked.push((answer.code, expected, what.to_owned()));
    expect(200, "read a quota", get(&client, quota).await.unwrap());
    expect(200, "write its status", patched(&client, &format!("{quota}/status"), &there).await);
    expect(403, "raise it", patched(&client, quota, &json!({ "spec": { "quota": pods("99") } })).await);
    expect(403, "create one", tries(&client, ACRQS, &acrq("forged", pods("1"), nowhere())).await);
    let deleted = call(&client, Method::DELETE, &format!("{quota}?dryRun=All"), JSON, &json!({})).await;
    expect(403, "delete it", deleted.unwrap());
    expect(201, "create a mirror", tries(&client, &mirrors, &mirror(&status())).await);
    expect(201, "create a charge", tries(&client, &home, &charge("tried")).await);
    expect(403, "create a charge elsewhere", tries(&client, &away, &charge("tried")).await);
    expect(200, "read all charges", get(&client, &home).await.unwrap());
    expect(403, "read charges elsewhere", get(&client, &away).await.unwrap());
    asked
}

#[tokio::test]
async fn the_controller_writes_the_status_of_a_cluster_quota_and_never_its_spec() {
    let bed = shared().await.bed;
    let admin = bed.admin().unwrap();
    let team = bed.namespace("controlled", TARGETED).await.unwrap();
    let quota = created(&admin, ACRQS, &acrq("controlled", pods("3"), nowhere())).await;
    for (code, expected, what) in asks(&team, &quota).await {
        assert_eq!(code, expected, "{what}");
    }
    delete(&admin, &quota).await;
}

#[tokio::test]
async fn a_tenant_sees_the_mirrors_of_its_namespace_and_no_cluster_quota() {
    let bed = shared().await.bed;
    let admin = bed.admin().unwrap();
    let (team, other) =
        (bed.namespace("mirrored", TARGETED).await.unwrap(), bed.namespace("other", TARGETED).await.unwrap());
    let quota = created(&admin, ACRQS, &acrq("hidden", pods("3"), nowhere())).await;
    let tenant = bed.tenant(&team).await.unwrap().client().unwrap();
    for (path, code) in [
        (mirrors(&team.name), 200),
        (mirrors(&other.name), 403),
        (quota.clone(), 403),
        (ACRQS.to_owned(), 403),
        (charges(&team.name), 403),
        (charges(names::INSTALL_NAMESPACE), 403),
    ] {
        assert_eq!(get(&tenant, &path).await.unwrap().code, code, "{path}");
    }
    assert_eq!(tries(&tenant, &mirrors(&team.name), &mirror(&status())).await.code, 403);
    delete(&admin, &quota).await;
}
