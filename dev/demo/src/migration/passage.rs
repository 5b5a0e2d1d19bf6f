//! What was observed of the migration: quota, VM and its pods, in whatever order the watches tell.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::events::v1;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;
use sluice_api::names;
use sluice_engine::headroom::MARK;

use crate::follow::Change;

/// Amounts as `kubectl` shows them, by key.
pub type Amounts = BTreeMap<String, String>;

/// A native quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub name: String,
    /// Counts changes of the spec, where the API server counts them.
    pub generation: Option<i64>,
    pub spec: Amounts,
    /// What is enforced, and the mark of a lock.
    pub hard: Amounts,
    /// What is in use.
    pub used: Amounts,
}

impl Quota {
    /// When its lock ends at the latest, while it is locked.
    pub fn locked_until(&self) -> Option<String> {
        let end = Timestamp::from_millisecond(self.hard.get(MARK)?.parse().ok()?).ok()?;
        Some(end.strftime("%H:%M:%S%.3f UTC").to_string())
    }

    /// Whether it is enforced as it was written, and not locked.
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
        let spec = amounts(quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()));
        let mut used = amounts(status.and_then(|status| status.used.as_ref()));
        // Mark and nudges are amounts too.
        used.retain(|key, _| spec.contains_key(key));
        Self {
            name: quota.name_any(),
            generation: quota.metadata.generation,
            spec,
            hard: amounts(status.and_then(|status| status.hard.as_ref())),
            used,
        }
    }

    fn line(&self) -> String {
        let keys = self.spec.iter().map(|(key, spec)| {
            let of = |amounts: &Amounts| amounts.get(key).cloned().unwrap_or_else(|| "-".to_owned());
            let hard = of(&self.hard);
            let note = if hard == *spec { String::new() } else { format!(" (spec.hard {spec})") };
            format!("{key} {}/{hard}{note}", of(&self.used))
        });
        let lock = self.locked_until().map(|end| format!("locked until {end}"));
        keys.chain(lock).collect::<Vec<_>>().join(", ")
    }
}

/// A pod around the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    pub name: String,
    /// Whether a migration made it.
    pub is_target: bool,
    /// Where it runs, once that is decided.
    pub node: Option<String>,
    /// Its phase, or `Deleted`.
    pub phase: String,
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
    pub quota: Option<Quota>,
    /// The quota as it was first seen.
    pub first: Option<Quota>,
    /// How often its spec was seen to be another one than before.
    pub spec_changes: usize,
    /// The quota as it was last seen raised.
    pub raised: Option<Quota>,
    /// Since when it has been seen locked.
    pub locked_since: Option<Duration>,
    /// How long it was seen locked the last time.
    pub locked_for: Option<Duration>,
    /// Phase and node of the VM.
    pub vm: Option<[String; 2]>,
    /// Name and phase of the migration.
    pub migration: Option<[String; 2]>,
    /// Reason and text of Sluice's last event on the migration.
    pub told: Option<[String; 2]>,
    /// The last line of the act.
    pub verdict: Option<String>,
    launchers: BTreeMap<String, Launcher>,
}

impl Passage {
    /// The pods, oldest first.
    pub fn launchers(&self) -> Vec<&Launcher> {
        let mut all: Vec<&Launcher> = self.launchers.values().collect();
        all.sort_by(|a, b| (a.first_seen, &a.name).cmp(&(b.first_seen, &b.name)));
        all
    }

    /// Whether the quota is counted, not raised and not locked.
    pub fn is_clear(&self) -> bool {
        self.quota.as_ref().is_some_and(|quota| !quota.hard.is_empty() && quota.is_plain())
    }

    /// Something became of the quotas; lines for what is new.
    pub fn quotas(&mut self, at: Duration, change: Change<ResourceQuota>) -> Vec<String> {
        change.present().iter().filter_map(|quota| self.quota(at, Quota::read(quota))).collect()
    }

    fn quota(&mut self, at: Duration, quota: Quota) -> Option<String> {
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
        if quota.locked_until().is_some() {
            self.locked_since.get_or_insert(at);
        } else if let Some(since) = self.locked_since.take() {
            self.locked_for = Some(at.saturating_sub(since));
        }
        self.quota = Some(quota);
        line
    }

    /// Something became of the pods; lines for what is new.
    pub fn pods(&mut self, at: Duration, change: Change<Pod>) -> Vec<String> {
        let mut lines = Vec::new();
        let gone = change.gone(self.launchers.keys());
        for uid in gone {
            if let Some(launcher) = self.launchers.get_mut(&uid).filter(|known| known.phase != "Deleted") {
                (launcher.phase, launcher.since) = ("Deleted".to_owned(), at);
                lines.push(told(launcher));
            }
        }
        lines.extend(change.present().iter().filter_map(|pod| self.pod(at, pod)));
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
    pub fn vms(&mut self, _: Duration, change: Change<DynamicObject>) -> Vec<String> {
        let news = change.present().into_iter().filter_map(|vm| {
            let now = [text(&vm, "/status/phase"), text(&vm, "/status/nodeName")];
            let place = if now[1].is_empty() { String::new() } else { format!(" on {}", now[1]) };
            let line = line(&format!("VM {}", vm.name_any()), &format!("{}{place}", now[0]));
            is_new(&mut self.vm, now).then_some(line)
        });
        news.collect()
    }

    /// Something became of the migrations; lines for what is new.
    pub fn migrations(&mut self, _: Duration, change: Change<DynamicObject>) -> Vec<String> {
        let news = change.present().into_iter().filter_map(|migration| {
            let phase = Some(text(&migration, "/status/phase")).filter(|phase| !phase.is_empty());
            let now = [migration.name_any(), phase.unwrap_or_else(|| "Pending".to_owned())];
            let line = line(&format!("migration {}", now[0]), &now[1]);
            is_new(&mut self.migration, now).then_some(line)
        });
        news.collect()
    }

    /// Something became of the events; lines for what Sluice tells on the migration.
    pub fn events(&mut self, _: Duration, change: Change<v1::Event>) -> Vec<String> {
        let news = change.present().into_iter().filter_map(|event| {
            let ours = event.reporting_controller.as_deref() == Some(names::EVENT_COMPONENT);
            let regarding = event
                .regarding
                .filter(|it| ours && it.kind.as_deref() == Some("VirtualMachineInstanceMigration"))?;
            let told = [event.reason?, event.note?];
            let line = line(&format!("migration {}", regarding.name?), &told.join(": "));
            is_new(&mut self.told, told).then_some(line)
        });
        news.collect()
    }
}

/// Replaces what was seen before; whether it was anything else.
fn is_new(seen: &mut Option<[String; 2]>, now: [String; 2]) -> bool {
    let before = seen.replace(now);
    before != *seen
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
