//! The table of `docs/vms.md` says what the calculators charge.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeMap;

use serde_json::json;
use sluice_engine::vm::{Calculator, KubeVirtFacts, Launcher, VmFacts, memory_overhead, vm_charge};
use sluice_engine::{Amount, Charge, ChargeRules};
use sluice_index::{PodFacts, PodWire, VmiWire, Vmis, Watched as _};

const DOC: &str = include_str!("../../../docs/vms.md");
/// The keys of the table, by their shortest names.
const KEYS: [&str; 6] = ["pods", "cpu", "memory", "instances/vmi", "cpu/vmi", "memory/vmi"];
const GUEST: &str = "4Gi";

/// A VM with these CPUs that is to have those.
fn vm(has: u32, wants: u32) -> VmFacts {
    let object = json!({
        "metadata": { "namespace": "a", "name": "vm", "uid": "u" },
        "spec": { "domain": {
            "cpu": { "cores": 1, "sockets": wants, "threads": 1 }, "memory": { "guest": GUEST },
            "resources": { "requests": { "memory": GUEST } },
        } },
        "status": {
            "currentCPUTopology": { "cores": 1, "sockets": has, "threads": 1 },
            "memory": { "guestRequested": GUEST },
        },
    });
    let mut vmis = Vmis::default();
    vmis.upsert(&serde_json::from_value::<VmiWire>(object).unwrap());
    vmis.get("a", "vm").unwrap().size.clone().unwrap()
}

/// A launcher as KubeVirt makes it for a guest of so many CPUs: a tenth of them, and the memory of the guest with what comes
/// on top.
fn launcher(cpus: u32) -> PodFacts {
    let overhead = memory_overhead(&vm(cpus, cpus), &KubeVirtFacts::default()).unwrap();
    let memory = (overhead.nanos() / 1_000_000_000 + (4 << 30)).to_string();
    let pod = json!({
        "metadata": {
            "namespace": "a", "name": "p", "uid": "p",
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": "u", "controller": true,
            }],
        },
        "spec": {
            "containers": [{
                "name": "compute", "resources": { "requests": { "cpu": format!("{}m", cpus * 100), "memory": memory } },
            }],
            "initContainers": [{ "name": "guest-console-log", "restartPolicy": "Always", "resources": {
                "requests": { "cpu": "5m", "memory": "35M" }, "limits": { "cpu": "15m", "memory": "60M" },
            } }],
        },
        "status": { "phase": "Running" },
    });
    let wire: PodWire = serde_json::from_value(pod).unwrap();
    PodFacts::read(&wire, "gate", ChargeRules::for_minor(36), 0)
}

/// What is charged for the VM while it has these launchers.
fn charged(calculator: Calculator, vm: &VmFacts, launchers: &[PodFacts]) -> Charge {
    let all = launchers.iter().map(|pod| {
        let compute = &pod.ownership.as_ref().unwrap().compute;
        Launcher { whole: &pod.charge, compute }
    });
    let each_for_itself = || {
        let mut sums = BTreeMap::<_, Amount>::new();
        for (resource, amount) in launchers.iter().flat_map(|pod| pod.charge.iter()) {
            let sum = sums.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        Charge::from_pairs(sums)
    };
    vm_charge(calculator, vm, all, Some(&KubeVirtFacts::default())).unwrap().unwrap_or_else(each_for_itself)
}

/// As the table says it: memory in whole Mi, or in Gi.
fn cell(charge: &Charge) -> String {
    let amounts: BTreeMap<_, _> =
        charge.iter().map(|(resource, amount)| (resource.key().to_owned(), amount.nanos())).collect();
    let shown = KEYS.iter().filter_map(|key| {
        let nanos = amounts.get(*key)?;
        let mib = (nanos / 1_000_000_000 + (1 << 19)) >> 20;
        Some(match *key {
            "memory" | "memory/vmi" if mib % 1024 == 0 => format!("{key} {}Gi", mib / 1024),
            "memory" | "memory/vmi" => format!("{key} {mib}Mi"),
            _ if nanos % 1_000_000_000 == 0 => format!("{key} {}", nanos / 1_000_000_000),
            _ => format!("{key} {}m", nanos / 1_000_000),
        })
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[test]
fn the_table_says_what_is_charged() {
    let moments: [(&str, VmFacts, Vec<PodFacts>); 4] = [
        ("running", vm(2, 2), vec![launcher(2)]),
        ("migrating", vm(2, 2), vec![launcher(2), launcher(2)]),
        ("growing to 4 CPUs", vm(2, 4), vec![launcher(2), launcher(4)]),
        ("with 4 CPUs", vm(4, 4), vec![launcher(4)]),
    ];
    let header: Vec<&str> = moments.iter().map(|(name, ..)| *name).collect();
    let mut expected = format!("| calculator | {} |\n|---|---|---|---|---|\n", header.join(" | "));
    for calculator in Calculator::ALL {
        let cells = moments.iter().map(|(_, vm, launchers)| cell(&charged(calculator, vm, launchers)));
        let cells = cells.collect::<Vec<_>>().join(" | ");
        expected.push_str(&format!("| `{}` | {cells} |\n", calculator.name()));
    }
    assert!(DOC.contains(&expected), "the table is to be:\n{expected}");
}

/// Before there is the pod that brings it, as long as there are both, and when that one is all there is.
#[test]
fn what_is_plugged_in_is_charged_once_whichever_pods_there_are() {
    let growing = vm(2, 4);
    for calculator in Calculator::ALL.into_iter().filter(|calculator| calculator.counts_machines()) {
        let moments = [vec![launcher(2)], vec![launcher(2), launcher(4)], vec![launcher(4)]];
        let [before, both, after] = moments.map(|launchers| charged(calculator, &growing, &launchers));
        assert_eq!(before, both, "{calculator:?}");
        assert_eq!(both, after, "{calculator:?}");
        assert_eq!(after, charged(calculator, &vm(4, 4), &[launcher(4)]), "{calculator:?}");
    }
}

#[test]
fn each_calculator_is_described() {
    for calculator in Calculator::ALL {
        assert!(DOC.matches(&format!("`{}`", calculator.name())).count() >= 2, "{calculator:?}");
    }
}

/// What the text says beside the table.
#[test]
fn the_size_of_the_guest_is_charged_to_limits_too() {
    let charge = charged(Calculator::VirtualResources, &vm(2, 2), &[launcher(2)]);
    let of = |key: &str| charge.iter().find(|(resource, _)| resource.key() == key).map(|(_, amount)| *amount);
    assert_eq!(of("limits.cpu"), of("cpu"));
    assert_eq!(of("limits.memory"), of("memory"));
    assert!(DOC.contains(&format!("{GUEST} of memory")));
}
