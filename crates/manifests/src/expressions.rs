//! CEL about pods and VMs, shared by webhook configurations and admission policies: one rule, one text.
//!
//! No loop runs over what a tenant may make as long as it likes: an API server takes time by the square of its length, and
//! bills the length alone (`interpreter/runtimecost.go` in `github.com/google/cel-go` looks through its stack at each step).
//! Lists are compared as a whole first, which is cheap, and looked into only if they have at most [`MOST_ITEMS`] items. Of a
//! longer one the worst is assumed.

use sluice_api::names::{self, MOST_ITEMS};
use sluice_engine::NamespacePattern;

use crate::options::InstallOptions;

/// Fills in names: `GATE`, `STAMP` and `MIRROR`.
fn named(text: &str) -> String {
    text.replace("GATE", names::GATE)
        .replace("STAMP", names::CREATED_BY_ANNOTATION)
        .replace("MIRROR", names::MIRROR_ANNOTATION)
}

/// `pod` (`object` or `oldObject`) is known to carry our gate.
pub(crate) fn gated(pod: &str) -> String {
    gates(pod, &format!("<= {MOST_ITEMS} &&"))
}

/// `pod` carries our gate, or more gates than are looked at.
pub(crate) fn may_be_gated(pod: &str) -> String {
    gates(pod, &format!("> {MOST_ITEMS} ||"))
}

fn gates(pod: &str, bound: &str) -> String {
    let gates = format!("{pod}.spec.?schedulingGates.orValue([])");
    named(&format!("({gates}.size() {bound} {gates}.exists(g, g.name == 'GATE'))"))
}

/// `object` has a creator's stamp.
pub(crate) fn has_stamp(object: &str) -> String {
    named(&format!("(has({object}.metadata.annotations) && 'STAMP' in {object}.metadata.annotations)"))
}

/// The creator's stamp of `object`, which has one.
pub(crate) fn stamp(object: &str) -> String {
    named(&format!("{object}.metadata.annotations['STAMP']"))
}

/// The new object is stamped with the username of the request.
pub(crate) fn stamped_truly() -> String {
    format!("({} && {} == request.userInfo.username)", has_stamp("object"), stamp("object"))
}

/// The new object is stamped with another name.
pub(crate) fn stamped_falsely() -> String {
    format!("({} && {} != request.userInfo.username)", has_stamp("object"), stamp("object"))
}

/// The stamp is as it was.
pub(crate) fn stamp_kept() -> String {
    let (now, before) = (has_stamp("object"), has_stamp("oldObject"));
    format!("({now} ? {before} && {} == {} : !{before})", stamp("object"), stamp("oldObject"))
}

/// The new pod names a virtual machine or another pod as its controller, or more owners than are looked at.
pub(crate) fn says_whose() -> String {
    let owners = owners("object");
    format!("({owners}.size() > {MOST_ITEMS} || {owners}.exists(r, {CONTROLS}))")
}

/// The owner `r` of a pod is a virtual machine or another pod, and controls it.
const CONTROLS: &str = "has(r.controller) && r.controller && r.kind in ['VirtualMachineInstance', 'Pod']";

fn owners(object: &str) -> String {
    format!("{object}.metadata.?ownerReferences.orValue([])")
}

/// Which virtual machine and which pod control the pod is as it was. The garbage collector may take such references away.
pub(crate) fn controllers_kept() -> String {
    let (now, before) = (owners("object"), owners("oldObject"));
    let controllers = |owners: &str| {
        format!(
            "{owners}.filter(r, {CONTROLS})\
             .map(r, r.apiVersion + '/' + r.kind + '/' + r.uid)"
        )
    };
    let collectors =
        "['system:serviceaccount:kube-system:generic-garbage-collector', 'system:kube-controller-manager']";
    format!(
        "({now} == {before} || request.userInfo.username in {collectors} \
         || ({now}.size() <= {MOST_ITEMS} && {before}.size() <= {MOST_ITEMS} && {} == {}))",
        controllers(&now),
        controllers(&before)
    )
}

/// KubeVirt's controller has made the pod for a virtual machine: an instance controls it, or the pod has the controller's
/// stamp. A pod with more references than are looked at is taken for one, so that none is hidden behind them.
pub(crate) fn made_by_kubevirt(pod: &str) -> String {
    let (owners, stamp) = (owners(pod), stamp(pod));
    format!(
        "({owners}.size() > {MOST_ITEMS} || {owners}.exists(r, r.kind == 'VirtualMachineInstance' \
         && r.apiVersion.startsWith('kubevirt.io/') && r.?controller.orValue(false)) \
         || ({} && {stamp}.startsWith('system:serviceaccount:') && {stamp}.endsWith(':{}')))",
        has_stamp(pod),
        names::KUBEVIRT_CONTROLLER_ACCOUNT
    )
}

/// Fields of a pod's specification with what an update may change of containers, and of the pod's own resources: core lets
/// through images and resources alone (`ValidatePodUpdate` and `ValidatePodResize` in
/// `k8s.io/kubernetes/pkg/apis/core/validation`), and does so before validating policies run.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "resources"];

/// Images and resources of the pod are as they were. The fields are compared as a whole, without a loop.
pub(crate) fn containers_kept() -> String {
    let kept = CONTAINERS.map(|field| format!("object.spec.?{field} == oldObject.spec.?{field}"));
    format!("({})", kept.join(" && "))
}

/// The first field of the pod in which images or resources are not as they were.
pub(crate) fn changed_containers() -> String {
    let named =
        CONTAINERS.map(|field| format!("object.spec.?{field} != oldObject.spec.?{field} ? 'spec.{field}'"));
    format!("({} : 'spec')", named.join(" : "))
}

/// The new pod names its node. Core refuses gates on it before any validating policy could say why, so it is left without.
pub(crate) fn bound() -> &'static str {
    "(has(object.spec.nodeName) && object.spec.nodeName != '')"
}

/// The new pod does not name its node, or an account of the platform creates it: then it is let in.
pub(crate) fn not_bound_by_others(options: &InstallOptions) -> String {
    format!("!{} || {}", bound(), by_platform(options))
}

/// The request is an account's of the platform.
pub(crate) fn by_platform(options: &InstallOptions) -> String {
    let usernames: Vec<_> = options.platform_accounts.usernames().collect();
    format!("(request.userInfo.username in {})", serde_json::json!(usernames))
}

/// The new pod is what a kubelet shows of a static pod of its node.
pub(crate) fn mirror() -> String {
    named(&format!(
        "(has(object.metadata.annotations) && 'MIRROR' in object.metadata.annotations \
         && '{}' in request.userInfo.groups && request.userInfo.username == 'system:node:' + object.spec.nodeName)",
        names::NODES_GROUP
    ))
}

/// The new pod is the target of a local migration, and KubeVirt's controller creates it where such targets need no gate.
pub(crate) fn let_in_target(options: &InstallOptions) -> String {
    match &options.lets_in_targets_of {
        Some(username) => {
            format!("(request.userInfo.username == '{username}' && {})", local_target())
        }
        None => "false".to_owned(),
    }
}

/// The new pod, if KubeVirt's controller creates it, is the target of a migration whose source runs in the same namespace,
/// and is charged to the same quotas.
///
/// KubeVirt labels every target with its migration, lets no local one run on the node of another pod of its machine
/// (`createMigrationPodAntiAffinityRule` in `pkg/virt-controller/watch/migration/migration.go`), and names the node of the
/// source to those that receive a machine from elsewhere (`createDecentralizedMigrationPodAntiAffinity` there, since
/// KubeVirt 1.6). Tenants add to the affinity of their machines, also of ones that run or wait to be received, but take
/// nothing off what KubeVirt adds, and `sluice-vmi-status` keeps the label off machines, whose labels their pods have. Of
/// all that scopes of quotas ask for, it is the namespaces of affinity terms alone that
/// tenants may change on a machine that runs.
pub(crate) fn local_target() -> String {
    let label = |key: &str| format!("object.metadata.?labels[?'{key}']");
    let (job, machine) = (label(names::MIGRATION_JOB_LABEL), label(names::CREATED_BY_LABEL));
    let terms = |kind: &str, when: &str| {
        format!("object.spec.?affinity.?{kind}.?{when}DuringSchedulingIgnoredDuringExecution")
    };
    let any = |list: &str, rule: &str| {
        let list = format!("{list}.orValue([])");
        format!("({list}.size() > {MOST_ITEMS} || {list}.exists({rule}))")
    };
    let avoided = terms("podAntiAffinity", "required");
    let beside = format!(
        "{avoided}.orValue([]).size() <= {MOST_ITEMS} && \
         {avoided}.orValue([]).exists(t, t.?labelSelector.?matchLabels[?'{}'] == {machine})",
        names::CREATED_BY_LABEL
    );
    let excludes = format!("e, e.key == '{}' && e.operator == 'NotIn'", names::HOSTNAME_LABEL);
    let received = any(
        &format!("{}.?nodeSelectorTerms", terms("nodeAffinity", "required")),
        &format!("t, {}", any("t.?matchExpressions", &excludes)),
    );
    let across = ["podAffinity", "podAntiAffinity"].map(|kind| {
        let elsewhere = |term: &str| format!("t, has({term}.namespaces) || has({term}.namespaceSelector)");
        let required = any(&terms(kind, "required"), &elsewhere("t"));
        format!("{required} || {}", any(&terms(kind, "preferred"), &elsewhere("t.podAffinityTerm")))
    });
    let across = across.join(" || ");
    format!("({job}.hasValue() && {machine}.hasValue() && {beside} && !{received} && !({across}))")
}

/// The request is of an account with the name of KubeVirt's controller, of some namespace.
pub(crate) fn by_kubevirt() -> String {
    let name = names::KUBEVIRT_CONTROLLER_ACCOUNT;
    let username = "request.userInfo.username";
    format!("{username}.startsWith('system:serviceaccount:') && {username}.endsWith(':{name}')")
}

/// KubeVirt's controller makes the request: an account of its name that may write the status of migrations in the namespace.
/// Tenants may have such an account and create migrations, but not write their status.
pub(crate) fn writes_migrations() -> String {
    format!(
        "({} && authorizer.group('kubevirt.io').resource('virtualmachineinstancemigrations').subresource('status')\
         .namespace(request.namespace).check('update').allowed())",
        by_kubevirt()
    )
}

/// The update may change what the pod takes of a quota, or of which: a resize, other resources where the API server takes
/// them without one (up to Kubernetes 1.31), a deadline where there was none, or the last gate, of others, that goes.
pub(crate) fn grows() -> String {
    let resources = |list: &str| {
        let [now, before] = ["object", "oldObject"].map(|pod| format!("{pod}.spec.?{list}.orValue([])"));
        let of = |list: &str| format!("{list}.map(c, has(c.resources) ? [c.resources] : [])");
        format!(
            "({now} != {before} && ({now}.size() > {MOST_ITEMS} || {before}.size() > {MOST_ITEMS} || {} != {}))",
            of(&now),
            of(&before)
        )
    };
    // Its length puts a pod under no other scope (`k8s.io/kubernetes/pkg/quota/v1/evaluator/core/pods.go`, `isTerminating`).
    let deadline = |pod: &str| format!("has({pod}.spec.activeDeadlineSeconds)");
    let deadline = format!("{} != {}", deadline("object"), deadline("oldObject"));
    let differs = [resources("containers"), resources("initContainers"), deadline];
    let is_gated =
        |pod: &str| format!("(has({pod}.spec.schedulingGates) && {pod}.spec.schedulingGates.size() > 0)");
    let ungated = format!("({} && !{})", is_gated("oldObject"), is_gated("object"));
    format!(
        "{ungated} || (has(request.subResource) && request.subResource == 'resize') || {}",
        differs.join(" || ")
    )
}

/// The update gives a VM other CPUs, memory or resources, or asks for an even number of CPUs, by an annotation that tenants
/// may write. KubeVirt writes its status by updates too, which change none of them.
/// What is absent is equal to what is absent, and different from all else: optionals are compared by what they hold
/// (`Equal` in `github.com/google/cel-go/common/types/optional.go`), so no field that is not there is an error.
pub(crate) fn resized() -> String {
    let even =
        |vmi: &str| format!("{vmi}.metadata.?annotations[?'{}'].hasValue()", names::EVEN_EMULATOR_ANNOTATION);
    format!(
        "['cpu', 'memory', 'resources'].exists(key, object.?spec.?domain[?key] != oldObject.?spec.?domain[?key]) || \
         {} != {}",
        even("object"),
        even("oldObject")
    )
}

/// The same, or other interfaces: beside a device KubeVirt adds memory. Both lists are compared as a whole.
pub(crate) fn resized_or_plugged() -> String {
    let interfaces = |vmi: &str| format!("{vmi}.?spec.?domain.?devices.?interfaces");
    format!("{} || {} != {}", resized(), interfaces("object"), interfaces("oldObject"))
}

/// Where the size of a guest is: in the template of a VirtualMachine, else in a VirtualMachineInstance itself.
fn domain(object: &str) -> String {
    format!("{object}.?spec.?template.?spec.?domain.or({object}.?spec.?domain)")
}

/// The VM says by itself what its pod takes of CPUs or memory.
pub(crate) fn states_resources() -> String {
    format!(
        "['requests', 'limits'].exists(part, ['cpu', 'memory'].exists(key, {}.?resources[?part][?key].hasValue()))",
        domain("object")
    )
}

/// The VM is new, or gets other CPUs, memory or resources.
pub(crate) fn new_or_resized() -> String {
    let (now, before) = (domain("object"), domain("oldObject"));
    format!(
        "request.operation == 'CREATE' || ['cpu', 'memory', 'resources'].exists(key, {now}[?key] != {before}[?key])"
    )
}

/// No controller has made the object for another.
pub(crate) fn made_by_hand() -> String {
    let owners = owners("object");
    format!("{owners}.size() <= {MOST_ITEMS} && !{owners}.exists(r, has(r.controller) && r.controller)")
}

/// The user of the request may remove the gate from a pod.
pub(crate) fn removes_gates(options: &InstallOptions) -> String {
    format!("(request.userInfo.username in {})", serde_json::json!(options.gate_removers()))
}

/// The user of the request may configure Sluice, which no role that is made for tenants allows.
pub(crate) fn administers() -> String {
    format!("authorizer.group('{}').resource('{}').check('update').allowed()", names::GROUP, names::AAQS)
}

/// The namespace has the annotation of a pause; its end may be over. For validations: match conditions know no namespace.
pub(crate) fn in_paused_namespace() -> String {
    format!("namespaceObject.metadata.?annotations[?'{}'].hasValue()", names::PAUSED_ANNOTATION)
}

/// The request is not about an exempt namespace, nor about that of the installation: what Sluice itself needs to run must
/// not wait for it.
pub(crate) fn not_exempt(options: &InstallOptions) -> String {
    // A probe has no namespace.
    format!("!has(request.namespace) || !{}", exempt(options, "request.namespace"))
}

/// `namespace` (CEL) is the name of an exempt namespace, or of that of the installation.
pub(crate) fn exempt(options: &InstallOptions, namespace: &str) -> String {
    let (mut named, mut starts) = (vec![&*options.namespace], String::new());
    for pattern in &options.exempt_namespaces {
        match pattern {
            NamespacePattern::Named(name) => named.push(name),
            NamespacePattern::Starting(start) => {
                starts.push_str(&format!(" || {namespace}.startsWith('{start}')"));
            }
        }
    }
    format!("({namespace} in {}{starts})", serde_json::json!(named))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_placeholder_is_left() {
        let all = [
            super::gated("object"),
            super::stamp_kept(),
            super::stamped_truly(),
            super::stamped_falsely(),
            super::mirror(),
            super::grows(),
        ];
        for text in all {
            assert!(!["GATE", "STAMP", "MIRROR"].iter().any(|word| text.contains(word)), "{text}");
        }
    }
}
