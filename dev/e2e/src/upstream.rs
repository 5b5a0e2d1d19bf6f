//! Sluice as the specs of application-aware-quota expect their cluster: those of the suite `conformance`, and upstream's
//! own, by its names and made by its `AAQ`.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{AAQ, names};
use sluice_manifests::install_objects;
use sluice_testbed::{Bed, BedOptions, wait};

use crate::kubelet::Kubelet;
use crate::objects::{self, is_held};
use crate::programs::LOCKING;
use crate::{Installation, Running, Setup};

/// Namespace of an installation by upstream's names.
pub const NAMESPACE: &str = "aaq";
/// Its options: parts have upstream's names, and the `AAQ` installs.
const OPTIONS: &str = "names: aaq\ninstallation: cr\n";
/// Upstream's specs of the operator ask for three.
const NODES: usize = 3;

/// A scheduler looks at the pods, and no node is there to run one. kube-controller-manager learns of kinds later than they
/// come, as quotas do here, and counts them at its next round.
#[must_use]
pub fn bed_options() -> BedOptions {
    BedOptions { kwok: false, ..bed_options_of_suite() }
}

/// As [`bed_options`], with nodes that run pods, as upstream's own suite has them.
#[must_use]
pub fn bed_options_of_suite() -> BedOptions {
    let controller_manager_args = vec!["--resource-quota-sync-period=3s".to_owned()];
    BedOptions { controller_manager_args, ..BedOptions::default() }
}

/// Every namespace is gated, and there are cluster quotas, whose mirrors show what all namespaces take.
///
/// # Errors
/// When something does not become ready.
pub async fn running(bed: &Bed) -> anyhow::Result<Running<'_>> {
    let running = Running::on(bed, Setup { controller_args: controller_args(), ..Setup::default() }).await?;
    let client = bed.admin()?;
    objects::apply_aaq(&client, spec(json!({}))).await.context("applying the AAQ")?;
    until_every_namespace_is_gated(client).await?;
    Ok(running)
}

fn controller_args() -> Vec<String> {
    vec!["--applied-cluster-quotas=all".to_owned()]
}

/// Of an `AAQ`, with `further` fields.
fn spec(mut further: Value) -> Value {
    if let Some(fields) = further.as_object_mut() {
        let configuration = json!({ "allowApplicationAwareClusterResourceQuota": true });
        fields.insert("namespaceSelector".to_owned(), json!({}));
        fields.insert("configuration".to_owned(), configuration);
    }
    further
}

async fn until_every_namespace_is_gated(client: Client) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(client, "default");
    let (probe, dry) = (objects::pod("probe", &[]), PostParams { dry_run: true, ..PostParams::default() });
    let gated = || async { pods.create(&dry, &probe).await.ok().filter(is_held) };
    wait::eventually(LOCKING, gated, "every namespace to be gated").await.map(drop)
}

/// By upstream's names, in its namespace, and made by an `AAQ` as upstream ships it (`manifests/templates/release`). The
/// returned [`Kubelet`] has to run as long as something is expected of it.
///
/// # Errors
/// When something does not become ready.
pub async fn installed_by_its_names(bed: &Bed) -> anyhow::Result<Kubelet<'_>> {
    bed.add_nodes(NODES, &[("cpu", "32"), ("memory", "128Gi")]).await?;
    let setup = Setup {
        controller_args: controller_args(),
        namespace: Some(NAMESPACE),
        options: Some(OPTIONS.to_owned()),
        ..Setup::default()
    };
    let installation = Installation::apply(bed, setup).await?;
    let shipped = install_objects(installation.options());
    let is_deployment = |object: &Value| object.get("kind").is_some_and(|kind| kind == "Deployment");
    bed.apply_objects(shipped.into_iter().filter(is_deployment)).await?;
    let client = bed.admin()?;
    let linux = json!({ "kubernetes.io/os": "linux" });
    let tolerations = json!([{ "key": "CriticalAddonsOnly", "operator": "Exists" }]);
    let shipped = json!({
        "imagePullPolicy": "IfNotPresent",
        "infra": { "nodeSelector": linux, "tolerations": tolerations },
        "workload": { "nodeSelector": linux },
    });
    objects::apply_aaq(&client, spec(shipped)).await.context("applying the AAQ")?;
    let mut kubelet = Kubelet::of(bed, installation)?;
    let ready = async {
        until_available(&client).await?;
        until_every_namespace_is_gated(client).await
    };
    tokio::select! {
        ready = ready => ready?,
        () = kubelet.run() => {}
    }
    Ok(kubelet)
}

async fn until_available(client: &Client) -> anyhow::Result<()> {
    let aaqs = Api::<AAQ>::all(client.clone());
    let is_available = |aaq: Option<&AAQ>| {
        let status = aaq.and_then(|aaq| aaq.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == names::AVAILABLE && condition.status == "True")
    };
    wait::wait_for(&aaqs, names::AAQ_NAME, LOCKING, "the AAQ to be available", is_available).await.map(drop)
}
