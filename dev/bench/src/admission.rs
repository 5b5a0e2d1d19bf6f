//! What Sluice costs the one who creates a pod, or resizes one: beside a namespace that is not targeted, on the same control
//! plane in the same run, by turns. Pods are gated once by the admission policy with no process of Sluice alive, once by the
//! webhook alone; a resize is charged.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::report::{Run, extend, median, ms, quantile, rows, say};

/// Requests that are not counted: connections and caches warm up.
const WARM_UP: usize = 20;
/// The longest that a pod may wait for its release.
const RELEASED: Duration = Duration::from_secs(60);

/// Measures, prints, writes `admission.json`.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn run(run: &Run) -> anyhow::Result<()> {
    let count = run.either(60, 1_000);
    let mut file = json!({ "creations": count });
    for (name, webhook_alone) in [("policy", false), ("webhook", true)] {
        say(&format!("admission: pods gated by {name}"));
        extend(&mut file, json!({ name: create(webhook_alone, count).await?.figures() }));
    }
    say("admission: resizing a pod");
    extend(&mut file, json!({ "resize": resize(count).await?.figures() }));
    say("admission: patching pods with long lists");
    let long = patch_long(run.either(4, 20)).await?;
    let long: Vec<Value> = long.into_iter().map(|(what, both)| both.beside(what)).collect();

    let columns = [
        ("what", "what"),
        ("not targeted p50 ms", "untargeted_p50_ms"),
        ("p99 ms", "untargeted_p99_ms"),
        ("targeted p50 ms", "targeted_p50_ms"),
        ("p99 ms", "targeted_p99_ms"),
        ("added ms", "added_p50_ms"),
    ];
    let table = [
        ("policy", "creating a pod, gated by policy"),
        ("webhook", "creating a pod, gated by webhook"),
        ("resize", "a resize that takes more of a quota"),
    ];
    let table = table.map(|(name, what)| {
        let mut row = file.get(name).cloned().unwrap_or_default();
        extend(&mut row, json!({ "what": what }));
        row
    });
    rows(&format!("admission: one client, {count} requests each"), &columns, &table)?;
    let columns = [
        ("an annotation of a pod with", "what"),
        ("without p50 ms", "without_p50_ms"),
        ("with p50 ms", "with_p50_ms"),
        ("ratio", "ratio"),
    ];
    rows("admission: before and after Sluice is installed", &columns, &long)?;
    extend(&mut file, json!({ "long": long }));
    println!(
        "  policy: no process of Sluice runs; webhook: the controller stands still, so that no release is measured too"
    );
    run.write("admission", file)
}

/// Milliseconds of each request: where pods are not targeted, and where they are.
#[derive(Default)]
struct Both([Vec<f64>; 2]);

impl Both {
    /// Adds a pair, unless it is one of the first.
    fn push(&mut self, number: usize, pair: [f64; 2]) {
        if number >= WARM_UP {
            for (all, one) in self.0.iter_mut().zip(pair) {
                all.push(one);
            }
        }
    }

    fn figures(mut self) -> Value {
        let [free, targeted] = &mut self.0;
        json!({
            "untargeted_p50_ms": median(free),
            "untargeted_p99_ms": quantile(free, 0.99),
            "targeted_p50_ms": median(targeted),
            "targeted_p99_ms": quantile(targeted, 0.99),
            "added_p50_ms": median(targeted) - median(free),
        })
    }

    /// Of the same request without Sluice and with it.
    fn beside(mut self, what: &str) -> Value {
        let [without, with] = self.0.each_mut().map(|all| median(all));
        json!({ "what": what, "without_p50_ms": without, "with_p50_ms": with, "ratio": with / without })
    }
}

async fn bed() -> anyhow::Result<Bed> {
    Bed::start(BedOptions { kwok: false, scheduler: false, audit: false, ..BedOptions::default() }).await
}

/// The pods of a namespace that is not targeted, and of one that is.
async fn sides(bed: &Bed) -> anyhow::Result<(Client, [Api<Pod>; 2], String)> {
    let client = bed.admin()?;
    let names = [bed.namespace("free", &[]).await?.name, bed.namespace("targeted", TARGETED).await?.name];
    let sides = names.each_ref().map(|name| Api::namespaced(client.clone(), name));
    let [_, targeted] = names;
    Ok((client, sides, targeted))
}

async fn create(webhook_alone: bool, count: usize) -> anyhow::Result<Both> {
    let bed = bed().await?;
    let setup = Setup { webhook_alone, ..Setup::default() };
    let Running { installation, controller, webhook, .. } = Running::on(&bed, setup).await?;
    controller.program.pause();
    if !webhook_alone {
        for program in [&webhook.program, &controller.program, installation.operator()?] {
            program.kill();
        }
    }
    let (_, [free, gated], _) = sides(&bed).await?;
    let mut both = Both::default();
    for number in 0..WARM_UP + count {
        let pair = [create_one(&free, number, false).await?, create_one(&gated, number, true).await?];
        both.push(number, pair);
        if number % 100 == 99 {
            for side in [&free, &gated] {
                let now = DeleteParams::default().grace_period(0);
                side.delete_collection(&now, &ListParams::default()).await.context("removing pods")?;
            }
        }
    }
    Ok(both)
}

async fn create_one(pods: &Api<Pod>, number: usize, held: bool) -> anyhow::Result<f64> {
    let mut pod = objects::pod(&format!("pod-{number}"), &[("cpu", "100m"), ("memory", "64Mi")]);
    if let Some(spec) = pod.spec.as_mut() {
        spec.automount_service_account_token = Some(false);
    }
    let started = Instant::now();
    let created = pods.create(&PostParams::default(), &pod).await.context("creating a pod")?;
    let took = ms(started.elapsed());
    ensure!(is_held(&created) == held, "the pod is gated: {}", !held);
    Ok(took)
}

/// Resizes a pod of each side again and again, so that each takes more.
async fn resize(count: usize) -> anyhow::Result<Both> {
    let bed = bed().await?;
    let _sluice = Running::on(&bed, Setup::default()).await?;
    let (client, [free, charged], namespace) = sides(&bed).await?;
    let quota = objects::quota("compute", &[("requests.cpu", "1000")]);
    objects::create(&client, &namespace, &quota).await.context("creating a quota")?;
    for side in [&free, &charged] {
        let pod = objects::pod("a", &[("cpu", "100m")]);
        side.create(&PostParams::default(), &pod).await.context("creating a pod")?;
        let released = |pod: Option<&Pod>| pod.is_some_and(|pod| !is_held(pod));
        wait::wait_for(side, "a", RELEASED, "the pod to be released", released).await?;
    }
    let mut both = Both::default();
    for number in 0..WARM_UP + count {
        let size = 101 + number;
        both.push(number, [resize_one(&free, size).await?, resize_one(&charged, size).await?]);
    }
    Ok(both)
}

async fn resize_one(pods: &Api<Pod>, milli_cpu: usize) -> anyhow::Result<f64> {
    let requests = json!({ "cpu": format!("{milli_cpu}m") });
    let patch =
        json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } });
    let started = Instant::now();
    let params = PatchParams::default();
    let resized = pods.patch_subresource("resize", "a", &params, &Patch::Strategic(patch)).await;
    resized.context("resizing a pod")?;
    Ok(ms(started.elapsed()))
}

/// As [`WARM_UP`], for requests that take a hundred times as long.
const WARM_UP_LONG: usize = 3;
/// How many items a tenant gets into a pod. With more the request is refused as too large.
const LONG: usize = 32_000;

/// Pods that a tenant has made as long as he can, and that somebody else annotates, such as a controller. The same patch on
/// the same control plane, first without Sluice, then with its policies and no process of it.
async fn patch_long(count: usize) -> anyhow::Result<Vec<(&'static str, Both)>> {
    let bed = bed().await?;
    let (client, [_, pods], namespace) = sides(&bed).await?;
    let raw: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &ApiResource::erase::<Pod>(&()));
    let items = |of: fn(usize) -> Value| (0..LONG).map(of).collect::<Value>();
    let owner = |n| json!({ "apiVersion": "v1", "kind": "A", "name": "a", "uid": format!("{n:x}") });
    let labels: serde_json::Map<_, _> = (0..LONG).map(|n| (format!("k{n:x}"), json!(""))).collect();
    let kinds = [
        ("no list", "short", json!({})),
        ("32,000 owners", "owners", json!({ "metadata": { "ownerReferences": items(owner) } })),
        ("32,000 labels", "labels", json!({ "metadata": { "labels": labels } })),
        (
            "32,000 gates",
            "gates",
            json!({ "spec": { "schedulingGates": items(|n| json!({ "name": format!("g{n:x}") })) } }),
        ),
    ];
    for (_, name, long) in &kinds {
        let mut pod =
            serde_json::to_value(objects::pod(name, &[("cpu", "100m")])).context("a pod as JSON")?;
        json_patch::merge(&mut pod, long);
        let pod: DynamicObject = serde_json::from_value(pod).context("a pod from JSON")?;
        let created = raw.create(&PostParams::default(), &pod).await;
        created.with_context(|| format!("creating a pod with {name}"))?;
    }
    let mut measured = kinds.map(|(what, name, _)| (what, name, Both::default()));
    for with in [false, true] {
        let installed = match with {
            false => None,
            true => Some(Running::on(&bed, Setup::default()).await?),
        };
        if let Some(Running { installation, controller, webhook, .. }) = &installed {
            for program in [&webhook.program, &controller.program, installation.operator()?] {
                program.kill();
            }
        }
        for number in 0..WARM_UP_LONG + count {
            for (_, name, Both([without, given])) in &mut measured {
                let change =
                    json!({ "metadata": { "annotations": { "number": format!("{with}-{number}") } } });
                let started = Instant::now();
                let patched = pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(change)).await;
                patched.with_context(|| format!("patching a pod with {name}"))?;
                if number >= WARM_UP_LONG {
                    if with { &mut *given } else { &mut *without }.push(ms(started.elapsed()));
                }
            }
        }
    }
    Ok(measured.map(|(what, _, both)| (what, both)).into())
}
