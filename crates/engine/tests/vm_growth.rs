//! What a VM is charged by its pods while it is to have more than it has: what the launcher takes that KubeVirt is about to
//! make, as `renderresources.go` of KubeVirt 1.7 makes it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::vm::{
    Calculator, CpuAndMemory, CpuTopology, Feature, KubeVirtFacts, Launcher, OverheadFacts, OverheadRatio,
    VmError, VmFacts, memory_overhead, vm_charge,
};
use sluice_engine::{Amount, Charge, Quantity, Resource};

type List = &'static [(&'static str, &'static str)];

fn amount(text: &str) -> Amount {
    Quantity::parse(text).unwrap().into()
}

fn mib(mib: i128) -> Amount {
    Amount::from_nanos((mib << 20) * 1_000_000_000)
}

fn sockets(sockets: u32) -> Option<CpuTopology> {
    Some(CpuTopology { cores: 1, sockets, threads: 1 })
}

/// With 2 CPUs and 2Gi, to which KubeVirt adds 228Mi and 8Mi for each CPU.
fn vm(wants_cpus: u32, wants_memory: &str) -> VmFacts {
    VmFacts {
        guest_memory: Some(amount(wants_memory)),
        topology: sockets(wants_cpus),
        requested_memory: Some(amount("2Gi")),
        current_topology: sockets(2),
        ..VmFacts::default()
    }
}

fn with(mut vm: VmFacts, change: impl FnOnce(&mut VmFacts)) -> VmFacts {
    change(&mut vm);
    vm
}

fn features(features: &[Feature]) -> OverheadFacts {
    OverheadFacts { features: features.iter().copied().collect(), ..OverheadFacts::default() }
}

fn list(amounts: List) -> Charge {
    Charge::from_pairs(amounts.iter().map(|(key, text)| (Resource::from_quota_key(key), amount(text))))
}

fn printed(charge: &Charge) -> BTreeMap<String, Amount> {
    charge.iter().map(|(resource, amount)| (resource.to_string(), *amount)).collect()
}

fn charge(calculator: Calculator, vm: &VmFacts, kubevirt: &KubeVirtFacts, launchers: &[&Charge]) -> Charge {
    let launchers = launchers.iter().map(|it| Launcher { whole: it, compute: it });
    vm_charge(calculator, vm, launchers, Some(kubevirt)).unwrap().unwrap()
}

fn ratios(cpu_allocation_ratio: u32, memory_overcommit: u32) -> KubeVirtFacts {
    let (cpu_allocation_ratio, memory_overcommit) = (Some(cpu_allocation_ratio), Some(memory_overcommit));
    KubeVirtFacts { cpu_allocation_ratio, memory_overcommit, ..KubeVirtFacts::default() }
}

fn version(minor: u32) -> KubeVirtFacts {
    KubeVirtFacts { minor: Some(minor), ..KubeVirtFacts::default() }
}

type Case = (&'static str, VmFacts, KubeVirtFacts, List, List);

/// What the container of the guest takes in the launcher for 2 CPUs and 2Gi, and in that for the new size.
fn cases() -> Vec<Case> {
    let default = KubeVirtFacts::default;
    vec![
        (
            "cpus",
            vm(4, "2Gi"),
            default(),
            &[("cpu", "200m"), ("memory", "2292Mi")],
            &[("cpu", "400m"), ("memory", "2308Mi")],
        ),
        (
            "memory",
            vm(2, "4Gi"),
            default(),
            &[("cpu", "200m"), ("memory", "2292Mi")],
            &[("cpu", "200m"), ("memory", "4340Mi")],
        ),
        (
            "other keys stay",
            vm(4, "4Gi"),
            default(),
            &[
                ("cpu", "200m"),
                ("pods", "1"),
                ("requests.devices.kubevirt.io/kvm", "1"),
                ("ephemeral-storage", "50M"),
                ("limits.cpu", "7"),
            ],
            &[
                ("cpu", "400m"),
                ("pods", "1"),
                ("requests.devices.kubevirt.io/kvm", "1"),
                ("ephemeral-storage", "50M"),
                ("limits.cpu", "7"),
            ],
        ),
        (
            "the ratio of cpus that is in force",
            vm(4, "2Gi"),
            ratios(3, 100),
            &[("cpu", "666666667n")],
            &[("cpu", "1333333334n")],
        ),
        ("a ratio that was smaller", vm(3, "2Gi"), ratios(20, 100), &[("cpu", "200m")], &[("cpu", "200m")]),
        (
            "overcommitted memory",
            vm(2, "6Gi"),
            ratios(10, 150),
            &[("memory", "1610Mi")],
            &[("memory", "4340Mi")],
        ),
        (
            "requests of the vm are not divided",
            with(vm(4, "4Gi"), |vm| {
                vm.requests = CpuAndMemory { cpu: Some(amount("700m")), memory: Some(amount("3Gi")) }
            }),
            ratios(10, 150),
            &[("cpu", "500m"), ("memory", "1268Mi")],
            &[("cpu", "700m"), ("memory", "3500146689")],
        ),
        (
            "limits of the vm",
            with(vm(4, "4Gi"), |vm| {
                vm.limits = CpuAndMemory { cpu: Some(amount("4")), memory: Some(amount("5Gi")) }
            }),
            default(),
            &[("limits.cpu", "2"), ("limits.memory", "3300Mi"), ("memory", "2292Mi")],
            &[("limits.cpu", "4"), ("limits.memory", "5380Mi"), ("memory", "5380Mi")],
        ),
        (
            "limits that kubevirt adds",
            vm(4, "4Gi"),
            default(),
            &[("limits.cpu", "2"), ("limits.memory", "4584Mi"), ("memory", "2292Mi")],
            &[("limits.cpu", "4"), ("limits.memory", "8712Mi"), ("memory", "4356Mi")],
        ),
        (
            "dedicated cpus",
            with(vm(4, "4Gi"), |vm| vm.overhead = features(&[Feature::DedicatedCpus])),
            default(),
            &[("cpu", "2"), ("limits.cpu", "2"), ("memory", "2392Mi"), ("limits.memory", "2392Mi")],
            &[("cpu", "4"), ("limits.cpu", "4"), ("memory", "4456Mi"), ("limits.memory", "4456Mi")],
        ),
        (
            "an isolated emulator",
            with(vm(4, "2Gi"), |vm| {
                vm.overhead = features(&[Feature::DedicatedCpus, Feature::IsolatedEmulator]);
            }),
            default(),
            &[("cpu", "3"), ("limits.cpu", "3")],
            &[("cpu", "5"), ("limits.cpu", "5")],
        ),
        (
            "an isolated emulator that makes the CPUs even",
            with(vm(4, "2Gi"), |vm| {
                vm.overhead =
                    features(&[Feature::DedicatedCpus, Feature::IsolatedEmulator, Feature::EvenEmulator]);
            }),
            default(),
            &[("cpu", "4"), ("limits.cpu", "4")],
            &[("cpu", "6"), ("limits.cpu", "6")],
        ),
        (
            "such a one beside a pool of threads, which are counted twice",
            with(vm(4, "2Gi"), |vm| {
                vm.io_threads = 1;
                vm.overhead = features(&[
                    Feature::DedicatedCpus,
                    Feature::IsolatedEmulator,
                    Feature::EvenEmulator,
                    Feature::SupplementalPool,
                ]);
            }),
            default(),
            &[("cpu", "5"), ("limits.cpu", "5")],
            &[("cpu", "7"), ("limits.cpu", "7")],
        ),
        (
            "such a one beside threads of another policy",
            with(vm(4, "2Gi"), |vm| {
                vm.io_threads = 1;
                vm.overhead =
                    features(&[Feature::DedicatedCpus, Feature::IsolatedEmulator, Feature::EvenEmulator]);
            }),
            default(),
            &[("cpu", "4"), ("limits.cpu", "4")],
            &[("cpu", "6"), ("limits.cpu", "6")],
        ),
        (
            "threads",
            with(vm(4, "2Gi"), |vm| vm.io_threads = 4),
            default(),
            &[("cpu", "600m"), ("limits.cpu", "6")],
            &[("cpu", "800m"), ("limits.cpu", "8")],
        ),
        (
            "threads in old versions",
            with(vm(4, "2Gi"), |vm| vm.io_threads = 4),
            version(5),
            &[("cpu", "200m"), ("limits.cpu", "2")],
            &[("cpu", "400m"), ("limits.cpu", "4")],
        ),
        (
            "overhead that is not requested",
            with(vm(2, "4Gi"), |vm| vm.overhead = features(&[Feature::OvercommittedOverhead])),
            default(),
            &[("memory", "2Gi")],
            &[("memory", "4Gi")],
        ),
        (
            "huge pages",
            vm(2, "4Gi"),
            default(),
            &[("memory", "244Mi"), ("hugepages-2Mi", "2Gi")],
            &[("memory", "244Mi"), ("hugepages-2Mi", "4Gi")],
        ),
        (
            "more than huge pages",
            with(vm(2, "4Gi"), |vm| vm.requests.memory = Some(amount("5Gi"))),
            default(),
            &[("memory", "1270Mi"), ("hugepages-1Gi", "2Gi")],
            &[("memory", "1340080129"), ("hugepages-1Gi", "4Gi")],
        ),
        (
            "one shrinks",
            vm(4, "1Gi"),
            default(),
            &[("cpu", "200m"), ("memory", "2292Mi")],
            &[("cpu", "400m"), ("memory", "2292Mi")],
        ),
        (
            "both shrink",
            vm(1, "1Gi"),
            default(),
            &[("cpu", "200m"), ("memory", "2292Mi")],
            &[("cpu", "200m"), ("memory", "2292Mi")],
        ),
        (
            "kubevirt adds more than it did",
            vm(2, "2Gi"),
            ratios(5, 100),
            &[("cpu", "200m"), ("memory", "2200Mi")],
            &[("cpu", "200m"), ("memory", "2200Mi")],
        ),
    ]
}

#[test]
fn a_vm_takes_what_its_next_launcher_will() {
    for (name, vm, kubevirt, before, after) in cases() {
        let (before, after) = (list(before), list(after));
        let of = |launchers: &[&Charge]| printed(&charge(Calculator::VmiPodUsage, &vm, &kubevirt, launchers));
        assert_eq!(of(&[&before]), printed(&after), "{name}");
        assert_eq!(of(&[&before, &after]), printed(&after), "{name}: when the next one is there too");
        assert_eq!(of(&[&after]), printed(&after), "{name}: when it is all there is");
    }
}

/// What other containers take stays what it is.
#[test]
fn containers_beside_the_guest_do_not_grow() {
    let compute = list(&[("cpu", "200m"), ("memory", "2292Mi")]);
    let whole = list(&[("cpu", "205m"), ("memory", "2392Mi"), ("limits.cpu", "2")]);
    let launcher = [Launcher { whole: &whole, compute: &compute }];
    let charge = vm_charge(Calculator::VmiPodUsage, &vm(4, "2Gi"), launcher, Some(&KubeVirtFacts::default()));
    let expected = list(&[("cpu", "405m"), ("memory", "2408Mi"), ("limits.cpu", "2")]);
    assert_eq!(printed(&charge.unwrap().unwrap()), printed(&expected));
}

/// Of the guest's part nothing is charged that KubeVirt adds, whatever ratio that is multiplied by now.
#[test]
fn the_part_of_the_guest_is_never_less_than_it_asks_for() {
    for (name, ratio, made, has) in [
        ("as it was", None, "2292Mi", "2Gi"),
        ("more than it was", Some("2"), "2292Mi", "2Gi"),
        ("less than it was", None, "2536Mi", "2292Mi"),
    ] {
        let ratio = ratio.and_then(OverheadRatio::parse);
        let kubevirt = KubeVirtFacts { ratio, ..KubeVirtFacts::default() };
        let made = Charge::from_pairs([(Resource::Memory, amount(made))]);
        let of = |vm: &VmFacts| {
            let charge = charge(Calculator::GuestEffectiveResources, vm, &kubevirt, &[&made]);
            charge.get(&Resource::Memory).unwrap()
        };
        assert_eq!(of(&vm(2, "2Gi")), amount(has), "{name}");
        assert_eq!(of(&vm(2, "4Gi")), amount("4Gi"), "{name}");
        let reported = with(vm(2, "2Gi"), |vm| vm.overhead.reported = Some(mib(244)));
        let rest = made.get(&Resource::Memory).unwrap().saturating_sub(mib(244));
        assert_eq!(of(&reported), rest, "{name}: KubeVirt says what it has added");
        assert!(of(&vm(9, "2Gi")) >= amount("2Gi"), "{name}: more is added for more CPUs, but not yet");
    }
}

#[test]
fn a_size_that_cannot_be_counted_is_an_error_where_there_is_one_that_can_be() {
    let huge = with(vm(2, "2Gi"), |vm| {
        vm.topology = Some(CpuTopology { cores: 65_536, sockets: 65_536, threads: 1 });
    });
    let of = |vm: &VmFacts| vm_charge(Calculator::VmiPodUsage, vm, [], Some(&KubeVirtFacts::default()));
    assert!(matches!(of(&huge), Err(VmError::TooManyCpus { .. })));
    let without = VmFacts { guest_memory: None, requested_memory: None, ..vm(2, "2Gi") };
    assert_eq!(of(&without), Ok(None), "KubeVirt gives it one page");
}

const FEATURES: [Feature; 6] = [
    Feature::Graphics,
    Feature::DedicatedCpus,
    Feature::IsolatedEmulator,
    Feature::EvenEmulator,
    Feature::SupplementalPool,
    Feature::OvercommittedOverhead,
];

fn any_amounts() -> impl Strategy<Value = Charge> {
    let keys = ["pods", "cpu", "memory", "limits.cpu", "limits.memory", "hugepages-2Mi", "requests.x/gpu"];
    let keys = keys.map(Resource::from_quota_key).to_vec();
    let amounts = prop_oneof![
        (0..9_i128).prop_map(|cpus| cpus * 1_000_000_000),
        (0..9000_i128).prop_map(|it| mib(it).nanos())
    ];
    prop::collection::btree_map(prop::sample::select(keys), amounts.prop_map(Amount::from_nanos), 0..7)
        .prop_map(Charge::from_pairs)
}

fn any_vm() -> impl Strategy<Value = VmFacts> {
    let part = || prop::option::of((0..9000_i128).prop_map(mib));
    let chosen = prop::collection::vec(prop::sample::select(&FEATURES[..]), 0..6);
    (0..9_u32, 0..9_u32, part(), part(), part(), part(), (0..3_u32, chosen)).prop_map(
        |(has, wants, guest_memory, requested_memory, requests, limits, (io_threads, chosen))| VmFacts {
            requests: CpuAndMemory { cpu: None, memory: requests },
            limits: CpuAndMemory { cpu: None, memory: limits },
            guest_memory,
            topology: sockets(wants),
            io_threads,
            requested_memory,
            current_topology: sockets(has),
            overhead: features(&chosen),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// The launcher that brings what is charged costs nothing more, beside the other one or alone.
    #[test]
    fn what_is_to_come_is_charged_once(
        vm in any_vm(), made in any_amounts(), ratio in 1..20_u32, overcommit in 50..200_u32
    ) {
        let kubevirt = ratios(ratio, overcommit);
        prop_assume!(vm.is_growing().is_ok());
        let of = |calculator, launchers: &[&Charge]| charge(calculator, &vm, &kubevirt, launchers);
        let next = of(Calculator::VmiPodUsage, &[&made]);
        prop_assert!(next.covers(&made), "{next:?}");
        prop_assert_eq!(&of(Calculator::VmiPodUsage, &[&next]), &next);
        prop_assert_eq!(&of(Calculator::VmiPodUsage, &[&made, &next]), &next);
        let guest = of(Calculator::GuestEffectiveResources, &[&made]);
        prop_assert_eq!(&of(Calculator::GuestEffectiveResources, &[&made, &next]), &guest);
        if !vm.is_growing().unwrap() {
            prop_assert_eq!(&next, &made);
        }
        let taken_off = memory_overhead(&vm, &kubevirt).unwrap();
        let least = made.get(&Resource::Memory).map(|memory| memory.saturating_sub(taken_off));
        prop_assert!(guest.get(&Resource::Memory) >= least);
    }
}
