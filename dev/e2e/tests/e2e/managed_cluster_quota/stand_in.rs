//! OpenShift's kind, without OpenShift.

use kube::api::{Patch, PatchParams};
use kube::{Api, CustomResource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};
use tokio::sync::OnceCell;

use crate::cluster_quotas::{Owner, allow};
use crate::context::{SOON, idle_options, kubectl};

const CRD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/clusterresourcequota-stand-in.yaml");
const CRD_NAME: &str = "clusterresourcequotas.quota.openshift.io";

#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "quota.openshift.io",
    version = "v1",
    kind = "ClusterResourceQuota",
    plural = "clusterresourcequotas",
    status = "Value",
    schema = "disabled"
)]
pub struct CrqSpec {
    pub quota: Value,
    pub selector: Value,
}
pub use ClusterResourceQuota as Crq;

/// A control plane with the kind, and with Sluice and an AAQ that allows cluster quotas.
pub async fn openshift() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(idle_options()).await.unwrap();
        serve(bed).await;
        let running = Running::on(bed, Setup::default()).await.unwrap();
        allow(bed).await;
        running
    };
    SHARED.get_or_init(start).await
}

/// Has the API server serve the kind.
pub async fn serve(bed: &Bed) {
    kubectl(bed, &["apply", "--filename", CRD]).await;
    let established = ["wait", "--for=condition=Established", "--timeout=60s", "crd", CRD_NAME];
    kubectl(bed, &established).await;
}

/// Takes the kind away, with all its objects.
pub async fn serve_no_more(bed: &Bed) {
    kubectl(bed, &["delete", "crd", CRD_NAME]).await;
}

/// A cluster quota, and what there is of managed ones.
pub struct Managed {
    pub owner: Owner,
    pub quotas: Api<Crq>,
    /// The name of its managed quota.
    pub name: String,
}

impl Managed {
    pub async fn on(bed: &Bed, name: &str, namespaces: usize) -> Self {
        let owner = Owner::on(bed, name, namespaces).await;
        let quotas = Api::all(owner.client.clone());
        Self { owner, quotas, name: names::managed_cluster_quota(name) }
    }

    /// Waits until the managed quota is as it should be with these limits and the selector of the quota.
    pub async fn until_limited(&self, hard: Value) -> Crq {
        let quota = self.owner.quotas.get(&self.owner.name).await.unwrap();
        let (uid, selector) = (quota.metadata.uid, json!(quota.spec.selector));
        let is_right = |crq: Option<&Crq>| {
            crq.is_some_and(|crq| {
                let owners = crq.metadata.owner_references.as_deref().unwrap_or_default();
                let is_owned = matches!(owners, [owner] if Some(&owner.uid) == uid.as_ref()
                    && owner.controller == Some(true) && owner.block_owner_deletion == Some(true)
                    && owner.kind == "ApplicationAwareClusterResourceQuota");
                let label = crq.metadata.labels.as_ref().and_then(|labels| labels.get("aaq.kubevirt.io"));
                is_owned
                    && label.is_some_and(|value| value == "true")
                    && crq.spec.quota == json!({ "hard": hard })
                    && ["labels", "annotations"].iter().all(|by| crq.spec.selector[by] == selector[by])
            })
        };
        wait::wait_for(&self.quotas, &self.name, SOON, "the managed quota", is_right).await.unwrap();
        self.quotas.get(&self.name).await.unwrap()
    }

    pub async fn until_no_managed(&self) {
        let what = "the managed quota to be gone";
        wait::wait_for(&self.quotas, &self.name, SOON, what, |crq| crq.is_none()).await.unwrap();
    }

    /// Changes the managed quota as an administrator could.
    pub async fn tamper(&self, patch: Value) {
        self.quotas.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Writes the status that OpenShift's controller, which is not here, would write when it has counted this in all, and
    /// this in each namespace of the owner.
    pub async fn fake_openshift_counts(&self, total: Value, each: &[Value]) {
        let hard = self.quotas.get(&self.name).await.unwrap().spec.quota["hard"].clone();
        let amounts = |used: &Value| json!({ "hard": hard, "used": used });
        let teams = self.owner.teams.iter().zip(each);
        let namespaces: Vec<Value> = teams
            .map(|(team, used)| json!({ "namespace": team.namespace.name, "status": amounts(used) }))
            .collect();
        let status = json!({ "status": { "total": amounts(&total), "namespaces": namespaces } });
        let params = PatchParams::default();
        self.quotas.patch_status(&self.name, &params, &Patch::Merge(status)).await.unwrap();
    }

    /// Waits until the condition about keys that nothing enforces has all of this text; empty: until there is none.
    pub async fn until_told(&self, said: &[&str]) {
        self.owner
            .until(&format!("to be told {said:?}"), |status| {
                let mut conditions = status.conditions.iter();
                match conditions.find(|condition| condition.type_ == names::UNCOUNTED_KEYS) {
                    Some(condition) => {
                        !said.is_empty() && said.iter().all(|text| condition.message.contains(text))
                    }
                    None => said.is_empty(),
                }
            })
            .await;
    }
}
