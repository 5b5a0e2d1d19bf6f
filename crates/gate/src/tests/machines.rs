//! VMs that are seen and counted by a calculator: short stories, one behaviour each.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::Uid;
use sluice_engine::vm::Calculator;
use sluice_index::{PodWire, VmiWire};

use super::owners::kubevirt;
use super::server::wire;
use super::stories::{Story, at};
use super::team::NAMESPACE;

pub(super) const SOURCE: &str = "v1-p1";
pub(super) const TARGET: &str = "v1-p2";
pub(super) const CLAIMS: &str = "v1-px3";

pub(super) fn vmi(spec: &Value, status: &Value) -> VmiWire {
    wire(named("v1", spec, status))
}

fn named(uid: &str, spec: &Value, status: &Value) -> Value {
    let metadata = json!({ "namespace": NAMESPACE, "name": "vm", "uid": uid });
    json!({ "metadata": metadata, "spec": { "domain": spec }, "status": status })
}

/// A VM that has `current` CPUs and is to have `wanted`.
pub(super) fn sized(current: u32, wanted: u32) -> VmiWire {
    sized_of("v1", current, wanted)
}

pub(super) fn sized_of(uid: &str, current: u32, wanted: u32) -> VmiWire {
    wire(sized_object(uid, current, wanted))
}

pub(super) fn sized_object(uid: &str, current: u32, wanted: u32) -> Value {
    named(
        uid,
        &json!({ "memory": { "guest": "1Gi" }, "cpu": { "sockets": wanted } }),
        &json!({ "currentCPUTopology": { "sockets": current } }),
    )
}

impl Story {
    /// VMs are counted so, and there are so many thousandths of a CPU.
    pub(super) fn counting(calculator: Calculator, hard: u64) -> Self {
        let mut story = Self::led();
        story.state.set_kubevirt(Some(kubevirt()), at(0));
        story.state.count_machines_by(calculator, at(0));
        story.server.set_hard(hard);
        story
    }

    pub(super) fn see_machine(&mut self, vmi: &VmiWire, now: u64) {
        self.change_machine(vmi);
        self.state.apply_machine(vmi, at(now));
    }

    /// The watch has not shown it yet.
    pub(super) fn change_machine(&mut self, vmi: &VmiWire) {
        let uid = vmi.metadata.uid.clone().unwrap();
        self.machines.get_or_insert_default().insert(uid, vmi.clone());
    }

    pub(super) fn held(&self) -> Vec<&str> {
        self.gated()
    }

    pub(super) fn used_after(&mut self, now: u64) -> String {
        self.run(at(now));
        // What is not a charge is written a little later.
        self.run(at(now + 60));
        self.server.used().to_owned()
    }

    pub(super) fn told_of(&self, pod: &str) -> Vec<(&str, &str)> {
        let of = self.told.iter().filter(|event| &*event.name == pod);
        of.map(|event| (event.reason, event.message.as_str())).collect()
    }
}

#[test]
fn a_vm_takes_what_its_guest_has_however_many_pods_it_runs_in() {
    let mut story = Story::counting(Calculator::VirtualResources, 2000);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "2");
    story.server.create_pod(TARGET, 150, 0);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), Vec::<&str>::new(), "a migration in a full quota");
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_after(200), "2");
    story.server.delete_pod(TARGET);
    assert_eq!(story.used_after(300), "0");
}

#[test]
fn a_vm_is_charged_the_larger_of_what_it_has_and_what_it_is_to_have() {
    let mut story = Story::counting(Calculator::VirtualResources, 2500);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    story.run(at(0));
    story.see_machine(&sized(2, 3), 100);
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "3", "nobody has asked: it is shown above the limit");
    assert_eq!(story.held(), Vec::<&str>::new(), "the VM is charged, so its target costs nothing");
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_after(300), "3", "although its status does not say so yet");
    story.see_machine(&sized(3, 3), 400);
    assert_eq!(story.used_after(400), "3");
    story.see_machine(&sized(3, 1), 500);
    assert_eq!(story.used_after(500), "3", "it still has what is to be taken off");
    story.see_machine(&sized(1, 1), 600);
    assert_eq!(story.used_after(600), "1");
}

#[test]
fn a_launcher_is_held_until_its_vm_is_seen() {
    let mut story = Story::counting(Calculator::VirtualResources, 2000);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "0");
    assert_eq!(story.held(), [SOURCE]);
    let told = "held: its VirtualMachineInstance is not known; create the pod again if that is gone";
    assert_eq!(story.told_of(SOURCE), [("UnknownMachine", told)]);
    story.see_machine(&sized(2, 2), 100);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn a_pod_that_only_claims_to_be_a_launcher_is_charged_as_what_it_is() {
    let mut story = Story::counting(Calculator::VirtualResources, 2100);
    story.server.create_pod(CLAIMS, 100, 0);
    assert_eq!(story.used_after(0), "100m", "whether there is such a VM or not");
    story.see_machine(&sized(2, 2), 100);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(100), "2100m");
    story.server.create_pod("v1-px4", 100, 0);
    assert_eq!(story.used_after(200), "2100m");
    assert_eq!(story.held(), ["v1-px4"]);
}

/// Pods from before Sluice have no stamp, and a tenant may have created any number of them. Every walk over the pods of a VM
/// goes over this list.
#[test]
fn pods_that_claim_a_vm_cost_no_more_than_others() {
    let mut story = Story::counting(Calculator::VirtualResources, 2100);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    story.run(at(0));
    let claimant = |n: usize, annotations: Value| -> PodWire {
        wire(json!({
            "metadata": {
                "name": format!("claimant-{n}"), "namespace": NAMESPACE,
                "uid": format!("claimant-{n}"), "resourceVersion": "9",
                "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", n / 60, n % 60), "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm",
                    "uid": "v1", "controller": true,
                }],
            },
            "spec": {"containers": [{"name": "compute"}]},
        }))
    };
    for n in 0..1000 {
        let stamp = json!({ "quota.sluice.dev/created-by": "alice" });
        story.state.apply_pod(&claimant(n, if n % 2 == 0 { json!({}) } else { stamp }), at(10));
    }
    let namespace = story.state.index().0.iter().next().unwrap().1.namespace;
    let of_machine = |story: &Story| {
        let (state, mut names) = (&story.state, Vec::new());
        for id in state.pods_of_machine(namespace, &Uid::parse("v1")) {
            names.push(state.index().0.get(id).unwrap().name.to_string());
        }
        names.sort();
        names
    };
    assert_eq!(of_machine(&story), ["claimant-0", SOURCE], "the launcher, and the oldest without a stamp");
    story.state.delete_pod(&claimant(0, json!({})));
    story.run(at(100));
    assert_eq!(of_machine(&story), ["claimant-2", SOURCE]);
}

#[test]
fn a_vm_that_is_gone_is_charged_until_its_last_pod_ends() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    story.run(at(0));
    story.state.delete_machine(&sized(2, 2), at(100));
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), [TARGET]);
    story.server.delete_pod(SOURCE);
    assert_eq!(story.used_after(200), "0");
    assert_eq!(story.held(), [TARGET]);
}

#[test]
fn a_vm_that_is_missing_in_a_list_is_gone() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.state.begin_machines();
    story.see_machine(&sized(2, 2), 0);
    story.state.end_machines(at(0));
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "2");
    story.state.begin_machines();
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), Vec::<&str>::new(), "until the list is complete it is as it was");
    story.machines = Some(BTreeMap::new());
    story.state.begin_machines();
    story.state.end_machines(at(200));
    story.server.create_pod("v1-p3", 100, 0);
    story.run(at(200));
    assert_eq!(story.held(), ["v1-p3"]);
}

#[test]
fn a_vm_that_cannot_be_counted_keeps_its_charge_and_gets_no_further_pod() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    story.run(at(0));
    let senseless = vmi(&json!({ "memory": { "guest": "lots" } }), &json!({}));
    story.see_machine(&senseless, 100);
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "2");
    let told = "held: its VirtualMachineInstance cannot be counted: spec.domain.memory.guest: parsing quantity: expected a \
                number with an optional suffix, like 500m, 1.5 or 2Gi";
    assert_eq!(story.told_of(TARGET), [("UnknownMachine", told)]);
    story.see_machine(&sized(2, 2), 200);
    assert_eq!(story.used_after(200), "2");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn by_what_pods_take_a_target_waits_for_what_it_takes_more_than_its_source() {
    let mut story = Story::counting(Calculator::VmiPodUsage, 149);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "100m");
    story.server.create_pod(TARGET, 150, 0);
    assert_eq!(story.used_after(50), "100m");
    assert_eq!(story.held(), [TARGET], "containers that others add, devices, interfaces");
    story.server.create_pod("web", 50, 0);
    story.server.set_hard(150);
    assert_eq!(story.used_after(100), "150m");
    assert_eq!(story.held(), ["web"], "what the target is to take is kept until it is seen what it takes");
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_after(200), "150m");
    story.server.delete_pod(TARGET);
    assert_eq!(story.used_after(300), "50m", "web");
}

/// The kubelet says nothing any more, so the pod is over when its time is.
#[test]
fn a_launcher_on_a_dead_node_gives_back_what_only_it_took() {
    let mut story = Story::counting(Calculator::VmiPodUsage, 1000);
    story.see_machine(&sized(2, 2), 0);
    for (pod, size) in [(SOURCE, 100), (TARGET, 150)] {
        story.server.create_pod(pod, size, 0);
    }
    assert_eq!(story.used_after(0), "150m");
    let mut deleted = story.server.pod(TARGET).clone();
    deleted["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:40Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    deleted["metadata"]["resourceVersion"] = json!("1000");
    story.state.apply_pod(&wire(deleted), at(10_000));
    assert_eq!(story.used_after(11_000), "150m");
    assert_eq!(story.used_after(120_000), "100m");
}

#[rstest]
#[case::counted(Calculator::VmiPodUsage)]
#[case::of_the_guest(Calculator::GuestEffectiveResources)]
fn a_target_that_takes_no_more_than_its_source_waits_for_nothing(#[case] calculator: Calculator) {
    let mut story = Story::counting(calculator, 100);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "100m");
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "100m");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn a_target_that_waits_waits_for_what_it_takes_more_than_the_source_of_now() {
    let mut story = Story::counting(Calculator::VmiPodUsage, 100);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "100m");
    story.server.create_pod(TARGET, 120, 0);
    assert_eq!(story.used_after(50), "100m");
    assert_eq!(story.held(), [TARGET]);
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_after(100), "0");
    assert_eq!(story.held(), [TARGET], "alone it takes its whole size");
    story.server.set_hard(120);
    assert_eq!(story.used_after(200), "120m");
}

#[test]
fn of_pods_from_before_there_was_a_stamp_the_oldest_one_is_the_launcher() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.see_machine(&sized(2, 2), 0);
    for pod in ["v1-pu1", "v1-pu2"] {
        story.server.create_pod(pod, 100, 0);
        story.server.ungate_pod(pod);
    }
    assert_eq!(story.used_after(0), "2100m");
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "2100m", "a migration");
    assert_eq!(story.held(), Vec::<&str>::new());
    story.server.finish_pod("v1-pu1");
    assert_eq!(story.used_after(200), "2", "the next one is as old as any now");
    story.server.delete_pod("v1-pu2");
    assert_eq!(story.used_after(300), "2");
}
