//! Head-room with numbers from the field, and with hostile ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

#[path = "common/headroom.rs"]
mod common;
#[path = "common/mod.rs"]
mod pods;

use std::sync::Arc;

use common::{admit, amounts, need, quantity, quota, raise, restore, texts};
use sluice_engine::headroom::{
    Budget, Grant, NativeQuota, Need, Plan, Raise, Refusal, Shortage, need_of, plan, sentence, sum_of_vmmrqs,
};
use sluice_engine::scope::{Scope, ScopeRequirement};
use sluice_engine::{ChargeRules, Format, Quantity, ScopeFacts, Scopes};

const RULES: ChargeRules = ChargeRules::for_minor(36);

fn unlimited() -> Budget {
    Budget { grants: vec![Grant::Unlimited { source: "HeadroomPolicy all".into() }] }
}

fn vmmrq(additional: &[(&str, &str)]) -> Budget {
    let source = "VirtualMachineMigrationResourceQuota a".into();
    Budget { grants: vec![Grant::Amounts { source, additional: amounts(additional) }] }
}

fn raises(plan: Plan) -> Vec<Raise> {
    match plan {
        Plan::Raise(raises) => raises,
        other => panic!("a raise was expected: {other:?}"),
    }
}

fn shortages(plan: Plan) -> Vec<Shortage> {
    match plan {
        Plan::NotEnough(shortages) => shortages,
        other => panic!("a shortage was expected: {other:?}"),
    }
}

fn refusals(plan: Plan) -> Vec<String> {
    match plan {
        Plan::Refused(refusals) => refusals.iter().map(ToString::to_string).collect(),
        other => panic!("a refusal was expected: {other:?}"),
    }
}

/// Lets the pod in by a window, or without one, and returns what was enforced while it got in.
fn migrate(quotas: &mut [NativeQuota], need: &Need, budget: &Budget) -> Vec<Vec<String>> {
    match plan(need, quotas, budget) {
        Plan::Fits { .. } => {}
        decided => raise(quotas, &raises(decided)),
    }
    let enforced = quotas.iter().map(|quota| texts(&quota.status_hard)).collect();
    assert!(matches!(plan(need, quotas, &Budget::default()), Plan::Fits { .. }));
    admit(quotas, need);
    restore(quotas);
    enforced
}

/// Harvester scenario A: a quota whose status was once set below its spec.
#[test]
fn a_status_below_the_spec_is_raised_to_an_exact_fit() {
    let mut rq = quota(
        "default-4tmmk",
        &[("limits.cpu", "30"), ("limits.memory", "60Gi")],
        &[("limits.cpu", "28505m"), ("limits.memory", "62900279552")],
    );
    rq.status_hard = amounts(&[("limits.cpu", "26"), ("limits.memory", "54242646Ki")]);
    let need = need(&[("limits.cpu", "4015m"), ("limits.memory", "8940039936")]);
    let raised = raises(plan(&need, &[rq], &unlimited()));
    assert_eq!(texts(&raised[0].hard), ["limits.cpu=32520m", "limits.memory=70156562Ki"]);
}

/// Harvester scenario B: one VM in a wide quota needs nothing.
#[test]
fn a_wide_quota_is_left_alone() {
    let hard = [
        ("configmaps", "15"),
        ("limits.cpu", "30"),
        ("limits.memory", "60Gi"),
        ("persistentvolumeclaims", "75"),
        ("pods", "50"),
        ("requests.cpu", "30"),
        ("requests.memory", "60Gi"),
        ("requests.storage", "320Gi"),
        ("services.nodeports", "15"),
    ];
    let used = [
        ("limits.cpu", "2"),
        ("limits.memory", "4531245057"),
        ("pods", "1"),
        ("requests.cpu", "125m"),
        ("requests.memory", "3098890241"),
    ];
    let quotas = [quota("default-gn4d2", &hard, &used)];
    // Keys of other objects have no usage here, which does not concern a pod.
    assert_eq!(plan(&need(&used), &quotas, &Budget::default()), Plan::Fits { tight: false });
}

/// Harvester scenario D: four VMs of a full quota at once, every source still counted.
#[test]
fn four_migrations_of_a_full_quota_pass_one_after_the_other() {
    let full = [("limits.cpu", "4"), ("limits.memory", "9490309124")];
    let mut quotas = [quota("rq", &full, &full)];
    let vm = need(&[("limits.cpu", "1"), ("limits.memory", "2372577281")]);
    let steps: Vec<Vec<String>> = (0..4).map(|_| migrate(&mut quotas, &vm, &unlimited()).remove(0)).collect();
    assert_eq!(steps[0], ["limits.cpu=5", "limits.memory=11862886405"]);
    assert_eq!(steps[3], ["limits.cpu=8", "limits.memory=18980618248"]);
    assert_eq!(texts(&quotas[0].status_hard), ["limits.cpu=4", "limits.memory=9490309124"]);
}

/// Harvester scenario E: `requests.*` are raised too, not only `limits.*`.
#[test]
fn every_exceeded_key_is_raised() {
    let hard = [
        ("limits.cpu", "3"),
        ("limits.memory", "4404019200"),
        ("pods", "3"),
        ("requests.cpu", "3"),
        ("requests.memory", "4200Mi"),
    ];
    let used = [
        ("limits.cpu", "3"),
        ("limits.memory", "3892310016"),
        ("pods", "3"),
        ("requests.cpu", "186m"),
        ("requests.memory", "2750460Ki"),
    ];
    let mut quotas = [quota("default-gn4d2", &hard, &used)];
    let vm = need(&[
        ("limits.cpu", "1"),
        ("limits.memory", "1297436672"),
        ("pods", "1"),
        ("requests.cpu", "62m"),
        ("requests.memory", "916820Ki"),
    ]);
    let steps: Vec<Vec<String>> = (0..3).map(|_| migrate(&mut quotas, &vm, &unlimited()).remove(0)).collect();
    assert_eq!(
        steps[0],
        ["limits.cpu=4", "limits.memory=5189746688", "pods=4", "requests.cpu=3", "requests.memory=4200Mi"]
    );
    assert_eq!(
        steps[1],
        ["limits.cpu=5", "limits.memory=6487183360", "pods=5", "requests.cpu=3", "requests.memory=4584100Ki"]
    );
    assert_eq!(
        steps[2],
        ["limits.cpu=6", "limits.memory=7784620032", "pods=6", "requests.cpu=3", "requests.memory=5500920Ki"]
    );
}

/// Harvester scenario F: somebody reverts the quota between two migrations.
#[test]
fn a_revert_in_between_costs_nothing() {
    let hard = [("limits.cpu", "30"), ("limits.memory", "60Gi")];
    let mut quotas =
        [quota("default-xt5b2", &hard, &[("limits.cpu", "28405m"), ("limits.memory", "62820279552")])];
    let vm = need(&[("limits.cpu", "4015m"), ("limits.memory", "8940039936")]);
    for expected in [["32420m", "70078437Ki"], ["36435m", "80700359424"]] {
        let raised = raises(plan(&vm, &quotas, &unlimited()));
        raise(&mut quotas, &raised);
        assert_eq!(quotas[0].status_hard.values().map(Quantity::to_string).collect::<Vec<_>>(), expected);
        restore(&mut quotas);
        assert_eq!(texts(&quotas[0].status_hard), ["limits.cpu=30", "limits.memory=60Gi"]);
        // The same decision again, as if nothing had been there: it depends on nothing but the quota.
        assert_eq!(raises(plan(&vm, &quotas, &unlimited())), raised);
        raise(&mut quotas, &raised);
        admit(&mut quotas, &vm);
        restore(&mut quotas);
    }
}

/// Harvester §1.2, tests 1, 2 and 4: base, usage before, the target, and what is enforced in each window.
#[test]
fn a_raised_overhead_ratio_stops_no_migration() {
    let cases: [(&str, &str, &[(&str, &str)]); 3] = [
        ("5000Mi", "4797464313", &[("4797464313", "9594928626")]),
        ("5000Mi", "4797464313", &[("5682461313", "10479925626"), ("5682461313", "11364922626")]),
        ("6000Mi", "5682461313", &[("5682461313", "11364922626"), ("5682461313", "11364922626")]),
    ];
    for (base, used, windows) in cases {
        let hard = [("limits.cpu", "3"), ("limits.memory", base)];
        let mut quotas = [quota("default-z4g94", &hard, &[("limits.cpu", "2015m"), ("limits.memory", used)])];
        for (target, enforced) in windows {
            let vm = need(&[("limits.cpu", "2015m"), ("limits.memory", target)]);
            let steps = migrate(&mut quotas, &vm, &unlimited());
            assert_eq!(steps[0], ["limits.cpu=4030m".to_owned(), format!("limits.memory={enforced}")]);
            // The source is gone; only the target is counted.
            quotas[0].used = amounts(&[("limits.cpu", "2015m"), ("limits.memory", target)]);
        }
    }
}

/// Harvester §1.2, test 4: a further migration while the last source is still counted.
#[test]
fn a_source_that_is_still_counted_stops_no_migration() {
    let hard = [("limits.cpu", "3"), ("limits.memory", "6000Mi")];
    let mut quotas = [quota("rq", &hard, &[("limits.cpu", "4030m"), ("limits.memory", "11364922626")])];
    let vm = need(&[("limits.cpu", "2015m"), ("limits.memory", "5682461313")]);
    let steps = migrate(&mut quotas, &vm, &unlimited());
    assert_eq!(steps[0], ["limits.cpu=6045m", "limits.memory=17047383939"]);
}

/// Harvester §1.2, test 3: without a grant the quota refuses as ever.
#[test]
fn nothing_is_raised_without_a_grant() {
    let quotas = [quota("rq", &[("limits.memory", "5000Mi")], &[("limits.memory", "0")])];
    let missing = shortages(plan(&need(&[("limits.memory", "5682461313")]), &quotas, &Budget::default()));
    assert_eq!(missing[0].missing, quantity("439581313"));
    assert_eq!(missing[0].additional, None);
    assert!(sentence("mig", "vm1", &missing).contains("head-room grants nothing, missing 439581313"));
}

/// managed-tenant-quota F4 to F11: each key alone, quota and grant as large as the source pod; under every name.
#[test]
fn a_grant_of_the_source_pods_size_is_enough_for_any_key() {
    let cases = [
        (["memory", "requests.memory"], "584978113"),
        (["limits.memory", "limits.memory"], "512Mi"),
        (["cpu", "requests.cpu"], "105m"),
        (["limits.cpu", "limits.cpu"], "2"),
        (["ephemeral-storage", "requests.ephemeral-storage"], "50M"),
        (["pods", "pods"], "1"),
        (["count/pods", "count/pods"], "1"),
        (["hugepages-2Mi", "requests.hugepages-2Mi"], "64Mi"),
        (["requests.nvidia.com/gpu", "requests.nvidia.com/gpu"], "1"),
        (["requests.cpu/vmi", "requests.cpu/vmi"], "1"),
    ];
    for (names, amount) in cases {
        for (limited, granted) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let full = [(names[limited], amount)];
            let mut quotas = [quota("rq", &full, &full)];
            let budget = vmmrq(&[(names[granted], amount)]);
            migrate(&mut quotas, &need(&full), &budget);
            let missing = shortages(plan(&need(&full), &quotas, &budget));
            assert_eq!(missing[0].missing, quantity(amount), "the source is still counted");
        }
    }
}

/// managed-tenant-quota F12: one quota, several keys.
#[test]
fn several_keys_of_one_quota_are_raised_together() {
    let full = [("limits.cpu", "2"), ("requests.cpu", "105m"), ("requests.memory", "584978113")];
    let quotas = [quota("rq", &full, &full)];
    let raised = raises(plan(&need(&full), &quotas, &vmmrq(&full)));
    assert_eq!(texts(&raised[0].hard), ["limits.cpu=4", "requests.cpu=210m", "requests.memory=1169956226"]);
    // A grant that lacks one of the keys raises none.
    let missing = shortages(plan(&need(&full), &quotas, &vmmrq(&full[..2])));
    assert_eq!(missing.iter().map(|s| &*s.key).collect::<Vec<_>>(), ["requests.memory"]);
}

/// managed-tenant-quota F13: four migrations share one budget of four pods.
#[test]
fn a_budget_of_four_pods_lets_four_targets_in() {
    let full = [("requests.memory", "2339912452")];
    let mut quotas = [quota("rq", &full, &full)];
    let vm = need(&[("requests.memory", "584978113")]);
    for _ in 0..4 {
        migrate(&mut quotas, &vm, &vmmrq(&full));
    }
    assert_eq!(shortages(plan(&vm, &quotas, &vmmrq(&full)))[0].missing, quantity("584978113"));
}

/// managed-tenant-quota F14 and F17: three quotas with a key each.
#[test]
fn several_quotas_are_raised_together() {
    let full = [("ephemeral-storage", "50M"), ("requests.cpu", "105m"), ("requests.memory", "584978113")];
    let quotas: Vec<NativeQuota> =
        full.iter().rev().map(|entry| quota(&format!("rq-{}", entry.0), &[*entry], &[*entry])).collect();
    let raised = raises(plan(&need(&full), &quotas, &vmmrq(&full)));
    let names: Vec<&str> = raised.iter().map(|raise| &*raise.quota).collect();
    assert_eq!(names, ["rq-ephemeral-storage", "rq-requests.cpu", "rq-requests.memory"]);
    assert_eq!(texts(&raised[2].hard), ["requests.memory=1169956226"]);
}

/// managed-tenant-quota F15: short by a thousandth of a byte.
#[test]
fn a_thousandth_of_a_byte_is_missing() {
    let full = [("requests.memory", "584978113")];
    let quotas = [quota("rq", &full, &full)];
    let missing = shortages(plan(&need(&full), &quotas, &vmmrq(&[("requests.memory", "584978112999m")])));
    assert_eq!(missing[0].missing.to_string(), "1m");
    assert!(matches!(plan(&need(&full), &quotas, &vmmrq(&full)), Plan::Raise(_)));
}

#[test]
fn the_sentence_names_everything_that_is_needed_to_act() {
    let quotas = [quota("rq", &[("requests.memory", "700Mi")], &[("requests.memory", "584978113")])];
    let missing = shortages(plan(
        &need(&[("requests.memory", "584978113")]),
        &quotas,
        &vmmrq(&[("requests.memory", "100Mi")]),
    ));
    assert_eq!(
        sentence("mig", "web", &missing),
        "migration mig of vm web needs requests.memory=584978113 more in quota rq (used 584978113, hard 700Mi); \
         head-room grants 100Mi (VirtualMachineMigrationResourceQuota a), missing 331095426"
    );
    let many: Vec<Shortage> = (0..7).map(|_| missing[0].clone()).collect();
    let text = sentence("mig", "web", &many);
    assert_eq!(text.matches("missing 331095426").count(), 4);
    assert!(text.ends_with("; and 3 more"), "{text}");
}

#[test]
fn a_pool_is_smaller_by_what_others_have_taken() {
    let full = [("memory", "1Gi")];
    let quotas = [quota("rq", &full, &full)];
    let pool = |taken: &str| Budget {
        grants: vec![Grant::Pool {
            source: "HeadroomPolicy pool".into(),
            additional: amounts(&[("requests.memory", "2Gi")]),
            taken_elsewhere: amounts(&[("memory", taken)]),
        }],
    };
    assert!(matches!(plan(&need(&full), &quotas, &pool("1Gi")), Plan::Raise(_)));
    let missing = shortages(plan(&need(&full), &quotas, &pool("1536Mi")));
    assert_eq!(missing[0].missing, quantity("512Mi"));
    assert!(sentence("mig", "web", &missing).contains(
        "head-room grants 2Gi (HeadroomPolicy pool, 1536Mi of it taken in other namespaces), missing 512Mi"
    ));
    // A pool that is overdrawn has nothing left, not less than nothing.
    assert_eq!(shortages(plan(&need(&full), &quotas, &pool("9Gi")))[0].missing, quantity("1Gi"));
}

#[test]
fn one_grant_alone_has_to_be_enough() {
    let full = [("cpu", "2"), ("memory", "1Gi")];
    let quotas = [quota("rq", &full, &full)];
    let grant = |source: &str, additional: &[(&str, &str)]| Grant::Amounts {
        source: source.into(),
        additional: amounts(additional),
    };
    let halves = vec![grant("cpu", &full[..1]), grant("memory", &full[1..])];
    let missing = shortages(plan(&need(&full), &quotas, &Budget { grants: halves.clone() }));
    assert_eq!(missing.len(), 1, "one key is missing with either, and the first is named");
    assert_eq!(missing[0].source.as_deref(), Some("memory"), "less is missing than with the other: 2 < 1Gi");
    let mut grants = halves;
    grants.push(grant("both", &full));
    assert!(matches!(plan(&need(&full), &quotas, &Budget { grants }), Plan::Raise(_)));
}

#[test]
fn an_exception_takes_a_quota_out_of_a_grant() {
    let full = [("cpu", "2")];
    let quotas = [quota("kept", &full, &full), quota("raised", &full, &full)];
    let grant = Box::new(Grant::Unlimited { source: "HeadroomPolicy all".into() });
    let budget = Budget { grants: vec![Grant::Except { quotas: vec!["kept".into()], grant }] };
    assert!(matches!(plan(&need(&full), &quotas[1..], &budget), Plan::Raise(_)));
    let missing = shortages(plan(&need(&full), &quotas, &budget));
    assert_eq!((missing.len(), &*missing[0].quota, missing[0].additional), (1, "kept", None));
}

#[test]
fn grants_of_one_namespace_add_up_and_names_of_one_number_do_not() {
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let first =
        amounts(&[("memory", "1Gi"), ("requests.memory", "1Gi"), ("requests.cpu", "1"), ("pods", "-1")]);
    let second = amounts(&[("requests.memory", "1500m"), ("limits.cpu", "0")]);
    let sum = sum_of_vmmrqs([(&a, &first), (&b, &second)]);
    assert_eq!(texts(&sum.additional), ["cpu=1", "limits.cpu=0", "memory=1073741825500m"]);
    let errors: Vec<String> = sum.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["a: spec.additionalMigrationResources[pods]: -1 is ignored: it must not be below 0"]);
    let huge = amounts(&[("cpu", "1.7e29")]);
    let sum = sum_of_vmmrqs([(&a, &huge), (&b, &huge)]);
    assert_eq!(sum.additional["cpu"].nanos(), i128::MAX, "a sum that does not fit is as good as no limit");
}

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
    // A limit that nobody wants any more, and one that cannot be read.
    let mut stray = quota("rq", &[], &[("cpu", "1")]);
    stray.status_hard = amounts(&[("cpu", "1")]);
    assert!(matches!(
        plan(&vm, &[stray.clone()], &unlimited()),
        Plan::Refused(list) if matches!(&list[..], [Refusal::NotSynced { .. }])
    ));
    assert!(stray.is_raised());
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
    assert_eq!(texts(&raised[0].hard), ["cpu=2"]);
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
