//! Explanations for programs: fields are only ever added.

use serde_json::{Value, json};
use sluice_engine::{Quantity, QuotaKind};

use super::obstacle::{Lack, Obstacle, QuotaName};
use super::pod::{PodExplanation, Verdict, Wait};
use super::quota::{QuotaExplanation, Taker};
use super::words::{MOST_BYTES, moment};

/// `apiVersion` of what commands print.
const API_VERSION: &str = "cli.sluice.dev/v1";

pub(super) fn pod(pod: &PodExplanation) -> Value {
    let obstacles = match &pod.verdict {
        Verdict::NoRoom(obstacles) => obstacles.iter().map(obstacle).collect(),
        _ => Vec::new(),
    };
    json!({
        "apiVersion": API_VERSION,
        "kind": "PodExplanation",
        "namespace": *pod.namespace,
        "name": *pod.name,
        "reason": pod.verdict.reason(),
        "message": pod.event(MOST_BYTES).map_or_else(|| pod.verdict.sentence(MOST_BYTES), |(_, note)| note),
        "held": pod.verdict.is_held(),
        "since": moment(pod.since),
        "quotas": pod.quotas.iter().map(quota_name).collect::<Vec<_>>(),
        "obstacles": obstacles,
        "wait": pod.wait.as_ref().map(wait),
    })
}

fn quota_name(quota: &QuotaName) -> Value {
    json!({ "kind": kind(quota.kind), "name": *quota.name })
}

const fn kind(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::Namespace => "ApplicationAwareResourceQuota",
        QuotaKind::Cluster => "ApplicationAwareClusterResourceQuota",
    }
}

fn obstacle(obstacle: &Obstacle) -> Value {
    let keys = obstacle.keys.iter().map(|key| {
        json!({
            "key": *key.key,
            "needs": key.needs.to_string(),
            "used": key.used.to_string(),
            "limit": key.limit.to_string(),
            "shortBy": key.short_by.to_string(),
            "never": key.never,
            "usedInNamespace": key.own.map(|own| own.to_string()),
        })
    });
    let kept_for = match &obstacle.lack {
        Lack::KeptForOwn(pod) => Some(&**pod),
        Lack::Exceeded | Lack::KeptForOther => None,
    };
    json!({
        "quota": quota_name(&obstacle.quota),
        "reason": obstacle.reason(),
        "keys": keys.collect::<Vec<_>>(),
        "keptFor": kept_for,
    })
}

fn wait(wait: &Wait) -> Value {
    let ahead = wait.ahead.iter().map(|ahead| {
        let needs = ahead.needs.iter().map(|(key, amount)| (key.to_string(), json!(amount.to_string())));
        json!({
            "name": *ahead.name,
            "priority": ahead.priority,
            "needs": needs.collect::<serde_json::Map<_, _>>(),
        })
    });
    json!({
        "place": wait.place,
        "of": wait.of,
        "ahead": ahead.collect::<Vec<_>>(),
        "largest": takers(&wait.takers),
        "others": others(wait.others),
    })
}

fn takers(takers: &[Taker]) -> Vec<Value> {
    takers.iter().map(|taker| json!({ "name": taker.name, "amount": taker.amount.to_string() })).collect()
}

fn others(others: Option<(usize, Quantity)>) -> Option<Value> {
    others.map(|(many, amount)| json!({ "number": many, "amount": amount.to_string() }))
}

pub(super) fn quota(quota: &QuotaExplanation) -> Value {
    let lines = quota.lines.iter().map(|line| {
        json!({
            "key": *line.key,
            "used": line.used.to_string(),
            "limit": line.limit.to_string(),
            "percent": line.percent(),
            "counted": line.counted.to_string(),
            "assumed": line.assumed.to_string(),
            "unseen": line.unseen.to_string(),
        })
    });
    json!({
        "apiVersion": API_VERSION,
        "kind": "QuotaExplanation",
        "namespace": *quota.namespace,
        "within": quota.within.as_deref(),
        "quota": quota_name(&quota.quota),
        "keys": lines.collect::<Vec<_>>(),
        "held": quota.held,
        "oldest": quota.oldest.as_ref().map(|(since, name)| json!({ "name": name, "since": moment(*since) })),
        "largest": takers(&quota.takers),
        "others": others(quota.others),
        "invalid": quota.invalid,
        "notEnforced": quota.not_enforced,
    })
}
