//! The two admission policies that let exactly one pod use a raised ResourceQuota (`docs/protocols.md`, *The mark*,
//! *The charge guard*). They are installed once and never change.
//!
//! A raised quota carries a mark: under [`MARK`] its status has the time at which the raise stops to count, in milliseconds
//! of the API server's clock. `sluice-headroom-lock` takes the quotas of a namespace as parameters, read from the informer
//! that quota admission reads, and keeps other pods away while a mark is live. `sluice-headroom-charge` judges the write
//! with which quota admission charges a pod: no cache lies between it and the quota. Both end by the API
//! server's clock, also when no process of Sluice runs.

use serde_json::{Value, json};
use sluice_api::names::{self, MOST_ITEMS};
use sluice_engine::headroom::MARK;

use crate::account_policy::{MOST_KEYS, by_us, of_quotas};
use crate::expressions::writes_migrations;
use crate::options::InstallOptions;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, judge, policy, rule};

/// A policy that fails must stop neither the pods nor the quotas of a cluster. Sluice raises nothing where it has not seen
/// both policies deny.
const FAILURE_POLICY: &str = "Ignore";
/// A mark is set for no longer than this by the clock of the API server that writes it; seconds. A lock lasts ten. Sluice
/// has the time from the fastest API server, and clocks of API servers may differ by five.
/// One more for times that are whole seconds.
const LONGEST_LOCK_SECONDS: u32 = 16;

/// CEL: the quota that is a parameter is not marked. The cheapest test comes first: it is made for every pod.
const UNMARKED: &str =
    "!has(dyn(params).status) || !has(dyn(params).status.hard) || !('MARK' in dyn(params).status.hard)";
/// CEL: the amount of the mark.
const END: &str = "quantity(string(dyn(params).status.hard['MARK'])).asInteger()";
/// CEL: the object is created at or after the end that the mark names. Only the API server sets the creation time.
const AFTER_THE_END: &str = "timestamp(object.metadata.creationTimestamp) >= timestamp(END / 1000)";
/// CEL: a pod with the label of a migration.
const LABELLED: &str =
    "has(object.metadata.labels) && 'kubevirt.io/migrationJobUID' in object.metadata.labels";
/// CEL: what the owner of a refused pod is told. Controllers that try again look for the first two words.
const REFUSED: &str = "'exceeded quota: ' + params.metadata.name + ' is reserved for the target pod of a live migration: \
    try again in a moment'";
/// CEL: what quota admission writes is what it may write of a quota with a mark. A raised key may stay as it is. While the
/// mark is live, it may become exactly the raised limit. Once the mark is over, until a restore or kube-controller-manager
/// takes it away, it may be whatever the specification allows, or less than it was: what a crash or a late write left raised
/// takes no pod in. This needs no clock but the one that opens the quota for the target.
const CHARGED: &str = "!variables.marked || request.userInfo.username != 'system:apiserver' \
    || (object.status.hard.size() <= MOST_KEYS \
    && object.status.hard.all(k, !(k in object.spec.hard) || object.status.hard[k] == object.spec.hard[k] \
    || object.status.?used[?k] == oldObject.status.?used[?k] \
    || (object.status.?used[?k].hasValue() && oldObject.status.?used[?k].hasValue() && (variables.over \
    ? quantity(string(object.status.used[k])).compareTo(quantity(string(object.spec.hard[k]))) <= 0 \
    || quantity(string(object.status.used[k])).compareTo(quantity(string(oldObject.status.used[k]))) < 0 \
    : quantity(string(object.status.used[k])).compareTo(quantity(string(object.status.hard[k]))) == 0))))";
/// CEL: a probe that names neither the mark of this quota nor 0.
const UNKNOWN_MARK: &str = "object.spec.mark != 0 && (UNMARKED || END != object.spec.mark)";

fn cel(text: &str) -> String {
    text.replace("UNMARKED", &format!("({UNMARKED})")).replace("END", END).replace("MARK", MARK)
}

/// Keeps pods away from namespaces with a marked quota, but for the target of a migration; answers probes. A pod that is
/// there is not resized as long as the mark is there, over or not: an update has no time of which a tenant could not have
/// written another.
pub(crate) fn lock() -> AdmissionPolicy {
    let validations = vec![
        json!({
            "expression":
                cel(&format!(
                    "request.resource.resource != 'pods' || {UNMARKED} || (request.operation == 'CREATE' && \
                     ({AFTER_THE_END} || ({LABELLED} && {})))",
                    writes_migrations()
                )),
            "message": "exceeded quota: a ResourceQuota is reserved for the target pod of a live migration: try again \
                in a moment",
            "messageExpression": REFUSED,
            "reason": "Forbidden",
        }),
        json!({
            "expression": cel(&format!("request.resource.resource == 'pods' || ({UNKNOWN_MARK})")),
            "message": names::PROBE_DENIED,
            "reason": "Forbidden",
        }),
    ];
    let rules = [
        rule("", &["CREATE"], &["pods"], "Namespaced"),
        rule("", &["UPDATE"], &["pods/resize"], "Namespaced"),
        rule(names::OWN_GROUP, &["CREATE"], &[names::HEADROOM_PROBES], "Namespaced"),
    ];
    let mut policy = policy(VALIDATING, names::LOCK_POLICY, FAILURE_POLICY, &rules);
    judge(&mut policy, &[], validations);
    crate::object::set_in(
        &mut policy,
        "spec",
        "paramKind",
        json!({ "apiVersion": "v1", "kind": "ResourceQuota" }),
    );
    // The quotas of the namespace that a request is in are the parameters; without any nothing is asked.
    let mut binding = binding(VALIDATING, names::LOCK_POLICY);
    let params = json!({ "selector": {}, "parameterNotFoundAction": "Allow" });
    crate::object::set_in(&mut binding, "spec", "paramRef", params);
    AdmissionPolicy { name: names::LOCK_POLICY, mutates: false, policy, binding }
}

/// Guards the status of marked quotas: who writes which limits, and which charge is accepted.
pub(crate) fn charge(options: &InstallOptions) -> AdmissionPolicy {
    let account = by_us(options);
    let ours = format!(
        "variables.account || (request.userInfo.username == '{}' \
         && has(request.options.fieldManager) && request.options.fieldManager == '{}')",
        names::quota_controller_username(),
        names::FIELD_MANAGER
    );
    let has_mark = |object: &str| {
        format!("has({object}.status) && has({object}.status.hard) && '{MARK}' in {object}.status.hard")
    };
    let end_of =
        |object: &str| format!("quantity(string({object}.status.hard['{MARK}'])).asInteger() / 1000");
    let entries = "object.metadata.?managedFields.orValue([])";
    let variables = json!([
        { "name": "account", "expression": account },
        { "name": "ours", "expression": ours },
        { "name": "marked", "expression": has_mark("oldObject") },
        // An update has no time of its own, but the API server enters the writer and its time before policies run. Where it
        // does not any more, a mark is over, and takes nothing above the specification in.
        {
            "name": "over",
            "expression": format!(
                "{entries}.size() == 0 || {entries}.size() > {MOST_ITEMS} || \
                 {entries}.exists(f, has(f.time) && timestamp(f.time) >= timestamp({}))",
                end_of("oldObject")
            ),
        },
        { "name": "live", "expression": "variables.marked && !variables.over" },
    ]);
    let mark_is_ours = format!(
        "!({marked}) || '{MARK}' in object.spec.hard \
         || (variables.marked && object.status.hard['{MARK}'] == oldObject.status.hard['{MARK}']) \
         || (variables.ours && {entries}.size() <= {MOST_ITEMS} && {entries}.exists(f, has(f.time) \
         && timestamp({end}) <= timestamp(f.time) + duration('{LONGEST_LOCK_SECONDS}s')))",
        marked = has_mark("object"),
        end = end_of("object"),
    );
    let denied = |text: &str| format!("{}: {text}", names::CHARGE_DENIED);
    let mut validations = vec![
        json!({
            "expression": CHARGED.replace("MOST_KEYS", MOST_KEYS),
            "message": "exceeded quota: the room in this quota is reserved for the target pod of a live migration: \
                try again in a moment",
            "reason": "Forbidden",
        }),
        json!({
            "expression": "!variables.live || variables.ours || object.status.?hard == oldObject.status.?hard",
            "message": denied("status.hard stays as it is while the target pod of a live migration is let in"),
            "reason": "Forbidden",
        }),
        json!({
            "expression": mark_is_ours,
            "message": denied(&format!(
                "only Sluice marks a quota, for at most {LONGEST_LOCK_SECONDS} s, and only one with metadata.managedFields, \
                 which kubectl apply --server-side brings back"
            )),
            "reason": "Forbidden",
        }),
    ];
    validations.extend(of_quotas("!variables.account || "));
    let rules = [rule("", &["UPDATE"], &["resourcequotas/status"], "Namespaced")];
    let mut policy = policy(VALIDATING, names::CHARGE_POLICY, FAILURE_POLICY, &rules);
    crate::object::set_in(&mut policy, "spec", "validations", json!(validations));
    crate::object::set_in(&mut policy, "spec", "variables", variables);
    let binding = binding(VALIDATING, names::CHARGE_POLICY);
    AdmissionPolicy { name: names::CHARGE_POLICY, mutates: false, policy, binding }
}

/// A quota in the namespace of the installation that limits nothing that matters (its amount is stored as it is written): on
/// it the policies are asked, in dry runs, whether they are in force.
pub fn proof_quota(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": crate::object::metadata(options, names::PROOF_QUOTA),
        "spec": { "hard": { "count/replicationcontrollers": "999" } },
    })
}
