//! What a managed-tenant-quota leaves behind in one namespace when it crashes.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration as Lock;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_api::{Endpoint, VirtualMachineMigrationResourceQuota as Vmmrq};
use sluice_e2e::tenant::{SOON, hard, spec_hard};
use sluice_testbed::{Bed, wait};

/// How far a managed-tenant-quota had come. A migration begins with the first and ends with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The namespace is locked.
    Locked,
    /// The quota's amounts are written down.
    Recorded,
    /// The quota's spec is raised.
    Raised,
}

pub const STEPS: [(&str, Step); 3] =
    [("locked", Step::Locked), ("recorded", Step::Recorded), ("raised", Step::Raised)];

/// A namespace as a managed-tenant-quota left it: 4 pods allowed, and 2 more while a migration needs them.
pub struct Left {
    pub client: Client,
    namespace: String,
}

impl Left {
    pub fn at(bed: &Bed, namespace: &str) -> Self {
        Self { client: bed.admin().unwrap(), namespace: namespace.to_owned() }
    }

    pub fn quotas(&self) -> Api<ResourceQuota> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn records(&self) -> Api<Vmmrq> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn locks(&self) -> Api<Lock> {
        Api::all(self.client.clone())
    }

    pub fn lock_name(&self) -> String {
        format!("lock.{}.com", self.namespace)
    }

    pub async fn make(bed: &Bed, namespace: &str, step: Step) -> Self {
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

    pub async fn begin(&self) {
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

    pub async fn record(&self) {
        let status = Patch::Merge(json!({ "status": {
            "additionalMigrationResources": { "pods": "2" },
            "migrationsToBlockingResourceQuotas": { "mig": ["rq"] },
            "originalBlockingResourceQuotas": [{ "name": "rq", "spec": { "hard": { "pods": "4" } } }],
        }}));
        self.records().patch_status("mtq", &PatchParams::default(), &status).await.unwrap();
    }

    pub async fn raise(&self, pods: &str) {
        let raised = Patch::Merge(json!({ "spec": { "hard": { "pods": pods } } }));
        self.quotas().patch("rq", &PatchParams::default(), &raised).await.unwrap();
        self.until_enforced(pods).await;
    }

    pub async fn lock(&self, foreign: bool) {
        let name = self.lock_name();
        let rule = |operations: &[&str], resource: &str| json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": [resource], "scope": "Namespaced" });
        let path = if foreign { "/another" } else { Endpoint::MtqLock.path() };
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

    pub async fn until_enforced(&self, pods: &str) {
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

    pub async fn is_forgotten(&self) -> bool {
        let record = self.records().get("mtq").await.unwrap();
        record.status.is_none_or(|status| {
            status.original_blocking_resource_quotas.is_empty()
                && status.migrations_to_blocking_resource_quotas.is_empty()
        })
    }

    /// Nothing is left: the quota allows 4 pods, also as kube-controller-manager sees it.
    pub async fn is_ended(&self) {
        assert!(self.lock_is_gone().await, "{}", self.namespace);
        assert!(self.is_forgotten().await, "{}", self.namespace);
        self.until_enforced("4").await;
    }

    pub async fn lock_is_gone(&self) -> bool {
        self.locks().get_opt(&self.lock_name()).await.unwrap().is_none()
    }
}
