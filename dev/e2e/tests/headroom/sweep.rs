//! What a process that died left raised is put back, and nothing else.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail};
use sluice_e2e::tenant::{SOON, hard, used};
use sluice_e2e::{Controller, Installation, Setup};
use sluice_engine::headroom::MARK;
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::{Bed, BedOptions, TestNamespace, wait};
use tokio::sync::OnceCell;

use crate::context::metric;

/// A control plane without kube-controller-manager: nothing but the sweep restores a quota.
struct Cluster {
    bed: Bed,
    controller: Controller,
}

async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER
        .get_or_init(|| async {
            let options = BedOptions {
                kwok: false,
                scheduler: false,
                controller_manager: false,
                ..BedOptions::default()
            };
            let bed = Bed::start(options).await.unwrap();
            let setup = Setup { without_webhook: true, ..Setup::default() };
            let installation = Installation::apply(&bed, setup).await.unwrap();
            installation.until_guarded().await.unwrap();
            let controller = installation.controller().await.unwrap();
            Cluster { bed, controller }
        })
        .await
}

/// A namespace with the quota `rq` of 4 pods and 2 CPUs, of which 3 and 1 are used.
struct Left {
    cluster: &'static Cluster,
    namespace: TestNamespace,
    admin: Api<ResourceQuota>,
    /// The same with the account of Sluice's webhook.
    webhook: Api<ResourceQuota>,
}

impl Left {
    async fn new(prefix: &str) -> Self {
        let cluster = cluster().await;
        let namespace = cluster.bed.namespace(prefix, &[]).await.unwrap();
        let of = |client: Client| Api::namespaced(client, &namespace.name);
        let webhook = cluster.bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
        let (admin, webhook) = (of(cluster.bed.admin().unwrap()), of(webhook.client().unwrap()));
        let left = Self { cluster, namespace, admin, webhook };
        left.create(json!({ "pods": "4", "requests.cpu": "2" })).await;
        left
    }

    async fn create(&self, amounts: Value) {
        let quota = json!({ "metadata": { "name": "rq" }, "spec": { "hard": amounts } });
        let quota = serde_json::from_value(quota).unwrap();
        self.admin.create(&PostParams::default(), &quota).await.unwrap();
        self.write(&self.admin, json!({ "hard": amounts, "used": { "pods": "3", "requests.cpu": "1" } }))
            .await;
    }

    async fn write(&self, by: &Api<ResourceQuota>, status: Value) {
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..Default::default() };
        by.patch_status("rq", &params, &Patch::Merge(json!({ "status": status }))).await.unwrap();
    }

    /// As a webhook leaves it that dies after a raise whose lock ends at `end`.
    async fn raise(&self, end: Timestamp) {
        let mark = (end.as_second() * 1000 + 7).to_string();
        self.write(&self.webhook, json!({ "hard": { "pods": "9", MARK: mark }, "used": { MARK: mark } }))
            .await;
    }

    async fn until(&self, what: &str, is: impl Fn(&ResourceQuota) -> bool) -> ResourceQuota {
        let found = wait::wait_for(&self.admin, "rq", SOON, what, |quota| quota.is_some_and(&is)).await;
        found.unwrap().unwrap()
    }

    async fn until_restored(&self) -> ResourceQuota {
        let restored = |quota: &ResourceQuota| {
            hard(quota)["pods"].0 == "4" && !hard(quota).contains_key(MARK) && !used(quota).contains_key(MARK)
        };
        self.until("to be restored", restored).await
    }

    async fn trail(&self) -> AuditTrail {
        AuditTrail::of_namespace(&self.cluster.bed, &self.namespace.name).await
    }
}

/// The one write of the controller, and what raised the quota before.
fn restore(trail: &AuditTrail) -> (&AuditEvent, &AuditEvent) {
    let writes: Vec<&AuditEvent> = trail.status_writes().filter(|event| event.succeeded()).collect();
    let by_controller = |event: &&&AuditEvent| event.is_by(names::CONTROLLER);
    let restores: Vec<&&AuditEvent> = writes.iter().filter(by_controller).collect();
    let [restore] = restores.as_slice() else { panic!("one restore: {restores:#?}") };
    (restore, writes[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_whose_time_is_over_is_restored_with_the_raised_keys_alone() {
    let left = Left::new("over").await;
    left.raise(Timestamp::now()).await;
    let quota = left.until_restored().await;
    assert_eq!(quota.spec.unwrap().hard.unwrap()["pods"].0, "4", "the spec was never written");
    let trail = left.trail().await;
    let (restore, _) = restore(&trail);
    let written = &restore.request["status"];
    assert_eq!(*written, json!({ "hard": { "pods": "4", MARK: null }, "used": { MARK: null } }));
    assert!(metric(&left.cluster.controller.admin, "sluice_headroom_swept_quotas_total").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_mark_is_left_until_its_end() {
    let left = Left::new("live").await;
    let end = Timestamp::from_second(Timestamp::now().as_second() + 4).unwrap();
    left.raise(end).await;
    left.until_restored().await;
    let trail = left.trail().await;
    let (restore, _) = restore(&trail);
    // One clock: the API server's is this machine's.
    assert!(restore.received >= end, "{} before {end}", restore.received);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_raised_without_a_mark_is_restored_after_a_second() {
    let left = Left::new("unmarked").await;
    left.write(&left.admin, json!({ "hard": { "pods": "9" } })).await;
    let raised = Timestamp::now();
    left.until_restored().await;
    let trail = left.trail().await;
    let restored = trail.status_writes().next().unwrap().received;
    let passed = restored.duration_since(raised);
    // The controller learns of the raise at about the time that it was answered.
    assert!(passed >= SignedDuration::from_millis(900), "kube-controller-manager comes first: {passed}");
    assert_eq!(trail.status_writes().count(), 1);
}

/// What an administrator has written since the raise stays; a limit that is new is kube-controller-manager's to enforce.
#[tokio::test(flavor = "multi_thread")]
async fn other_edits_are_kept() {
    let left = Left::new("edited").await;
    let end = Timestamp::from_second(Timestamp::now().as_second() + 3).unwrap();
    left.raise(end).await;
    let edit = json!({
        "metadata": { "labels": { "team": "blue" } },
        "spec": { "hard": { "services": "5" } },
    });
    left.admin.patch("rq", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    left.write(&left.admin, json!({ "used": { "count/widgets.example.com": "3" } })).await;
    let quota = left.until_restored().await;
    assert_eq!(quota.metadata.labels.as_ref().unwrap()["team"], "blue");
    assert_eq!(used(&quota)["count/widgets.example.com"].0, "3");
    assert_eq!(used(&quota)["pods"].0, "3");
    let enforced = hard(&quota);
    assert!(!enforced.contains_key("services"), "not counted yet: {enforced:?}");
    assert_eq!(enforced["requests.cpu"].0, "2");
}

/// A limit that is lowered while a quota is raised is what is restored.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_is_restored_as_it_is_by_then() {
    let left = Left::new("lowered").await;
    let end = Timestamp::from_second(Timestamp::now().as_second() + 3).unwrap();
    left.raise(end).await;
    let lower = Patch::Merge(json!({ "spec": { "hard": { "pods": "2" } } }));
    left.admin.patch("rq", &PatchParams::default(), &lower).await.unwrap();
    let restored = |quota: &ResourceQuota| hard(quota)["pods"].0 == "2" && !hard(quota).contains_key(MARK);
    left.until("to be restored", restored).await;
}

/// A controller that comes later finds what was left before.
#[tokio::test(flavor = "multi_thread")]
async fn two_raises_of_one_namespace_are_both_ended() {
    let left = Left::new("twice").await;
    for round in 1..=2 {
        left.raise(Timestamp::now()).await;
        left.until_restored().await;
        let trail = left.trail().await;
        let last = trail.status_writes().last().unwrap();
        assert!(last.answered >= last.received);
        assert_eq!(trail.status_writes().filter(|event| event.succeeded()).count(), 2 * round);
    }
}
