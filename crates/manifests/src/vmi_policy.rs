//! The admission policy that keeps the status of a new VirtualMachineInstance what KubeVirt makes of it, and its pods from
//! passing for targets of migrations.
//!
//! Machines are counted by their status too, and the kind has no status subresource. Updates are KubeVirt's to guard: its
//! mutating webhook puts the old status back for all accounts but its own, and fails closed
//! (kubevirt/kubevirt v1.3.0 to v1.9.0, `Mutate` in `pkg/virt-api/webhooks/mutating-webhook/mutators/vmi-mutator.go`). On
//! creation the same webhook takes over a status that the creator has written, so `sluice-vmi-status` refuses one that
//! claims a size or a place.
//!
//! No creator is exempt, for none of KubeVirt's needs it. virt-controller creates machines with
//! `status.virtualMachineRevisionName` and `status.changedBlockTracking` (`startVMI` in
//! `pkg/virt-controller/watch/vm/vm.go`), or, for a VirtualMachineInstanceReplicaSet, without any status; one that waits to
//! be received from another cluster differs by an annotation only. The webhook adds `phase`, `phaseTransitionTimestamps`,
//! `runtimeUser`, and copies sizes from the specification (`setGuestMemoryStatus`, `setCurrentCPUTopologyStatus` in
//! `pkg/defaults/defaults.go`). `phase` is not looked at: the webhook always makes it `Pending`. KubeVirt up to 1.2, whose
//! controller writes a topology before it applies an instance type, is made for Kubernetes up to 1.29.
//!
//! Nor may a machine have the label by which KubeVirt marks the pods of a migration: its launchers get all its labels.
//! virt-api keeps tenants from giving it to machines and to templates of VirtualMachines (`restrictedVmiLabels` in
//! `pkg/virt-api/webhooks/validating-webhook/admitters/vmi-create-admitter.go`), but not to those of a
//! VirtualMachineInstanceReplicaSet. On updates virt-api lets KubeVirt's own accounts alone change reserved labels
//! (`admitVMILabelsUpdate` in `vmi-update-admitter.go` there).
//!
//! The policy asks no process, and waits for the kind where KubeVirt is not installed yet, so it fails closed. Its
//! expressions have no error for any object that the kind's schema admits.

use serde_json::json;
use sluice_api::names;

use crate::object::set_in;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, policy, rule};

/// CEL: KubeVirt has not placed the machine yet.
const NO_PLACE: &str = "!has(variables.status.nodeName) && !has(variables.status.activePods) \
    && !has(variables.status.migrationState)";
const PLACED: &str = "status.nodeName, status.activePods and status.migrationState of a new VirtualMachineInstance are \
    left to KubeVirt, which has not started it yet: create it without status";
const RESIZED: &str = "status.currentCPUTopology of a new VirtualMachineInstance is that of spec.domain.cpu (cores, sockets \
    and threads), and KubeVirt sets it: create it without status; an admission webhook that changes spec.domain.cpu has to \
    come before KubeVirt's virt-api-mutator";
const REMEMBERED: &str = "status.memory of a new VirtualMachineInstance has the amount of spec.domain.memory.guest in \
    guestAtBoot, guestCurrent and guestRequested and no memoryOverhead, and KubeVirt sets it: create it without status; an \
    admission webhook that changes spec.domain.memory has to come before KubeVirt's virt-api-mutator";

const LABELLED: &str = "metadata.labels[kubevirt.io/migrationJobUID] marks pods of a migration, and KubeVirt gives it to \
    them: leave the label off the VirtualMachineInstance and off the template that it is made from";

/// CEL: `status.TARGET` is what the specification says at `spec.domain.ORIGIN`, or both are absent.
fn copied(target: &str, origin: &str) -> String {
    format!("variables.status.{target} == variables.domain.{origin}")
}

/// CEL: all of this holds, if `status.PART` is there.
fn of(part: &str, conditions: &[String]) -> String {
    format!("!has(variables.status.{part}) || ({})", conditions.join(" && "))
}

/// A new VirtualMachineInstance claims neither another size than it asks for, nor a place, nor that its pods are targets.
pub(crate) fn vmi_status() -> AdmissionPolicy {
    let topology = ["cores", "sockets", "threads"]
        .map(|field| copied(&format!("currentCPUTopology.?{field}"), &format!("?cpu.?{field}")));
    let amounts = ["guestAtBoot", "guestCurrent", "guestRequested"]
        .map(|field| copied(&format!("memory.?{field}"), "?memory.?guest"));
    let no_overhead = "!has(variables.status.memory.memoryOverhead)".to_owned();
    let memory = [amounts.as_slice(), &[no_overhead]].concat();
    let unlabelled = format!("!dyn(object).?metadata.?labels[?'{}'].hasValue()", names::MIGRATION_JOB_LABEL);
    let validations = [
        (unlabelled, LABELLED),
        (NO_PLACE.to_owned(), PLACED),
        (of("currentCPUTopology", &topology), RESIZED),
        (of("memory", &memory), REMEMBERED),
    ]
    .map(|(expression, message)| json!({ "expression": expression, "message": message, "reason": "Forbidden" }));
    let rules = [rule("kubevirt.io", &["CREATE"], &["virtualmachineinstances"], "Namespaced")];
    let mut policy = policy(VALIDATING, names::VMI_STATUS_POLICY, "Fail", &rules);
    // Fields that an older version of the kind does not have are no fault of the expressions.
    let variables = json!([
        { "name": "status", "expression": "dyn(object).?status.orValue({})" },
        { "name": "domain", "expression": "dyn(object).?spec.?domain.orValue({})" },
    ]);
    set_in(&mut policy, "spec", "variables", variables);
    set_in(&mut policy, "spec", "validations", json!(validations));
    let binding = binding(VALIDATING, names::VMI_STATUS_POLICY);
    AdmissionPolicy { name: names::VMI_STATUS_POLICY, mutates: false, policy, binding }
}
