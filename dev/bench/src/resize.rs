//! What charging adds to the time that a resize takes: beside a namespace that is not targeted, by turns.

use std::time::Instant;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::report::ms;

/// Resizes that are not counted.
const WARM_UP: usize = 20;

/// The longest that a pod may wait for its release.
const RELEASED: std::time::Duration = std::time::Duration::from_secs(60);

/// Milliseconds of each resize that takes more, in a namespace that is not targeted and in one with a quota.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn measure(resizes: usize) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let options = BedOptions { kwok: false, scheduler: false, audit: false, ..BedOptions::default() };
    let bed = Bed::start(options).await?;
    let _sluice = Running::on(&bed, Setup::default()).await?;
    let client = bed.admin()?;
    let free = bed.namespace("free", &[]).await?;
    let charged = bed.namespace("charged", TARGETED).await?;
    let quota = objects::quota("compute", &[("requests.cpu", "1000")]);
    objects::create(&client, &charged.name, &quota).await.context("creating a quota")?;
    let (free, charged) = (pod(&client, &free.name).await?, pod(&client, &charged.name).await?);
    let (mut free_ms, mut charged_ms) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + resizes {
        let size = 101 + number;
        let (one, other) = (resize(&free, size).await?, resize(&charged, size).await?);
        if number >= WARM_UP {
            free_ms.push(one);
            charged_ms.push(other);
        }
    }
    Ok((free_ms, charged_ms))
}

/// A pod without gates.
async fn pod(client: &Client, namespace: &str) -> anyhow::Result<Api<Pod>> {
    objects::create(client, namespace, &objects::pod("a", &[("cpu", "100m")]))
        .await
        .context("creating a pod")?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let released = |pod: Option<&Pod>| pod.is_some_and(|pod| !is_held(pod));
    wait::wait_for(&pods, "a", RELEASED, "the pod to be released", released).await?;
    Ok(pods)
}

async fn resize(pods: &Api<Pod>, milli_cpu: usize) -> anyhow::Result<f64> {
    let requests = json!({ "cpu": format!("{milli_cpu}m") });
    let patch =
        json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } });
    let started = Instant::now();
    let _: Pod = pods
        .patch_subresource("resize", "a", &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .context("resizing a pod")?;
    Ok(ms(started.elapsed()))
}
