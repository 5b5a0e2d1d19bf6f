//! What a budget allows, and what is said when it does not.

use super::*;

/// Harvester 1.7, test 3 (`docs/predecessors.md`, *Scenarios*): without a grant the quota refuses as ever.
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
    assert_eq!(set(&raised[0]), ["limits.cpu=4", "requests.cpu=210m", "requests.memory=1169956226"]);
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
    assert_eq!(set(&raised[2]), ["requests.memory=1169956226"]);
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
            per_namespace: amounts(&[]),
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
fn a_namespace_may_have_no_more_of_a_pool_than_its_part() {
    let hard = [("memory", "1Gi"), ("cpu", "1")];
    let pool = |most: &[(&str, &str)]| Budget {
        grants: vec![Grant::Pool {
            source: "HeadroomPolicy pool".into(),
            additional: amounts(&[("requests.memory", "4Gi"), ("cpu", "8")]),
            taken_elsewhere: amounts(&[("memory", "1Gi")]),
            per_namespace: amounts(most),
        }],
    };
    let used = [("memory", "2Gi"), ("cpu", "2")];
    let quotas = [quota("rq", &hard, &used)];
    let target = need(&hard);
    assert!(
        matches!(plan(&target, &quotas, &pool(&[])), Plan::Raise(_)),
        "2Gi above 1Gi, 3Gi of the pool are left"
    );
    assert!(matches!(plan(&target, &quotas, &pool(&[("memory", "2Gi")])), Plan::Raise(_)));
    let missing = shortages(plan(&target, &quotas, &pool(&[("memory", "1536Mi")])));
    assert_eq!((missing.len(), missing[0].missing), (1, quantity("512Mi")), "a key without a part has none");
}

/// As users ask of KubeVirt: so much of each quota's own limit.
#[test]
fn a_budget_may_be_a_part_of_each_quotas_own_limit() {
    let percent = |percent, additional: &[(&str, &str)]| Budget {
        grants: vec![Grant::Amounts {
            source: "p".into(),
            additional: amounts(additional),
            percent: Some(percent),
        }],
    };
    let full = [("limits.cpu", "10"), ("requests.memory", "10Gi")];
    let quotas = [quota("rq", &full, &full)];
    let target = need(&[("limits.cpu", "3"), ("requests.memory", "3Gi")]);
    assert!(matches!(plan(&target, &quotas, &percent(30, &[])), Plan::Raise(_)));
    let missing = shortages(plan(&target, &quotas, &percent(29, &[])));
    assert_eq!(
        missing.iter().map(|it| it.missing).collect::<Vec<_>>(),
        [quantity("100m"), quantity("107374182400m")]
    );
    // Fixed amounts count where they are larger.
    let missing = shortages(plan(&target, &quotas, &percent(29, &[("limits.cpu", "3"), ("memory", "1Gi")])));
    assert_eq!((missing.len(), &*missing[0].key), (1, "requests.memory"));
}

#[test]
fn one_grant_alone_has_to_be_enough() {
    let full = [("cpu", "2"), ("memory", "1Gi")];
    let quotas = [quota("rq", &full, &full)];
    let grant = |source: &str, additional: &[(&str, &str)]| Grant::Amounts {
        source: source.into(),
        additional: amounts(additional),
        percent: None,
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
