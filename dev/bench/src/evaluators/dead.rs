//! A sidecar that is not there: what asking for it costs the controller, and when a held pod is told of it.

use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use sluice_e2e::{Controller, objects};
use sluice_testbed::wait;
use tokio::time::sleep;

use super::sidecar::argument;
use crate::gate::{Plot, Shape, Site, gated_pod, stop};
use crate::kernel;
use crate::report::{Run, say};

const WAITING: Shape = Shape { namespaces: 1, each: 100 };
/// From the first decision until all pods that wait are told of.
const SETTLED: Duration = Duration::from_secs(6);
/// How long the lease of the controller before it may last.
const LEADS: Duration = Duration::from_secs(60);
/// What it logs when it leads.
const DECIDING: &str = r#""message":"deciding""#;
const TOLD: Duration = Duration::from_secs(60);

/// With pods that wait in either case.
pub(super) async fn measure(run: &Run, site: &mut Site) -> anyhow::Result<Value> {
    let time = run.either(Duration::from_secs(2), Duration::from_secs(30));
    let directory = tempfile::tempdir()?;
    let plot = site.plot(WAITING).await?;
    let full = objects::quota("full", &[("pods", "0")]);
    objects::create(&site.admin, plot.namespace(0)?, &full).await?;
    site.create_pods(&plot).await?;
    site.controller_args.clear();
    say("evaluators: pods that wait, without evaluators");
    let controller = site.controller().await?;
    let without = cpu_share(&controller, time).await?;
    stop(&controller);
    site.controller_args = vec![argument(directory.path())];
    say("evaluators: pods that wait for a sidecar that is not there");
    let controller = site.controller().await?;
    let with = cpu_share(&controller, time).await?;
    let told = told_after(site, &plot).await?;
    stop(&controller);
    site.controller_args.clear();
    site.clear(&plot).await?;
    Ok(json!({
        "waiting_pods": WAITING.pods(), "seconds": time.as_secs_f64(), "cpu_share": with,
        "without_cpu_share": without, "added_cpu_share": with - without, "told_after_s": told.as_secs_f64(),
    }))
}

async fn cpu_share(controller: &Controller, time: Duration) -> anyhow::Result<f64> {
    // A controller that does not lead yet tells nobody anything, and costs nothing.
    let leads = || async { controller.program.log().contains(DECIDING).then_some(()) };
    wait::eventually(LEADS, leads, "the controller to decide").await?;
    sleep(SETTLED).await;
    let (before, begin) = (kernel::cpu(controller.program.pid())?, Instant::now());
    sleep(time).await;
    let used = kernel::cpu(controller.program.pid())?.saturating_sub(before);
    Ok(used.as_secs_f64() / begin.elapsed().as_secs_f64())
}

/// From the creation of a pod to the event that tells why it is held.
async fn told_after(site: &Site, plot: &Plot) -> anyhow::Result<Duration> {
    let (name, namespace) = ("told", plot.namespace(0)?);
    objects::create(&site.admin, namespace, &gated_pod(name)).await?;
    let created = Instant::now();
    let events: Api<Event> = Api::namespaced(site.admin.clone(), namespace);
    let told = || async {
        let all = events.list(&ListParams::default()).await.ok()?;
        let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(name);
        let is_it = |event: &Event| about(event) && event.reason.as_deref() == Some("NotEvaluated");
        all.items.iter().any(is_it).then_some(())
    };
    wait::eventually(TOLD, told, "the event about a pod that is not evaluated").await?;
    Ok(created.elapsed())
}
