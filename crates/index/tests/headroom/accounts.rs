//! Which pods of a namespace explain what is above its quota.

use sluice_engine::headroom::{Account, Source, Stake};
use sluice_index::LauncherRecord;

use super::*;

pub const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

pub fn kubevirt(index: &mut Cluster) {
    see(
        &mut index.kubevirts,
        json!({"metadata": meta("kubevirt", "kubevirt", 1), "status": {"observedKubeVirtVersion": "v1.7.0"}}),
    );
}

/// A machine that runs on `node-1`, without graphics: KubeVirt adds 236Mi for it.
pub fn machine(namespace: &str, name: &str, version: u32) -> Value {
    json!({
        "metadata": meta(namespace, name, version),
        "spec": {"domain": {"memory": {"guest": "256Mi"}, "devices": {"autoattachGraphicsDevice": false}}},
        "status": {"phase": "Running", "nodeName": "node-1"},
    })
}

/// A pod that a machine controls.
pub fn launcher(namespace: &str, machine: &str, name: &str, node: &str, memory: &str) -> Value {
    let mut pod = json!({
        "metadata": meta(namespace, name, 1),
        "spec": {
            "nodeName": node,
            "containers": [{"name": "compute", "resources": {"requests": {"memory": memory}}}],
        },
        "status": {"phase": "Running"},
    });
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": machine,
        "uid": format!("{namespace}/{machine}"), "controller": true,
    }]);
    pod
}

/// The target of the migration `mig-<machine>`.
pub fn target(namespace: &str, machine: &str, memory: &str) -> Value {
    let mut pod = launcher(namespace, machine, &format!("{machine}-target"), "node-2", memory);
    pod["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": format!("{namespace}/mig-{machine}")});
    pod
}

pub fn migration(namespace: &str, machine: &str, phase: &str, version: u32) -> Value {
    json!({
        "metadata": meta(namespace, &format!("mig-{machine}"), version),
        "spec": {"vmiName": machine}, "status": {"phase": phase},
    })
}

pub fn running(index: &mut Cluster, namespace: &str, name: &str, memory: &str) {
    see(&mut index.vmis, machine(namespace, name, 1));
    see(&mut index.launchers, launcher(namespace, name, &format!("{name}-source"), "node-1", memory));
}

pub fn migrating(index: &mut Cluster, namespace: &str, name: &str, memory: &str) {
    see(&mut index.vmims, migration(namespace, name, "Running", 1));
    see(&mut index.launchers, target(namespace, name, memory));
}

pub fn ended(index: &mut Cluster, namespace: &str, name: &str) {
    see(&mut index.vmims, migration(namespace, name, "Failed", 2));
}

pub fn scene() -> Cluster {
    let mut index = Cluster::default();
    kubevirt(&mut index);
    running(&mut index, "a", "web", "512Mi");
    index
}

/// What a pod explains: how much memory in Mi of how much, as `runs`, `passes` or `stays`.
pub fn stake(account: &Account, name: &str) -> String {
    let pod =
        account.pods.iter().find(|pod| &*pod.name == name).unwrap_or_else(|| panic!("{name}: {account:?}"));
    let mi =
        |amount: Option<sluice_engine::Amount>| amount.unwrap_or_default().nanos() / (1_000_000_000 << 20);
    let all = mi(pod.charge.get(&Resource::Memory));
    match &pod.stake {
        Stake::Runs(part) => format!("runs +{} of {all}", mi(part.get(&Resource::Memory))),
        Stake::Passes(part) => format!("passes {} of {all}", mi(part.get(&Resource::Memory))),
        Stake::Stays => format!("stays of {all}"),
    }
}

pub fn source(index: &Cluster) -> Option<Source> {
    let machine = index.vmis.get("a", "web").unwrap();
    index.source(machine, None, false, NOW)
}

pub fn memory_of(source: Option<Source>) -> Option<String> {
    let amount = source?.charge.get(&Resource::Memory)?;
    Some(amount.quantity(sluice_engine::Format::BinarySi).to_string())
}

/// The machine with what KubeVirt says of its last migration.
pub fn after(version: u32, node: &str, last: Value) -> Value {
    let mut machine = machine("a", "web", version);
    machine["status"] = json!({ "phase": "Running", "nodeName": node, "migrationState": last });
    machine
}

#[test]
fn the_pods_of_a_migration_pass_and_its_leftovers_stay() {
    let mut index = scene();
    migrating(&mut index, "a", "web", "512Mi");
    let account = index.account("a", None, NOW);
    assert_eq!(
        (stake(&account, "web-source"), stake(&account, "web-target")),
        ("runs +236 of 512".into(), "passes 512 of 512".into())
    );
    assert!(!account.is_complete);
    ended(&mut index, "a", "web");
    assert_eq!(stake(&index.account("a", None, NOW), "web-target"), "stays of 512", "a zombie");
    // KubeVirt leaves the target of a migration that failed on the nodes to end by itself.
    let failed = json!({
        "migrationUid": "a/mig-web", "sourceNode": "node-1", "failed": true, "endTimestamp": "2026-01-01T00:58:00Z",
    });
    see(&mut index.vmis, after(2, "node-1", failed));
    assert_eq!(stake(&index.account("a", None, NOW), "web-target"), "passes 512 of 512");
    assert_eq!(stake(&index.account("a", None, NOW + 181), "web-target"), "stays of 512", "not for ever");
    // A migration that is gone.
    assert!(lose(&mut index.vmims, migration("a", "web", "Failed", 2)));
    assert_eq!(stake(&index.account("a", None, NOW + 181), "web-target"), "stays of 512");
}

#[test]
fn a_machine_explains_one_more_pod_of_its_size_and_no_more() {
    let mut index = scene();
    migrating(&mut index, "a", "web", "2320Mi");
    assert_eq!(
        stake(&index.account("a", None, NOW), "web-target"),
        "passes 748 of 2320",
        "its source and the overhead"
    );
    let mut second = target("a", "web", "512Mi");
    second["metadata"]["name"] = json!("z-second");
    second["metadata"]["uid"] = json!("second");
    see(&mut index.launchers, second);
    assert_eq!(stake(&index.account("a", None, NOW), "z-second"), "passes 0 of 512");
}

#[test]
fn the_former_source_passes_until_it_has_ended() {
    let mut index = scene();
    migrating(&mut index, "a", "web", "512Mi");
    // KubeVirt writes the new node before it says that the migration has completed.
    let last =
        json!({"migrationUid": "a/mig-web", "sourceNode": "node-1", "endTimestamp": "2026-01-01T00:59:00Z"});
    see(&mut index.vmis, after(2, "node-2", last));
    let stakes = |index: &Cluster, now: i64| {
        let account = index.account("a", None, now);
        (stake(&account, "web-target"), stake(&account, "web-source"))
    };
    assert_eq!(stakes(&index, NOW), ("runs +236 of 512".into(), "passes 512 of 512".into()));
    ended(&mut index, "a", "web");
    assert_eq!(stakes(&index, NOW + 240), ("runs +236 of 512".into(), "passes 512 of 512".into()));
    assert_eq!(
        stakes(&index, NOW + 241).1,
        "stays of 512",
        "what is still there after five minutes does not end by itself"
    );
}

/// A guest that ignores the power button has up to an hour.
#[test]
fn a_machine_that_is_being_stopped_explains_what_it_explained() {
    let mut index = scene();
    let mut stopped = launcher("a", "web", "web-source", "node-1", "512Mi");
    stopped["metadata"]["resourceVersion"] = json!("2");
    stopped["metadata"]["deletionTimestamp"] = json!("2026-01-01T02:00:00Z");
    stopped["metadata"]["deletionGracePeriodSeconds"] = json!(3600);
    see(&mut index.launchers, stopped);
    assert_eq!(stake(&index.account("a", None, NOW), "web-source"), "runs +236 of 512");
    assert_eq!(source(&index), None, "no pod moves away from it");
}

#[test]
fn a_pod_that_ends_soon_passes_and_one_that_takes_its_time_stays() {
    let mut index = scene();
    for (name, ends, is) in [("soon", "01:04:59", "passes 512 of 512"), ("later", "09:00:00", "stays of 512")]
    {
        let mut pod = launcher("a", "gone", name, "node-1", "512Mi");
        pod["metadata"]["deletionTimestamp"] = json!(format!("2026-01-01T{ends}Z"));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(60);
        see(&mut index.launchers, pod);
        assert_eq!(stake(&index.account("a", None, NOW), name), is);
    }
    // Of one that is overdue quotas count the object alone.
    let mut overdue = launcher("a", "gone", "overdue", "node-1", "512Mi");
    overdue["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z");
    overdue["metadata"]["deletionGracePeriodSeconds"] = json!(60);
    see(&mut index.launchers, overdue);
    assert_eq!(stake(&index.account("a", None, NOW), "overdue"), "stays of 0");
}

#[test]
fn attached_volumes_belong_to_their_launcher() {
    let mut index = scene();
    migrating(&mut index, "a", "web", "512Mi");
    let attached = |name: &str, to: &str| {
        let mut pod = launcher("a", "web", name, "node-1", "80Mi");
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": to, "uid": format!("a/{to}"), "controller": true,
        }]);
        pod["metadata"]["annotations"] = json!({ names::CREATED_BY_ANNOTATION: CONTROLLER });
        pod
    };
    see(&mut index.launchers, attached("hp-source", "web-source"));
    see(&mut index.launchers, attached("hp-target", "web-target"));
    see(&mut index.launchers, attached("hp-other", "some-pod"));
    let account = index.account("a", None, NOW);
    assert_eq!(stake(&account, "hp-source"), "runs +0 of 80");
    assert_eq!(stake(&account, "hp-target"), "passes 80 of 80");
    assert_eq!(stake(&account, "hp-other"), "stays of 80");
    let machine = index.vmis.get("a", "web").unwrap();
    assert_eq!(memory_of(index.source(machine, None, true, NOW)).as_deref(), Some("80Mi"));
}

/// The target has the size already that the machine was given while it moves.
#[test]
fn what_a_target_under_way_takes_more_is_counted_once() {
    let mut index = scene();
    migrating(&mut index, "a", "web", "1536Mi");
    let account = index.account("a", None, NOW);
    let target = account.pods.iter().find(|pod| &*pod.name == "web-target").unwrap();
    let Stake::Passes(passing) = &target.stake else { panic!("{target:?}") };
    let memory = |charge: &Charge| charge.get(&Resource::Memory).unwrap();
    assert!(memory(passing) < memory(&target.charge), "{target:?}");
    let need = index.next_need(index.vmis.get("a", "web").unwrap(), NOW).unwrap();
    let [(_, beyond)] = &need.replaced[..] else { panic!("{need:?}") };
    assert_eq!(memory(beyond).saturating_add(memory(passing)), memory(&target.charge));
    assert_eq!(memory(&need.source), Quantity::parse("512Mi").unwrap().into());
}

/// What a quota does not count does not make room in it.
#[test]
fn a_target_under_way_that_a_quota_leaves_out_makes_no_room_in_it() {
    let said = |class: &str| {
        let mut index = scene();
        see(&mut index.vmims, migration("a", "web", "Running", 1));
        let mut source = launcher("a", "web", "web-source", "node-1", "512Mi");
        source["metadata"]["resourceVersion"] = json!("2");
        source["spec"]["priorityClassName"] = json!("high");
        see(&mut index.launchers, source);
        let mut target = target("a", "web", "1536Mi");
        target["spec"]["priorityClassName"] = json!(class);
        see(&mut index.launchers, target);
        // Of what is used, 1Gi is of other pods; that of the target counts where the classes are the same.
        let used = if class == "high" { "3Gi" } else { "1536Mi" };
        let mut scoped = quota("a", 1, "2560Mi", "2560Mi", used);
        scoped["spec"]["scopeSelector"] = json!({"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
        ]});
        let scoped = ResourceQuotaRecord::read(&serde_json::from_value::<ResourceQuotaWire>(scoped).unwrap());
        let need = index.next_need(index.vmis.get("a", "web").unwrap(), NOW).unwrap();
        // As if the machine had grown by 1Gi: 1536Mi and 1Gi of others fit exactly.
        let memory =
            |text: &str| Charge::from_pairs([(Resource::Memory, Quantity::parse(text).unwrap().into())]);
        let need = |size: &str| Need { charge: memory(size), growth: memory("1Gi"), ..need.clone() };
        let refused =
            |size: &str| index.account("a", None, NOW).outgrown(&need(size), &[scoped.native()]).len();
        (refused("1536Mi"), refused("1537Mi"))
    };
    assert_eq!(said("high"), (0, 1));
    assert_eq!(said("low"), (0, 1));
}

#[test]
fn the_next_launcher_has_no_deadline_whatever_the_present_one_has() {
    let mut index = scene();
    let mut source = launcher("a", "web", "web-source", "node-1", "512Mi");
    source["metadata"]["resourceVersion"] = json!("2");
    source["spec"]["activeDeadlineSeconds"] = json!(60);
    see(&mut index.launchers, source);
    let need = index.next_need(index.vmis.get("a", "web").unwrap(), NOW).unwrap();
    assert_eq!((need.facts.terminating, need.source_facts.terminating), (false, true));
    // Of two that pass for the launcher, and that different quotas count, nothing goes anywhere.
    let mut decoy = launcher("a", "web", "decoy", "node-1", "40Gi");
    decoy["metadata"]["resourceVersion"] = json!("3");
    see(&mut index.launchers, decoy);
    assert_eq!(memory_of(self::source(&index)), None);
}

#[test]
fn a_list_of_all_pods_is_complete() {
    let mut index = scene();
    migrating(&mut index, "a", "web", "512Mi");
    let mut plain = launcher("a", "web", "batch", "node-1", "100Mi");
    plain["metadata"]["ownerReferences"] = json!(null);
    let read = |pod: Value| LauncherRecord::read(&serde_json::from_value(pod).unwrap());
    let live =
        [plain, launcher("a", "web", "web-source", "node-1", "512Mi"), target("a", "web", "512Mi")].map(read);
    let account = index.account("a", Some(&live), NOW);
    assert!(account.is_complete);
    assert_eq!(stake(&account, "batch"), "stays of 100");
    assert_eq!(stake(&account, "web-target"), "passes 512 of 512");
}

/// The times of `managedFields` are the API server's.
#[test]
fn a_quota_is_as_old_as_the_last_write_of_its_spec() {
    let since = |entries: Value| {
        let mut object = quota("a", 1, "1Gi", "1Gi", "1Gi");
        object["metadata"]["managedFields"] = entries;
        ResourceQuotaRecord::read(&serde_json::from_value::<ResourceQuotaWire>(object).unwrap())
            .native()
            .spec_since
    };
    let created = NOW - 3600;
    let entry = |field: &str, subresource: Value, minute: u32| {
        json!({
            "manager": "m", "subresource": subresource, "time": format!("2026-01-01T00:{minute:02}:00Z"),
            "fieldsV1": {field: {}},
        })
    };
    assert_eq!(since(json!(null)), created);
    assert_eq!(since(json!([entry("f:status", json!("status"), 9)])), created, "a status is no spec");
    assert_eq!(since(json!([entry("f:metadata", json!(null), 9)])), created, "nor is a label");
    let entries =
        [entry("f:spec", json!(null), 3), entry("f:spec", json!(""), 5), entry("f:spec", json!("status"), 9)];
    assert_eq!(since(json!(entries)), created + 300);
}
