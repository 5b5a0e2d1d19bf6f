//! What VirtualMachineInstances are charged, from the object as KubeVirt has it to the charge of each calculator.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::vm::{Calculator, Feature, KubeVirtFacts, Launcher, VmFacts, memory_overhead, vm_charge};
use sluice_engine::{Amount, Charge, ChargeRules, Quantity, Resource};
use sluice_index::{
    KubeVirtWire, KubeVirts, PodFacts, PodWire, VmiError, VmiRecord, VmiWire, Vmis, Watched as _,
};

/// A VM with this specification and status, as a watch shows it.
fn size(spec: &Value, status: &Value) -> Result<VmFacts, VmiError> {
    let object =
        json!({ "metadata": { "namespace": "a", "name": "vm", "uid": "u" }, "spec": spec, "status": status });
    let mut vmis = Vmis::default();
    vmis.upsert(&serde_json::from_value::<VmiWire>(object).unwrap());
    vmis.get("a", "vm").unwrap().size.clone()
}

fn printed(charge: &Charge) -> BTreeMap<String, Amount> {
    charge.iter().map(|(resource, amount)| (resource.to_string(), *amount)).collect()
}

fn amounts(list: &Value) -> BTreeMap<String, Amount> {
    let amount = |text: &Value| Quantity::parse(text.as_str().unwrap()).unwrap().into();
    list.as_object().unwrap().iter().map(|(key, text)| (key.clone(), amount(text))).collect()
}

fn charge_of(list: &Value) -> Charge {
    Charge::from_pairs(amounts(list).iter().map(|(key, amount)| (Resource::from_quota_key(key), *amount)))
}

/// What the guest takes, by what it has and by what it may grow to.
#[rstest]
#[case::limits(json!({ "resources": { "limits": { "cpu": "2", "memory": "2Gi" } } }), json!({}), ["2", "2Gi"])]
#[case::requests(json!({ "resources": { "requests": { "cpu": "2", "memory": "2Gi" } } }), json!({}), ["2", "2Gi"])]
#[case::requests_before_limits(
    json!({ "resources": { "requests": { "cpu": "2", "memory": "2Gi" }, "limits": { "cpu": "4", "memory": "4Gi" } } }),
    json!({}), ["2", "2Gi"]
)]
#[case::part_of_a_cpu(
    json!({ "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } } }),
    json!({}),
    ["500m", "1Gi"],
)]
#[case::the_guest_before_both(
    json!({
        "resources": { "requests": { "cpu": "2", "memory": "2Gi" }, "limits": { "cpu": "4", "memory": "4Gi" } },
        "memory": { "guest": "5Gi", "maxGuest": "20Gi" },
        "cpu": { "cores": 2, "sockets": 2, "threads": 2, "maxSockets": 16 },
    }),
    json!({}), ["8", "5Gi"]
)]
#[case::fields_that_are_zero_do_not_multiply(
    json!({ "memory": { "guest": "1Gi" }, "cpu": { "cores": 0, "sockets": 3, "threads": 2 } }), json!({}), ["6", "1Gi"]
)]
#[case::one_cpu_if_none_is_stated(json!({ "memory": { "guest": "1Gi" } }), json!({}), ["1", "1Gi"])]
#[case::less_is_plugged_than_there_is(
    json!({ "memory": { "guest": "2Gi" }, "cpu": { "cores": 1, "sockets": 1, "threads": 1 } }),
    json!({
        "memory": { "guestRequested": "5Gi", "guestCurrent": "5Gi" },
        "currentCPUTopology": { "cores": 2, "sockets": 2, "threads": 2 },
    }),
    ["8", "5Gi"]
)]
#[case::more_is_plugged_than_there_is(
    json!({ "memory": { "guest": "5Gi" }, "cpu": { "cores": 2, "sockets": 2, "threads": 2 } }),
    json!({
        "memory": { "guestRequested": "2Gi", "guestCurrent": "2Gi" },
        "currentCPUTopology": { "cores": 1, "sockets": 1, "threads": 1 },
    }),
    ["8", "5Gi"]
)]
#[case::the_pod_has_it_and_the_guest_not_yet(
    json!({ "memory": { "guest": "2Gi" }, "cpu": { "cores": 1, "sockets": 1, "threads": 1 } }),
    json!({
        "memory": { "guestRequested": "5Gi", "guestCurrent": "2Gi" },
        "currentCPUTopology": { "cores": 2, "sockets": 2, "threads": 2 },
    }),
    ["8", "5Gi"]
)]
#[case::one_grows_and_the_other_shrinks(
    json!({ "memory": { "guest": "1Gi" }, "cpu": { "sockets": 4 } }),
    json!({ "memory": { "guestRequested": "2Gi" }, "currentCPUTopology": { "sockets": 2 } }),
    ["4", "2Gi"]
)]
#[case::a_guest_that_says_only_what_it_has_now(
    json!({ "resources": { "requests": { "memory": "2Gi" } }, "cpu": { "cores": 1 } }),
    json!({ "memory": { "guestCurrent": "1Gi" } }), ["1", "2Gi"]
)]
#[case::numbers_as_texts_and_nulls(
    json!({
        "memory": { "guest": 1_073_741_824 }, "cpu": { "cores": "2", "sockets": null }, "resources": { "limits": null },
    }),
    json!({ "memory": null, "currentCPUTopology": null, "conditions": null }), ["2", "1Gi"]
)]
fn guests_are_as_large_as_they_say(#[case] domain: Value, #[case] status: Value, #[case] guest: [&str; 2]) {
    let vm = size(&json!({ "domain": domain }), &status).unwrap();
    let [cpu, memory] = guest;
    let of = |calculator| printed(&vm_charge(calculator, &vm, [], None).unwrap().unwrap());
    let as_pod = json!({
        "pods": "1", "count/pods": "1", "cpu": cpu, "limits.cpu": cpu, "memory": memory, "limits.memory": memory,
    });
    assert_eq!(of(Calculator::VirtualResources), amounts(&as_pod));
    let as_vm = json!({ "instances/vmi": "1", "cpu/vmi": cpu, "memory/vmi": memory });
    assert_eq!(of(Calculator::DedicatedVirtualResources), amounts(&as_vm));
    let ignored = vm_charge(Calculator::IgnoreVmiCalculator, &vm, [], None);
    assert_eq!(ignored, Ok(None));
}

/// A launcher with a second container, and its target by a KubeVirt that adds more.
#[test]
fn pods_of_a_vm_take_what_the_largest_does() {
    let vm = size(&json!({ "domain": { "memory": { "guest": "2Gi" } } }), &json!({})).unwrap();
    let whole = charge_of(&json!({
        "pods": "1", "count/pods": "1", "cpu": "3", "memory": "3Gi", "limits.memory": "3Gi", "ephemeral-storage": "50M",
    }));
    let compute = charge_of(&json!({
        "pods": "1", "count/pods": "1", "cpu": "2", "memory": "2Gi", "limits.memory": "2Gi", "ephemeral-storage": "50M",
    }));
    let target = charge_of(
        &json!({ "pods": "1", "count/pods": "1", "cpu": "1", "memory": "4Gi", "limits.memory": "4Gi" }),
    );
    let of = |calculator, kubevirt: Option<&KubeVirtFacts>, with_target: bool| {
        let source = Launcher { whole: &whole, compute: &compute };
        let target = with_target.then_some(Launcher { whole: &target, compute: &target });
        let launchers = [source].into_iter().chain(target);
        printed(&vm_charge(calculator, &vm, launchers, kubevirt).unwrap().unwrap())
    };
    assert_eq!(of(Calculator::VmiPodUsage, None, false), printed(&whole));
    let both = json!({
        "pods": "1", "count/pods": "1", "cpu": "3", "memory": "4Gi", "limits.memory": "4Gi", "ephemeral-storage": "50M",
    });
    assert_eq!(of(Calculator::VmiPodUsage, None, true), amounts(&both));
    // Without a KubeVirt nothing is taken off.
    assert_eq!(of(Calculator::GuestEffectiveResources, None, false), printed(&compute));
    // 228Mi, 8Mi for a CPU and 32Mi for graphics.
    let kubevirt = KubeVirtFacts::default();
    let of_guest = |list: Value| {
        let compute = charge_of(&list);
        let launcher = [Launcher { whole: &compute, compute: &compute }];
        let charge = vm_charge(Calculator::GuestEffectiveResources, &vm, launcher, Some(&kubevirt));
        printed(&charge.unwrap().unwrap())
    };
    let more = json!({ "cpu": "2", "memory": "3Gi", "limits.memory": "4Gi", "ephemeral-storage": "50M" });
    let off =
        json!({ "cpu": "2", "memory": "2804Mi", "limits.memory": "3828Mi", "ephemeral-storage": "50M" });
    assert_eq!(of_guest(more), amounts(&off));
    // Never what the VM asks for its guest, unless the container does not have it.
    let less = json!({ "memory": "2100Mi", "limits.cpu": "1" });
    let off = json!({ "memory": "2Gi", "limits.cpu": "1" });
    assert_eq!(of_guest(less), amounts(&off));
    assert_eq!(of_guest(json!({ "memory": "1Mi" })), amounts(&json!({ "memory": "1Mi" })));
    assert_eq!(
        of_guest(json!({ "memory": "1Mi", "hugepages-2Mi": "2Gi" })),
        amounts(&json!({ "memory": "0", "hugepages-2Mi": "2Gi" }))
    );
}

#[rstest]
#[case::nothing(json!({}), 0)]
#[case::no_graphics(json!({ "domain": { "devices": { "autoattachGraphicsDevice": false } } }), -32)]
#[case::graphics(json!({ "domain": { "devices": { "autoattachGraphicsDevice": true } } }), 0)]
#[case::arm64(json!({ "architecture": "arm64" }), 128)]
#[case::amd64(json!({ "architecture": "amd64" }), 0)]
#[case::gpu(json!({ "domain": { "devices": { "gpus": [{ "name": "g", "deviceName": "x/y" }] } } }), 1024)]
#[case::no_gpus(json!({ "domain": { "devices": { "gpus": [], "hostDevices": null } } }), 0)]
#[case::host_device_and_sriov(
    json!({ "domain": { "devices": { "hostDevices": [{}], "interfaces": [{ "name": "n", "sriov": {} }] } } }),
    1024,
)]
#[case::other_interface(json!({ "domain": { "devices": { "interfaces": [{ "name": "n", "masquerade": {} }] } } }), 0)]
#[case::metrics(json!({ "volumes": [{ "name": "m", "downwardMetrics": {} }, { "name": "n", "downwardMetrics": {} }] }), 1)]
#[case::sev(json!({ "domain": { "launchSecurity": { "sev": {} } } }), 256)]
#[case::snp(json!({ "domain": { "launchSecurity": { "snp": {} } } }), 256)]
#[case::tdx(json!({ "domain": { "launchSecurity": { "tdx": {} } } }), 0)]
#[case::tpm(json!({ "domain": { "devices": { "tpm": {} } } }), 53)]
#[case::no_tpm(json!({ "domain": { "devices": { "tpm": { "enabled": false } } } }), 0)]
#[case::one_probe(json!({ "livenessProbe": { "exec": {} }, "readinessProbe": { "httpGet": {} } }), 110)]
#[case::both_probes(json!({ "livenessProbe": { "exec": {} }, "readinessProbe": { "exec": {} } }), 120)]
#[case::dedicated(json!({ "domain": { "cpu": { "dedicatedCpuPlacement": true } } }), 100)]
#[case::isolated(
    json!({
        "domain": {
            "cpu": { "isolateEmulatorThread": true }, "ioThreads": { "supplementalPoolThreadCount": 4 },
            "resources": { "overcommitGuestOverhead": true },
        },
    }),
    0,
)]
#[case::plugins(json!({ "domain": { "devices": { "interfaces": [
    { "name": "a", "binding": { "name": "passt" } },
    { "name": "b", "binding": { "name": "passt" } },
    { "name": "c", "binding": { "name": "other" } },
] } } }), 250)]
fn the_overhead_is_read_of_the_specification(#[case] spec: Value, #[case] more_mib: i128) {
    let mut kubevirts = KubeVirts::default();
    let plugin =
        |memory: &str| json!({ "computeResourceOverhead": { "requests": { "cpu": "1", "memory": memory } } });
    let object = json!({
        "metadata": { "namespace": "kubevirt", "name": "kubevirt", "uid": "k" },
        "spec": {
            "configuration": { "network": { "binding": { "passt": plugin("250Mi"), "bad": plugin("x"), "none": {} } } },
        },
        "status": { "observedKubeVirtVersion": "v1.7.0", "phase": "Deployed" },
    });
    kubevirts.upsert(&serde_json::from_value::<KubeVirtWire>(object).unwrap());
    let kubevirt = kubevirts.oldest().unwrap();
    let overhead = |spec: &Value| {
        memory_overhead(&size(spec, &json!({})).unwrap(), kubevirt).unwrap().nanos() / (1_000_000_000 << 20)
    };
    assert_eq!(overhead(&spec) - overhead(&json!({})), more_mib);
    let reported = json!({ "memory": { "memoryOverhead": "300Mi" } });
    let reported = memory_overhead(&size(&spec, &reported).unwrap(), kubevirt).unwrap();
    assert_eq!(reported, Quantity::parse("300Mi").unwrap().into(), "what KubeVirt says comes first");
}

#[rstest]
#[case(json!({ "domain": { "ioThreadsPolicy": "supplementalPool" } }), true)]
#[case(json!({ "domain": { "ioThreadsPolicy": "auto" } }), false)]
#[case(json!({ "domain": { "ioThreadsPolicy": null } }), false)]
fn the_policy_of_io_threads_is_read(#[case] spec: Value, #[case] expected: bool) {
    let size = size(&spec, &json!({})).unwrap();
    assert_eq!(size.overhead.features.has(Feature::SupplementalPool), expected);
}

/// Devices that can be plugged in are told from those that a machine has from the beginning.
#[rstest]
#[case(json!({}), [false, false])]
#[case(json!({ "interfaces": [{ "bridge": {} }] }), [false, false])]
#[case(json!({ "interfaces": [{ "bridge": {} }, { "sriov": {} }] }), [true, true])]
#[case(json!({ "interfaces": [{ "sriov": {} }], "gpus": [{}] }), [true, false])]
#[case(json!({ "interfaces": [{ "sriov": {} }], "hostDevices": [{}] }), [true, false])]
#[case(json!({ "interfaces": null, "hostDevices": [{}] }), [true, false])]
fn interfaces_that_are_devices_are_read(#[case] devices: Value, #[case] expected: [bool; 2]) {
    let size = size(&json!({ "domain": { "devices": devices } }), &json!({})).unwrap();
    let has = [Feature::Vfio, Feature::VfioOfInterfaces].map(|feature| size.overhead.features.has(feature));
    assert_eq!(has, expected);
}

#[rstest]
#[case(json!({ "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": "" }), true)]
#[case(json!({ "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": "false", "other": "x" }), true)]
#[case(json!({ "alpha.kubevirt.io/emulatorThreadCompleteToEvenParity": "" }), false)]
#[case(json!(null), false)]
fn an_annotation_asks_for_an_even_number_of_cpus(#[case] annotations: Value, #[case] expected: bool) {
    let metadata = json!({ "namespace": "a", "name": "vm", "uid": "u", "annotations": annotations });
    let wire = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    let size = VmiRecord::read(&wire).size.clone().unwrap();
    assert_eq!(size.overhead.features.has(Feature::EvenEmulator), expected);
}

#[rstest]
#[case(json!({ "spec": {} }), (None, false))]
#[case(
    json!({
        "spec": { "configuration": { "additionalGuestMemoryOverheadRatio": "1.5" } },
        "status": { "observedKubeVirtVersion": "v1.5.2" },
    }),
    (Some(5), true),
)]
#[case(
    json!({
        "spec": { "configuration": { "additionalGuestMemoryOverheadRatio": "much" } },
        "status": { "observedKubeVirtVersion": "1.6" },
    }),
    (Some(6), false),
)]
#[case(json!({ "spec": { "configuration": null }, "status": { "observedKubeVirtVersion": "devel" } }), (None, false))]
#[case(
    json!({
        "spec": { "configuration": { "network": { "binding": null } } }, "status": { "observedKubeVirtVersion": "v2.3.0" },
    }),
    (None, false),
)]
#[case(json!({ "status": { "observedKubeVirtVersion": "v1.8.0-alpha.0.31+c7d385c6" } }), (Some(8), false))]
fn kubevirts_say_what_they_add(#[case] mut object: Value, #[case] expected: (Option<u32>, bool)) {
    object["metadata"] = json!({ "namespace": "kubevirt", "name": "kubevirt", "uid": "k" });
    let mut kubevirts = KubeVirts::default();
    kubevirts.upsert(&serde_json::from_value::<KubeVirtWire>(object).unwrap());
    let facts = kubevirts.oldest().unwrap();
    assert_eq!((facts.minor, facts.ratio.is_some()), expected);
}

#[rstest]
#[case(json!({}), (None, None))]
#[case(json!({ "cpuAllocationRatio": 5, "memoryOvercommit": 150 }), (Some(5), Some(150)))]
#[case(json!({ "cpuAllocationRatio": 0, "memoryOvercommit": -1 }), (None, None))]
#[case(json!({ "cpuAllocationRatio": 1.5, "memoryOvercommit": "all" }), (None, None))]
fn kubevirts_say_how_much_of_guests_their_pods_ask_for(
    #[case] developer: Value,
    #[case] expected: (Option<u32>, Option<u32>),
) {
    let mut kubevirts = KubeVirts::default();
    let metadata = json!({ "namespace": "kubevirt", "name": "kubevirt", "uid": "k" });
    let object =
        json!({ "metadata": metadata, "spec": { "configuration": { "developerConfiguration": developer } } });
    kubevirts.upsert(&serde_json::from_value::<KubeVirtWire>(object).unwrap());
    let facts = kubevirts.oldest().unwrap();
    assert_eq!((facts.cpu_allocation_ratio, facts.memory_overcommit), expected);
}

#[rstest]
#[case(
    json!({ "cpu": { "cores": -1 } }),
    json!({}),
    "spec.domain.cpu.cores: counting CPUs: expected a whole number from 0 to 4294967295",
)]
#[case(
    json!({ "cpu": { "threads": 4_294_967_296_u64 } }),
    json!({}),
    "spec.domain.cpu.threads: counting CPUs: expected a whole number from 0 to 4294967295",
)]
#[case(
    json!({ "cpu": { "sockets": 1e30 } }),
    json!({}),
    "spec.domain.cpu.sockets: counting CPUs: expected a whole number from 0 to 4294967295",
)]
#[case(
    json!({ "memory": { "guest": "lots" } }),
    json!({}),
    "spec.domain.memory.guest: parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi",
)]
#[case(
    json!({ "resources": { "requests": { "memory": "9e40" } } }),
    json!({}),
    "spec.domain.resources.requests[memory]: parsing quantity: the value is too large, the limit is about 1.7e29",
)]
#[case(
    json!({ "ioThreads": { "supplementalPoolThreadCount": "few" } }),
    json!({}),
    "spec.domain.ioThreads.supplementalPoolThreadCount: counting CPUs: expected a whole number from 0 to 4294967295",
)]
#[case(
    json!({}),
    json!({ "memory": { "guestRequested": "1x" } }),
    "status.memory.guestRequested: parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi",
)]
#[case(
    json!({}),
    json!({ "currentCPUTopology": { "cores": "many" } }),
    "status.currentCPUTopology.cores: counting CPUs: expected a whole number from 0 to 4294967295",
)]
fn a_number_that_cannot_be_read_is_named(
    #[case] domain: Value,
    #[case] status: Value,
    #[case] message: &str,
) {
    let error = size(&json!({ "domain": domain }), &status).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// Of a launcher it is known what it would take without its other containers and the overhead of its runtime.
#[test]
fn the_container_of_the_guest_is_told_from_the_others() {
    let container = |name: &str, cpu: &str| {
        json!({
            "name": name, "resources": { "requests": { "cpu": cpu }, "limits": { "cpu": cpu } },
        })
    };
    let reference = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": "u", "controller": true,
    });
    let mut pod = json!({
        "metadata": { "namespace": "a", "name": "p", "uid": "p", "ownerReferences": [reference] },
        "spec": {
            "containers": [container("hook", "1"), container("compute", "2")],
            "initContainers": [container("init", "9")], "overhead": { "cpu": "5" },
            "resources": { "requests": { "cpu": "7" } },
        },
        "status": {
            "phase": "Running", "containerStatuses": [{ "name": "compute", "resources": { "requests": { "cpu": "3" } } }],
        },
    });
    let read = |pod: &Value| {
        let wire: PodWire = serde_json::from_value(pod.clone()).unwrap();
        PodFacts::read(&wire, "gate", ChargeRules::for_minor(36), 0).ownership
    };
    let compute = read(&pod).unwrap().compute;
    let expected = json!({ "pods": "1", "count/pods": "1", "cpu": "3", "limits.cpu": "2" });
    assert_eq!(printed(&compute), amounts(&expected));
    pod["status"]["phase"] = json!("Succeeded");
    assert_eq!(printed(&read(&pod).unwrap().compute), amounts(&json!({ "count/pods": "1" })));
    pod["metadata"]["ownerReferences"] = json!([]);
    assert!(read(&pod).is_none());
}

/// 10,000 of them are held by each process.
#[test]
fn a_record_is_small() {
    assert!(size_of::<VmiRecord>() <= 512, "{} bytes", size_of::<VmiRecord>());
    println!("a VmiRecord takes {} bytes, its VmFacts {}", size_of::<VmiRecord>(), size_of::<VmFacts>());
}
