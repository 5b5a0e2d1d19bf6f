//! The rule that a quota on cpu or memory makes every container name its amounts (`docs/quota-semantics.md`,
//! *Required amounts*).

use std::collections::BTreeSet;
use std::fmt;

use super::qos::all_containers;
use super::requests::is_pod_level;
use super::{Container, PodInput};

/// The only keys with this rule, sorted.
const REQUIRED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Containers that lack amounts which a quota makes mandatory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub struct MissingResources {
    missing: Vec<(&'static str, BTreeSet<String>)>,
}

impl MissingResources {
    /// Quota keys, sorted, with the names of the containers that lack them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &BTreeSet<String>)> {
        self.missing.iter().map(|(key, containers)| (*key, containers))
    }
}

impl fmt::Display for MissingResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (key, containers)) in self.missing.iter().enumerate() {
            f.write_str(if position == 0 { "must specify " } else { "; " })?;
            write!(f, "{key} for: ")?;
            for (position, name) in containers.iter().enumerate() {
                f.write_str(if position == 0 { "" } else { "," })?;
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// Checks that each container names every amount that one of the quota's keys makes mandatory. An
/// explicit 0 is enough; a pod with pod-level resources need not.
///
/// # Errors
/// [`MissingResources`], whose text is the one of Kubernetes.
pub fn constraints<'k>(
    quota_keys: impl IntoIterator<Item = &'k str>,
    pod: &PodInput<'_>,
) -> Result<(), MissingResources> {
    if has_pod_level(pod) {
        return Ok(());
    }
    let keys: BTreeSet<&str> = quota_keys.into_iter().collect();
    let missing: Vec<(&'static str, BTreeSet<String>)> = REQUIRED
        .into_iter()
        .filter(|key| keys.contains(key))
        .map(|key| {
            let lacking = all_containers(pod).filter(|container| !names(container, key));
            (key, lacking.map(|container| container.name.to_owned()).collect())
        })
        .filter(|(_, containers): &(_, BTreeSet<String>)| !containers.is_empty())
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(MissingResources { missing }) }
}

fn has_pod_level(pod: &PodInput<'_>) -> bool {
    pod.pod_resources
        .as_ref()
        .is_some_and(|own| own.requests.iter().chain(own.limits.iter()).any(|(name, _)| is_pod_level(name)))
}

fn names(container: &Container<'_>, key: &str) -> bool {
    match key.strip_prefix("limits.") {
        Some(name) => container.resources.limits.get(name).is_some(),
        None => container.resources.requests.get(key.strip_prefix("requests.").unwrap_or(key)).is_some(),
    }
}
