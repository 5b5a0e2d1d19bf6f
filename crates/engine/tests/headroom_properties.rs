//! Laws of head-room that hold for all inputs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

#[path = "common/headroom.rs"]
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{admit, raise, restore};
use proptest::prelude::*;
use sluice_engine::headroom::{
    Amounts, Budget, Grant, MARK, NativeQuota, Need, Plan, Raise, RaisedKey, plan, reserve,
};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};

const KEYS: [&str; 9] = [
    "cpu",
    "requests.cpu",
    "memory",
    "requests.memory",
    "limits.memory",
    "pods",
    "count/pods",
    "requests.nvidia.com/gpu",
    "services",
];

fn amount() -> impl Strategy<Value = Quantity> {
    let nanos = prop_oneof![0_i128..4, 0_i128..2_000_000_000, 0_i128..1 << 70];
    let format = prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi)];
    (nanos, format).prop_map(|(nanos, format)| Quantity::from_nanos(nanos, format))
}

/// Limits and usage by key; sometimes less than nothing is used.
fn quota(number: usize) -> impl Strategy<Value = NativeQuota> {
    let line = (amount(), amount(), any::<bool>());
    prop::collection::btree_map(prop::sample::select(&KEYS[..]), line, 0..5).prop_map(move |lines| {
        let mut quota = NativeQuota::new(format!("rq-{number}"), Uid::parse(&number.to_string()));
        for (key, (hard, used, negative)) in lines {
            let used = if negative { Quantity::from_nanos(-used.nanos() % 7, used.format()) } else { used };
            quota.spec_hard.insert(key.into(), hard);
            quota.used.insert(key.into(), used);
        }
        quota.status_hard = quota.spec_hard.clone();
        quota
    })
}

fn quotas() -> impl Strategy<Value = Vec<NativeQuota>> {
    (quota(0), quota(1), quota(2)).prop_map(|(a, b, c)| vec![a, b, c])
}

fn need() -> impl Strategy<Value = Need> {
    prop::collection::vec((prop::sample::select(&KEYS[..8]), amount()), 0..5).prop_map(|list| {
        let by_resource: BTreeMap<Resource, Amount> =
            list.into_iter().map(|(key, amount)| (Resource::from_quota_key(key), amount.into())).collect();
        Need::new(Charge::from_pairs(by_resource), ScopeFacts::default())
    })
}

fn grant() -> impl Strategy<Value = Amounts> {
    prop::collection::btree_map(prop::sample::select(&KEYS[..]).prop_map(Arc::from), amount(), 0..6)
}

fn unlimited() -> Budget {
    Budget { grants: vec![Grant::Unlimited { source: "all".into() }] }
}

fn granted(additional: Amounts) -> Budget {
    Budget { grants: vec![Grant::Amounts { source: "a".into(), additional, percent: None }] }
}

fn fits(plan: &Plan) -> bool {
    matches!(plan, Plan::Fits { .. })
}

/// Quota admission written anew, key by key, with both names of everything that has two.
fn admits(quotas: &[NativeQuota], need: &Need) -> bool {
    let mut usage: BTreeMap<String, i128> = BTreeMap::new();
    for (resource, amount) in need.charge.iter() {
        usage.insert(resource.key().to_owned(), amount.nanos());
        if matches!(resource, Resource::Cpu | Resource::Memory) {
            usage.insert(format!("requests.{}", resource.key()), amount.nanos());
        }
    }
    quotas.iter().all(|quota| {
        usage.iter().filter(|(_, amount)| **amount != 0).all(|(key, amount)| {
            quota.status_hard.get(key.as_str()).is_none_or(|hard| {
                quota.used.get(key.as_str()).is_some_and(|used| used.nanos() + amount <= hard.nanos())
            })
        })
    })
}

fn by_name(mut raises: Vec<Raise>) -> Vec<Raise> {
    raises.sort_by(|a, b| a.quota.cmp(&b.quota));
    raises
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_plan_says_fits_exactly_when_quota_admission_would(quotas in quotas(), need in need()) {
        prop_assert_eq!(fits(&plan(&need, &quotas, &unlimited())), admits(&quotas, &need));
    }

    #[test]
    fn tight_means_that_a_second_pod_would_not_fit(mut quotas in quotas(), need in need()) {
        if let Plan::Fits { tight } = plan(&need, &quotas, &unlimited()) {
            admit(&mut quotas, &need);
            prop_assert_eq!(tight, !admits(&quotas, &need));
        }
    }

    #[test]
    fn a_raise_is_exactly_enough(quotas in quotas(), need in need()) {
        let decided = plan(&need, &quotas, &unlimited());
        prop_assert!(!matches!(decided, Plan::NotEnough(_) | Plan::Refused(_)), "{:?}", decided);
        let Plan::Raise(raises) = decided else { return Ok(()) };
        let mut raised = quotas.clone();
        raise(&mut raised, &raises);
        prop_assert!(fits(&plan(&need, &raised, &Budget::default())));
        for raise in &raises {
            let position = quotas.iter().position(|quota| quota.uid == raise.uid).unwrap();
            let before = &quotas[position];
            for RaisedKey { key, from, to: hard } in &raise.keys {
                prop_assert_eq!(from, &before.status_hard[key]);
                prop_assert!(hard > from, "never lower");
                let needed = need.charge.get(&Resource::from_quota_key(key)).unwrap();
                prop_assert_eq!(hard.nanos(), before.used[key].nanos() + needed.nanos());
                prop_assert_eq!(Quantity::parse(&hard.to_string()), Ok(*hard), "its text says the same");
                let mut less = raised.clone();
                let short = Quantity::from_nanos(hard.nanos() - 1, hard.format());
                less[position].status_hard.insert(Arc::clone(key), short);
                prop_assert!(!fits(&plan(&need, &less, &Budget::default())), "one nano less is not enough");
            }
        }
        restore(&mut raised);
        prop_assert_eq!(raised, quotas, "a restore leaves nothing behind");
    }

    #[test]
    fn what_is_reserved_is_raised_exactly_or_only_marked_and_its_restore_leaves_nothing(quotas in quotas(), need in need()) {
        let reserved = reserve(&need, &quotas);
        let mut raised = quotas.clone();
        raise(&mut raised, &reserved);
        prop_assert!(admits(&raised, &need));
        let mut twice = quotas.clone();
        admit(&mut twice, &need);
        for (before, quota) in quotas.iter().zip(&mut raised) {
            let alone = reserve(&need, std::slice::from_ref(before));
            let marked = reserved.iter().find(|raise| raise.uid == before.uid);
            prop_assert_eq!(alone.first(), marked, "each on its own");
            let second = twice.iter().find(|quota| quota.uid == before.uid).unwrap();
            prop_assert!(marked.is_some() || admits(std::slice::from_ref(second), &need), "a second one fits");
            quota.status_hard.insert(MARK.into(), Quantity::from_units(1, Format::DecimalSi));
        }
        let mut charged = raised.clone();
        admit(&mut charged, &need);
        prop_assert!(charged.iter().all(|quota| quota.is_charged() != Some(false)));
        restore(&mut raised);
        prop_assert_eq!(raised, quotas);
    }

    #[test]
    fn quotas_are_judged_each_on_its_own(quotas in quotas(), need in need(), additional in grant()) {
        let budget = granted(additional);
        let alone: Vec<Plan> =
            quotas.iter().map(|quota| plan(&need, std::slice::from_ref(quota), &budget)).collect();
        let missing: Vec<_> = alone
            .iter()
            .filter_map(|plan| if let Plan::NotEnough(list) = plan { Some(list.clone()) } else { None })
            .flatten()
            .collect();
        let raised: Vec<_> = alone
            .iter()
            .filter_map(|plan| if let Plan::Raise(list) = plan { Some(list.clone()) } else { None })
            .flatten()
            .collect();
        match plan(&need, &quotas, &budget) {
            Plan::Fits { tight } => {
                prop_assert!(alone.iter().all(fits));
                prop_assert_eq!(tight, alone.contains(&Plan::Fits { tight: true }));
            }
            Plan::Raise(list) => {
                prop_assert!(missing.is_empty());
                prop_assert_eq!(by_name(list), by_name(raised));
            }
            Plan::NotEnough(list) => prop_assert_eq!(list, missing),
            Plan::Refused(list) => prop_assert!(false, "{:?}", list),
        }
    }

    #[test]
    fn what_is_missing_is_exactly_what_has_to_be_granted(quotas in quotas(), need in need(), additional in grant()) {
        let Plan::NotEnough(shortages) = plan(&need, &quotas, &granted(additional.clone())) else {
            return Ok(());
        };
        // By the short names, so that each resource has one amount.
        let mut enough: BTreeMap<Resource, Quantity> = BTreeMap::new();
        for (key, amount) in &additional {
            let most = enough.entry(Resource::from_quota_key(key)).or_insert(*amount);
            *most = (*most).max(*amount);
        }
        let mut missing: BTreeMap<Resource, Quantity> = BTreeMap::new();
        for shortage in &shortages {
            prop_assert!(shortage.missing > Quantity::ZERO);
            let most = missing.entry(Resource::from_quota_key(&shortage.key)).or_insert(shortage.missing);
            *most = (*most).max(shortage.missing);
        }
        for (resource, amount) in &missing {
            let sum = enough.get(resource).copied().unwrap_or(Quantity::ZERO).checked_add(*amount).unwrap();
            enough.insert(resource.clone(), sum);
        }
        let named = |by: &BTreeMap<Resource, Quantity>| -> Amounts {
            by.iter().map(|(resource, amount)| (Arc::from(resource.key()), *amount)).collect()
        };
        prop_assert!(matches!(plan(&need, &quotas, &granted(named(&enough))), Plan::Raise(_)));
        for resource in missing.keys() {
            let mut short = enough.clone();
            let less = Quantity::from_nanos(short[resource].nanos() - 1, Format::DecimalSi);
            short.insert(resource.clone(), less);
            prop_assert!(matches!(plan(&need, &quotas, &granted(named(&short))), Plan::NotEnough(_)));
        }
    }

    #[test]
    fn more_grants_never_hurt(quotas in quotas(), need in need(), first in grant(), second in grant()) {
        let alone = plan(&need, &quotas, &granted(first.clone()));
        let mut both = granted(first);
        both.grants.extend(granted(second).grants);
        let together = plan(&need, &quotas, &both);
        match (&alone, &together) {
            (Plan::NotEnough(one), Plan::NotEnough(two)) => prop_assert!(two.len() <= one.len()),
            (Plan::NotEnough(_), Plan::Raise(_)) => {}
            _ => prop_assert_eq!(alone, together),
        }
    }

    #[test]
    fn one_after_the_other_takes_the_sum(quotas in quotas(), need in need(), times in 1_i128..5) {
        let mut now = quotas.clone();
        for _ in 0..times {
            if let Plan::Raise(raises) = plan(&need, &now, &unlimited()) {
                raise(&mut now, &raises);
            }
            prop_assert!(admits(&now, &need));
            admit(&mut now, &need);
            restore(&mut now);
        }
        for (before, after) in quotas.iter().zip(&now) {
            prop_assert_eq!(&before.status_hard, &after.status_hard);
            for (key, used) in &before.used {
                let each = need.charge.get(&Resource::from_quota_key(key)).map_or(0, Amount::nanos);
                prop_assert_eq!(after.used[key].nanos(), used.nanos() + times * each);
            }
        }
    }
}
