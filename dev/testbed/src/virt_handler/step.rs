//! What the node agents write next about a VM, from what is known of it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::guest;

/// Annotation of a VirtualMachineInstance that says how its migrations go.
const SCRIPT: &str = "sluice.dev/migration";
/// Label that virt-controller sets when it hands a migration to the target node.
const TARGET_NODE: &str = "kubevirt.io/migrationTargetNodeName";

/// Label of a migration's target pod, which it keeps for life.
const MIGRATION_JOB: &str = "kubevirt.io/migrationJobUID";
/// Annotation that virt-controller sets on a target when the guest has come.
const TARGET_READY: &str = "kubevirt.io/migration-target-ready-timestamp";

/// How the migrations of a VM go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrationScript {
    /// They succeed at once.
    #[default]
    Succeed,
    /// They succeed when the memory of a small VM would be copied: after one second, or nearly two.
    Copy,
    /// They stay `Running` until another script is set.
    Hold,
    /// They fail.
    Fail,
    /// They succeed, but the source pod runs on until another script is set.
    KeepSource,
}

impl MigrationScript {
    /// Name of the annotation.
    pub const ANNOTATION: &str = SCRIPT;

    /// The annotation's value; `None` stands for its absence.
    #[must_use]
    pub const fn value(self) -> Option<&'static str> {
        match self {
            Self::Succeed => None,
            Self::Copy => Some("copy"),
            Self::Hold => Some("hold"),
            Self::Fail => Some("fail"),
            Self::KeepSource => Some("keep-source"),
        }
    }

    fn of(vmi: &DynamicObject) -> Self {
        let value = vmi.metadata.annotations.as_ref().and_then(|all| all.get(SCRIPT)).map(String::as_str);
        let scripts = [Self::Copy, Self::Hold, Self::Fail, Self::KeepSource];
        scripts.into_iter().find(|script| script.value() == value).unwrap_or_default()
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Replace the VMI.
    Write(DynamicObject),
    /// End a launcher pod, then replace the VMI.
    EndPod { pod: Launcher, exit_code: i32, then: DynamicObject },
    /// Look again in a moment.
    Wait,
}

/// A launcher pod of the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Launcher {
    /// The one of this name.
    Named(String),
    /// The one that runs on a node, apart from the one of this name and from those that no guest has come to yet.
    /// virt-controller's own `sourcePod` can be an earlier launcher on the same node: it takes the youngest, and creation
    /// times have no fractions of a second.
    Left { node: String, target: Option<String> },
}

impl Launcher {
    /// Whether this pod is meant.
    ///
    /// The end of a source may have to be told more than once, for the VM's version that says what is left to do can be
    /// outdated by then. virt-controller does not wait for that: a next migration may have its target on this node.
    pub(super) fn is(&self, pod: &Pod) -> bool {
        let name = pod.metadata.name.as_ref();
        match self {
            Self::Named(meant) => name == Some(meant),
            Self::Left { node, target } => {
                let runs_on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                runs_on == Some(node) && name != target.as_ref() && !awaits_guest(pod)
            }
        }
    }
}

/// A migration's target, until virt-controller says that the guest is there, which it does before the migration has
/// succeeded.
fn awaits_guest(pod: &Pod) -> bool {
    pod.labels().contains_key(MIGRATION_JOB) && !pod.annotations().contains_key(TARGET_READY)
}

/// The next step; `None` while there is nothing to say. `now` has no fraction of a second,
/// which virt-controller would lose and then test for in vain.
pub(super) fn next(vmi: &DynamicObject, now: &str) -> Option<Step> {
    let phase = vmi.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    if !matches!(phase, "Scheduled" | "Running") {
        return None;
    }
    if vmi.metadata.deletion_timestamp.is_some() {
        return Some(Step::Write(written(vmi, |fresh| guest::enter(fresh, "Succeeded", now))));
    }
    if phase == "Scheduled" {
        return Some(Step::Write(written(vmi, |fresh| guest::boot(fresh, now))));
    }
    migrate(vmi, now)
}

fn written(vmi: &DynamicObject, change: impl FnOnce(&mut DynamicObject)) -> DynamicObject {
    let mut fresh = vmi.clone();
    change(&mut fresh);
    fresh
}

/// The state of a migration as virt-controller and the agents share it.
struct Migration<'a>(&'a Value);

impl Migration<'_> {
    fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
}

fn migrate(vmi: &DynamicObject, now: &str) -> Option<Step> {
    let labelled = vmi.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(TARGET_NODE));
    let migration = Migration(vmi.data.pointer("/status/migrationState")?);
    let target = migration.text("targetNode")?;
    let script = MigrationScript::of(vmi);
    if migration.flag("completed") {
        // The label is the memory of what is still to do on the nodes.
        return if labelled { clean_up(vmi, &migration, script) } else { None };
    }
    if migration.flag("abortRequested") {
        let aborted = json!({"abortStatus": "Succeeded", "failureReason": "Live migration aborted"});
        return Some(Step::Write(written(vmi, |fresh| end(fresh, aborted, true, now))));
    }
    match script {
        MigrationScript::Copy if is_copying(&migration, now) => Some(Step::Wait),
        MigrationScript::Hold | MigrationScript::Copy if migration.text("startTimestamp").is_none() => {
            Some(Step::Write(written(vmi, |fresh| begin(fresh, now))))
        }
        MigrationScript::Fail => {
            let reason = json!({"failureReason": "Live migration failed"});
            Some(Step::Write(written(vmi, |fresh| end(fresh, reason, true, now))))
        }
        MigrationScript::Hold => None,
        MigrationScript::Succeed | MigrationScript::Copy | MigrationScript::KeepSource => {
            let arrived = json!({"targetNodeDomainDetected": true, "targetNodeDomainReadyTimestamp": now});
            Some(Step::Write(written(vmi, |fresh| {
                end(fresh, arrived, false, now);
                guest::arrive(fresh, target);
            })))
        }
    }
}

/// Whether the transfer has begun less than two seconds ago, by times without fractions.
fn is_copying(migration: &Migration<'_>, now: &str) -> bool {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let begun = migration.text("startTimestamp").and_then(time).zip(time(now));
    begun.is_some_and(|(begun, now)| now.as_second() - begun.as_second() < 2)
}

/// After the end: the launcher that lost the guest exits.
fn clean_up(vmi: &DynamicObject, migration: &Migration<'_>, script: MigrationScript) -> Option<Step> {
    let failed = migration.flag("failed");
    if script == MigrationScript::KeepSource && !failed {
        return None;
    }
    let then = written(vmi, |fresh| {
        if let Some(labels) = &mut fresh.metadata.labels {
            labels.remove(TARGET_NODE);
        }
    });
    let target = migration.text("targetPod").map(str::to_owned);
    let (pod, exit_code) = if failed {
        (target.map(Launcher::Named), 1)
    } else {
        let node = migration.text("sourceNode").map(str::to_owned);
        (node.map(|node| Launcher::Left { node, target }), 0)
    };
    Some(match pod {
        Some(pod) => Step::EndPod { pod, exit_code, then },
        None => Step::Write(then),
    })
}

/// Both nodes are ready and the transfer runs.
fn begin(vmi: &mut DynamicObject, now: &str) {
    let begun = json!({"targetNodeAddress": "10.0.0.2", "mode": "PreCopy"});
    set(vmi, begun);
    let started = vmi.data.pointer("/status/migrationState/startTimestamp").is_some_and(Value::is_string);
    if !started {
        set(vmi, json!({"startTimestamp": now}));
    }
}

fn end(vmi: &mut DynamicObject, more: Value, failed: bool, now: &str) {
    begin(vmi, now);
    set(vmi, more);
    set(vmi, json!({"endTimestamp": now, "completed": true}));
    if failed {
        set(vmi, json!({"failed": true}));
    }
}

/// Sets fields of the migration's state.
fn set(vmi: &mut DynamicObject, fields: Value) {
    let state = vmi.data.pointer_mut("/status/migrationState").and_then(Value::as_object_mut);
    if let (Some(state), Value::Object(fields)) = (state, fields) {
        state.extend(fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";
    const LATER: &str = "2026-01-02T03:04:07Z";

    fn vmi(metadata: Value, status: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata,
            "spec": {"domain": {"memory": {"guest": "256Mi"}, "cpu": {"sockets": 2, "cores": 1, "threads": 1}}},
            "status": status,
        }))
        .unwrap()
    }

    fn migrating(script: Option<&str>, state: Value) -> DynamicObject {
        let mut handed =
            json!({"migrationUid": "m", "targetNode": "b", "targetPod": "new", "sourceNode": "a"});
        handed.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
        let annotations = script.map(|script| json!({SCRIPT: script})).unwrap_or_default();
        let metadata = json!({"name": "vm", "labels": {TARGET_NODE: "b"}, "annotations": annotations});
        vmi(metadata, json!({"phase": "Running", "nodeName": "a", "migrationState": handed}))
    }

    fn source() -> Launcher {
        Launcher::Left { node: "a".to_owned(), target: Some("new".to_owned()) }
    }

    fn write(step: Option<Step>) -> DynamicObject {
        match step {
            Some(Step::Write(vmi)) => vmi,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scheduled_vm_boots_and_says_what_migrations_need() {
        let fresh = write(next(&vmi(json!({}), json!({"phase": "Scheduled"})), NOW));
        let status = &fresh.data["status"];
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["selinuxContext"], "none");
        assert_eq!(status["conditions"][0]["type"], "LiveMigratable");
        assert!(
            status["conditions"][0].as_object().unwrap().contains_key("lastProbeTime"),
            "an explicit null"
        );
        assert_eq!(status["memory"]["guestRequested"], "256Mi");
        assert_eq!(status["currentCPUTopology"]["sockets"], 2);
        assert_eq!(next(&fresh, NOW), None);
    }

    #[test]
    fn nothing_is_said_before_the_handover_and_after_the_end() {
        assert_eq!(next(&vmi(json!({}), json!({"phase": "Scheduling"})), NOW), None);
        assert_eq!(next(&vmi(json!({}), json!({"phase": "Failed"})), NOW), None);
        assert_eq!(next(&vmi(json!({}), json!({"phase": "Running"})), NOW), None);
    }

    #[test]
    fn success_moves_the_vm_then_ends_the_source() {
        let fresh = write(next(&migrating(None, json!({})), NOW));
        assert_eq!(fresh.data["status"]["nodeName"], "b");
        assert_eq!(fresh.data["status"]["migrationState"]["completed"], true);
        assert_eq!(fresh.data["status"]["migrationState"]["startTimestamp"], NOW);
        let Some(Step::EndPod { pod, exit_code, then }) = next(&fresh, NOW) else { panic!("no pod ends") };
        assert_eq!((pod, exit_code), (source(), 0));
        assert_eq!(next(&then, NOW), None);
    }

    #[test]
    fn a_held_migration_runs_until_it_is_released_or_aborted() {
        let held = write(next(&migrating(Some("hold"), json!({})), "2026-01-02T03:04:00Z"));
        let state = &held.data["status"]["migrationState"];
        assert_eq!(
            (&state["completed"], &state["startTimestamp"]),
            (&Value::Null, &json!("2026-01-02T03:04:00Z"))
        );
        assert_eq!(next(&held, NOW), None);

        let mut released = held.clone();
        released.metadata.annotations = None;
        let state = write(next(&released, NOW)).data["status"]["migrationState"].clone();
        assert_eq!(
            (&state["completed"], &state["startTimestamp"]),
            (&json!(true), &json!("2026-01-02T03:04:00Z"))
        );

        let mut aborted = held;
        set(&mut aborted, json!({"abortRequested": true}));
        let fresh = write(next(&aborted, NOW));
        assert_eq!(fresh.data["status"]["migrationState"]["abortStatus"], "Succeeded");
        assert_eq!(fresh.data["status"]["nodeName"], "a");
    }

    #[test]
    fn copying_takes_its_time() {
        let copying = write(next(&migrating(Some("copy"), json!({})), NOW));
        assert_eq!(copying.data["status"]["migrationState"]["completed"], Value::Null);
        assert_eq!(next(&copying, NOW), Some(Step::Wait));
        let fresh = write(next(&copying, LATER));
        assert_eq!(fresh.data["status"]["migrationState"]["completed"], true);
        assert_eq!(fresh.data["status"]["nodeName"], "b");
    }

    #[test]
    fn failure_ends_the_target() {
        let fresh = write(next(&migrating(Some("fail"), json!({})), NOW));
        assert_eq!(fresh.data["status"]["migrationState"]["failed"], true);
        assert_eq!(fresh.data["status"]["nodeName"], "a");
        let Some(Step::EndPod { pod, exit_code, .. }) = next(&fresh, NOW) else { panic!("no pod ends") };
        assert_eq!((pod, exit_code), (Launcher::Named("new".to_owned()), 1));
    }

    #[test]
    fn a_kept_source_ends_when_another_script_is_set() {
        let mut fresh = write(next(&migrating(Some("keep-source"), json!({})), NOW));
        assert_eq!(next(&fresh, NOW), None);
        fresh.metadata.annotations = None;
        assert!(matches!(next(&fresh, NOW), Some(Step::EndPod { pod, .. }) if pod == source()));
    }

    /// A pod of the VM.
    fn pod(name: &str, node: &str, labels: Value, annotations: Value) -> Pod {
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}}))
            .unwrap()
    }

    #[test]
    fn only_a_launcher_that_held_the_guest_is_a_source() {
        let (none, came) = (json!({}), json!({TARGET_READY: NOW}));
        let of_migration = |uid: &str| json!({MIGRATION_JOB: uid});
        assert!(source().is(&pod("first", "a", none.clone(), none.clone())));
        assert!(source().is(&pod("target-of-an-earlier-one", "a", of_migration("l"), came.clone())));
        assert!(!source().is(&pod("elsewhere", "b", none.clone(), none.clone())));
        assert!(!source().is(&pod("new", "a", of_migration("m"), came)));
        let next = pod("target-of-the-next-one", "a", of_migration("n"), none);
        assert!(!source().is(&next), "the guest is still to come");
        assert!(Launcher::Named("target-of-the-next-one".to_owned()).is(&next), "it failed");
    }

    #[test]
    fn a_deleted_vm_shuts_down() {
        let metadata = json!({"deletionTimestamp": NOW});
        let fresh = write(next(&vmi(metadata, json!({"phase": "Running"})), NOW));
        assert_eq!(fresh.data["status"]["phase"], "Succeeded");
        assert_eq!(next(&fresh, NOW), None);
    }
}
