//! What was observed of the migration: quota, window, VM and its pods, in whatever order the watches tell.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;
use sluice_api::{MigrationWindow, names};

use super::listing::Change;

/// Amounts as `kubectl` shows them, by key.
pub type Amounts = BTreeMap<String, String>;

/// A native quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// Counts changes of the spec, where the API server counts them.
    pub generation: Option<i64>,
    /// What somebody wants.
    pub spec: Amounts,
    /// What is enforced.
    pub hard: Amounts,
    /// What is in use.
    pub used: Amounts,
}

impl Quota {
    /// Whether it is enforced as it was written.
    pub fn is_plain(&self) -> bool {
        self.hard == self.spec
    }

    fn read(quota: &ResourceQuota) -> Self {
        let amounts = |amounts: Option<&BTreeMap<String, _>>| -> Amounts {
            let read =
                |(key, amount): (&String, &k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
                    (key.clone(), amount.0.clone())
                };
            amounts.into_iter().flatten().map(read).collect()
        };
        let status = quota.status.as_ref();
        Self {
            name: quota.name_any(),
            generation: quota.metadata.generation,
            spec: amounts(quota.spec.as_ref().and_then(|spec| spec.hard.as_ref())),
            hard: amounts(status.and_then(|status| status.hard.as_ref())),
            used: amounts(status.and_then(|status| status.used.as_ref())),
        }
    }

    fn line(&self) -> String {
        let keys = self.spec.iter().map(|(key, spec)| {
            let of = |amounts: &Amounts| amounts.get(key).cloned().unwrap_or_else(|| "-".to_owned());
            let hard = of(&self.hard);
            let note = if hard == *spec { String::new() } else { format!(" (spec.hard {spec})") };
            format!("{key} {}/{hard}{note}", of(&self.used))
        });
        keys.collect::<Vec<_>>().join(", ")
    }
}

/// A window that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    uid: String,
    /// For whom.
    pub migration: String,
    /// Since when.
    pub since: Duration,
}

/// A pod around the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Its name.
    pub name: String,
    /// Whether a migration made it.
    pub is_target: bool,
    /// Where it runs, once that is decided.
    pub node: Option<String>,
    /// Its phase, or `Deleted`.
    pub phase: String,
    /// Since when.
    pub since: Duration,
    first_seen: Duration,
}

impl Launcher {
    /// The word for what it is.
    pub const fn role(&self) -> &'static str {
        if self.is_target { "target" } else { "source" }
    }
}

/// Everything that was observed.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    /// The quota as it is.
    pub quota: Option<Quota>,
    /// The quota as it was first seen.
    pub first: Option<Quota>,
    /// How often its spec was seen to be another one than before.
    pub spec_changes: usize,
    /// The quota as it was last seen raised.
    pub raised: Option<Quota>,
    /// The window, if there is one.
    pub open: Option<Open>,
    /// How long the last window was seen to be open.
    pub closed_after: Option<Duration>,
    /// Phase and node of the VM.
    pub vm: Option<[String; 2]>,
    /// Name and phase of the migration.
    pub migration: Option<[String; 2]>,
    launchers: BTreeMap<String, Launcher>,
}

impl Passage {
    /// The pods, oldest first.
    pub fn launchers(&self) -> Vec<&Launcher> {
        let mut all: Vec<&Launcher> = self.launchers.values().collect();
        all.sort_by(|a, b| (a.first_seen, &a.name).cmp(&(b.first_seen, &b.name)));
        all
    }

    /// Whether nothing is raised and no window open.
    pub fn is_clear(&self) -> bool {
        self.open.is_none()
            && self.quota.as_ref().is_some_and(|quota| !quota.hard.is_empty() && quota.is_plain())
    }

    /// Something became of the quotas; lines for what is new.
    pub fn quotas(&mut self, change: Change<ResourceQuota>) -> Vec<String> {
        let there = present(change);
        there.iter().filter_map(|quota| self.quota(Quota::read(quota))).collect()
    }

    fn quota(&mut self, quota: Quota) -> Option<String> {
        if self.quota.as_ref() == Some(&quota) {
            return None;
        }
        if self.quota.as_ref().is_some_and(|before| before.spec != quota.spec) {
            self.spec_changes += 1;
        }
        self.first.get_or_insert_with(|| quota.clone());
        let line = (!quota.hard.is_empty()).then(|| line(&format!("quota {}", quota.name), &quota.line()));
        if !quota.hard.is_empty() && !quota.is_plain() {
            self.raised = Some(quota.clone());
        }
        self.quota = Some(quota);
        line
    }

    /// Something became of the windows; lines for what is new.
    pub fn windows(&mut self, at: Duration, change: Change<MigrationWindow>) -> Vec<String> {
        let mut lines = Vec::new();
        let gone = match (&change, &self.open) {
            (Change::All(windows), Some(open)) => {
                !windows.iter().any(|window| window.uid().as_ref() == Some(&open.uid))
            }
            (Change::Gone(window), Some(open)) => window.uid().as_ref() == Some(&open.uid),
            _ => false,
        };
        if gone {
            lines.extend(self.closed(at));
        }
        for window in present(change) {
            let uid = window.uid().unwrap_or_default();
            if self.open.as_ref().is_some_and(|open| open.uid == uid) {
                continue;
            }
            // A namespace has one window: the one before is gone, even if nobody said so yet.
            lines.extend(self.closed(at));
            let migration = window.spec.migration.name;
            lines.push(line(
                "window",
                &format!("open for migration {migration} of VM {}", window.spec.migration.vmi),
            ));
            self.open = Some(Open { uid, migration, since: at });
        }
        lines
    }

    fn closed(&mut self, at: Duration) -> Option<String> {
        let open = at.saturating_sub(self.open.take()?.since);
        self.closed_after = Some(open);
        Some(line("window", &format!("gone after {} ms", open.as_millis())))
    }

    /// Something became of the pods; lines for what is new.
    pub fn pods(&mut self, at: Duration, change: Change<Pod>) -> Vec<String> {
        let mut lines = Vec::new();
        let gone: Vec<String> = match &change {
            Change::All(pods) => {
                let there: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
                self.launchers.keys().filter(|uid| !there.contains(uid)).cloned().collect()
            }
            Change::Gone(pod) => pod.metadata.uid.iter().cloned().collect(),
            Change::Is(_) => Vec::new(),
        };
        for uid in gone {
            if let Some(launcher) = self.launchers.get_mut(&uid).filter(|known| known.phase != "Deleted") {
                (launcher.phase, launcher.since) = ("Deleted".to_owned(), at);
                lines.push(told(launcher));
            }
        }
        lines.extend(present(change).iter().filter_map(|pod| self.pod(at, pod)));
        lines
    }

    fn pod(&mut self, at: Duration, pod: &Pod) -> Option<String> {
        let uid = pod.metadata.uid.clone()?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let is_new = !self.launchers.contains_key(&uid);
        let launcher = self.launchers.entry(uid).or_insert_with(|| Launcher {
            name: pod.name_any(),
            is_target: pod.labels().contains_key(names::MIGRATION_JOB_LABEL),
            node: None,
            phase: phase.clone(),
            since: at,
            first_seen: at,
        });
        let placed = node.is_some() && launcher.node != node;
        let changed = launcher.phase != phase;
        if changed {
            (launcher.phase, launcher.since) = (phase, at);
        }
        launcher.node = node.or_else(|| launcher.node.take());
        (is_new || changed || placed).then(|| told(launcher))
    }

    /// Something became of the VMs; lines for what is new.
    pub fn vms(&mut self, change: Change<DynamicObject>) -> Vec<String> {
        let there = present(change);
        let news = there.iter().filter_map(|vm| {
            let now = [text(vm, "/status/phase"), text(vm, "/status/nodeName")];
            let is_new = self.vm.as_ref() != Some(&now);
            let place = if now[1].is_empty() { String::new() } else { format!(" on {}", now[1]) };
            let line = line(&format!("VM {}", vm.name_any()), &format!("{}{place}", now[0]));
            self.vm = Some(now);
            is_new.then_some(line)
        });
        news.collect()
    }

    /// Something became of the migrations; lines for what is new.
    pub fn migrations(&mut self, change: Change<DynamicObject>) -> Vec<String> {
        let there = present(change);
        let news = there.iter().filter_map(|migration| {
            let phase = Some(text(migration, "/status/phase")).filter(|phase| !phase.is_empty());
            let now = [migration.name_any(), phase.unwrap_or_else(|| "Pending".to_owned())];
            let is_new = self.migration.as_ref() != Some(&now);
            let line = line(&format!("migration {}", now[0]), &now[1]);
            self.migration = Some(now);
            is_new.then_some(line)
        });
        news.collect()
    }
}

fn present<K>(change: Change<K>) -> Vec<K> {
    match change {
        Change::All(objects) => objects,
        Change::Is(object) => vec![object],
        Change::Gone(_) => Vec::new(),
    }
}

fn text(object: &DynamicObject, pointer: &str) -> String {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn told(launcher: &Launcher) -> String {
    let place = launcher.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    line(&launcher.name, &format!("{} {}{place}", launcher.role(), launcher.phase))
}

fn line(what: &str, text: &str) -> String {
    format!("{what:<24} {text}").trim_end().to_owned()
}

#[cfg(test)]
mod tests;
