#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use serde_json::{Value, json};
use sluice_engine::Uid;
use sluice_engine::headroom::Raise;

use super::*;
use crate::cli::proven::told_by_aaq;

const WHY: &str = "3 API servers have a current Lease in kube-system, but only 1 can be addressed: name each with \
                   --api-server, or set --balancer-proofs";

fn conditions(kind: &str, reason: &str, message: &str) -> Value {
    json!([{
        "type": kind, "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }])
}

fn with_policy(reason: &str, message: &str) -> Cluster {
    let mut cluster = Cluster::default();
    let policy = json!({
        "metadata": { "name": "tenants", "uid": "tenants" },
        "spec": { "namespaceSelector": {}, "budget": { "mode": "Unlimited" } },
        "status": { "conditions": conditions("Ready", reason, message) },
    });
    cluster.policies.upsert(&serde_json::from_value(policy).unwrap());
    cluster
}

#[test]
fn who_may_read_a_condition_is_told_why_nothing_is_raised() {
    let message = format!("no quota is raised: {WHY}");
    assert_eq!(unproven(&with_policy("NotProven", &message), None, "a").as_deref(), Some(WHY));
    assert_eq!(unproven(&with_policy("StatusForbidden", &message), None, "a"), None);
    let of_aaq = |reason| {
        let message = format!("no quota is raised for live migrations: {WHY}");
        let conditions = conditions("Headroom", reason, &message);
        told_by_aaq(&serde_json::from_value::<Vec<_>>(conditions).unwrap())
    };
    assert_eq!(unproven(&Cluster::default(), of_aaq("NotProven").as_ref(), "a").as_deref(), Some(WHY));
    assert_eq!(of_aaq("Proven"), Some(Ok(())));
    let mut cluster = Cluster::default();
    let grant = json!({
        "metadata": { "name": "more", "namespace": "a", "uid": "more" },
        "status": { "conditions": conditions("Ready", "NotProven", &message) },
    });
    cluster.vmmrqs.upsert(&serde_json::from_value(grant).unwrap());
    assert_eq!(unproven(&cluster, None, "a").as_deref(), Some(WHY), "a tenant reads its own namespace");
    assert_eq!(unproven(&cluster, None, "b"), None);
}

#[test]
fn the_words_of_a_raise_that_is_not_made() {
    let raise = || Raise { quota: "rq".into(), uid: Uid::parse("rq"), keys: Vec::new() };
    let verdict = |is_granted, unproven: Option<&str>| Verdict {
        plan: Plan::Raise(vec![raise()]),
        is_granted,
        unproven: unproven.map(str::to_owned),
        source: None,
    };
    let said = [verdict(true, None), verdict(true, Some(WHY)), verdict(false, Some(WHY))].map(|verdict| {
        let (reason, message) = verdict.told("move", "web");
        format!("{:?} {reason}: {message}", verdict.goes())
    });
    insta::assert_snapshot!(said.join("\n"), @"
    Now HeadroomAvailable: head-room is granted: quotas rq are raised for the next pod of VM web when KubeVirt creates it
    Never HeadroomNotProven: gets no head-room, VM web keeps running: Sluice raises no quota in this cluster: 3 API servers have a current Lease in kube-system, but only 1 can be addressed: name each with --api-server, or set --balancer-proofs (docs/headroom.md, Proof)
    Later PendingEvaluation: waits until a quota's new limit is in force, VM web keeps running: kube-controller-manager is about to write it
    ");
}
