//! What the controller writes of a cluster quota over many namespaces while their pods come all the time,
//! and how large that is.

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

use crate::gate::{Shape, Site, arrive, since, stop, writes};
use crate::report::say;

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
    /// Bytes of the largest quota, charge and mirror.
    bytes: [usize; 3],
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
        let bytes = [
            largest::<Quota>(&site.admin, None).await?,
            largest::<Charge>(&site.admin, Some(names::INSTALL_NAMESPACE)).await?,
            largest::<Mirror>(&site.admin, None).await?,
        ];
        let shown = Self { namespaces, seconds, writes: since(after, &before), bytes };
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
        self.bytes.into_iter().max().unwrap_or(0)
    }

    pub(super) fn json(&self) -> Value {
        let [quota, charge, mirror] = self.bytes;
        json!({
            "namespaces": self.namespaces,
            "seconds": self.seconds,
            "pods_per_s": RATE_PER_S,
            "writes_per_s": {
                "releases": self.per_s("pods"),
                "charges": self.per_s(names::CLUSTER_QUOTA_CHARGES),
                "status": self.per_s(names::ACRQS),
                "mirrors": self.per_s(names::AACRQS),
            },
            "controller_writes": self.writes,
            "bytes": {"quota": quota, "charge": charge, "mirror": mirror},
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
