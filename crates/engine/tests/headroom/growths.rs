//! A target may take more than its source only by what KubeVirt itself adds.

use serde_json::{Value, json};
use sluice_engine::headroom::{
    Account, AccountedPod, Allowance, Source, Stake, growth, growth_of_launcher, growth_to, limit_ratio,
    quota_words,
};
use sluice_engine::pod::pod_charge;
use sluice_engine::vm::Launcher;
use sluice_engine::{Amount, Resource};

use super::*;

const OVERHEAD: &str = "281Mi";

fn container(name: &str, memory: &str, more: Value) -> Value {
    let mut requests = json!({ "memory": memory, "cpu": "100m" });
    json_merge(&mut requests, more);
    json!({ "name": name, "resources": { "requests": requests } })
}

fn json_merge(object: &mut Value, more: Value) {
    let (Value::Object(object), Value::Object(more)) = (object, more) else { panic!("two objects") };
    object.extend(more);
}

fn launcher(containers: &[Value], inits: &[Value]) -> Value {
    json!({ "spec": { "containers": containers, "initContainers": inits } })
}

fn source(pod: &Value) -> Source {
    Source::of(&pods::pod(pod), RULES)
}

/// What the target grows by, as `resource=amount`, where nothing was plugged in and the machine states its limits.
fn grown(target: &Value, of: &Source) -> Vec<String> {
    let overhead = Amount::from(quantity(OVERHEAD));
    grown_by(target, of, Allowance { overhead, ..Allowance::default() })
}

fn grown_by(target: &Value, of: &Source, allowed: Allowance) -> Vec<String> {
    let charge = growth(&pods::pod(target), of, allowed, RULES);
    charge
        .iter()
        .map(|(resource, amount)| format!("{}={}", resource.key(), amount.quantity(Format::BinarySi)))
        .collect()
}

fn plain() -> Value {
    launcher(
        &[container("compute", "537Mi", json!({})), container("guest-console-log", "35Mi", json!({}))],
        &[],
    )
}

#[test]
fn kubevirts_overhead_is_no_growth_and_everything_above_it_is() {
    let of = source(&plain());
    assert_eq!(grown(&plain(), &of), [""; 0]);
    let ratio = launcher(
        &[container("compute", "818Mi", json!({})), container("guest-console-log", "35Mi", json!({}))],
        &[],
    );
    assert_eq!(grown(&ratio, &of), [""; 0], "by 281Mi");
    let hot_plug = launcher(
        &[container("compute", "2320Mi", json!({})), container("guest-console-log", "35Mi", json!({}))],
        &[],
    );
    assert_eq!(grown(&hot_plug, &of), ["memory=1502Mi"]);
    let cpu = launcher(
        &[
            container("compute", "537Mi", json!({"cpu": "300m"})),
            container("guest-console-log", "35Mi", json!({})),
        ],
        &[],
    );
    assert_eq!(grown(&cpu, &of), ["cpu=200m"]);
}

/// Of what containers are called nothing is known there.
#[test]
fn of_launchers_kubevirts_overhead_is_no_growth_and_everything_above_it_is() {
    let of = |compute: &str, more: &[Value]| {
        source(&launcher(&[&[container("compute", compute, json!({}))], more].concat(), &[]))
    };
    let log = container("guest-console-log", "35Mi", json!({}));
    let (before, smaller) =
        (of("537Mi", std::slice::from_ref(&log)), of("500Mi", std::slice::from_ref(&log)));
    let allowed = Allowance { overhead: Amount::from(quantity(OVERHEAD)), ..Allowance::default() };
    let injected = container("injected", "64Mi", json!({}));
    for (target, sources, expected) in [
        (of("537Mi", std::slice::from_ref(&log)), vec![&before], vec![]),
        (of("818Mi", std::slice::from_ref(&log)), vec![&before], vec![]),
        (of("819Mi", std::slice::from_ref(&log)), vec![&before], vec!["memory=1Mi"]),
        (of("818Mi", &[log.clone(), injected]), vec![&before], vec!["cpu=100m", "memory=64Mi"]),
        (of("818Mi", std::slice::from_ref(&log)), vec![&smaller, &before], vec![]),
        (of("9Gi", &[]), vec![], vec![]),
    ] {
        let launcher = |of: &'_ Source| (of.charge.clone(), of.compute.clone());
        let sources: Vec<_> = sources.into_iter().map(launcher).collect();
        let sources = sources.iter().map(|(whole, compute)| Launcher { whole, compute });
        let target = Launcher { whole: &target.charge, compute: &target.compute };
        let grown = growth_of_launcher(target, sources, allowed);
        let grown: Vec<_> = grown
            .iter()
            .map(|(resource, amount)| format!("{}={}", resource.key(), amount.quantity(Format::BinarySi)))
            .collect();
        assert_eq!(grown, expected);
    }
}

/// KubeVirt 1.6 made an init container of it.
#[test]
fn a_container_may_become_an_init_container() {
    let mut log = container("guest-console-log", "35Mi", json!({}));
    json_merge(&mut log, json!({ "restartPolicy": "Always" }));
    let newer = launcher(&[container("compute", "553Mi", json!({}))], std::slice::from_ref(&log));
    assert_eq!(grown(&newer, &source(&plain())), [""; 0]);
}

#[test]
fn a_container_or_a_resource_that_the_source_has_not_is_growth_as_a_whole() {
    let of = source(&plain());
    let mut injected = plain();
    injected["spec"]["containers"].as_array_mut().unwrap().push(container("istio-proxy", "100Mi", json!({})));
    assert_eq!(grown(&injected, &of), ["cpu=100m", "memory=100Mi"], "less than the overhead, and none of it");
    let nic = json!({ "example.com/sriov": "1" });
    let plugged = launcher(
        &[container("compute", "537Mi", nic), container("guest-console-log", "35Mi", json!({}))],
        &[],
    );
    assert_eq!(grown(&plugged, &of), ["requests.example.com/sriov=1"]);
}

#[test]
fn without_a_source_everything_is_growth() {
    let all = grown(&plain(), &Source::default());
    assert_eq!(all, ["pods=1", "count/pods=1", "cpu=200m", "memory=572Mi"]);
}

/// A pod beside the source that claims to be one makes it smaller at most.
#[test]
fn of_several_sources_the_least_counts() {
    let decoy = launcher(&[container("compute", "40Gi", json!({}))], &[]);
    let of = Source::least([source(&plain()), source(&decoy)]).unwrap();
    assert_eq!(&*of.containers, [Box::from("compute")]);
    assert_eq!(of.charge.get(&Resource::Memory), Some(quantity("572Mi").into()));
    assert_eq!(Source::least([]), None);
}

/// The first one takes a gibibyte beside the guest too, which is more than all other overhead.
#[test]
fn what_lies_beside_an_interface_is_growth_when_it_is_plugged_in_and_no_growth_afterwards() {
    let compute = |memory: &str, devices: Value| launcher(&[container("compute", memory, devices)], &[]);
    let device = json!({ "example.com/vf": "1" });
    let bridge = json!({ "bridge.network.kubevirt.io/br1": "1", "devices.kubevirt.io/tun": "1" });
    let both = json!({ "bridge.network.kubevirt.io/br1": "1", "example.com/vf": "1" });
    let allowed = Allowance {
        overhead: quantity("1305Mi").into(),
        interfaces: quantity("1Gi").into(),
        ..Allowance::default()
    };
    let vf = "requests.example.com/vf=1";
    for (before, after, expected) in [
        (("537Mi", json!({})), ("1561Mi", &device), vec!["memory=1Gi", vf]),
        // A device of another kind says nothing, and neither do those of every launcher.
        (("537Mi", bridge), ("1561Mi", &both), vec!["memory=1Gi", vf]),
        (("537Mi", json!({ "devices.kubevirt.io/tun": "1" })), ("1561Mi", &json!({})), vec!["memory=1Gi"]),
        // Plugged in already: a new KubeVirt may take more.
        (("1561Mi", device.clone()), ("1577Mi", &device), vec![]),
        (("1561Mi", device.clone()), ("1561Mi", &json!({ "example.com/vf": "2" })), vec![vf]),
        (("1561Mi", device.clone()), ("537Mi", &json!({})), vec![]),
    ] {
        let (of, target) = (source(&compute(before.0, before.1)), compute(after.0, after.1.clone()));
        assert_eq!(grown_by(&target, &of, allowed), expected, "{target}");
    }
    let own = |devices: Value| source(&compute("1561Mi", devices)).own_doing(allowed);
    assert_eq!(own(json!({})).get(&Resource::Memory), Some(quantity("281Mi").into()), "it is still to come");
    assert_eq!(own(device).get(&Resource::Memory), Some(quantity("1305Mi").into()));
}

/// Steps of hot-plug that are each smaller than the overhead are no overhead.
#[test]
fn what_was_plugged_in_is_growth_before_the_overhead_is_looked_at() {
    let compute = |memory: &str| launcher(&[container("compute", memory, json!({}))], &[]);
    let of = source(&compute("537Mi"));
    let plugged = |amount: &str| Allowance {
        overhead: quantity(OVERHEAD).into(),
        plugged: quantity(amount).into(),
        ..Allowance::default()
    };
    assert_eq!(grown_by(&compute("767Mi"), &of, plugged("230Mi")), ["memory=230Mi"]);
    assert_eq!(grown_by(&compute("783Mi"), &of, plugged("230Mi")), ["memory=230Mi"], "and 16Mi of overhead");
    assert_eq!(
        grown_by(&compute("1100Mi"), &of, plugged("230Mi")),
        ["memory=282Mi"],
        "and 52Mi above the overhead"
    );
    // A container that others size is not KubeVirt's, though the source has it.
    let injected = |memory: &str| {
        launcher(
            &[container("compute", "537Mi", json!({})), container("istio-proxy", memory, json!({}))],
            &[],
        )
    };
    assert_eq!(grown(&injected("330Mi"), &source(&injected("100Mi"))), ["memory=230Mi"]);
}

fn limited(name: &str, memory: &str, limits: Value) -> Value {
    json!({ "name": name, "resources": { "requests": { "memory": memory }, "limits": limits } })
}

/// Where a quota limits them, KubeVirt sets limits that the machine does not state, so many times the request that its
/// overhead is in.
#[test]
fn limits_that_kubevirt_sets_by_itself_are_no_growth() {
    let pod = |memory: &str, limits: Value| launcher(&[limited("compute", memory, limits)], &[]);
    let allowed = |is_auto: bool| Allowance {
        overhead: quantity(OVERHEAD).into(),
        limits_memory: is_auto.then_some(limit_ratio(None)),
        limits_cpu: is_auto.then_some(Amount::ONE),
        ..Allowance::default()
    };
    let of = source(&pod("537Mi", json!({})));
    let both = pod("537Mi", json!({ "memory": "1074Mi", "cpu": "1" }));
    assert_eq!(grown_by(&both, &of, allowed(true)), [""; 0]);
    assert_eq!(grown_by(&both, &of, allowed(false)), ["limits.cpu=1", "limits.memory=1074Mi"]);
    let more_cpus = pod("537Mi", json!({ "memory": "1074Mi", "cpu": "4" }));
    assert_eq!(grown_by(&more_cpus, &of, allowed(true)), ["limits.cpu=3"], "than the guest has");
    let larger_guest = pod("2585Mi", json!({ "memory": "5170Mi", "cpu": "1" }));
    let grown = grown_by(&larger_guest, &of, allowed(true));
    assert_eq!(grown, ["memory=1767Mi", "limits.memory=3534Mi"]);
    // Twice the overhead in what is twice the request; once in a limit that is stated, to which KubeVirt adds it.
    let of = source(&pod("537Mi", json!({ "memory": "1074Mi" })));
    let with_limit = |limit: &str| pod("818Mi", json!({ "memory": limit }));
    assert_eq!(grown_by(&with_limit("1636Mi"), &of, allowed(true)), [""; 0]);
    assert_eq!(grown_by(&with_limit("1636Mi"), &of, allowed(false)), ["limits.memory=281Mi"]);
    assert_eq!(grown_by(&with_limit("1355Mi"), &of, allowed(false)), [""; 0]);
    // What others make of the limit is no proportion of KubeVirt's.
    assert_eq!(grown_by(&with_limit("64Gi"), &of, allowed(true)), ["limits.memory=63900Mi"]);
    let own = |is_auto: bool| of.own_doing(allowed(is_auto));
    assert_eq!(own(true).get(&Resource::LimitsMemory), Some(quantity("562Mi").into()));
    assert_eq!(own(false).get(&Resource::LimitsMemory), Some(quantity("281Mi").into()));
    assert_eq!(own(true).get(&Resource::LimitsCpu), None, "KubeVirt adds no CPUs");
}

/// As KubeVirt reads the label of the namespace.
#[test]
fn what_the_namespace_says_of_limits_counts() {
    let ratios =
        [None, Some("4"), Some("1.5"), Some("1.0004"), Some("0.5"), Some("x"), Some("NaN"), Some("1e300")];
    assert_eq!(ratios.map(limit_ratio), [2_000, 4_000, 1_500, 1_001, 2_000, 2_000, 2_000, 2_000]);
}

#[test]
fn what_grows_has_to_fit_the_spec_once_the_source_is_gone() {
    let memory = "requests.memory";
    let grows = |target: &str, source: &str, by: &str| Need {
        source: need(&[(memory, source)]).charge,
        growth: need(&[(memory, by)]).charge,
        ..need(&[(memory, target)])
    };
    let said = |need: &Need, used: &str, account: &Account| {
        let quotas = [quota("rq", &[(memory, "700Mi")], &[(memory, used)])];
        let raised = raises(plan(need, &quotas, &unlimited()));
        account.objections(need, &raised, &quotas).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let none = Account::default();
    assert_eq!(
        said(&grows("2320Mi", "537Mi", "1502Mi"), "537Mi", &none),
        [
            "quota rq does not allow the virtual machine to grow by requests.memory=1502Mi (then used 2320Mi, hard 700Mi): \
          what it takes more than its present pod, beside KubeVirt's own overhead, has to fit spec.hard"
        ]
    );
    // It fits, for as long as both pods are there it does not.
    assert_eq!(said(&grows("700Mi", "537Mi", "100Mi"), "537Mi", &none), [""; 0]);
    // Overhead alone does not have to.
    assert_eq!(said(&need(&[(memory, "818Mi")]), "537Mi", &none), [""; 0]);
    // What other migrations take for a while is no usage that stays.
    let passing = AccountedPod {
        name: "other".into(),
        since: 0,
        charge: need(&[(memory, "160Mi")]).charge,
        facts: ScopeFacts::default(),
        stake: Stake::Passes(need(&[(memory, "160Mi")]).charge),
    };
    let moving = Account { pods: vec![passing], is_complete: false };
    assert_eq!(said(&grows("600Mi", "537Mi", "63Mi"), "697Mi", &none).len(), 1);
    assert_eq!(said(&grows("600Mi", "537Mi", "63Mi"), "697Mi", &moving), [""; 0]);
}

/// A tenant may set a deadline on the pod that runs a machine. KubeVirt sets none on the next one, which so comes under
/// quotas that did not count the machine before, and stays there.
#[test]
fn in_a_quota_that_does_not_count_the_source_all_of_the_target_grows() {
    let memory = "requests.memory";
    let said = |has_deadline: bool, hard: &str| {
        let mut quota = quota("rq", &[(memory, hard)], &[(memory, "700Mi")]);
        quota.scopes = Scopes::new([ScopeRequirement::exists(Scope::NotTerminating)]);
        let need = Need {
            source: need(&[(memory, "537Mi")]).charge,
            source_facts: ScopeFacts { terminating: has_deadline, ..ScopeFacts::default() },
            ..need(&[(memory, "537Mi")])
        };
        let raised = raises(plan(&need, std::slice::from_ref(&quota), &unlimited()));
        Account::default().objections(&need, &raised, &[quota]).len()
    };
    assert_eq!(said(false, "700Mi"), 0, "it takes the place of its source");
    assert_eq!(said(true, "700Mi"), 1);
    assert_eq!(said(true, "1236Mi"), 1);
}

#[test]
fn growth_to_a_size_is_that_of_the_pod_which_has_it() {
    let of = source(&plain());
    let (overhead, plugged) = (quantity(OVERHEAD).into(), quantity("1Gi").into());
    let allowed = Allowance { overhead, plugged, ..Allowance::default() };
    let mut grown = Vec::new();
    for compute in ["300Mi", "537Mi", "818Mi", "1561Mi", "1900Mi", "3Gi"] {
        let containers =
            [container("compute", compute, json!({})), container("guest-console-log", "35Mi", json!({}))];
        let target = launcher(&containers, &[]);
        let by_size = growth_to(&pod_charge(&pods::pod(&target), RULES, 0), &of, allowed);
        assert_eq!(by_size, growth(&pods::pod(&target), &of, allowed, RULES), "{compute}");
        grown.extend(by_size.get(&Resource::Memory));
    }
    assert_eq!(grown.len(), 4, "{grown:?}");
}

/// Which device it is a network says, and no machine. The memory beside it is known.
#[test]
fn an_interface_grows_the_next_launcher_by_the_memory_beside_it() {
    let of = source(&launcher(&[container("compute", "537Mi", json!({}))], &[]));
    let grown = |allowed: Allowance| {
        growth_to(&of.with_interfaces(allowed), &of, allowed).get(&Resource::Memory).unwrap_or_default()
    };
    let interfaces = quantity("1Gi").into();
    let plugged = Allowance { overhead: quantity("1305Mi").into(), interfaces, ..Allowance::default() };
    assert_eq!(grown(plugged), interfaces);
    assert_eq!(grown(Allowance { overcommits: true, ..plugged }), Amount::ZERO, "nothing is asked for it");
}

#[test]
fn a_size_that_does_not_fit_is_refused_as_quota_admission_would() {
    let memory = "requests.memory";
    let need = Need {
        source: need(&[(memory, "537Mi")]).charge,
        growth: need(&[(memory, "1Gi")]).charge,
        ..need(&[(memory, "1561Mi")])
    };
    let said = |hard: &str, excluded: bool| {
        let mut quota = quota("rq", &[(memory, hard)], &[(memory, "600Mi")]);
        quota.opted_out = excluded;
        let refusals = Account::default().outgrown(&need, &[quota]);
        refusals.iter().filter_map(quota_words).collect::<Vec<_>>()
    };
    assert_eq!(said("1624Mi", false), [""; 0]);
    assert_eq!(
        said("1623Mi", false),
        ["exceeded quota: rq, requested: requests.memory=1Gi, used: requests.memory=600Mi, \
            limited: requests.memory=1623Mi"]
    );
    assert_eq!(said("1623Mi", true), [""; 0], "its quota is the tenant's affair");
}
