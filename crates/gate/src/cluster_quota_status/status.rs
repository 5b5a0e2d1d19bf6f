//! What the status of a cluster quota and of its mirrors should say.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;
use sluice_api::{ClusterQuotaStatus, NamespaceAmounts, QuotaAmounts, names};
use sluice_engine::{Quantity, StatusTarget};

use crate::conditions::{
    machines_status, not_enforced, pods_held, uncounted_keys, unevaluated, virtual_machines,
};
use crate::explain::HeldTold;

/// A status without what it tells of pods: of those that wait, and of those that run without an answer.
pub(super) fn without_told(status: &Value) -> Value {
    let mut rest = status.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.remove("heldSince");
        if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
            let is_told = |kind: &Value| kind == names::PODS_HELD || kind == names::EVALUATED;
            conditions.retain(|condition| !condition.get("type").is_some_and(is_told));
        }
        if fields.get("conditions").is_some_and(|conditions| conditions.as_array().is_some_and(Vec::is_empty))
        {
            fields.remove("conditions");
        }
    }
    rest
}

/// Most bytes of `status.namespaces`: a third of what etcd takes (`--max-request-bytes`, 1.5 MiB).
const MOST_BYTES: usize = 512 * 1024;

/// What is told of pods.
#[derive(Debug)]
pub(super) struct Told {
    /// How many wait for the quota.
    pub(super) held: usize,
    /// Of the oldest of these.
    pub(super) oldest: Option<HeldTold>,
    /// Of those that run without an answer of evaluators.
    pub(super) unevaluated: Option<String>,
}

/// What namespaces take, by name.
pub(super) type Used = BTreeMap<Arc<str>, Box<[(String, Quantity)]>>;

/// What is shown of a quota; `before` is what the object says, for the times of conditions.
pub(super) fn quota_status(
    target: &StatusTarget,
    told: &Told,
    used: &Used,
    before: &Value,
    now_s: i64,
) -> ClusterQuotaStatus {
    let (namespaces, omitted) = listed(target, used);
    ClusterQuotaStatus {
        namespaces: Some(namespaces),
        omitted_namespaces: (omitted > 0).then(|| i64::try_from(omitted).unwrap_or(i64::MAX)),
        held: Some(i64::try_from(told.held).unwrap_or(i64::MAX)),
        held_since: told.oldest.as_ref().and_then(|it| Timestamp::from_second(it.since).ok()).map(Time),
        conditions: conditions(target, told, before, now_s),
        ..total(target)
    }
}

/// What the users of a namespace are shown: the total, and these namespaces, their own or all.
pub(super) fn mirror_status(
    target: &StatusTarget,
    namespaces: Vec<NamespaceAmounts>,
    now_s: i64,
) -> ClusterQuotaStatus {
    let total_as_of = Timestamp::from_second(now_s).ok().map(Time);
    ClusterQuotaStatus { namespaces: Some(namespaces), total_as_of, ..total(target) }
}

pub(super) fn entry(target: &StatusTarget, name: &str, used: &[(String, Quantity)]) -> NamespaceAmounts {
    NamespaceAmounts {
        namespace: name.to_owned(),
        status: QuotaAmounts { hard: texts(&target.hard), used: texts(used) },
    }
}

/// As many namespaces as an object can hold, in the order of names, and how many are left out:
/// those that take nothing first.
pub(super) fn listed(target: &StatusTarget, used: &Used) -> (Vec<NamespaceAmounts>, usize) {
    let takes = |used: &[(String, Quantity)]| used.iter().any(|(_, amount)| !amount.is_zero());
    let (taking, idle): (Vec<_>, Vec<_>) = used.iter().partition(|(_, used)| takes(used));
    let mut left = MOST_BYTES;
    let mut namespaces = Vec::new();
    for (name, used) in taking.into_iter().chain(idle) {
        let entry = entry(target, name, used);
        let bytes = size(&entry);
        if bytes > left {
            break;
        }
        left -= bytes;
        namespaces.push(entry);
    }
    namespaces.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    let omitted = used.len() - namespaces.len();
    (namespaces, omitted)
}

fn size(entry: &NamespaceAmounts) -> usize {
    /// Braces, names of fields, quotes and commas.
    const FRAME: usize = 64;
    let amounts = entry.status.hard.iter().chain(&entry.status.used);
    FRAME + entry.namespace.len() + amounts.map(|(key, amount)| key.len() + amount.0.len() + 6).sum::<usize>()
}

fn total(target: &StatusTarget) -> ClusterQuotaStatus {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ClusterQuotaStatus {
        total: QuotaAmounts { hard: texts(&target.hard), used: texts(&target.used) },
        requests: text(&target.requests),
        limits: text(&target.limits),
        ..ClusterQuotaStatus::default()
    }
}

/// The conditions, with the times that they have if they say so already.
fn conditions(target: &StatusTarget, told: &Told, before: &Value, now_s: i64) -> Vec<Condition> {
    let since = |kind: &str, status: &str| {
        let known = before.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let mut known = known.filter_map(|known| serde_json::from_value::<Condition>(known.clone()).ok());
        let is_same = |known: &Condition| known.type_ == kind && known.status == status;
        known.find(is_same).map_or(now_s, |known| known.last_transition_time.0.as_second())
    };
    let uncounted = uncounted_keys(&target.uncounted, since(names::UNCOUNTED_KEYS, "True"));
    let machines = target.machines.and_then(|calculator| {
        let since = since(names::VIRTUAL_MACHINES, machines_status(calculator));
        virtual_machines(calculator, since)
    });
    let unenforced = target.unenforced.as_ref();
    let unenforced = unenforced.and_then(|told| not_enforced(told, since(names::ENFORCED, "False")));
    let held = told.oldest.as_ref().and_then(|told| pods_held(told, since(names::PODS_HELD, "True")));
    let unevaluated =
        told.unevaluated.as_ref().and_then(|told| unevaluated(told, since(names::EVALUATED, "False")));
    held.into_iter().chain(unevaluated).chain(uncounted).chain(machines).chain(unenforced).collect()
}

fn texts(list: &[(String, Quantity)]) -> BTreeMap<String, Text> {
    list.iter().map(|(key, amount)| (key.clone(), Text(amount.to_string()))).collect()
}
