//! Laws that hold for all inputs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use proptest::prelude::*;
use sluice_engine::charge::{Amount, Charge};
use sluice_engine::pod::{
    ActuatedResources, ChargeRules, Container, ContainerStatus, PodInput, ResourceList, Resources, counts,
    pod_charge,
};
use sluice_engine::quantity::{Format, Quantity};
use sluice_engine::quota_spec::{RawQuotaSpec, ScopeRequirementText, compile, validate};
use sluice_engine::resource::{Resource, key_kind};

const NAMES: [&str; 6] =
    ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "kubernetes.io/x"];
/// Above this Kubernetes caps binary quantities when it reads them.
const BINARY_CAP: i128 = i64::MAX as i128 * 1_000_000_000;
const CONTAINERS: [&str; 4] = ["a", "b", "c", "d"];

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)]
}

/// Quantities up to what Kubernetes can print in every format, round ones included.
fn any_quantity() -> impl Strategy<Value = Quantity> {
    let factor = prop_oneof![
        (0_u32..=27).prop_map(|n| 10_i128.pow(n)),
        (0_u32..=6).prop_map(|n| 1_000_000_000 << (10 * n)),
    ];
    (-2_000_000_i128..2_000_000, factor, format())
        .prop_map(|(mantissa, factor, format)| Quantity::from_nanos(mantissa * factor, format))
}

fn list() -> impl Strategy<Value = ResourceList<'static>> {
    let amount = prop_oneof![0_i64..4, 0_i64..1_000_000];
    prop::collection::vec((prop::sample::select(&NAMES[..]), amount), 0..4).prop_map(|amounts| {
        let quantities =
            amounts.into_iter().map(|(name, units)| (name, Quantity::from_units(units, Format::DecimalSi)));
        quantities.collect()
    })
}

fn resources() -> impl Strategy<Value = Resources<'static>> {
    (list(), list()).prop_map(|(requests, limits)| Resources { requests, limits })
}

fn containers(names: &'static [&'static str]) -> impl Strategy<Value = Vec<Container<'static>>> {
    prop::collection::vec((resources(), any::<bool>()), 0..=names.len()).prop_map(move |all| {
        let named = all.into_iter().zip(names);
        named.map(|((resources, restartable), name)| Container { name, resources, restartable }).collect()
    })
}

fn statuses() -> impl Strategy<Value = Vec<ContainerStatus<'static>>> {
    let actuated = (prop::option::of(list()), prop::option::of(list()))
        .prop_map(|(requests, limits)| ActuatedResources { requests, limits });
    let status =
        (prop::sample::select(&CONTAINERS[..]), prop::option::of(actuated), prop::option::of(list()));
    prop::collection::vec(status, 0..5).prop_map(|all| {
        let status = |(name, actuated, allocated)| ContainerStatus { name, actuated, allocated };
        all.into_iter().map(status).collect()
    })
}

fn any_pod() -> impl Strategy<Value = PodInput<'static>> {
    let parts = (containers(&CONTAINERS[..2]), containers(&CONTAINERS[2..]), list());
    (parts, prop::option::of(resources()), statuses(), any::<bool>()).prop_map(
        |((containers, init_containers, overhead), pod_resources, statuses, resize_infeasible)| PodInput {
            containers,
            init_containers,
            overhead,
            pod_resources,
            statuses,
            resize_infeasible,
            ..PodInput::default()
        },
    )
}

fn minor() -> impl Strategy<Value = ChargeRules> {
    (33_u32..39).prop_map(ChargeRules::for_minor)
}

/// The rules of *Requests and limits of a pod* (`docs/quota-semantics.md`) for one name, once more, as a loop over
/// containers.
fn peak(pod: &PodInput<'_>, amount: impl Fn(&Container<'_>) -> Option<i128>) -> Option<i128> {
    let found = pod.containers.iter().chain(&pod.init_containers).any(|c| amount(c).is_some());
    let of = |c: &Container<'_>| amount(c).unwrap_or(0);
    let sidecars = pod.init_containers.iter().filter(|c| c.restartable).map(of).sum::<i128>();
    let mut most = pod.containers.iter().map(of).sum::<i128>() + sidecars;
    for (position, container) in pod.init_containers.iter().enumerate() {
        let before = pod.init_containers[..position].iter().filter(|c| c.restartable);
        most = most.max(before.map(of).sum::<i128>() + of(container));
    }
    found.then_some(most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printing_and_reading_keeps_the_value(quantity in any_quantity()) {
        let text = quantity.to_string();
        let read = Quantity::parse(&text).unwrap();
        if text.ends_with('i') && quantity.nanos().abs() > BINARY_CAP {
            prop_assert_eq!(read.nanos().abs(), BINARY_CAP, "Kubernetes caps what it reads");
            return Ok(());
        }
        prop_assert_eq!(read, quantity);
        // Texts without suffix and beyond `E` do not tell the format.
        let tells = text.ends_with(char::is_alphabetic) && quantity.format() != Format::DecimalExponent;
        if read.format() == quantity.format() {
            prop_assert_eq!(read.to_string(), text);
        } else {
            prop_assert!(!tells || quantity.format() == Format::BinarySi);
        }
    }

    #[test]
    fn order_is_that_of_the_values(left in any_quantity(), right in any_quantity()) {
        prop_assert_eq!(left.cmp(&right), left.nanos().cmp(&right.nanos()));
        let difference = left.checked_sub(right).unwrap();
        prop_assert_eq!(difference.is_negative(), left < right);
        prop_assert_eq!(difference.is_zero(), left == right);
    }

    #[test]
    fn sums_commute_associate_and_undo(a in any_quantity(), b in any_quantity(), c in any_quantity()) {
        let sum = |x: Quantity, y: Quantity| x.checked_add(y).unwrap();
        prop_assert_eq!(sum(a, b), sum(b, a));
        prop_assert_eq!(sum(sum(a, b), c), sum(a, sum(b, c)));
        prop_assert_eq!(sum(a, b).checked_sub(b).unwrap(), a);
        let format = if a.is_zero() { b.format() } else { a.format() };
        prop_assert_eq!(sum(a, b).format(), format);
    }

    #[test]
    fn decimal_texts_have_their_value(
        sign in "[+-]?", zeros in "0{0,30}", integer in 0_u64..1_000_000_000, fraction in "[0-9]{0,9}",
        exponent in -9_i32..=18,
    ) {
        let digits: i128 = format!("{integer}{fraction:0<9}").parse().unwrap();
        let text = format!("{sign}{zeros}{integer}.{fraction}e{exponent}");
        let read = Quantity::parse(&text).unwrap().nanos();
        let magnitude = match u32::try_from(exponent) {
            Ok(exponent) => digits * 10_i128.pow(exponent),
            Err(_) => {
                let divisor = 10_i128.pow(exponent.unsigned_abs());
                digits / divisor + i128::from(digits % divisor != 0)
            }
        };
        prop_assert_eq!(read, if sign == "-" { -magnitude } else { magnitude }, "{}", text);
    }

    #[test]
    fn no_text_panics(text in any::<String>(), near in "[-+0-9.eEinumkKMGTP ]{0,48}") {
        for text in [text, near] {
            if let Ok(read) = Quantity::parse(&text) {
                prop_assert_eq!(Quantity::parse(&read.to_string()), Ok(read));
            }
            let _ = (Quantity::parse_json_text(&text), key_kind(&text), Resource::from_quota_key(&text));
        }
    }

    #[test]
    fn without_statuses_the_charge_is_the_peak_of_the_containers(pod in any_pod(), rules in minor()) {
        let plain = PodInput {
            statuses: Vec::new(), pod_resources: None, overhead: ResourceList::default(),
            resize_infeasible: false, ..pod
        };
        let charge = pod_charge(&plain, rules, 0);
        for (name, key) in [
            ("cpu", "cpu"), ("hugepages-2Mi", "hugepages-2Mi"), ("nvidia.com/gpu", "requests.nvidia.com/gpu"),
        ] {
            let expected = peak(&plain, |c| c.resources.requests.get(name).map(Quantity::nanos));
            prop_assert_eq!(charge.get(&Resource::from_quota_key(key)).map(Amount::nanos), expected);
        }
        let expected = peak(&plain, |c| c.resources.limits.get("memory").map(Quantity::nanos));
        prop_assert_eq!(charge.get(&Resource::LimitsMemory).map(Amount::nanos), expected);
    }

    #[test]
    fn one_more_container_never_lowers_the_charge(pod in any_pod(), more in resources(), rules in minor()) {
        let mut larger = pod.clone();
        larger.containers.push(Container { name: "z", resources: more, restartable: false });
        prop_assert!(pod_charge(&larger, rules, 0).covers(&pod_charge(&pod, rules, 0)));
    }

    #[test]
    fn the_new_resize_rule_never_charges_more(pod in any_pod()) {
        // With complete statuses of running containers the two rules see the same amounts.
        let statuses = pod.containers.iter().zip(pod.statuses.iter().cycle()).map(|(container, status)| {
            ContainerStatus {
                name: container.name,
                actuated: Some(ActuatedResources {
                    requests: Some(status.allocated.clone().unwrap_or_default()),
                    limits: Some(container.resources.limits.clone()),
                }),
                allocated: Some(status.allocated.clone().unwrap_or_default()),
            }
        });
        let statuses: Vec<_> = statuses.collect();
        prop_assume!(statuses.len() == pod.containers.len());
        let running = PodInput { statuses, init_containers: Vec::new(), resize_infeasible: false, ..pod };
        let old = pod_charge(&running, ChargeRules::for_minor(36), 0);
        let new = pod_charge(&running, ChargeRules::for_minor(37), 0);
        prop_assert!(old.covers(&new), "{:?} does not cover {:?}", old, new);
        let spec_only = PodInput { statuses: Vec::new(), ..running };
        prop_assert!(new.covers(&pod_charge(&spec_only, ChargeRules::for_minor(37), 0)));
    }

    #[test]
    fn a_finished_pod_costs_only_its_object(pod in any_pod(), rules in minor(), failed in any::<bool>()) {
        let finished = PodInput { phase: Some(if failed { "Failed" } else { "Succeeded" }), ..pod };
        prop_assert!(!counts(&finished, 0));
        let object = Charge::from_pairs([(Resource::CountPods, Amount::ONE)]);
        prop_assert_eq!(pod_charge(&finished, rules, 0), object);
    }

    #[test]
    fn charges_do_not_depend_on_the_order_of_their_parts(
        parts in prop::collection::vec((prop::sample::select(&NAMES[..]), -1_000_i128..1_000), 0..12),
    ) {
        let pairs = parts.iter().map(|(n, v)| (Resource::from_quota_key(n), Amount::from_nanos(*v)));
        let charge = Charge::from_pairs(pairs.clone());
        prop_assert_eq!(&charge, &Charge::from_pairs(pairs.rev()));
        prop_assert!(charge.iter().is_sorted_by(|left, right| left.0 < right.0), "sorted, each once");
        let total: i128 = charge.iter().map(|(_, amount)| amount.nanos()).sum();
        prop_assert_eq!(total, parts.iter().map(|(_, nanos)| nanos).sum::<i128>());
    }

    #[test]
    fn no_spec_panics_and_compile_agrees_with_validate(
        hard in prop::collection::btree_map("[a-z./-]{0,12}|pods|cpu|.*", any_quantity(), 0..5),
        scopes in prop::collection::vec("BestEffort|NotBestEffort|Terminating|.{0,5}", 0..3),
        selector in prop::option::of(prop::collection::vec(
            ("PriorityClass|Terminating|.{0,5}", "In|Exists|.{0,3}", prop::collection::vec(".{0,4}", 0..3)), 0..3,
        )),
    ) {
        let texts = |(scope_name, operator, values)| ScopeRequirementText { scope_name, operator, values };
        let scope_selector = selector.map(|all| all.into_iter().map(texts).collect());
        let spec = RawQuotaSpec { hard, scopes, scope_selector };
        let errors = validate(&spec);
        match compile(&spec) {
            Ok(quota) => {
                prop_assert!(errors.is_empty());
                prop_assert_eq!(quota.entries.len(), spec.hard.len());
            }
            Err(found) => {
                prop_assert!(!errors.is_empty());
                prop_assert_eq!(found, errors);
            }
        }
    }
}
