//! VirtualMachines, and VirtualMachineInstances without one: warns of those whose pod is larger than their guest.
//!
//! By the calculators that go by guests, a VM is charged the CPUs and memory of its guest. Its pod takes of its node what
//! `spec.domain.resources` asks for (KubeVirt: `pkg/virt-controller/services/renderresources.go`, `Requests`), which may be
//! more. Limits stand for requests that are absent (`pkg/defaults/defaults.go`, `setDefaultResourceRequests`, and
//! `WithMemoryRequests`). So the tenant takes of nodes what no quota says. That is allowed, and told.
//!
//! A guest whose CPUs or memory are not stated is as large as these resources (`SetDefaultGuestCPUTopology`,
//! `setGuestMemory` in the same file), so there is nothing to tell of it.
//!
//! Where an instance type says how large the guest is, KubeVirt refuses such resources beside it
//! (`pkg/instancetype/apply/cpu.go`, `validateCPU`, and `memory.go`, `validateMemory`): none has to be looked up.

use serde::Deserialize;
use sluice_engine::quantity::Format;
use sluice_engine::vm::{Calculator, CpuTopology, VmFacts};
use sluice_index::VmiSpecWire;

use crate::review::{Review, Verdict, nullable};
use crate::settings::Settings;

/// A VirtualMachineInstance, or the template of one.
#[derive(Default, Deserialize)]
struct Instance {
    #[serde(default)]
    spec: VmiSpecWire,
}

/// A VirtualMachine.
#[derive(Deserialize)]
struct Machine {
    #[serde(default)]
    spec: MachineSpec,
}

#[derive(Default, Deserialize)]
struct MachineSpec {
    #[serde(default, deserialize_with = "nullable")]
    template: Instance,
}

/// Allows it, whatever it is, with a warning for each resource of which its pod takes more than quotas are charged.
pub fn vm_size(review: &Review<'_>, settings: &Settings) -> Verdict {
    Verdict {
        warnings: settings.guests().and_then(|by| warnings(review, by)).unwrap_or_default(),
        ..Verdict::allow("")
    }
}

/// `None` if the size is not understood: what that means is told when the VM is to be charged.
fn warnings(review: &Review<'_>, calculator: Calculator) -> Option<Vec<String>> {
    let (at, spec) = match &*review.kind {
        "VirtualMachine" => {
            let machine = review.read_object::<Machine>("a VirtualMachine").ok()?;
            ("spec.template.spec.domain", machine.spec.template.spec)
        }
        _ => ("spec.domain", review.read_object::<Instance>("a VirtualMachineInstance").ok()?.spec),
    };
    larger(at, &spec.facts().ok()?, calculator)
}

/// A sentence for each resource of which the pod of a VM takes more than the guest has; `at` is where its size is.
fn larger(at: &str, vm: &VmFacts, calculator: Calculator) -> Option<Vec<String>> {
    let guest = vm.size().ok()?;
    let VmFacts { requests, limits, .. } = vm;
    let has_cpus = vm.topology.and_then(CpuTopology::vcpus).is_some_and(|vcpus| vcpus > 0);
    let cpu = ("cpu", [requests.cpu, limits.cpu], guest.cpu, Format::DecimalSi);
    let memory = ("memory", [requests.memory, limits.memory], guest.memory, Format::BinarySi);
    let resources = [Some(cpu).filter(|_| has_cpus), Some(memory)].into_iter().flatten();
    let told = resources.filter_map(|(name, stated, guest, format)| {
        let mut stated = ["requests", "limits"].into_iter().zip(stated.map(Option::unwrap_or_default));
        let (list, taken) = stated.find(|(_, amount)| !amount.is_zero())?;
        let [taken, of_guest] = [taken, guest].map(|amount| amount.quantity(format));
        let by = calculator.name();
        (taken > of_guest).then(|| {
            format!(
                "{at}.resources.{list}.{name}: the pod takes {taken} of its node, and quotas are charged the {of_guest} of \
                 the guest (calculator {by}): request no more than the guest has"
            )
        })
    });
    Some(told.collect())
}
