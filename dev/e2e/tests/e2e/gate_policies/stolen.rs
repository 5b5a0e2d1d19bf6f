//! The tokens of Sluice's own accounts, in wrong hands: what RBAC grants as a whole, admission narrows to what they do.

use http::Method;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, Response, STRATEGIC, call, post};
use sluice_engine::headroom::{MARK, NUDGE_KEY};
use sluice_testbed::{Bed, wait};

use crate::context::SOON;
use crate::gate_policies::world::asleep;
use crate::pods::pod;
use crate::team::Team;

async fn thief(bed: &Bed, account: &str) -> Client {
    bed.service_account(names::INSTALL_NAMESPACE, account).await.unwrap().client().unwrap()
}

/// What would become of the patch.
async fn tries(client: &Client, path: &str, content_type: &str, patch: &Value) -> Response {
    call(client, Method::PATCH, &format!("{path}?dryRun=All"), content_type, patch).await.unwrap()
}

fn assert_denied(answer: &Response, what: &Value) {
    let said = answer.message();
    assert!(answer.code == 403 && said.contains(names::ACCOUNT_DENIED), "{what}: {answer:?}");
}

/// A gated pod with a second gate.
async fn waiting(team: &Team) -> String {
    let mut pod = pod("victim");
    pod["metadata"]["labels"] = json!({ "app": "web" });
    pod["metadata"]["annotations"] = json!({ "note": "mine" });
    pod["spec"]["schedulingGates"] = json!([{ "name": "example.com/other" }]);
    let created = team.create(&pod).await;
    assert!(created.is_ok(), "{created:?}");
    team.path("pods/victim")
}

fn gates_left(gates: &[&str]) -> Value {
    let gates: Vec<Value> = gates.iter().map(|name| json!({ "name": name })).collect();
    json!({ "op": "replace", "path": "/spec/schedulingGates", "value": gates })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controllers_token_takes_our_gate_from_a_pod_and_changes_nothing_else() {
    let bed = asleep().await;
    let team = Team::on(bed, "stolen").await;
    let (victim, thief) = (waiting(&team).await, thief(bed, names::CONTROLLER).await);
    let release = gates_left(&["example.com/other"]);
    let wrong = [
        json!([gates_left(&[names::GATE])]),
        json!([{ "op": "remove", "path": "/spec/schedulingGates" }]),
        json!([release, { "op": "replace", "path": "/spec/containers/0/image", "value": "evil" }]),
        json!([release, { "op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1 }]),
        json!([release, { "op": "add", "path": "/spec/tolerations/-", "value": { "operator": "Exists" } }]),
        json!([release, { "op": "add", "path": "/spec/nodeSelector", "value": { "node": "mine" } }]),
        json!([release, { "op": "replace", "path": "/metadata/labels/app", "value": "bank" }]),
        json!([release, { "op": "remove", "path": "/metadata/labels/app" }]),
        json!([release, { "op": "replace", "path": "/metadata/annotations/note", "value": "forged" }]),
        json!([release, { "op": "add", "path": "/metadata/finalizers", "value": ["example.com/stay"] }]),
        json!([release, { "op": "add", "path": "/metadata/ownerReferences", "value": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" }] }]),
        json!([{ "op": "replace", "path": "/spec/containers/0/image", "value": "evil" }]),
        json!([{ "op": "add", "path": "/metadata/labels/more", "value": "evil" }]),
    ];
    for patch in &wrong {
        let answer = tries(&thief, &victim, JSON_PATCH, patch).await;
        assert_denied(&answer, patch);
        // It is this policy that refuses, nothing else would.
        let admin = tries(&team.client, &victim, JSON_PATCH, patch).await;
        let only_the_gate = admin.message().contains("permission to remove ApplicationAwareQuotaGate");
        assert!(admin.is_ok() || only_the_gate, "{patch}: {admin:?}");
    }
    let answer = tries(&thief, &victim, JSON_PATCH, &json!([release])).await;
    assert!(answer.is_ok(), "{answer:?}");
    // Nor does it change what has no gate to take.
    let other = Team::with(bed, "ungated", &[]).await;
    assert!(other.create(&pod("p")).await.is_ok());
    let label = json!({ "metadata": { "labels": { "app": "evil" } } });
    assert_denied(&tries(&thief, &other.path("pods/p"), MERGE, &label).await, &label);
    // No way around it.
    let merge = json!({ "spec": { "containers": [{ "name": "c", "image": "evil" }] } });
    let answer = tries(&thief, &victim, STRATEGIC, &merge).await;
    assert!(answer.code >= 400, "{answer:?}");
    for (rest, status) in [("status", 403), ("resize", 403), ("ephemeralcontainers", 403)] {
        let answer = tries(&thief, &format!("{victim}/{rest}"), MERGE, &json!({})).await;
        assert_eq!(answer.code, status, "{rest}: {answer:?}");
    }
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "victim" } });
    assert_eq!(post(&thief, &format!("{victim}/eviction"), &eviction).await.unwrap().code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controllers_token_keeps_no_namespace_from_being_deleted() {
    let bed = asleep().await;
    let team = Team::on(bed, "kept").await;
    let thief = thief(bed, names::CONTROLLER).await;
    let stay = json!({ "name": "q", "finalizers": ["example.com/stay"] });
    let mut mirror = json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareAppliedClusterResourceQuota", "metadata": stay,
        "spec": { "quota": { "hard": { "pods": "1" } }, "selector": { "labels": {} } },
    });
    let mut charge = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "ClusterQuotaCharge", "metadata": stay,
        "spec": { "quota": "q" },
    });
    let mirrors = format!("/apis/{}/namespaces/{}/{}", names::API_VERSION, team.namespace, names::AACRQS);
    let (group, version) = (names::OWN_GROUP, names::OWN_VERSION);
    let (home, kind) = (names::INSTALL_NAMESPACE, names::CLUSTER_QUOTA_CHARGES);
    let charges = format!("/apis/{group}/{version}/namespaces/{home}/{kind}");
    for (path, object) in [(&mirrors, &mut mirror), (&charges, &mut charge)] {
        assert_denied(&post(&thief, &format!("{path}?dryRun=All"), object).await.unwrap(), object);
        object["metadata"] = json!({ "name": "q", "labels": { "a": "b" } });
        let answer = post(&thief, path, object).await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
    }
    let one = format!("{mirrors}/q");
    let patch = json!({ "metadata": { "finalizers": ["example.com/stay"] } });
    assert_denied(&tries(&thief, &one, MERGE, &patch).await, &patch);
    let answer = call(&team.client, Method::PATCH, &one, MERGE, &patch).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    // What others have put there is theirs to take away.
    let without = json!({ "metadata": { "finalizers": null } });
    assert_denied(&tries(&thief, &one, MERGE, &without).await, &without);
    let status = json!({ "status": { "total": { "used": { "pods": "1" } } } });
    assert!(tries(&thief, &one, MERGE, &status).await.is_ok(), "the mirror can still be kept");
    assert!(call(&team.client, Method::PATCH, &one, MERGE, &without).await.unwrap().is_ok());
}

/// What RBAC lets both create in all namespaces, or in that of the installation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stolen_tokens_leave_nothing_behind_that_keeps_a_namespace() {
    let bed = asleep().await;
    let team = Team::with(bed, "left", &[]).await;
    let (space, home) = (&team.namespace.name, names::INSTALL_NAMESPACE);
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "blockOwnerDeletion": true });
    let owned = format!("/apis/{}/{}", names::OWN_GROUP, names::OWN_VERSION);
    let probe = |kind: &str, spec: Value| json!({ "apiVersion": "quota.sluice.dev/v1alpha1", "kind": kind, "spec": spec });
    let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Normal", "reason": "R", "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "sluice", "reportingInstance": "x",
        "regarding": { "apiVersion": "v1", "kind": "Pod", "name": "x", "namespace": space } });
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {} });
    let events = format!("/apis/events.k8s.io/v1/namespaces/{space}/events");
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{home}/leases");
    let headroom = format!("{owned}/namespaces/{space}/{}", names::HEADROOM_PROBES);
    let gate = format!("{owned}/{}", names::GATE_PROBES);
    let (of_headroom, of_gate) =
        (probe("HeadroomProbe", json!({ "mark": 0 })), probe("GateProbe", json!({})));
    for (account, path, object) in [
        (names::CONTROLLER, &events, &event),
        (names::WEBHOOK, &events, &event),
        (names::CONTROLLER, &leases, &lease),
        (names::CONTROLLER, &headroom, &of_headroom),
        (names::WEBHOOK, &headroom, &of_headroom),
        (names::CONTROLLER, &gate, &of_gate),
    ] {
        let thief = thief(bed, account).await;
        let with = |field: &str, value: Value| {
            let mut object = object.clone();
            object["metadata"] = json!({ "name": "left", field: value });
            object
        };
        let dry = format!("{path}?dryRun=All");
        for wrong in
            [with("finalizers", json!(["example.com/stay"])), with("ownerReferences", json!([owner]))]
        {
            assert_denied(&post(&thief, &dry, &wrong).await.unwrap(), &wrong);
        }
        let right = with("labels", json!({ "a": "b" }));
        let answer = post(&thief, &dry, &right).await.unwrap();
        // Where no quota has a mark a probe of any is let in.
        assert!(answer.is_ok(), "{account}: {answer:?}");
        if path.starts_with(&owned) {
            for client in [&thief, &team.client] {
                let answer = post(client, path, &right).await.unwrap();
                assert!(answer.code == 403 && answer.message().contains("dry run"), "{answer:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_whose_writers_are_not_recorded_is_not_raised() {
    let bed = asleep().await;
    let team = Team::with(bed, "untracked", &[]).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "rq" }, "spec": { "hard": { "pods": "3" } },
    });
    assert!(post(&team.client, &team.path("resourcequotas"), &quota).await.unwrap().is_ok());
    let quotas: Api<ResourceQuota> = Api::namespaced(team.client.clone(), &team.namespace.name);
    let counted = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()).is_some_and(|used| used.len() == 1)
    };
    wait::wait_for(&quotas, "rq", SOON, "the quota to be counted", counted).await.unwrap();
    let forget = json!({ "metadata": { "managedFields": [{}] } });
    let answer =
        call(&team.client, Method::PATCH, &team.path("resourcequotas/rq"), MERGE, &forget).await.unwrap();
    assert!(answer.is_ok() && answer.body["metadata"].get("managedFields").is_none(), "{answer:?}");
    let end = ((jiff::Timestamp::now().as_second() + 8) * 1000 + 1).to_string();
    let status = json!({ "status": { "hard": { "pods": "4", MARK: end }, "used": { MARK: end } } });
    for account in [names::CONTROLLER, names::WEBHOOK] {
        let thief = thief(bed, account).await;
        let answer = tries(&thief, &team.path("resourcequotas/rq/status"), MERGE, &status).await;
        let said = answer.message();
        assert!(
            answer.code == 403
                && said.contains(names::CHARGE_DENIED)
                && said.contains("metadata.managedFields, which kubectl apply --server-side brings back"),
            "{answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stolen_tokens_raise_no_quota_for_longer_than_a_mark_and_forge_no_usage() {
    let bed = asleep().await;
    let team = Team::with(bed, "raised", &[]).await;
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "rq" },
        "spec": { "hard": { "pods": "3", "requests.cpu": "2", "services": "1", "requests.storage": "1" } } });
    assert!(post(&team.client, &team.path("resourcequotas"), &quota).await.unwrap().is_ok());
    let quotas: Api<ResourceQuota> = Api::namespaced(team.client.clone(), &team.namespace.name);
    let counted = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()).is_some_and(|used| used.len() == 4)
    };
    wait::wait_for(&quotas, "rq", SOON, "the quota to be counted", counted).await.unwrap();
    let path = team.path("resourcequotas/rq/status");
    let end = (jiff::Timestamp::now().as_second() + 8) * 1000 + 1;
    let far = end + 60_000;
    let marked = |end: i64, hard: Value| {
        let mut status = json!({ "status": { "hard": hard, "used": { MARK: end.to_string() } } });
        status["status"]["hard"][MARK] = json!(end.to_string());
        status
    };
    for account in [names::CONTROLLER, names::WEBHOOK] {
        let thief = thief(bed, account).await;
        let wrong = [
            json!({ "status": { "hard": { "pods": "9" } } }),
            json!({ "status": { "hard": { "pods": "1" } } }),
            json!({ "status": { "hard": { "pods": null } } }),
            json!({ "status": { "hard": { "secrets": "0" } } }),
            json!({ "status": { "used": { "pods": "3" } } }),
            json!({ "status": { "used": { "pods": null } } }),
            marked(end, json!({ "pods": "1" })),
            marked(end, json!({ "secrets": "0" })),
            marked(end, json!({ "services": "9" })),
            marked(end, json!({ "pods": "4", "requests.storage": "9" })),
            json!({ "metadata": { "finalizers": ["example.com/stay"] } }),
            json!({ "metadata": { "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" }] } }),
        ];
        for patch in &wrong {
            assert_denied(&tries(&thief, &path, MERGE, patch).await, patch);
            let admin = tries(&team.client, &path, MERGE, patch).await;
            let only_the_mark = admin.message().contains(names::CHARGE_DENIED);
            assert!(admin.is_ok() || only_the_mark, "{patch}: {admin:?}");
        }
        let longer = tries(&thief, &path, MERGE, &marked(far, json!({ "pods": "9" }))).await;
        assert!(longer.code == 403 && longer.message().contains(names::CHARGE_DENIED), "{longer:?}");
        for right in [
            marked(end, json!({ "pods": "4", "requests.cpu": "2100m" })),
            json!({ "status": { "used": { NUDGE_KEY: "1" } } }),
            json!({ "status": { "hard": { "pods": "3" } } }),
        ] {
            let answer = tries(&thief, &path, MERGE, &right).await;
            assert!(answer.is_ok(), "{account}: {right}: {answer:?}");
        }
        let spec = json!({ "spec": { "hard": { "pods": "9" } } });
        let answer = tries(&thief, &team.path("resourcequotas/rq"), MERGE, &spec).await;
        assert_eq!(answer.code, 403, "{account}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controllers_token_writes_no_resource_quota_but_managed_ones() {
    let bed = asleep().await;
    let team = Team::with(bed, "quotas", &[]).await;
    let thief = thief(bed, names::CONTROLLER).await;
    let (all, suffix) = (team.path("resourcequotas?dryRun=All"), names::MANAGED_QUOTA_SUFFIX);
    let quota = |name: &str, owner: &str, hard: Value| {
        let owner = json!({ "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota", "name": owner,
            "uid": "11111111-1111-1111-1111-111111111111", "controller": true, "blockOwnerDeletion": true });
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "spec": { "hard": hard },
            "metadata": { "name": name, "labels": { "aaq.kubevirt.io": "true" }, "ownerReferences": [owner] } })
    };
    let (right, services) = (format!("q{suffix}"), json!({ "services": "1", "count/deployments.apps": "1" }));
    let mut unowned = quota(&right, "q", services.clone());
    unowned["metadata"]["ownerReferences"] = json!([]);
    let mut staying = quota(&right, "q", services.clone());
    staying["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let wrong = [
        quota("rq", "q", services.clone()),
        quota(&right, "other", services.clone()),
        quota(&right, "q", json!({ "services": "1", "pods": "0" })),
        quota(&right, "q", json!({ "count/pods": "0" })),
        quota(&right, "q", json!({ "requests.cpu": "0" })),
        unowned,
        staying,
    ];
    for object in &wrong {
        assert_denied(&post(&thief, &all, object).await.unwrap(), object);
        assert!(post(&team.client, &all, object).await.unwrap().is_ok(), "it is this policy that refuses");
    }
    let answer = post(&thief, &all, &quota(&right, "q", services.clone())).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");

    // What there is: one of others by that name, one of others, and a managed one.
    let mut foreign = quota(&right, "q", services.clone());
    foreign["metadata"] = json!({ "name": right });
    let mut ours = quota(&format!("mine{suffix}"), "mine", services.clone());
    // Its owner is not there, so the garbage collector deletes it: it stays to be looked at.
    ours["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let other = json!({ "metadata": { "name": "rq" }, "spec": { "hard": { "pods": "1" } } });
    for object in [&foreign, &ours, &other] {
        assert!(post(&team.client, &team.path("resourcequotas"), object).await.unwrap().is_ok(), "{object}");
    }
    let path = |name: &str| team.path(&format!("resourcequotas/{name}"));
    for name in [&*right, "rq"] {
        let patch = quota(name, "q", services.clone());
        assert_denied(&tries(&thief, &path(name), MERGE, &patch).await, &patch);
        let uri = format!("{}?dryRun=All", path(name));
        assert_denied(&call(&thief, Method::DELETE, &uri, JSON, &json!({})).await.unwrap(), &json!(name));
    }
    let mine = path(&format!("mine{suffix}"));
    let pods = json!({ "spec": { "hard": { "pods": "0" } } });
    assert_denied(&tries(&thief, &mine, MERGE, &pods).await, &pods);
    let more = tries(&thief, &mine, MERGE, &json!({ "spec": { "hard": { "services": "2" } } })).await;
    assert!(more.is_ok(), "{more:?}");
    let uri = format!("{mine}?dryRun=All");
    let deleted = call(&thief, Method::DELETE, &uri, JSON, &json!({})).await.unwrap();
    assert!(deleted.is_ok(), "{deleted:?}");
    // RBAC gives the webhook none of this.
    let webhook =
        bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap().client().unwrap();
    assert_eq!(post(&webhook, &all, &quota(&right, "q", services)).await.unwrap().code, 403);
}
