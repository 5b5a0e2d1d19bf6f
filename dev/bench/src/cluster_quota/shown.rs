//! What the controller writes of a cluster quota over many namespaces while their pods come all the time, and how large that is.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::api::{DynamicObject, ListParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use sluice_api::{
    ApplicationAwareAppliedClusterResourceQuota as Mirror, ApplicationAwareClusterResourceQuota as Quota,
    ClusterQuotaCharge as Charge, names,
};
use sluice_testbed::wait;

use super::bytes;
use crate::gate::{Shape, Site, arrive, put, stop, writes};
use crate::report::{round, say};

/// Pods that come per second.
const RATE_PER_S: u32 = 50;
/// Until every namespace has its mirror.
const LIMIT: Duration = Duration::from_secs(120);

/// What was measured.
pub(super) struct Shown {
    namespaces: usize,
    seconds: f64,
    /// Writes of the controller, by labels.
    writes: HashMap<String, f64>,
    quota: usize,
    charge: usize,
    mirror: usize,
}

impl Shown {
    pub(super) async fn measure(site: &Site, namespaces: usize, seconds: u32) -> anyhow::Result<Self> {
        say(&format!("cluster_quota: mirrors in {namespaces} namespaces"));
        let plot = site.cluster_plot(Shape { namespaces, each: 0 }).await?;
        site.create_quotas(&plot).await?;
        let controller = site.controller().await?;
        let mirrors = Api::<Mirror>::all(site.admin.clone());
        let all = || async {
            let listed = mirrors.list_metadata(&ListParams::default()).await.ok()?;
            let there: HashSet<_> = listed.items.into_iter().filter_map(|it| it.metadata.namespace).collect();
            plot.namespaces.iter().all(|namespace| there.contains(namespace)).then_some(())
        };
        let all = wait::eventually(LIMIT, all, "a mirror in each namespace").await;
        all.with_context(|| format!("log of the controller:\n{}", controller.program.log()))?;

        say(&format!(
            "cluster_quota: {RATE_PER_S} pods per second in {namespaces} namespaces for {seconds} s"
        ));
        let (begin, before) = (Instant::now(), writes(&controller).await?);
        let pods = usize::try_from(RATE_PER_S * seconds)?;
        arrive(site, &plot, f64::from(RATE_PER_S), pods).await?;
        let after = writes(&controller).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let writes = after.into_iter().map(|(kind, count)| {
            let since = count - before.get(&kind).unwrap_or(&0.0);
            (kind, since)
        });
        let shown = Self {
            namespaces,
            seconds,
            writes: writes.collect(),
            quota: largest::<Quota>(&site.admin, None).await?,
            charge: largest::<Charge>(&site.admin, Some(names::INSTALL_NAMESPACE)).await?,
            mirror: largest::<Mirror>(&site.admin, None).await?,
        };
        stop(&controller);
        site.clear(&plot).await?;
        Ok(shown)
    }

    /// Writes of a resource per second.
    fn per_s(&self, resource: &str) -> f64 {
        let label = format!("resource={resource}");
        let of = self.writes.iter().filter(|(labels, _)| labels.split(',').any(|text| text == label));
        of.map(|(_, count)| count).sum::<f64>() / self.seconds
    }

    pub(super) fn largest(&self) -> usize {
        self.quota.max(self.charge).max(self.mirror)
    }

    pub(super) fn cells(&self) -> [String; 8] {
        let per_s = |resource| format!("{:.1}", self.per_s(resource));
        [
            self.namespaces.to_string(),
            per_s("pods"),
            per_s(names::CLUSTER_QUOTA_CHARGES),
            per_s(names::ACRQS),
            per_s(names::AACRQS),
            self.quota.to_string(),
            self.charge.to_string(),
            self.mirror.to_string(),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let mut bytes = bytes(self.quota, self.mirror);
        put(&mut bytes, "charge", json!(self.charge));
        json!({
            "namespaces": self.namespaces,
            "seconds": round(self.seconds, 1),
            "pods_per_s": RATE_PER_S,
            "writes_per_s": {
                "releases": round(self.per_s("pods"), 1),
                "charges": round(self.per_s(names::CLUSTER_QUOTA_CHARGES), 1),
                "status": round(self.per_s(names::ACRQS), 2),
                "mirrors": round(self.per_s(names::AACRQS), 1),
            },
            "controller_writes": self.writes,
            "bytes": bytes,
        })
    }
}

/// Bytes of the largest object of a kind, as the API server prints it.
async fn largest<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
) -> anyhow::Result<usize> {
    let request = Request::new(K::url_path(&(), namespace)).list(&ListParams::default())?;
    let list = client.request::<kube::core::ObjectList<DynamicObject>>(request).await?;
    let sizes = list.items.iter().map(|object| serde_json::to_string(object).map(|text| text.len()));
    Ok(sizes.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0))
}
