//! What is compared, and what head-room cannot help with.

use super::*;

#[test]
fn only_what_the_pod_takes_is_compared() {
    // More is used than allowed of what it takes nothing of.
    let quotas = [quota("rq", &[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "5"), ("memory", "0")])];
    assert_eq!(
        plan(&need(&[("cpu", "0"), ("memory", "1Mi")]), &quotas, &Budget::default()),
        Plan::Fits { tight: false }
    );
    assert_eq!(
        plan(&need(&[("memory", "600Mi")]), &quotas, &Budget::default()),
        Plan::Fits { tight: true },
        "a second one would not fit"
    );
}

#[test]
fn scopes_decide_whether_a_quota_is_asked() {
    let mut rq = quota("rq", &[("pods", "0")], &[("pods", "0")]);
    rq.scopes = Scopes::new([ScopeRequirement::exists(Scope::BestEffort)]);
    let mut vm = need(&[("pods", "1")]);
    assert_eq!(plan(&vm, std::slice::from_ref(&rq), &Budget::default()), Plan::Fits { tight: false });
    vm.facts = ScopeFacts { best_effort: true, ..ScopeFacts::default() };
    assert!(matches!(plan(&vm, &[rq], &unlimited()), Plan::Raise(_)));
}

#[test]
fn a_quota_without_status_limits_nothing_yet() {
    let mut rq = quota("rq", &[("cpu", "1")], &[]);
    rq.status_hard.clear();
    let vm = need(&[("cpu", "1")]);
    assert_eq!(plan(&vm, std::slice::from_ref(&rq), &unlimited()), Plan::Fits { tight: true });
    rq.status_hard = rq.spec_hard.clone();
    assert_eq!(refusals(plan(&vm, &[rq], &unlimited())), ["status unknown for quota: rq, resources: cpu"]);
}

#[test]
fn a_key_without_usage_is_unknown_even_if_the_pod_takes_nothing_of_it() {
    let quotas = [quota("rq", &[("cpu", "1"), ("limits.memory", "1Gi"), ("services", "1")], &[("cpu", "0")])];
    assert_eq!(
        refusals(plan(&need(&[("cpu", "1")]), &quotas, &unlimited())),
        ["status unknown for quota: rq, resources: limits.memory"]
    );
}

#[test]
fn a_pod_that_names_too_little_is_refused_by_the_quotas_that_ask_for_it() {
    let pod: serde_json::Value = serde_json::json!({"spec": {"containers": [
        {"name": "compute", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        {"name": "log", "resources": {"requests": {"memory": "1Mi"}}},
    ]}});
    let vm = need_of(&pods::pod(&pod), RULES);
    let used = [("limits.cpu", "0"), ("requests.cpu", "0"), ("requests.memory", "0")];
    let hard = [("limits.cpu", "9"), ("requests.cpu", "9"), ("requests.memory", "9Gi")];
    assert_eq!(
        refusals(plan(&vm, &[quota("rq", &hard, &used)], &unlimited())),
        ["quota rq: must specify limits.cpu for: compute,log; requests.cpu for: log"]
    );
    let memory = quota("rq", &hard[2..], &used[2..]);
    assert_eq!(plan(&vm, &[memory], &unlimited()), Plan::Fits { tight: false });
}

#[test]
fn the_need_of_a_source_is_that_of_a_fresh_copy() {
    let spec = serde_json::json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
    let fresh = serde_json::json!({"spec": spec});
    let gone = serde_json::json!({
        "spec": spec,
        "metadata": {"deletionTimestamp": 1, "deletionGracePeriodSeconds": 0},
        "status": {"phase": "Succeeded"},
    });
    let need = need_of(&pods::pod(&gone), RULES);
    assert_eq!(need, need_of(&pods::pod(&fresh), RULES));
    assert_eq!(need.charge.len(), 3, "pods, count/pods and cpu: {:?}", need.charge);
}

#[test]
fn an_excluded_quota_is_only_in_the_way_when_it_is_exceeded() {
    let mut rq = quota("rq", &[("cpu", "4")], &[("cpu", "1")]);
    rq.opted_out = true;
    assert!(matches!(
        plan(&need(&[("cpu", "1")]), std::slice::from_ref(&rq), &unlimited()),
        Plan::Fits { .. }
    ));
    assert!(matches!(
        plan(&need(&[("cpu", "4")]), &[rq], &unlimited()),
        Plan::Refused(list) if matches!(&list[..], [Refusal::OptedOut { keys, .. }] if *keys[0] == *"cpu")
    ));
}

#[test]
fn hostile_amounts_are_refused_and_never_raised() {
    let most = Quantity::from_nanos(i128::MAX, Format::DecimalSi);
    let vm = need(&[("cpu", "1")]);
    let mut rq = quota("rq", &[("cpu", "1")], &[("cpu", "1")]);
    rq.used.insert("cpu".into(), most);
    assert!(matches!(plan(&vm, &[rq.clone()], &unlimited()), Plan::Refused(_)), "the sum does not fit");
    // Less than nothing is used: taken as it is, as quota admission does.
    rq.used.insert("cpu".into(), quantity("-5"));
    assert_eq!(plan(&vm, &[rq.clone()], &unlimited()), Plan::Fits { tight: false });
    // A limit that is not wanted any more, and one that cannot be read.
    let mut stray = quota("rq", &[], &[("cpu", "1")]);
    stray.status_hard = amounts(&[("cpu", "1")]);
    assert!(matches!(
        plan(&vm, &[stray.clone()], &unlimited()),
        Plan::Refused(list) if matches!(&list[..], [Refusal::NotSynced { .. }])
    ));
    assert!(!stray.is_raised());
    stray.status_hard.clear();
    stray.unreadable = vec!["cpu".into()];
    assert!(matches!(
        plan(&vm, &[stray.clone()], &unlimited()),
        Plan::Refused(list) if matches!(&list[..], [Refusal::Incalculable { .. }])
    ));
    assert_eq!(plan(&need(&[("memory", "1")]), &[stray], &unlimited()), Plan::Fits { tight: false });
    assert!(matches!(
        plan(&need(&[("cpu", "-1")]), &[rq], &unlimited()),
        Plan::Refused(list) if matches!(&list[..], [Refusal::NegativeNeed { .. }])
    ));
}

#[test]
fn a_spec_that_was_enlarged_needs_no_grant() {
    let mut rq = quota("rq", &[("cpu", "1")], &[("cpu", "1")]);
    rq.spec_hard = amounts(&[("cpu", "2")]);
    let raised = raises(plan(&need(&[("cpu", "1")]), &[rq], &Budget::default()));
    assert_eq!(set(&raised[0]), ["cpu=2"]);
}

#[test]
fn an_exact_fit_beyond_what_binary_texts_hold_is_written_in_decimal() {
    let mut quotas = [quota("rq", &[("memory", "6Ei")], &[("memory", "6Ei")])];
    let vm = need(&[("memory", "4Ei")]);
    let raised = raises(plan(&vm, &quotas, &unlimited()));
    let to = raised[0].keys[0].to;
    assert_eq!(quantity(&to.to_string()), to, "{to}");
    raise(&mut quotas, &raised);
    assert!(matches!(plan(&vm, &quotas, &Budget::default()), Plan::Fits { .. }));
}
