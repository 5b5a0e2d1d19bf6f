//! What virtual machines are charged: laws that hold for all inputs, and the sums of KubeVirt's estimate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::vm::{
    Calculator, CpuAndMemory, CpuTopology, Feature, KubeVirtFacts, Launcher, OverheadFacts, OverheadRatio,
    VmError, VmFacts, memory_overhead, vm_charge,
};
use sluice_engine::{Amount, Charge, Quantity, Resource};

const MIB: u64 = 1 << 20;

const ALL: [Calculator; 5] = [
    Calculator::VmiPodUsage,
    Calculator::VirtualResources,
    Calculator::DedicatedVirtualResources,
    Calculator::GuestEffectiveResources,
    Calculator::IgnoreVmiCalculator,
];

const FEATURES: [Feature; 9] = [
    Feature::Graphics,
    Feature::Arm64,
    Feature::Vfio,
    Feature::DownwardMetrics,
    Feature::EncryptedMemory,
    Feature::Tpm,
    Feature::DedicatedCpus,
    Feature::IsolatedEmulator,
    Feature::OvercommittedOverhead,
];

fn amount(text: &str) -> Amount {
    Quantity::parse(text).unwrap().into()
}

fn bytes(bytes: u64) -> Amount {
    Amount::from_nanos(i128::from(bytes) * 1_000_000_000)
}

fn cpus(cores: u32, sockets: u32, threads: u32) -> Option<CpuTopology> {
    Some(CpuTopology { cores, sockets, threads })
}

/// Amounts of every size, hostile ones among them.
fn any_amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        Just(i128::MAX),
        Just(i128::MIN),
        any::<i128>(),
        0..1_i128 << 80,
        (0..1_000_i128).prop_map(|units| units * 1_000_000_000),
    ]
    .prop_map(Amount::from_nanos)
}

fn any_topology() -> impl Strategy<Value = Option<CpuTopology>> {
    let count = || prop_oneof![0..8_u32, any::<u32>()];
    prop::option::of((count(), count(), count()))
        .prop_map(|it| it.and_then(|(cores, sockets, threads)| cpus(cores, sockets, threads)))
}

fn any_vm() -> impl Strategy<Value = VmFacts> {
    let some = || prop::option::of(any_amount());
    let features = prop::collection::vec(prop::sample::select(&FEATURES[..]), 0..9);
    let bindings = prop::collection::vec(prop::sample::select(&["passt", "none"][..]), 0..3);
    let overhead =
        (features, any::<u8>(), bindings, some()).prop_map(|(features, exec_probes, bindings, reported)| {
            let bindings = bindings.into_iter().map(Into::into).collect();
            OverheadFacts { features: features.into_iter().collect(), exec_probes, bindings, reported }
        });
    let lists = (some(), some(), some(), some(), some(), some());
    (lists, any_topology(), any_topology(), overhead).prop_map(
        |(lists, topology, current_topology, overhead)| {
            let (cpu, memory, limit_cpu, limit_memory, guest_memory, requested_memory) = lists;
            VmFacts {
                requests: CpuAndMemory { cpu, memory },
                limits: CpuAndMemory { cpu: limit_cpu, memory: limit_memory },
                guest_memory,
                topology,
                io_threads: u32::from(overhead.exec_probes),
                requested_memory,
                current_topology,
                overhead,
            }
        },
    )
}

fn any_kubevirt() -> impl Strategy<Value = KubeVirtFacts> {
    let ratio = prop::option::of("[0-9]{1,4}(\\.[0-9]{1,3})?|-1|1e300|NaN|inf|x|");
    (prop::option::of(any::<u32>()), ratio, prop::option::of(any_amount())).prop_map(
        |(minor, ratio, plugin)| KubeVirtFacts {
            minor,
            ratio: ratio.and_then(|text| OverheadRatio::parse(&text)),
            bindings: plugin.map(|memory| ("passt".into(), memory)).into_iter().collect(),
            cpu_allocation_ratio: minor,
            memory_overcommit: minor,
        },
    )
}

fn any_charge() -> impl Strategy<Value = Charge> {
    let keys = ["pods", "count/pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.x/gpu"];
    let keys = keys.map(Resource::from_quota_key).to_vec();
    prop::collection::btree_map(prop::sample::select(keys), any_amount(), 0..7).prop_map(Charge::from_pairs)
}

fn charge(calculator: Calculator, vm: &VmFacts) -> Result<Option<Charge>, VmError> {
    vm_charge(calculator, vm, [], None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever a VM and its pods say, there is a charge without a negative amount of CPU and memory, or an error.
    #[test]
    fn every_vm_has_a_charge_or_an_error(
        vm in any_vm(), kubevirt in prop::option::of(any_kubevirt()),
        pods in prop::collection::vec((any_charge(), any_charge()), 0..3)
    ) {
        for calculator in ALL {
            let launchers = || pods.iter().map(|(whole, compute)| Launcher { whole, compute });
            let charge = vm_charge(calculator, &vm, launchers(), kubevirt.as_ref());
            let Ok(Some(charge)) = charge else { continue };
            prop_assert!(!charge.is_empty() || pods.iter().any(|(whole, compute)| whole.is_empty() || compute.is_empty()));
            if !calculator.is_of_pods() {
                prop_assert!(!charge.is_negative(), "{charge:?}");
            }
        }
        if let Some(kubevirt) = &kubevirt {
            let _ = memory_overhead(&vm, kubevirt);
        }
    }

    /// A VM is charged what it has and what it is to have, and where both are the same no more than that.
    #[test]
    fn what_a_vm_is_to_have_is_charged_beside_what_it_has(vm in any_vm()) {
        for calculator in [Calculator::VirtualResources, Calculator::DedicatedVirtualResources] {
            let Ok(Some(both)) = charge(calculator, &vm) else { continue };
            let mut planned = vm.clone();
            planned.requested_memory = None;
            planned.current_topology = None;
            prop_assert!(both.covers(&charge(calculator, &planned).unwrap().unwrap()));
            let mut settled = vm.clone();
            settled.guest_memory = vm.requested_memory.filter(|amount| !amount.is_zero()).or(vm.guest_memory);
            settled.topology = vm.current_topology.or(vm.topology);
            let settled = charge(calculator, &settled).unwrap().unwrap();
            prop_assert!(both.covers(&settled));
            if vm.requested_memory.is_none() && vm.current_topology.is_none() {
                prop_assert_eq!(both, settled);
            }
        }
    }

    /// A VM that is to have more is charged no less.
    #[test]
    fn a_larger_guest_costs_no_less(
        cores in 1..64_u32,
        sockets in 1..64_u32,
        more in 0..64_u32,
        memory in 1..1_u64 << 40,
        more_memory in 0..1_u64 << 40,
    ) {
        let vm = |sockets, memory| VmFacts {
            topology: cpus(cores, sockets, 1),
            guest_memory: Some(bytes(memory)),
            ..VmFacts::default()
        };
        for calculator in [Calculator::VirtualResources, Calculator::DedicatedVirtualResources] {
            let small = charge(calculator, &vm(sockets, memory)).unwrap().unwrap();
            let large = charge(calculator, &vm(sockets + more, memory + more_memory)).unwrap().unwrap();
            prop_assert!(large.covers(&small));
        }
    }

    /// One more pod never makes a VM cost less, and a pod that is like another one costs nothing more.
    #[test]
    fn a_further_pod_costs_no_less(
        vm in any_vm(),
        kubevirt in any_kubevirt(),
        first in any_charge(),
        second in any_charge(),
    ) {
        for calculator in [Calculator::VmiPodUsage, Calculator::GuestEffectiveResources] {
            let of = |pods: &[&Charge]| {
                let pods = pods.iter().map(|pod| Launcher { whole: pod, compute: pod });
                vm_charge(calculator, &vm, pods, Some(&kubevirt))
            };
            let (Ok(one), Ok(two)) = (of(&[&first]), of(&[&first, &second])) else { continue };
            prop_assert!(two.unwrap().covers(&one.clone().unwrap()));
            prop_assert_eq!(of(&[&first, &first]).unwrap(), one);
        }
    }
}

#[test]
fn without_pods_nothing_is_charged_for_the_vm_by_what_pods_take() {
    for calculator in
        [Calculator::VmiPodUsage, Calculator::GuestEffectiveResources, Calculator::IgnoreVmiCalculator]
    {
        assert_eq!(charge(calculator, &VmFacts::default()), Ok(None));
    }
}

#[test]
fn a_vm_that_cannot_be_counted_says_why() {
    let guest_memory = Some(bytes(MIB));
    let huge = VmFacts { topology: cpus(65_536, 65_536, 1), guest_memory, ..VmFacts::default() };
    let plugged = VmFacts { topology: None, current_topology: huge.topology, ..huge.clone() };
    let negative = VmFacts { guest_memory: Some(amount("-1Gi")), ..VmFacts::default() };
    let messages = [&VmFacts::default(), &huge, &plugged, &negative]
        .map(|vm| charge(Calculator::DedicatedVirtualResources, vm).unwrap_err().to_string());
    assert_eq!(
        messages,
        [
            "counting memory: the VM states none, set spec.domain.memory.guest, \
             or memory in the requests or limits of spec.domain.resources",
            "counting CPUs: spec.domain.cpu: 65536 cores, 65536 sockets and 1 threads are more than \
             4294967295 CPUs, lower one of them",
            "counting CPUs: status.currentCPUTopology: 65536 cores, 65536 sockets and 1 threads are more than \
             4294967295 CPUs, lower one of them",
            "counting memory: the VM's amount is negative or above 2e22, correct it",
        ]
    );
    let most = VmFacts { topology: cpus(u32::MAX, 0, 0), guest_memory, ..VmFacts::default() };
    let charge = charge(Calculator::VirtualResources, &most).unwrap().unwrap();
    assert_eq!(charge.get(&Resource::Cpu), Some(amount("4294967295")));
}

/// A VM of KubeVirt's own table test: 1Gi, and page tables of 2Mi for it.
fn one_gi() -> VmFacts {
    let requests = CpuAndMemory { memory: Some(amount("1Gi")), cpu: None };
    let overhead =
        OverheadFacts { features: [Feature::Graphics].into_iter().collect(), ..OverheadFacts::default() };
    VmFacts { requests, overhead, ..VmFacts::default() }
}

fn mib(vm: &VmFacts, kubevirt: &KubeVirtFacts) -> i128 {
    memory_overhead(vm, kubevirt).unwrap().nanos() / 1_000_000_000 / i128::from(MIB)
}

/// `renderresources_test.go` of KubeVirt 1.7, *GetMemoryOverhead calculation*:
/// 7Mi and 223Mi always, 8Mi for a CPU, 32Mi for graphics.
#[test]
fn the_overhead_is_what_kubevirt_estimates() {
    let kubevirt = KubeVirtFacts::default();
    let base = 7 + 223 + 8 + 32;
    let with = |change: &dyn Fn(&mut VmFacts)| {
        let mut vm = one_gi();
        change(&mut vm);
        mib(&vm, &kubevirt) - base
    };
    let feature = |feature| {
        move |vm: &mut VmFacts| vm.overhead.features = [Feature::Graphics, feature].into_iter().collect()
    };
    let resources = |requests: Option<&str>, limits: Option<&str>| {
        let (requests, limits) = (requests.map(amount), limits.map(amount));
        move |vm: &mut VmFacts| (vm.requests.cpu, vm.limits.cpu) = (requests, limits)
    };
    assert_eq!(with(&|_| {}), 0);
    assert_eq!(with(&|vm| vm.topology = cpus(2, 2, 2)), 7 * 8);
    assert_eq!(with(&resources(Some("3"), Some("5"))), 4 * 8);
    assert_eq!(with(&resources(Some("3"), None)), 2 * 8);
    assert_eq!(with(&resources(Some("2500m"), None)), 2 * 8, "rounded up");
    assert_eq!(with(&|vm| vm.overhead.features = std::iter::empty().collect()), -32);
    assert_eq!(with(&feature(Feature::Arm64)), 128);
    assert_eq!(with(&feature(Feature::Vfio)), 1024);
    assert_eq!(with(&feature(Feature::DownwardMetrics)), 1);
    assert_eq!(with(&feature(Feature::EncryptedMemory)), 256);
    assert_eq!(with(&feature(Feature::Tpm)), 53);
    assert_eq!(with(&feature(Feature::DedicatedCpus)), 100);
    assert_eq!(with(&|vm| vm.overhead.exec_probes = 1), 110);
    assert_eq!(with(&|vm| vm.overhead.exec_probes = 2), 120);
    assert_eq!(
        with(&|vm| {
            (vm.requests.cpu, vm.limits.cpu, vm.limits.memory) =
                (Some(amount("1")), Some(amount("1")), Some(amount("1Gi")));
        }),
        100,
        "requests that are limits"
    );
    assert_eq!(with(&|vm| vm.overhead.reported = Some(amount("300Mi"))), 300 - base);
}

/// Without page tables, one CPU, with graphics.
#[test]
fn versions_of_kubevirt_differ() {
    let vm = VmFacts { requests: CpuAndMemory::default(), ..one_gi() };
    let of = |minor| mib(&vm, &KubeVirtFacts { minor, ..KubeVirtFacts::default() });
    assert_eq!(
        [Some(3), Some(4), Some(5), Some(6), Some(7), Some(8), None].map(of),
        [242, 242, 252, 268, 268, 268, 268]
    );
}

#[test]
fn a_launcher_that_was_measured_is_reproduced() {
    let requests = CpuAndMemory { memory: Some(amount("256Mi")), cpu: None };
    let vm = VmFacts { requests, ..one_gi() };
    assert_eq!(memory_overhead(&vm, &KubeVirtFacts::default()), Ok(amount("281542657")));
}

#[test]
fn the_ratio_multiplies_all_but_plugins_and_in_old_versions_the_addition_for_guarantees() {
    let ratio = OverheadRatio::parse("1.5");
    let bindings = BTreeMap::from([("passt".into(), amount("250Mi"))]);
    let mut vm = VmFacts { requests: CpuAndMemory::default(), ..one_gi() };
    vm.overhead.features = [Feature::Graphics, Feature::DedicatedCpus].into_iter().collect();
    vm.overhead.bindings = ["passt", "unregistered"].map(Into::into).into();
    let of = |minor| {
        let bindings = bindings.clone();
        memory_overhead(
            &vm,
            &KubeVirtFacts { minor: Some(minor), ratio, bindings, ..KubeVirtFacts::default() },
        )
    };
    // Of (268 + 100)Mi, in thousands rounded up, one half in thousands rounded down is added.
    assert_eq!(
        of(7),
        Ok(amount("385875968").saturating_add(amount("192938000")).saturating_add(amount("250Mi")))
    );
    // Of 252Mi.
    assert_eq!(
        of(5),
        Ok(amount("264241152").saturating_add(amount("132121000")).saturating_add(amount("350Mi")))
    );
    for senseless in ["", "x", "NaN", "inf", "-1", "1e9", "1,5"] {
        assert_eq!(OverheadRatio::parse(senseless), None, "{senseless}");
    }
}
