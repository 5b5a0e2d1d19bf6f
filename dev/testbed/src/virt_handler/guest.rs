//! What a VM's status says about its guest: booted, moved, grown.

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

/// Conditions of changes that a migration applies.
const APPLIED: [&str; 3] = ["HotVCPUChange", "HotMemoryChange", "MigrationRequired"];
/// Labels that carry the amounts of such changes to the target node, and of an old launcher.
const SPENT: [&str; 4] = [
    "kubevirt.io/vmi-pod-cpu-resource-limits",
    "kubevirt.io/vmi-pod-memory-resource-requests",
    "kubevirt.io/memory-hotplug-overhead-ratio",
    "kubevirt.io/outdatedLauncherImage",
];

/// The guest runs and may migrate.
pub(super) fn boot(vmi: &mut DynamicObject, now: &str) {
    let (cpu, memory) = (topology(vmi), amount(vmi));
    let Some(status) = status(vmi) else { return };
    status.insert("selinuxContext".into(), json!("none"));
    status.insert("migrationMethod".into(), json!("LiveMigration"));
    status.insert("migrationTransport".into(), json!("Unix"));
    if let Some(cpu) = cpu {
        status.insert("currentCPUTopology".into(), cpu);
    }
    if let Some(memory) = memory {
        status.entry("memory").or_insert_with(|| json!({}));
        remember(status, &memory, &["guestAtBoot", "guestCurrent", "guestRequested"]);
    }
    // The nulls as KubeVirt writes them: its patches test the whole list.
    let migratable = json!({
        "type": "LiveMigratable", "status": "True", "lastProbeTime": null, "lastTransitionTime": null,
    });
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| named(condition) != "LiveMigratable");
        conditions.push(migratable);
    }
    enter(vmi, "Running", now);
}

/// The VM is in another phase.
pub(super) fn enter(vmi: &mut DynamicObject, phase: &str, now: &str) {
    let Some(status) = status(vmi) else { return };
    status.insert("phase".into(), json!(phase));
    let transitions = status.entry("phaseTransitionTimestamps").or_insert_with(|| json!([]));
    if let Some(transitions) = transitions.as_array_mut() {
        transitions.push(json!({"phase": phase, "phaseTransitionTimestamp": now}));
    }
}

/// The guest is on another node, with the resources that its specification asks for by now.
pub(super) fn arrive(vmi: &mut DynamicObject, node: &str) {
    let (cpu, memory) = (topology(vmi), amount(vmi));
    let labels = vmi.metadata.labels.get_or_insert_default();
    labels.insert("kubevirt.io/nodeName".into(), node.to_owned());
    labels.retain(|name, _| !SPENT.contains(&name.as_str()));
    if let Some(annotations) = &mut vmi.metadata.annotations {
        annotations.remove("kubevirt.io/eviction-source");
    }
    let Some(status) = status(vmi) else { return };
    status.insert("nodeName".into(), json!(node));
    // virt-controller looks it up again at the new pod.
    status.remove("launcherContainerImageVersion");
    status.remove("evacuationNodeName");
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let applied = conditions.map(|all| all.extract_if(.., |one| APPLIED.contains(&named(one))).collect());
    let applied: Vec<Value> = applied.unwrap_or_default();
    let change = |name| applied.iter().any(|condition| named(condition) == name);
    if let (true, Some(cpu)) = (change("HotVCPUChange"), cpu) {
        status.insert("currentCPUTopology".into(), cpu);
    }
    if let (true, Some(memory)) = (change("HotMemoryChange"), memory) {
        remember(status, &memory, &["guestCurrent", "guestRequested"]);
    }
}

fn named(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn remember(status: &mut Map<String, Value>, amount: &Value, fields: &[&str]) {
    if let Some(memory) = status.get_mut("memory").and_then(Value::as_object_mut) {
        memory.extend(fields.iter().map(|&field| (field.to_owned(), amount.clone())));
    }
}

fn topology(vmi: &DynamicObject) -> Option<Value> {
    let cpu = vmi.data.pointer("/spec/domain/cpu")?;
    let count = |name| cpu.get(name).and_then(Value::as_u64).filter(|&count| count > 0).unwrap_or(1);
    Some(json!({"sockets": count("sockets"), "cores": count("cores"), "threads": count("threads")}))
}

fn amount(vmi: &DynamicObject) -> Option<Value> {
    vmi.data.pointer("/spec/domain/memory/guest").cloned()
}

/// The status; every VMI that was handed to a node has one.
fn status(vmi: &mut DynamicObject) -> Option<&mut Map<String, Value>> {
    vmi.data.get_mut("status").and_then(Value::as_object_mut)
}
