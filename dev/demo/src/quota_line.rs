//! What is told of a quota's status, in one line.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota};

use crate::board::short;

type Texts = BTreeMap<String, Quantity>;

/// `key used/hard, …, held n`. None before there is a status.
pub fn of_namespace(quota: &ApplicationAwareResourceQuota) -> Option<String> {
    let status = quota.status.as_ref()?;
    let parts = status.hard.iter().map(|(key, hard)| (key, part(key, hard, &status.used)));
    Some(line(parts.collect(), status.held))
}

/// `key used/hard (namespace used, …), …, held n`. None before there is a status.
pub fn of_cluster(quota: &ApplicationAwareClusterResourceQuota) -> Option<String> {
    let status = quota.status.as_ref()?;
    let name = quota.metadata.name.as_deref().unwrap_or_default();
    let parts = status.total.hard.iter().map(|(key, hard)| {
        let shares = status
            .namespaces
            .iter()
            .flatten()
            .map(|of| format!("{} {}", short(name, &of.namespace), used(key, &of.status.used)));
        let shares = shares.collect::<Vec<_>>().join(", ");
        let total = part(key, hard, &status.total.used);
        (key, if shares.is_empty() { total } else { format!("{total} ({shares})") })
    });
    Some(line(parts.collect(), status.held))
}

fn part(key: &str, hard: &Quantity, all: &Texts) -> String {
    format!("{key} {}/{}", used(key, all), hard.0)
}

fn used<'t>(key: &str, all: &'t Texts) -> &'t str {
    all.get(key).map_or("0", |used| used.0.as_str())
}

fn line(mut parts: Vec<(&String, String)>, held: Option<i64>) -> String {
    // CPUs are what the story is about.
    parts.sort_by_key(|(key, _)| *key != "requests.cpu");
    let held = format!("held {}", held.unwrap_or(0));
    parts.into_iter().map(|(_, part)| part).chain([held]).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_cluster_quota_says_what_each_namespace_takes() {
        let quota = serde_json::from_value(json!({
            "apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "ApplicationAwareClusterResourceQuota",
            "metadata": {"name": "shop"},
            "spec": {"quota": {}, "selector": {}},
            "status": {
                "total": {"hard": {"pods": "9", "requests.cpu": "2"}, "used": {"pods": "1", "requests.cpu": "1500m"}},
                "namespaces": [
                    {"namespace": "shop-web", "status": {"used": {"pods": "1", "requests.cpu": "1500m"}}},
                    {"namespace": "shopping", "status": {}},
                ],
                "held": 3,
            },
        }))
        .unwrap();
        insta::assert_snapshot!(super::of_cluster(&quota).unwrap(), @"requests.cpu 1500m/2 (web 1500m, shopping 0), pods 1/9 (web 1, shopping 0), held 3");
        let unseen = serde_json::from_value(json!({
            "apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "ApplicationAwareClusterResourceQuota",
            "metadata": {"name": "shop"}, "spec": {"quota": {}, "selector": {}},
        }))
        .unwrap();
        assert_eq!(super::of_cluster(&unseen), None);
    }
}
