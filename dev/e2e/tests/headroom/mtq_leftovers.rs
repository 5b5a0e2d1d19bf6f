//! What a managed-tenant-quota that crashed left behind is ended.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration as Lock;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_e2e::tenant::{SOON, hard, spec_hard};
use sluice_e2e::{Controller, Installation, Setup};
use sluice_testbed::{Bed, BedOptions, wait};
use tokio::sync::OnceCell;

use crate::context::{metric, turn};
use crate::trail::is_ours;

/// How far a managed-tenant-quota had come. A migration begins with the first and ends with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The namespace is locked.
    Locked,
    /// The quota's amounts are written down.
    Recorded,
    /// The quota's spec is raised.
    Raised,
}

const STEPS: [(&str, Step); 3] =
    [("locked", Step::Locked), ("recorded", Step::Recorded), ("raised", Step::Raised)];

/// A namespace as a managed-tenant-quota left it: 4 pods allowed, and 2 more while a migration needs them.
struct Left {
    client: Client,
    namespace: String,
}

impl Left {
    fn at(bed: &Bed, namespace: &str) -> Self {
        Self { client: bed.admin().unwrap(), namespace: namespace.to_owned() }
    }

    fn quotas(&self) -> Api<ResourceQuota> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn records(&self) -> Api<Vmmrq> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn locks(&self) -> Api<Lock> {
        Api::all(self.client.clone())
    }

    fn lock_name(&self) -> String {
        format!("lock.{}.com", self.namespace)
    }

    async fn make(bed: &Bed, namespace: &str, step: Step) -> Self {
        let left = Self::at(bed, namespace);
        left.begin().await;
        if step >= Step::Recorded {
            left.record().await;
        }
        if step >= Step::Raised {
            left.raise("6").await;
        }
        left.lock(false).await;
        left
    }

    async fn begin(&self) {
        let namespace = json!({ "metadata": { "name": self.namespace } });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        let quota = json!({ "metadata": { "name": "rq" }, "spec": { "hard": { "pods": "4" } } });
        self.quotas().create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        self.until_enforced("4").await;
        let record = json!({
            "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
            "metadata": { "name": "mtq" }, "spec": { "additionalMigrationResources": { "pods": "2" } },
        });
        self.records()
            .create(&PostParams::default(), &serde_json::from_value(record).unwrap())
            .await
            .unwrap();
    }

    async fn record(&self) {
        let status = Patch::Merge(json!({ "status": {
            "additionalMigrationResources": { "pods": "2" },
            "migrationsToBlockingResourceQuotas": { "mig": ["rq"] },
            "originalBlockingResourceQuotas": [{ "name": "rq", "spec": { "hard": { "pods": "4" } } }],
        }}));
        self.records().patch_status("mtq", &PatchParams::default(), &status).await.unwrap();
    }

    async fn raise(&self, pods: &str) {
        let raised = Patch::Merge(json!({ "spec": { "hard": { "pods": pods } } }));
        self.quotas().patch("rq", &PatchParams::default(), &raised).await.unwrap();
        self.until_enforced(pods).await;
    }

    async fn lock(&self, foreign: bool) {
        let name = self.lock_name();
        let rule = |operations: &[&str], resource: &str| json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": [resource], "scope": "Namespaced" });
        let path = if foreign { "/another" } else { names::PATH_VALIDATE_PODS };
        let lock = json!({
            "metadata": { "name": name, "labels": { "mtq-lock-server": "mtq-lock-server" } },
            "webhooks": [{
                "name": name, "admissionReviewVersions": ["v1", "v1beta1"], "failurePolicy": "Fail", "sideEffects": "None",
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.namespace } },
                "clientConfig": { "service": { "namespace": "mtq", "name": "mtq-lock", "path": path } },
                "rules": [
                    rule(&["UPDATE"], "resourcequotas"),
                    rule(&["DELETE", "CREATE"], "virtualmachinemigrationresourcequotas"),
                    rule(&["CREATE"], "pods"),
                ],
            }],
        });
        self.locks().create(&PostParams::default(), &serde_json::from_value(lock).unwrap()).await.unwrap();
    }

    async fn until_enforced(&self, pods: &str) {
        let is = |quota: Option<&ResourceQuota>| {
            quota.is_some_and(|quota| {
                [hard(quota), spec_hard(quota)]
                    .iter()
                    .all(|hard| hard.get("pods").is_some_and(|is| is.0 == pods))
            })
        };
        let what = format!("{pods} pods to be allowed in {}", self.namespace);
        wait::wait_for(&self.quotas(), "rq", SOON, &what, is).await.unwrap();
    }

    async fn until_unlocked(&self) {
        let gone = |lock: Option<&Lock>| lock.is_none();
        wait::wait_for(&self.locks(), &self.lock_name(), SOON, "the lock to go", gone).await.unwrap();
    }

    async fn until_forgotten(&self) {
        let forgotten = |record: Option<&Vmmrq>| {
            record.is_some_and(|record| {
                record.status.as_ref().is_none_or(|status| {
                    status.original_blocking_resource_quotas.is_empty()
                        && status.migrations_to_blocking_resource_quotas.is_empty()
                })
            })
        };
        wait::wait_for(&self.records(), "mtq", SOON, "the record to be cleared", forgotten).await.unwrap();
    }

    /// Waits for an event about the record or the namespace that says so.
    async fn until_told(&self, text: &str) {
        let events: Api<Event> = Api::all(self.client.clone());
        let told = || async {
            let params = ListParams::default().fields("reason=ManagedTenantQuotaLeftover");
            let events = events.list(&params).await.ok()?.items;
            let about = |event: &Event| {
                let object = &event.involved_object;
                object.namespace.as_deref() == Some(&self.namespace)
                    || object.name.as_deref() == Some(&self.namespace)
            };
            let says = |event: &Event| event.message.as_deref().is_some_and(|message| message.contains(text));
            events.iter().any(|event| about(event) && says(event)).then_some(())
        };
        wait::eventually(SOON, told, &format!("{}: {text}", self.namespace)).await.unwrap();
    }
}

/// A cluster in which one managed-tenant-quota crashed in every way, seen first by a controller that only lists, and
/// then by one that cleans up.
struct Aftermath {
    bed: Bed,
    /// What was listed.
    listed: String,
    /// What the one that lists wrote.
    written: Vec<Value>,
    /// The one that cleans up.
    controller: Controller,
}

async fn light() -> Bed {
    Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap()
}

async fn installed(bed: &Bed) -> Installation<'_> {
    let args = ["--mtq-lock-age=1s", "--mtq-leftovers=clean"];
    let controller_args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Installation::apply(bed, Setup { controller_args, without_webhook: true, ..Setup::default() })
        .await
        .unwrap()
}

async fn aftermath() -> &'static Aftermath {
    static AFTERMATH: OnceCell<Aftermath> = OnceCell::const_new();
    AFTERMATH
        .get_or_init(|| async {
            let _turn = turn().await;
            let bed = light().await;
            let (listed, written, controller) = crash_and_clean(&bed).await;
            Aftermath { bed, listed, written, controller }
        })
        .await
}

async fn crash_and_clean(bed: &Bed) -> (String, Vec<Value>, Controller) {
    let installation = installed(bed).await;
    for (name, step) in STEPS {
        Left::make(bed, name, step).await;
    }
    let unlocked = Left::make(bed, "unlocked", Step::Raised).await;
    unlocked.locks().delete(&unlocked.lock_name(), &DeleteParams::default()).await.unwrap();
    let edited = Left::at(bed, "edited");
    edited.begin().await;
    edited.record().await;
    edited.raise("9").await;
    edited.lock(false).await;
    Left::at(bed, "gone").lock(false).await;
    let foreign = Left::at(bed, "foreign");
    foreign.begin().await;
    foreign.record().await;
    foreign.raise("6").await;
    foreign.lock(true).await;

    let identity = bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await.unwrap();
    let lister =
        installation.controller_with(identity.kubeconfig(), &["--mtq-leftovers=list"]).await.unwrap();
    let everywhere = ["locked", "recorded", "raised", "unlocked", "edited", "gone", "foreign"];
    let all = || async {
        let log = lister.program.log();
        everywhere.iter().all(|name| log.contains(&format!("{name}: "))).then_some(log)
    };
    let listed = wait::eventually(SOON, all, "everything to be listed").await.unwrap();
    lister.program.terminate();
    lister.program.wait().await;
    let kinds = ["resourcequotas", "validatingwebhookconfigurations"];
    let events = bed.audit_events().await.unwrap().into_iter();
    let written = events.filter(|event| {
        is_ours(event)
            && kinds.contains(&event["objectRef"]["resource"].as_str().unwrap_or_default())
            && !matches!(event["verb"].as_str(), Some("get" | "list" | "watch"))
            && !event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun=All"))
    });
    let mut written: Vec<Value> = written.collect();
    for name in ["recorded", "raised", "unlocked", "edited", "foreign"] {
        let status = Left::at(bed, name).records().get("mtq").await.unwrap().status.unwrap();
        if status.original_blocking_resource_quotas.is_empty() {
            written.push(json!(name));
        }
    }
    (listed, written, installation.controller().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_names_everything_and_writes_nothing() {
    let aftermath = aftermath().await;
    assert_eq!(aftermath.written, [Value::Null; 0]);
    for line in [
        "locked: delete the lock lock.locked.com",
        "recorded: clear the record of mtq",
        "raised: lower status.hard of quota rq: pods from 6 to 4",
        "raised: delete the lock lock.raised.com",
        "raised: restore spec.hard of quota rq: pods from 6 to 4",
        "unlocked: restore spec.hard of quota rq: pods from 6 to 4",
        "edited: quota rq was changed since and is left as it is in pods",
        "gone: delete the lock lock.gone.com",
        "foreign: lock.foreign.com is not what managed-tenant-quota creates and is left alone",
    ] {
        assert!(aftermath.listed.lines().any(|listed| listed == line), "{line} in {}", aftermath.listed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_each_step_is_ended_and_told() {
    let aftermath = aftermath().await;
    for (name, step) in STEPS.into_iter().chain([("unlocked", Step::Raised)]) {
        let left = Left::at(&aftermath.bed, name);
        left.until_unlocked().await;
        left.until_forgotten().await;
        left.until_enforced("4").await;
        let told = if step == Step::Locked { "delete the lock" } else { "clear the record of mtq" };
        left.until_told(told).await;
    }
    assert!(metric(&aftermath.controller.admin, "sluice_headroom_leftovers_cleaned_total").await >= 6.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_an_administrator_has_edited_since_is_left_and_said() {
    let left = Left::at(&aftermath().await.bed, "edited");
    left.until_unlocked().await;
    left.until_forgotten().await;
    left.until_enforced("9").await;
    left.until_told("quota rq was changed since and is left as it is in pods").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_namespace_that_is_gone_is_deleted() {
    let left = Left::at(&aftermath().await.bed, "gone");
    left.until_unlocked().await;
    left.until_told("delete the lock lock.gone.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_somebody_else_is_left_alone_and_so_is_what_it_protects() {
    let bed = &aftermath().await.bed;
    let left = Left::at(bed, "foreign");
    left.until_told("is not what managed-tenant-quota creates").await;
    left.until_enforced("6").await;
    left.locks().get(&left.lock_name()).await.unwrap();
    let record = left.records().get("mtq").await.unwrap();
    assert_eq!(record.status.unwrap().original_blocking_resource_quotas.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_touched_while_a_managed_tenant_quota_is_alive() {
    let _turn = turn().await;
    let bed = light().await;
    let installation = installed(&bed).await;
    let left = Left::make(&bed, "alive", Step::Raised).await;
    let renewed = Timestamp::now();
    let lease = json!({
        "metadata": { "name": "mtq-controller" },
        "spec": {
            "holderIdentity": "mtq-controller-1", "leaseDurationSeconds": 10,
            "renewTime": format!("{renewed:.6}"), "acquireTime": format!("{renewed:.6}"),
        },
    });
    let leases: Api<Lease> = Api::namespaced(left.client.clone(), "default");
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let _controller = installation.controller().await.unwrap();
    left.until_unlocked().await;
    assert!(Timestamp::now() > renewed + SignedDuration::from_secs(10), "not before its lease is over");
    left.until_forgotten().await;
    left.until_enforced("4").await;
}
