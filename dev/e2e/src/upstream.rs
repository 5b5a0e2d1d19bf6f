//! Sluice as application-aware-quota's own suite expects its cluster.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_testbed::{Bed, BedOptions, wait};

use crate::objects::{self, is_held};
use crate::programs::LOCKING;
use crate::{Running, Setup};

/// A scheduler looks at the pods, and no node is there to run one. kube-controller-manager learns of kinds later than they
/// come, as quotas do here, and counts them at its next round.
#[must_use]
pub fn bed_options() -> BedOptions {
    let controller_manager_args = vec!["--resource-quota-sync-period=3s".to_owned()];
    BedOptions { kwok: false, controller_manager_args, ..BedOptions::default() }
}

/// Every namespace is gated, and there are cluster quotas, whose mirrors show what all namespaces take.
///
/// # Errors
/// When something does not become ready.
pub async fn running(bed: &Bed) -> anyhow::Result<Running<'_>> {
    let controller_args = vec!["--applied-cluster-quotas=all".to_owned()];
    let running = Running::on(bed, Setup { controller_args, ..Setup::default() }).await?;
    let client = bed.admin()?;
    let spec = json!({
        "namespaceSelector": {},
        "configuration": { "allowApplicationAwareClusterResourceQuota": true },
    });
    objects::apply_aaq(&client, spec).await.context("applying the AAQ")?;
    let pods = Api::<Pod>::namespaced(client, "default");
    let (probe, dry) = (objects::pod("probe", &[]), PostParams { dry_run: true, ..PostParams::default() });
    let gated = || async { pods.create(&dry, &probe).await.ok().filter(is_held) };
    wait::eventually(LOCKING, gated, "every namespace to be gated").await?;
    Ok(running)
}

/// What upstream's suite looks for to know that the controller is ready: as many replicas as it should have, which are none.
#[must_use]
pub fn stand_in_of_the_controller() -> Value {
    let labels = json!({ "aaq.kubevirt.io": "aaq-controller" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "aaq-controller", "namespace": names::INSTALL_NAMESPACE },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "none", "image": "none" }] },
            },
        },
    })
}
