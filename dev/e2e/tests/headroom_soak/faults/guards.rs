//! The two admission policies by themselves: who may mark a quota, and what a marked one permits.

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, Response, call, post};
use sluice_e2e::intruders::{editor, grant};
use sluice_e2e::tenant::{SOON, Tenant, hard};
use sluice_engine::headroom::MARK;
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::{Bed, wait};

use crate::faults::world::{account, pair, shared};

const MASTERS: &[&str] = &["system:masters"];

/// A namespace with the quota `rq` of 2 pods and 2 CPUs, and all who may write its status.
struct Stage {
    tenant: Tenant<'static>,
    webhook: Client,
    admin: Client,
    editor: Client,
    kcm: Client,
    admission: Client,
    kubevirt: Client,
}

impl Stage {
    async fn new(prefix: &str) -> Self {
        Self::on(shared().await.bed, prefix).await
    }

    async fn on(bed: &'static Bed, prefix: &str) -> Self {
        let tenant = Tenant::on(bed, prefix).await;
        tenant.quota("rq", json!({ "pods": "2", "requests.cpu": "2" })).await;
        let who = editor(&tenant).await;
        grant(&tenant, &who, "", "resourcequotas/status").await;
        let user = |name: &str| bed.client_as_user(name, MASTERS).unwrap().client().unwrap();
        Self {
            webhook: account(bed, names::WEBHOOK).await.client().unwrap(),
            admin: bed.admin().unwrap(),
            editor: who.client().unwrap(),
            kcm: user(&names::quota_controller_username()),
            admission: user("system:apiserver"),
            kubevirt: user(CONTROLLER),
            tenant,
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.tenant.name())
    }

    async fn write(&self, by: &Client, status: Value, query: &str) -> Response {
        let path = self.path(&format!("resourcequotas/rq/status?{query}"));
        call(by, Method::PATCH, &path, MERGE, &json!({ "status": status })).await.unwrap()
    }

    /// What would become of a write.
    async fn tries(&self, by: &Client, status: Value) -> Response {
        self.write(by, status, "dryRun=All").await
    }

    /// Raises the pods to 3 as a webhook does.
    async fn raise(&self, end: Timestamp) {
        let mark = mark(end);
        let status = json!({ "hard": { "pods": "3", MARK: mark }, "used": { MARK: mark } });
        let answer = self.write(&self.webhook, status, "fieldManager=sluice").await;
        assert!(answer.is_ok(), "{answer:?}");
    }

    async fn tries_pod(&self, by: &Client, labels: Value) -> Response {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": labels },
            "spec": { "containers": [
                { "name": "main", "image": "none", "resources": { "requests": { "cpu": "1m" } } },
            ]},
        });
        post(by, &self.path("pods?dryRun=All"), &pod).await.unwrap()
    }

    async fn probes(&self, mark: i64) -> Response {
        let (group, version, plural) = (names::OWN_GROUP, names::OWN_VERSION, names::HEADROOM_PROBES);
        let path = format!("/apis/{group}/{version}/namespaces/{}/{plural}?dryRun=All", self.tenant.name());
        let probe = json!({
            "apiVersion": format!("{group}/{version}"), "kind": "HeadroomProbe",
            "metadata": { "name": names::PROBE_NAME }, "spec": { "mark": mark },
        });
        call(&self.webhook, Method::POST, &path, JSON, &probe).await.unwrap()
    }
}

fn mark(end: Timestamp) -> String {
    (end.as_second() * 1000 + 7).to_string()
}

fn ahead(seconds: i64) -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap()
}

fn is_denied(answer: &Response, text: &str) -> bool {
    answer.code == 403 && answer.message().contains(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_is_set_by_sluice_alone_and_for_sixteen_seconds_at_most() {
    let stage = Stage::new("marks").await;
    let marked = |seconds: i64| {
        let mark = mark(ahead(seconds));
        json!({ "hard": { MARK: mark }, "used": { MARK: mark } })
    };
    for (who, by) in [
        ("an administrator", &stage.admin),
        ("a tenant", &stage.editor),
        ("kube-controller-manager", &stage.kcm),
        ("quota admission", &stage.admission),
    ] {
        let answer = stage.tries(by, marked(5)).await;
        assert!(is_denied(&answer, names::CHARGE_DENIED), "{who}: {answer:?}");
        // Without a mark the status is theirs as ever.
        let answer = stage.tries(by, json!({ "hard": { "pods": "9" } })).await;
        assert!(answer.is_ok(), "{who}: {answer:?}");
    }
    // Ten seconds by a clock that is five ahead. A second may pass between the test's clock and the API server's.
    for (seconds, allowed) in [(-5, true), (10, true), (15, true), (18, false), (3600, false)] {
        let answer = stage.tries(&stage.webhook, marked(seconds)).await;
        assert_eq!(answer.is_ok(), allowed, "{seconds} s ahead: {answer:?}");
        assert!(allowed || is_denied(&answer, names::CHARGE_DENIED), "{answer:?}");
    }
    // Where a webhook such as Rancher's lets nothing else write a status, Sluice writes as this account.
    let answer = stage.write(&stage.kcm, marked(5), "dryRun=All&fieldManager=sluice").await;
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marked_quota_accepts_the_exact_charge_and_no_other_limits() {
    let stage = Stage::new("charge").await;
    let end = ahead(10);
    stage.raise(end).await;
    for (pods, allowed) in [("0", true), ("1", false), ("2", false), ("3", true), ("4", false)] {
        let answer = stage.tries(&stage.admission, json!({ "used": { "pods": pods } })).await;
        assert_eq!(answer.is_ok(), allowed, "{pods} pods: {answer:?}");
        assert!(allowed || is_denied(&answer, "exceeded quota"), "{answer:?}");
    }
    let other = json!({ "used": { "requests.cpu": "1500m" } });
    let answer = stage.tries(&stage.admission, other).await;
    assert!(answer.is_ok(), "a limit that is not raised is charged as ever: {answer:?}");
    let reset = json!({ "hard": { "pods": "2", MARK: null }, "used": { MARK: null } });
    for (who, by) in [
        ("an administrator", &stage.admin),
        ("a tenant", &stage.editor),
        ("kube-controller-manager", &stage.kcm),
        ("quota admission", &stage.admission),
    ] {
        let answer = stage.tries(by, reset.clone()).await;
        assert!(is_denied(&answer, names::CHARGE_DENIED), "{who}: {answer:?}");
    }
    let answer = stage.tries(&stage.webhook, reset).await;
    assert!(answer.is_ok(), "Sluice ends its raise: {answer:?}");
    assert!(Timestamp::now() < end, "all of it while the mark was live");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marked_quota_keeps_all_pods_away_but_the_target() {
    let stage = Stage::new("pods").await;
    let end = ahead(10);
    let mark: i64 = mark(end).parse().unwrap();
    stage.raise(end).await;
    let known = || async { is_denied(&stage.probes(mark).await, names::PROBE_DENIED).then_some(()) };
    wait::eventually(SOON, known, "the mark to be known").await.unwrap();
    let other = stage.probes(mark + 1).await;
    assert!(!is_denied(&other, names::PROBE_DENIED), "another mark is not known: {other:?}");
    let target = json!({ names::MIGRATION_JOB_LABEL: "6a1e" });
    for (who, by, labels, allowed) in [
        ("an administrator", &stage.admin, json!({}), false),
        ("a tenant", &stage.editor, json!({}), false),
        ("a tenant's target", &stage.editor, target.clone(), false),
        ("another pod of KubeVirt's", &stage.kubevirt, json!({}), false),
        ("the target", &stage.kubevirt, target, true),
    ] {
        let answer = stage.tries_pod(by, labels).await;
        assert_eq!(answer.is_ok(), allowed, "{who}: {answer:?}");
        assert!(allowed || is_denied(&answer, "exceeded quota: rq is reserved"), "{who}: {answer:?}");
    }
    assert!(Timestamp::now() < end, "all of it while the mark was live");
}

/// The controller stands still: nothing restores the quota.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_end_a_mark_keeps_charges_within_the_spec() {
    let world = pair().await;
    let away = world.without_controller();
    let stage = Stage::on(world.bed, "ended").await;
    stage.raise(ahead(-5)).await;
    for (pods, allowed) in
        [("0", true), ("1", true), ("2", true), ("2000m", true), ("3", false), ("4", false)]
    {
        let answer = stage.tries(&stage.admission, json!({ "used": { "pods": pods } })).await;
        assert_eq!(answer.is_ok(), allowed, "{pods} pods: {answer:?}");
        assert!(allowed || is_denied(&answer, "exceeded quota"), "{answer:?}");
    }
    let other = json!({ "used": { "requests.cpu": "1500m", "secrets": "7" } });
    let answer = stage.tries(&stage.admission, other).await;
    assert!(answer.is_ok(), "what is not raised is charged as ever: {answer:?}");
    let gone = json!({ "used": { "pods": null } });
    let answer = stage.tries(&stage.admission, gone).await;
    assert!(is_denied(&answer, "exceeded quota"), "usage is not forgotten: {answer:?}");
    // What is above the spec already may stay or become less, and keeps no other charge away.
    let above = json!({ "hard": { "secrets": "9" }, "used": { "pods": "7", "secrets": "1" } });
    assert!(stage.write(&stage.admin, above, "").await.is_ok());
    for (pods, allowed) in
        [("7", true), ("6000m", true), ("3", true), ("0", true), ("8", false), ("8000m", false)]
    {
        let status = json!({ "used": { "pods": pods, "requests.cpu": "1", "secrets": "2" } });
        let answer = stage.tries(&stage.admission, status).await;
        assert_eq!(answer.is_ok(), allowed, "{pods} pods: {answer:?}");
    }
    // Of a key without usage other charges say nothing.
    let unknown = json!({ "used": { "pods": null } });
    assert!(stage.write(&stage.admin, unknown, "").await.is_ok());
    for (used, allowed) in [(json!({ "requests.cpu": "1" }), true), (json!({ "pods": "1" }), false)] {
        let answer = stage.tries(&stage.admission, json!({ "used": used })).await;
        assert_eq!(answer.is_ok(), allowed, "{used}: {answer:?}");
    }
    let reset = json!({ "hard": { "pods": "2", MARK: null }, "used": { "pods": "9", MARK: null } });
    for (who, by) in [("an administrator", &stage.admin), ("kube-controller-manager", &stage.kcm)] {
        let answer = stage.tries(by, reset.clone()).await;
        assert!(answer.is_ok(), "{who}: {answer:?}");
    }
    let unlimited = json!({ "hard": { "secrets": null } });
    assert!(stage.write(&stage.admin, unlimited, "").await.is_ok());
    drop(away);
    stage.tenant.until_clear().await;
}

/// All attempts to write before the end are refused, and at the end one is not: a charge within the limits of the spec too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_ends_at_its_second() {
    let stage = Stage::new("end").await;
    let end = ahead(3);
    stage.raise(end).await;
    let reset = json!({ "hard": { "pods": "2", MARK: null }, "used": { MARK: null } });
    let within = json!({ "used": { "pods": "1" } });
    for (who, by, status) in [
        ("kube-controller-manager", &stage.kcm, reset),
        ("a pod that fits the spec", &stage.admission, within),
    ] {
        let allowed = || async {
            let answer = stage.tries(by, status.clone()).await;
            let answered = Timestamp::now();
            assert!(!answer.is_ok() || answered >= end, "{who}: allowed at {answered}, before {end}");
            answer.is_ok().then_some(answered)
        };
        let opened = wait::eventually(SOON, allowed, &format!("{who} to be let in again")).await.unwrap();
        println!("{who}: the mark was over {:#} after its end", opened.duration_since(end));
    }
    let pod = || async { stage.tries_pod(&stage.editor, json!({})).await.is_ok().then_some(()) };
    wait::eventually(SOON, pod, "pods to be let in again").await.unwrap();
    let restored = |quota: &ResourceQuota| hard(quota)["pods"].0 == "2" && !hard(quota).contains_key(MARK);
    stage.tenant.until_quota("rq", "to be restored by the sweep", restored).await;
}
