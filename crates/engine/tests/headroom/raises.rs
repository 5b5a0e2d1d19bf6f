//! What is raised, and how far.

use super::*;

/// Harvester scenario A (`docs/predecessors.md`, *Scenarios*): a quota whose status was once set below its spec.
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
    assert_eq!(set(&raised[0]), ["limits.cpu=32520m", "limits.memory=70156562Ki"]);
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

/// Harvester scenario F: Rancher reverts the quota between two migrations.
#[test]
fn a_revert_in_between_costs_nothing() {
    let hard = [("limits.cpu", "30"), ("limits.memory", "60Gi")];
    let mut quotas =
        [quota("default-xt5b2", &hard, &[("limits.cpu", "28405m"), ("limits.memory", "62820279552")])];
    let vm = need(&[("limits.cpu", "4015m"), ("limits.memory", "8940039936")]);
    for expected in [["32420m", "70078437Ki"], ["36435m", "80700359424"]] {
        let raised = raises(plan(&vm, &quotas, &unlimited()));
        raise(&mut quotas, &raised);
        assert_eq!(
            texts(&quotas[0].status_hard),
            [format!("limits.cpu={}", expected[0]), format!("limits.memory={}", expected[1])]
        );
        restore(&mut quotas);
        assert_eq!(texts(&quotas[0].status_hard), ["limits.cpu=30", "limits.memory=60Gi"]);
        // The same decision again, as if nothing had been there: it depends on nothing but the quota.
        assert_eq!(raises(plan(&vm, &quotas, &unlimited())), raised);
        raise(&mut quotas, &raised);
        admit(&mut quotas, &vm);
        restore(&mut quotas);
    }
}

/// What the target takes, and what is enforced while it gets in.
type Windows = &'static [(&'static str, &'static str)];

/// Harvester 1.7, tests 1, 2 and 4: base, usage before, the target, and what is enforced in each window.
#[test]
fn a_raised_overhead_ratio_stops_no_migration() {
    let cases: [(&str, &str, Windows); 3] = [
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

/// Harvester 1.7, test 4: a further migration while the last source is still counted.
#[test]
fn a_source_that_is_still_counted_stops_no_migration() {
    let hard = [("limits.cpu", "3"), ("limits.memory", "6000Mi")];
    let mut quotas = [quota("rq", &hard, &[("limits.cpu", "4030m"), ("limits.memory", "11364922626")])];
    let vm = need(&[("limits.cpu", "2015m"), ("limits.memory", "5682461313")]);
    let steps = migrate(&mut quotas, &vm, &unlimited());
    assert_eq!(steps[0], ["limits.cpu=6045m", "limits.memory=17047383939"]);
}

/// A managed quota has no key that pods take, so whatever it says it is neither raised nor marked, nor in the way.
#[test]
fn a_managed_quota_is_no_obstacle_and_is_left_alone() {
    let keys = [
        "services",
        "count/secrets",
        "persistentvolumeclaims",
        "gold.storageclass.storage.k8s.io/requests.storage",
    ];
    let hard = keys.map(|key| (key, "1"));
    assert!(keys.iter().all(|key| sluice_engine::managed::is_managed(key, &Default::default())));
    let over = keys.map(|key| (key, "7"));
    let full = [("requests.memory", "512Mi")];
    // Full, overdrawn, not counted yet, and not even known to kube-controller-manager.
    let mut unsynced = quota("d", &hard, &[]);
    unsynced.status_hard.clear();
    let managed = [quota("a", &hard, &hard), quota("b", &hard, &over), quota("c", &hard, &[]), unsynced];
    let quotas = [&managed[..], &[quota("rq", &full, &full)]].concat();
    let target = need(&full);
    let raised = raises(plan(&target, &quotas, &vmmrq(&full)));
    assert_eq!(raised.iter().map(|raise| &*raise.quota).collect::<Vec<_>>(), ["rq"]);
    assert_eq!(reserve(&target, &quotas).iter().map(|raise| &*raise.quota).collect::<Vec<_>>(), ["rq"]);
    assert_eq!(plan(&target, &managed, &Budget::default()), Plan::Fits { tight: false });
    assert!(reserve(&target, &managed).is_empty());
}
