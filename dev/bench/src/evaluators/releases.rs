//! Releases on a real control plane with evaluators, beside the same without, by turns.

use std::time::Duration;

use anyhow::Context as _;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_api::Evaluator;
use sluice_e2e::objects::from_json;

use super::sidecar::Sidecar;
use crate::gate::{Arriving, IDLE_PER_S, LABEL, Shape, Site, release};
use crate::report::{Run, median, say};

/// What each answer of the sidecar takes.
pub(super) const WORK: Duration = Duration::from_millis(1);
const RULE: &str = "bench";

/// Who says what pods take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Nobody,
    Sidecar,
    /// It is sent the other pods of the namespace.
    SidecarWithOthers,
    Rule,
}

impl By {
    const ALL: [Self; 4] = [Self::Nobody, Self::Sidecar, Self::SidecarWithOthers, Self::Rule];

    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "no evaluator",
            Self::Sidecar => "sidecar",
            Self::SidecarWithOthers => "sidecar with other pods",
            Self::Rule => "rule",
        }
    }
}

/// Releases of pods that wait, by everything that may say what they take.
pub(super) async fn waiting(run: &Run, site: &mut Site) -> anyhow::Result<Vec<Value>> {
    let sidecar = Sidecar::start(WORK)?;
    let shapes = run.either([(1, 50), (10, 10)], [(1, 500), (50, 20)]);
    let mut file = Vec::new();
    for (namespaces, each) in shapes {
        let shape = Shape { namespaces, each };
        let plot = site.plot(shape).await?;
        let mut rates = By::ALL.map(|_| Vec::new());
        for turn in 0..run.either(1, 5) {
            say(&format!("evaluators: {} pods released with and without, {}", shape.pods(), turn + 1));
            let places = rates.len();
            for step in 0..places {
                let at = (step + turn) % places;
                let (Some(by), Some(rates)) = (By::ALL.get(at), rates.get_mut(at)) else { continue };
                enforce(site, *by, &sidecar).await?;
                let drain = release(site, &plot).await.with_context(|| format!("by {}", by.name()))?;
                retire(site, *by).await?;
                rates.push(drain.per_s);
            }
        }
        let [without, with @ ..] = rates;
        for (by, rates) in By::ALL.iter().skip(1).zip(with) {
            let mut ratios: Vec<f64> =
                rates.iter().zip(&without).map(|(with, without)| with / without).collect();
            file.push(json!({
                "by": by.name(), "namespaces": namespaces, "pods": shape.pods(),
                "releases_per_s": median(&mut rates.clone()), "without_per_s": median(&mut without.clone()),
                "ratio": median(&mut ratios), "ratios": ratios,
            }));
        }
    }
    Ok(file)
}

/// From the creation of a pod to its release, ten pods a second.
pub(super) async fn idle(run: &Run, site: &mut Site) -> anyhow::Result<Value> {
    let sidecar = Sidecar::start(WORK)?;
    let plot = site.plot(Shape { namespaces: 1, each: 1 }).await?;
    let pods = run.either(30, 300);
    let mut times = [const { Vec::new() }; 4];
    for turn in 0..run.either(1, 3) {
        for by in if turn % 2 == 0 { [By::Nobody, By::Sidecar] } else { [By::Sidecar, By::Nobody] } {
            enforce(site, by, &sidecar).await?;
            let arriving = Arriving::measure(site, &plot, IDLE_PER_S, pods).await;
            let arriving = arriving.with_context(|| format!("pods arriving, by {}", by.name()))?;
            retire(site, by).await?;
            let [without_p50, without_p99, with_p50, with_p99] = &mut times;
            let (p50, p99) = if by == By::Nobody { (without_p50, without_p99) } else { (with_p50, with_p99) };
            p50.push(arriving.p50_ms());
            p99.push(arriving.p99_ms());
        }
    }
    let [without_p50, without_p99, p50, p99] = times.map(|mut times| median(&mut times));
    Ok(json!({
        "arrivals_per_s": IDLE_PER_S, "pods": pods, "work_ms": WORK.as_secs_f64() * 1e3,
        "without_p50_ms": without_p50, "without_p99_ms": without_p99, "p50_ms": p50, "p99_ms": p99,
        "added_p50_ms": p50 - without_p50, "added_p99_ms": p99 - without_p99,
    }))
}

/// Controllers that are started from now on have pods priced so.
async fn enforce(site: &mut Site, by: By, sidecar: &Sidecar) -> anyhow::Result<()> {
    site.controller_args = match by {
        By::Nobody | By::Rule => Vec::new(),
        By::Sidecar => vec![sidecar.argument(), "--evaluator-other-pods=none".to_owned()],
        By::SidecarWithOthers => vec![sidecar.argument()],
    };
    if by == By::Rule {
        let rule: Evaluator = from_json(json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "Evaluator", "metadata": {"name": RULE},
            "spec": rule(),
        }));
        Api::all(site.admin.clone())
            .create(&PostParams::default(), &rule)
            .await
            .context("creating a rule")?;
    }
    Ok(())
}

async fn retire(site: &Site, by: By) -> anyhow::Result<()> {
    if by == By::Rule {
        let rules: Api<Evaluator> = Api::all(site.admin.clone());
        rules.delete(RULE, &DeleteParams::default()).await.context("removing a rule")?;
    }
    Ok(())
}

/// A licence for each begun core, beside what Kubernetes counts.
pub(super) fn rule() -> Value {
    json!({
        "podSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
        "strategy": "Retain",
        "cel": {"match": "true", "charge": {"example.com/license": "native['requests.cpu'].ceil()"}},
    })
}
