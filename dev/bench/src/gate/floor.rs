//! What a release takes at least: the three writes that it consists of, one after the other, by the bench itself.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::ApplicationAwareResourceQuota;
use sluice_e2e::objects;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::arriving::{Quantiles, quantiles};
use super::raw::release;
use super::site::{Plot, Site, gated_pod};
use crate::report::{ms, say};

/// Creates pods at a steady rate, patches the status of their quota and removes their gate. Returns the time from sending
/// the first request to the answer of the last.
///
/// # Errors
/// When the API server refuses one.
pub(super) async fn measure(site: &Site, plot: &Plot, per_s: f64, pods: usize) -> anyhow::Result<Quantiles> {
    say(&format!("gate: the three writes of a release alone, {pods} times at {per_s:.0}/s"));
    site.create_quotas(plot).await?;
    let begin = tokio::time::Instant::now() + Duration::from_millis(50);
    let mut releases = JoinSet::new();
    for number in 0..pods {
        let (admin, controller) = (site.admin.clone(), site.as_controller.clone());
        let namespace = plot.namespace(number)?.to_owned();
        #[allow(clippy::cast_precision_loss, reason = "a bench has few pods")]
        let due = begin + Duration::from_secs_f64(number as f64 / per_s);
        releases.spawn(async move {
            let quotas: Api<ApplicationAwareResourceQuota> = Api::namespaced(controller.clone(), &namespace);
            let status = Patch::Merge(json!({ "status": { "used": { "pods": number.to_string() } } }));
            let pod = gated_pod(&format!("pod-{number:04}"));
            sleep_until(due).await;
            let sent = Instant::now();
            let pod = objects::create(&admin, &namespace, &pod).await?;
            let patched = quotas.patch_status("bench", &PatchParams::default(), &status).await;
            patched.context("patching the status of the quota")?;
            release(&controller, pod).await?;
            anyhow::Ok(ms(sent.elapsed()))
        });
    }
    let mut times = Vec::with_capacity(pods);
    while let Some(time) = releases.join_next().await {
        times.push(time?.context("the writes of a release")?);
    }
    site.clear(plot).await?;
    Ok(quantiles(times))
}
