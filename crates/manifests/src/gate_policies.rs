//! The admission policies that hold pods back without any process of Sluice: pods are gated and stamped by the API server
//! itself, and wait.
//!
//! `sluice-gate` gates and stamps new pods of targeted namespaces. Behind it the webhook does the same for pods that no
//! policy has gated. `sluice-gated` has the last word: whatever other policies or webhooks made of a pod, without gate and
//! stamp it is refused. Pods that name their node can have no gate: mirror pods are let in, those of CDI
//! ([`PlatformAccounts`](crate::PlatformAccounts)) with a stamp, all others are refused. Targets of local migrations need
//! none where VMs are charged for their guests: their VM is charged already. `sluice-guard` keeps both on existing pods, and
//! stamps true in every namespace: what is forged today must not count when the namespace is targeted tomorrow.
//! `sluice-stamp` corrects a stamp that is wrong without bad intent, in a backup or a replaced object, and stamps pods that
//! claim to be a virtual machine's in every namespace.

use serde_json::{Value, json};
use sluice_api::names::{self, MOST_ITEMS};

use crate::account_policy;
use crate::expressions::{
    administers, bound, by_platform, changed_containers, containers_kept, controllers_kept,
    gated as has_gate, has_stamp, in_paused_namespace, let_in_target, local_target, made_by_kubevirt,
    may_be_gated, mirror, not_bound_by_others, not_exempt, removes_gates, says_whose, stamp as stamp_of,
    stamp_kept, stamped_falsely, stamped_truly, writes_migrations,
};
use crate::object::{set, set_in};
use crate::options::InstallOptions;
use crate::policy::{AdmissionPolicy, MUTATING, VALIDATING, binding, judge, policy, rule};

const NOT_GATED: &str = "the pod has lost its scheduling gate ApplicationAwareQuotaGate or was never given it: neither the \
    admission policy sluice-gate nor the webhook gater.cqo.kubevirt.io has gated it last, or another admission plugin has \
    removed the gate; try again in a moment";
const NOT_STAMPED: &str = "the pod does not carry its creator's name in metadata.annotations[quota.sluice.dev/created-by]: \
    neither the admission policy sluice-gate nor the webhook gater.cqo.kubevirt.io has stamped it last, or another \
    admission plugin has changed it; try again in a moment";
const FORGED: &str = "metadata.annotations[quota.sluice.dev/created-by] is not the name of the pod's creator: leave the \
    annotation out, it is set at admission";
const CHANGED: &str = "metadata.annotations[quota.sluice.dev/created-by] records who created the pod: it cannot be added, \
    changed or removed later";
const CONTROLLER_CHANGED: &str = "metadata.ownerReferences says which virtual machine a pod is of, and is charged for: the \
    reference of a controller of kind VirtualMachineInstance or Pod cannot be added, changed or removed later";
const CONTAINERS_CHANGED: &str = "images and resources of a pod that KubeVirt has made for a virtual machine are changed by \
    KubeVirt alone: change the VirtualMachine, or delete the pod";
const GATE_REMOVED: &str =
    "Only AAQ controller has permission to remove ApplicationAwareQuotaGate gate from pods";

/// CEL: what is said of a pod that names its node; as the webhook says it.
const BOUND_MESSAGE: &str = "'pod sets spec.nodeName to \"' + object.spec.nodeName + '\", which bypasses the scheduler, so \
    it cannot wait for quota behind the scheduling gate ApplicationAwareQuotaGate: leave spec.nodeName empty and choose the \
    node with spec.nodeSelector or node affinity on the label kubernetes.io/hostname, or create the pod in a namespace \
    whose pods are not gated'";

/// Gates and stamps new pods of targeted namespaces. Those of the platform that name their node are stamped alone, and so
/// are targets of local migrations where these [need no gate](InstallOptions::lets_in_targets_of).
pub(crate) fn gate(options: &InstallOptions) -> AdmissionPolicy {
    let stamp = format!(
        "metadata: Object.metadata{{annotations: {{'{}': request.userInfo.username}}}}",
        names::CREATED_BY_ANNOTATION
    );
    let gate = format!(
        "spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{}'}}]}}",
        names::GATE
    );
    let expression =
        format!("{} || {} ? Object{{{stamp}}} : Object{{{stamp}, {gate}}}", bound(), let_in_target(options));
    let mut policy = policy(MUTATING, names::GATE_POLICY, "Fail", &created());
    set_in(
        &mut policy,
        "spec",
        "matchConditions",
        json!([
            { "name": "not-exempt", "expression": not_exempt(options) },
            { "name": "not-bound-by-others", "expression": not_bound_by_others(options) },
        ]),
    );
    select(&mut policy, "matchConstraints", options);
    mutate(&mut policy, &expression);
    AdmissionPolicy {
        name: names::GATE_POLICY,
        mutates: true,
        policy,
        binding: binding(MUTATING, names::GATE_POLICY),
    }
}

/// New pods of targeted namespaces are gated and stamped, or refused.
///
/// Whether targets of local migrations need a gate is for those to say that gate, so that no target is refused while they
/// begin or end to: KubeVirt's are let in without.
///
/// Its binding selects namespaces too: while the `AAQ` changes which are targeted, only those that were and will be are held
/// to it.
pub(crate) fn gated(options: &InstallOptions) -> AdmissionPolicy {
    let validations = vec![
        json!({
            "expression": format!("object.spec.?schedulingGates.orValue([]).size() <= {MOST_ITEMS}"),
            "message": format!(
                "spec.schedulingGates has more than {MOST_ITEMS} items, with the one that Sluice adds: remove some"
            ),
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!("{} || {}", not_bound_by_others(options), mirror()),
            "message": "pod sets spec.nodeName, which bypasses the scheduler, so it cannot wait for quota",
            "messageExpression": BOUND_MESSAGE,
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!(
                "{} || {} || ({} && {})",
                bound(),
                has_gate("object"),
                local_target(),
                writes_migrations()
            ),
            "message": NOT_GATED,
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!("({} && !{}) || {}", bound(), by_platform(options), stamped_truly()),
            "message": NOT_STAMPED,
            "reason": "Forbidden",
        }),
    ];
    let mut policy = policy(VALIDATING, names::GATED_POLICY, "Fail", &created());
    judge(&mut policy, &[not_exempt(options)], validations);
    select(&mut policy, "matchConstraints", options);
    let mut binding = binding(VALIDATING, names::GATED_POLICY);
    set_in(
        &mut binding,
        "spec",
        "matchResources",
        json!({ "matchPolicy": "Equivalent", "objectSelector": {} }),
    );
    select(&mut binding, "matchResources", options);
    AdmissionPolicy { name: names::GATED_POLICY, mutates: false, policy, binding }
}

/// Who may take the gate from a pod and what else Sluice may change of it, that stamps are true and stay, and that a pod of
/// a virtual machine stays one of that, in every namespace and by every way that carries annotations to a pod. Such a pod
/// also keeps its images and resources: what was let in for a virtual machine, above a quota too,
/// is not given to anything else.
///
/// In a paused namespace administrators too may take the gate: `sluice pause --offline` does, when no process of Sluice is
/// there that would.
pub(crate) fn guard(options: &InstallOptions) -> AdmissionPolicy {
    let is = |resource: &str, operation: &str| {
        format!("request.resource.resource == '{resource}' && request.operation == '{operation}'")
    };
    let removed = format!("{} && !{}", may_be_gated("oldObject"), may_be_gated("object"));
    let removal = format!("!({}) || !({removed}) || {}", is("pods", "UPDATE"), removes_gates(options));
    let mut validations = vec![
        json!({
            "expression": removal,
            "message": GATE_REMOVED,
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!("!({}) || {}", is("pods", "UPDATE"), stamp_kept()),
            "message": CHANGED,
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!("!({}) || {}", is("pods", "UPDATE"), controllers_kept()),
            "message": CONTROLLER_CHANGED,
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!(
                "!({}) || {} || !{} || {}",
                is("pods", "UPDATE"),
                containers_kept(),
                made_by_kubevirt("oldObject"),
                writes_migrations()
            ),
            "message": CONTAINERS_CHANGED,
            "messageExpression": format!("{} + ': {CONTAINERS_CHANGED}'", changed_containers()),
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!(
                "!({} && request.kind.kind == 'Pod') || !{}",
                is("pods", "CREATE"),
                stamped_falsely()
            ),
            "message": FORGED,
            "reason": "Forbidden",
        }),
        json!({
            "expression": format!("request.kind.kind != 'Binding' || !{}", has_stamp("object")),
            "message": CHANGED,
            "reason": "Forbidden",
        }),
    ];
    let by_us = account_policy::by_us(options);
    validations.extend(account_policy::of_pods(&format!("!({} && {by_us}) || ", is("pods", "UPDATE"))));
    let rules = [
        rule("", &["CREATE"], &["pods", "pods/binding", "bindings"], "Namespaced"),
        rule("", &["UPDATE"], &["pods", "pods/status", "pods/resize"], "Namespaced"),
    ];
    let mut policy = policy(VALIDATING, names::GUARD_POLICY, "Fail", &rules);
    judge(&mut policy, &[], validations);
    // The condition that all this is judged by knows no namespace, and so nothing of a pause.
    if let Some(expression) = policy.pointer_mut("/spec/validations/0/expression") {
        *expression = json!(format!("{removal} || ({} && {})", in_paused_namespace(), administers()));
    }
    let binding = binding(VALIDATING, names::GUARD_POLICY);
    AdmissionPolicy { name: names::GUARD_POLICY, mutates: false, policy, binding }
}

/// A stamp that a new pod brings along, from a backup, becomes true. One that an update of the pod leaves out stays. A new
/// pod that says of which virtual machine it is gets a stamp in every namespace: only pods that are older than Sluice are
/// believed without.
pub(crate) fn stamp() -> AdmissionPolicy {
    let wrong = format!(
        "request.operation == 'CREATE' ? {} || ({} && !{}) : {} && !{}",
        stamped_falsely(),
        says_whose(),
        has_stamp("object"),
        has_stamp("oldObject"),
        has_stamp("object")
    );
    let expression = format!(
        "Object{{metadata: Object.metadata{{annotations: {{'{}': \
         request.operation == 'CREATE' ? request.userInfo.username : {}}}}}}}",
        names::CREATED_BY_ANNOTATION,
        stamp_of("oldObject")
    );
    let rules = [
        // Not `pods/status`: who writes that patches it, and each policy that looks costs the API server a conversion of
        // both pods at every heartbeat of a kubelet.
        rule("", &["CREATE", "UPDATE"], &["pods"], "Namespaced"),
    ];
    let mut policy = policy(MUTATING, names::STAMP_POLICY, "Fail", &rules);
    set_in(&mut policy, "spec", "matchConditions", json!([{ "name": "wrong-stamp", "expression": wrong }]));
    mutate(&mut policy, &expression);
    let binding = binding(MUTATING, names::STAMP_POLICY);
    AdmissionPolicy { name: names::STAMP_POLICY, mutates: true, policy, binding }
}

/// New pods, and what API servers are asked for to learn who gates them.
fn created() -> [Value; 2] {
    [
        rule("", &["CREATE"], &["pods"], "Namespaced"),
        rule(names::OWN_GROUP, &["CREATE"], &[names::GATE_PROBES], "Cluster"),
    ]
}

fn mutate(policy: &mut Value, expression: &str) {
    // What runs later may undo it, and is followed by this again.
    set_in(policy, "spec", "reinvocationPolicy", json!("IfNeeded"));
    let configuration = json!({ "expression": expression });
    let mutations = json!([{ "patchType": "ApplyConfiguration", "applyConfiguration": configuration }]);
    set_in(policy, "spec", "mutations", mutations);
}

/// Only the targeted namespaces.
fn select(object: &mut Value, part: &str, options: &InstallOptions) {
    if let Some(part) = object.pointer_mut(&format!("/spec/{part}")) {
        set(part, "namespaceSelector", json!(options.namespace_selector));
    }
}
