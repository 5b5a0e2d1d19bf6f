//! The admission rules that hold Sluice's own accounts to what they do, where RBAC cannot: a stolen token gives no more.
//!
//! RBAC grants `patch` on pods and on the status of ResourceQuotas as a whole, and the controller writes managed
//! ResourceQuotas and ClusterResourceQuotas. Of a gated pod it takes its gate away and nothing else (`sluice-guard`), of
//! these it writes only those that are named and owned as managed ones and limit no pods, and what it makes itself has no
//! finalizers (`sluice-accounts`); the operator changes nothing that an `AAQ` or `MTQ` asks; in a quota's status, limits
//! are above those of its specification only for keys of pods and under a mark, which ends by itself, and usage stays as
//! quota admission has counted it (`sluice-headroom-charge`).

use serde_json::{Value, json};
use sluice_api::names::{self, MOST_ITEMS};
use sluice_engine::headroom::{MARK, NUDGE_KEY};

use crate::options::InstallOptions;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, judge, policy, rule};

/// CEL: the gates of the pod are those it had, without ours, which was one of them.
const GATE_TAKEN: &str = "oldObject.spec.?schedulingGates.orValue([]).size() <= MOST_ITEMS \
    && object.spec.?schedulingGates != oldObject.spec.?schedulingGates \
    && object.spec.?schedulingGates.orValue([]) \
    == oldObject.spec.?schedulingGates.orValue([]).filter(g, g.name != 'GATE')";
/// CEL: labels and annotations are what they were. Other admission plugins may add some at any update, but to a pod that has
/// more than are looked at.
const LABELS_KEPT: &str = "(object.metadata.?FIELD == oldObject.metadata.?FIELD \
    || (oldObject.metadata.?FIELD.orValue({}).size() <= MOST_LABELS && oldObject.metadata.?FIELD.orValue({}).all(k, \
    k in object.metadata.?FIELD.orValue({}) && object.metadata.FIELD[k] == oldObject.metadata.FIELD[k])))";
/// Most labels, and most annotations, of a pod that are looked at one by one.
const MOST_LABELS: &str = "256";
/// Most keys of a quota. Tenants do not write quotas, so this is beyond what anyone has.
pub(crate) const MOST_KEYS: &str = "1000";
/// Fields of a pod's specification that an update may change, but for its gates
/// (`ValidatePodUpdate` in `k8s.io/kubernetes/pkg/apis/core/validation`).
const MUTABLE: [&str; 8] = [
    "containers",
    "initContainers",
    "ephemeralContainers",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "nodeSelector",
    "affinity",
];
/// CEL: pods take nothing of the key `k` of a quota.
const NOT_OF_PODS: &str = "((k.startsWith('count/') && k != 'count/pods') \
    || k in ['configmaps', 'persistentvolumeclaims', 'replicationcontrollers', 'requests.storage', 'resourcequotas', \
    'secrets', 'services', 'services.loadbalancers', 'services.nodeports'] \
    || k.contains('.storageclass.storage.k8s.io/') || k.endsWith('.deviceclass.resource.k8s.io/devices'))";
/// CEL: each limit is that of the specification, or as it was, or higher under a mark if pods take of it.
const LIMITS: &str = "object.status.?hard.orValue({}).size() <= MOST_KEYS \
    && object.status.?hard.orValue({}).all(k, k == 'MARK' \
    || (k in oldObject.status.?hard.orValue({}) && object.status.hard[k] == oldObject.status.hard[k]) \
    || (k in object.spec.hard && (object.status.hard[k] == object.spec.hard[k] \
    || ('MARK' in object.status.hard && !NOT_OF_PODS \
    && quantity(string(object.status.hard[k])).compareTo(quantity(string(object.spec.hard[k]))) > 0))))";
/// CEL: no limit is taken away.
const NO_LIMIT_LOST: &str = "oldObject.status.?hard.orValue({}).size() <= MOST_KEYS \
    && oldObject.status.?hard.orValue({}).all(k, \
    k == 'MARK' || !(k in object.spec.hard) || k in object.status.?hard.orValue({}))";
/// CEL: usage is as it was, but for our own two keys.
const USAGE: &str = "object.status.?used.orValue({}).size() <= MOST_KEYS \
    && oldObject.status.?used.orValue({}).size() <= MOST_KEYS \
    && object.status.?used.orValue({}).all(k, k in ['MARK', 'NUDGE'] \
    || (k in oldObject.status.?used.orValue({}) && object.status.used[k] == oldObject.status.used[k])) \
    && oldObject.status.?used.orValue({}).all(k, k in ['MARK', 'NUDGE'] || k in object.status.?used.orValue({}))";

/// CEL: the name of a managed quota.
const MANAGED_NAME: &str = "request.name.endsWith('SUFFIX')";
/// CEL: what there was is a managed quota: it has the label or the owner of one.
const WAS_MANAGED: &str = "request.operation == 'CREATE' || 'LABEL' in oldObject.metadata.?labels.orValue({}) \
    || (oldObject.metadata.?ownerReferences.orValue([]).size() <= MOST_ITEMS \
    && oldObject.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'OWNER'))";
/// CEL: what is written is owned by the quota whose name it has, and limits no pods.
const IS_MANAGED: &str = "request.operation == 'DELETE' \
    || (object.metadata.?ownerReferences.orValue([]).size() <= MOST_ITEMS \
    && object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'OWNER' && o.name + 'SUFFIX' == request.name) \
    && object.HARD.orValue({}).size() <= MOST_KEYS && object.HARD.orValue({}).all(k, NOT_OF_PODS))";
/// CEL, for `unless` of [`validation`]: nothing that the controller makes is written.
const UNLESS_MADE: &str = "request.operation == 'DELETE' || ";
/// CEL: what others have put there is left, and nothing is added.
const FIELD_KEPT: &str = "object.metadata.?FIELD.orValue([]) \
    == (oldObject == null ? [] : oldObject.metadata.?FIELD.orValue([]))";
/// What has no owner of those that Sluice's accounts write.
const UNOWNED: [&str; 4] = ["events", "leases", names::HEADROOM_PROBES, names::GATE_PROBES];

fn cel(text: &str) -> String {
    let text = text
        .replace("NOT_OF_PODS", NOT_OF_PODS)
        .replace("MOST_LABELS", MOST_LABELS)
        .replace("MOST_KEYS", MOST_KEYS);
    let text = text.replace("MOST_ITEMS", &MOST_ITEMS.to_string()).replace("LABEL", names::MANAGED_LABEL);
    text.replace("MARK", MARK).replace("NUDGE", NUDGE_KEY).replace("GATE", names::GATE)
}

/// The same optional field of both objects.
fn kept(path: &str, field: &str) -> String {
    format!("object.{path}.?{field} == oldObject.{path}.?{field}")
}

/// `unless` is CEL, with `||` at its end, or empty.
fn validation(unless: &str, expression: &str, said: &str) -> Value {
    json!({
        "expression": format!("{unless}({})", cel(expression)),
        "message": format!("{}: {said}", names::ACCOUNT_DENIED),
        "reason": "Forbidden",
    })
}

/// Labels and annotations, and what else metadata says.
fn metadata_kept(unless: &str) -> [Value; 2] {
    let labels = ["labels", "annotations"].map(|field| LABELS_KEPT.replace("FIELD", field));
    let others = ["ownerReferences", "finalizers"].map(|field| kept("metadata", field));
    [
        validation(unless, &labels.join(" && "), "labels and annotations stay as they are"),
        validation(
            unless,
            &others.join(" && "),
            "metadata.ownerReferences and metadata.finalizers stay as they are",
        ),
    ]
}

/// A kind of managed quotas.
struct Managed {
    resource: &'static str,
    kind: &'static str,
    /// End of the name, after that of the quota.
    suffix: &'static str,
    /// Kind of the quota.
    owner: &'static str,
    /// CEL: where the limits are.
    hard: &'static str,
}

const MANAGED: [Managed; 2] = [
    Managed {
        resource: "resourcequotas",
        kind: "ResourceQuota",
        suffix: names::MANAGED_QUOTA_SUFFIX,
        owner: "ApplicationAwareResourceQuota",
        hard: "spec.?hard",
    },
    Managed {
        resource: names::CLUSTER_RESOURCE_QUOTAS,
        kind: "ClusterResourceQuota",
        suffix: names::MANAGED_CLUSTER_QUOTA_SUFFIX,
        owner: "ApplicationAwareClusterResourceQuota",
        hard: "spec.?quota.?hard",
    },
];

/// What the controller may write of the quotas of other components. RBAC cannot limit it to a part of their names.
fn of_managed_quotas(managed: &Managed) -> [Value; 3] {
    let Managed { resource, kind, suffix, owner, hard } = managed;
    let unless = unless_about(resource);
    let validation = |expression: &str, said: &str| {
        let expression = expression.replace("SUFFIX", suffix).replace("OWNER", owner).replace("HARD", hard);
        validation(&unless, &expression, said)
    };
    [
        validation(MANAGED_NAME, &format!("of {kind}s it writes managed ones, by their name")),
        validation(WAS_MANAGED, &format!("the {kind} of that name is not a managed one")),
        validation(
            IS_MANAGED,
            &format!("a managed {kind} is owned by the quota whose name it has, and limits no pods"),
        ),
    ]
}

/// CEL: the request is about another resource.
fn unless_about(resource: &str) -> String {
    format!("request.resource.resource != '{resource}' || ")
}

/// What the accounts may write of managed quotas, and of the objects that they make themselves: with a finalizer these would
/// keep any namespace from being deleted. Probes are dry runs for every user and are never stored. The operator writes
/// finalizers, annotations and status of an `AAQ` and `MTQ`, and never what these ask.
pub(crate) fn accounts(options: &InstallOptions) -> AdmissionPolicy {
    let mut validations: Vec<Value> = MANAGED.iter().flat_map(of_managed_quotas).collect();
    let kept = |field: &str| FIELD_KEPT.replace("FIELD", field);
    let is_in = |resources: &[&str]| format!("request.resource.resource in {}", json!(resources));
    let probes = [names::HEADROOM_PROBES, names::GATE_PROBES];
    let orders = is_in(&[names::AAQS, names::MTQS]);
    validations.extend([
        validation(
            &format!("{UNLESS_MADE}{orders} || "),
            &kept("finalizers"),
            "metadata.finalizers stay as they are",
        ),
        validation(
            &format!("!({orders}) || "),
            "object.?spec == oldObject.?spec",
            "what an AAQ or MTQ asks stays as it is",
        ),
        validation(
            &format!("!({}) || ", is_in(&UNOWNED)),
            &kept("ownerReferences"),
            "metadata.ownerReferences stay as they are",
        ),
        json!({
            "expression": format!("!({}) || request.?dryRun.orValue(false)", is_in(&probes)),
            "message": "a probe asks the API server and is never stored: create it as a dry run",
            "reason": "Forbidden",
        }),
    ]);
    let rules = [
        rule("", &["CREATE", "UPDATE", "DELETE"], &["resourcequotas"], "Namespaced"),
        rule(
            names::OPENSHIFT_QUOTA_GROUP,
            &["CREATE", "UPDATE", "DELETE"],
            &[names::CLUSTER_RESOURCE_QUOTAS],
            "Cluster",
        ),
        rule(names::GROUP, &["CREATE", "UPDATE"], &[names::AACRQS], "Namespaced"),
        rule(
            names::OWN_GROUP,
            &["CREATE"],
            &[names::CLUSTER_QUOTA_CHARGES, names::HEADROOM_PROBES],
            "Namespaced",
        ),
        rule(names::OWN_GROUP, &["CREATE"], &[names::GATE_PROBES], "Cluster"),
        rule("events.k8s.io", &["CREATE", "UPDATE"], &["events"], "Namespaced"),
        rule("coordination.k8s.io", &["CREATE", "UPDATE"], &["leases"], "Namespaced"),
        rule(names::GROUP, &["UPDATE"], &[names::AAQS], "Cluster"),
        rule(names::MTQ_GROUP, &["UPDATE"], &[names::MTQS], "Cluster"),
    ];
    let mut policy = policy(VALIDATING, names::ACCOUNTS_POLICY, "Fail", &rules);
    let operator = names::operator_username(&options.namespace);
    let by_operator = format!("(request.userInfo.username == '{operator}' && {orders})");
    let condition = format!("{} || {} || {by_operator}", by_us(options), is_in(&probes));
    judge(&mut policy, &[condition], validations);
    let binding = binding(VALIDATING, names::ACCOUNTS_POLICY);
    AdmissionPolicy { name: names::ACCOUNTS_POLICY, mutates: false, policy, binding }
}

/// The accounts that write the status of quotas.
fn own_accounts(options: &InstallOptions) -> [String; 2] {
    [names::controller_username(&options.namespace), names::webhook_username(&options.namespace)]
}

/// CEL: the user of the request is the controller or the webhook.
pub(crate) fn by_us(options: &InstallOptions) -> String {
    format!("request.userInfo.username in {}", json!(own_accounts(options)))
}

/// Validations for `sluice-guard` of what the controller and the webhook may update in a pod. They are not a policy of their
/// own because the API server converts the pod and the old pod for CEL once per policy, at every update of a pod by any
/// user. `unless` is CEL, with `||` at its end, that holds for requests that do not
/// update a pod and for requests of other users.
pub(crate) fn of_pods(unless: &str) -> Vec<Value> {
    let spec: Vec<String> = MUTABLE.iter().map(|field| kept("spec", field)).collect();
    let of_the_gate = "it removes ApplicationAwareQuotaGate from spec.schedulingGates of a pod \
                       that has it, and no other gate";
    let mut validations = vec![
        validation(unless, GATE_TAKEN, of_the_gate),
        validation(unless, &spec.join(" && "), "the rest of a pod's spec stays as it is"),
    ];
    validations.extend(metadata_kept(unless));
    validations
}

/// Validations for `sluice-headroom-charge` of what the controller and the webhook may update in the status of a
/// ResourceQuota. A policy of its own would make each raise some milliseconds slower. `unless` is CEL, with `||` at its end,
/// that holds for requests of other users.
pub(crate) fn of_quotas(unless: &str) -> Vec<Value> {
    let limits = format!("{LIMITS} && {NO_LIMIT_LOST}");
    let mut validations = vec![
        validation(unless, &limits, "status.hard is that of the spec, or above it under a mark"),
        validation(unless, USAGE, "status.used stays as it is"),
    ];
    validations.extend(metadata_kept(unless));
    validations
}
