//! Targets that KubeVirt's account asks for beside those of its controller.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::intruders::intruder;
use sluice_e2e::tenant::Tenant;
use sluice_testbed::kubevirt::{self, Migration};

/// One more target of the migration: KubeVirt's controller makes one target after the other, another replica of it could
/// make one at the same moment.
pub async fn try_target(tenant: &Tenant<'_>, migration: &Migration, name: &str) -> Result<Pod, kube::Error> {
    let (_, account) = kubevirt::CONTROLLER.rsplit_once(':').unwrap();
    let identity = tenant.bed.service_account(kubevirt::NAMESPACE, account).await.unwrap();
    let uid = migration.object().await.unwrap().uid().unwrap();
    let pod = intruder(json!({
        "name": name,
        "labels": { names::MIGRATION_JOB_LABEL: uid, "kubevirt.io": name },
        "annotations": { names::MIGRATION_NAME_ANNOTATION: migration.name() },
    }));
    let pods: Api<Pod> = Api::namespaced(identity.client().unwrap(), tenant.name());
    pods.create(&PostParams::default(), &pod).await
}
