//! Simulated nodes.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher;
use serde_json::json;

use super::{Bed, START};
use crate::wait;

/// Label of nodes that KWOK looks after; its value is `true`.
pub(crate) const SIMULATED: &str = "sluice.dev/simulated";

impl Bed {
    /// Adds nodes with this capacity, e.g. `[("cpu", "32"), ("memory", "128Gi")]` (pods: 10,000
    /// unless given); returns their names when they are ready and free of taints.
    ///
    /// # Errors
    /// When the bed runs without KWOK or the nodes do not become ready.
    pub async fn add_nodes(&self, count: usize, capacity: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
        self.add_labelled_nodes(count, capacity, &[]).await
    }

    pub(crate) async fn add_labelled_nodes(
        &self,
        count: usize,
        capacity: &[(&str, &str)],
        labels: &[(&str, &str)],
    ) -> anyhow::Result<Vec<String>> {
        ensure!(self.options.kwok, "this bed was started without KWOK, which makes nodes ready");
        let nodes: Api<Node> = Api::all(self.admin()?);
        let mut resources = serde_json::Map::from_iter([("pods".to_owned(), json!("10000"))]);
        resources.extend(capacity.iter().map(|&(name, amount)| (name.to_owned(), json!(amount))));
        let names: Vec<String> = (0..count).map(|_| self.fresh_name("node")).collect();
        let create = names.iter().map(|name| {
            let (nodes, resources) = (nodes.clone(), resources.clone());
            let own = [
                (SIMULATED, "true"),
                ("kubernetes.io/hostname", name.as_str()),
                ("kubernetes.io/os", "linux"),
                ("kubernetes.io/arch", "amd64"),
            ];
            let labels: BTreeMap<_, _> = own.into_iter().chain(labels.iter().copied()).collect();
            async move {
                let node: Node = serde_json::from_value(json!({
                    "metadata": {"name": name, "labels": labels},
                    "status": {"capacity": resources, "allocatable": resources, "nodeInfo": {
                        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "kwok://0",
                        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "v0.0.0-simulated",
                        "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
                    }},
                }))?;
                nodes
                    .create(&PostParams::default(), &node)
                    .await
                    .with_context(|| format!("creating node {name}"))
            }
        });
        futures::stream::iter(create).buffer_unordered(16).try_collect::<Vec<_>>().await?;
        let selector = watcher::Config::default().labels("sluice.dev/simulated=true");
        wait::wait_for_all(&nodes, selector, START, "simulated nodes to be ready", |all| {
            let usable = |name: &String| {
                all.iter().any(|node| node.metadata.name.as_ref() == Some(name) && self.usable(node))
            };
            names.iter().all(usable)
        })
        .await?;
        Ok(names)
    }

    /// Ready and, where a component runs that removes them, without taints.
    fn usable(&self, node: &Node) -> bool {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready =
            conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).map_or(0, Vec::len);
        ready && (taints == 0 || !self.options.controller_manager)
    }
}
