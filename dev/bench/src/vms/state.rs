//! Many VMs in the gate's state, without a server.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::objects::from_json;
use sluice_engine::vm::{Calculator, KubeVirtFacts};
use sluice_gate::{KubeVirt, State};
use sluice_index::{PodWire, VmiWire};

use crate::memory::Held;
use crate::objects::{self, NOW};
use crate::pod_json::mix;
use crate::report::{median, ms, quantile, rows, say};

/// VMs of a namespace.
const EACH: u64 = 10;
const KUBEVIRT: &str = "kubevirt";

/// What was measured.
#[derive(Serialize)]
pub(super) struct Machines {
    machines: u64,
    bytes_per_machine: f64,
    event_ns: f64,
    event_p99_ns: f64,
    growth_event_ns: f64,
    event: &'static str,
    recount: Vec<Recount>,
}

/// Another calculator.
#[derive(Serialize)]
struct Recount {
    to: String,
    /// From the order to the last VM.
    ms: f64,
    /// Of the times that the state was locked.
    lock_hold_max_ms: f64,
    parts: usize,
}

const EVENT: &str = "a VirtualMachineInstance is modified: applied to the gate's state, \
                     with the round of decisions that follows";

impl Machines {
    pub(super) fn measure(count: u64) -> anyhow::Result<Self> {
        say(&format!("vms: {count} VMs in {} namespaces, no server", count / EACH));
        let mut state = state(count / EACH);
        let before = Held::read()?;
        state.begin_machines();
        for number in 0..count {
            state.apply_machine(&machine(number, 1, 2, 2), NOW);
        }
        state.end_machines(NOW);
        let after = Held::read()?;
        for number in 0..count {
            state.apply_pod(&launcher(number), NOW);
        }
        state.lead(NOW);
        objects::settle(&mut state, NOW);
        let mut version = 1;
        // Its version and nothing that is charged has changed, as with a heartbeat; or it is plugged in and out.
        let mut events = |sockets: [u32; 2], many: u64| -> Vec<f64> {
            let event = |at: u64| {
                version += 1;
                let number = mix(at) % count;
                let [now, wanted] =
                    sockets.map(|sockets| sockets + u32::from(sockets > 2 && at.is_multiple_of(2)));
                let vmi = machine(number, version, now, wanted);
                let begin = Instant::now();
                state.apply_machine(&vmi, NOW);
                state.plan(NOW);
                begin.elapsed().as_secs_f64() * 1e9
            };
            (0..many).map(event).collect()
        };
        let mut same = events([2, 2], 20_000);
        let mut grown = events([3, 3], 5_000);
        let to = [
            Calculator::VirtualResources,
            Calculator::VmiPodUsage,
            Calculator::IgnoreVmiCalculator,
            Calculator::DedicatedVirtualResources,
        ];
        let recount = to.into_iter().map(|to| Recount::measure(&mut state, to)).collect();
        #[allow(clippy::cast_precision_loss)]
        let bytes_per_machine =
            (after.allocated_mib - before.allocated_mib) * f64::from(1 << 20) / count as f64;
        Ok(Self {
            machines: count,
            bytes_per_machine,
            event_ns: median(&mut same),
            event_p99_ns: quantile(&mut same, 0.99),
            growth_event_ns: median(&mut grown),
            event: EVENT,
            recount,
        })
    }

    pub(super) fn longest_ms(&self) -> f64 {
        self.recount.iter().map(|it| it.lock_hold_max_ms).fold(0.0, f64::max)
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        let title = format!("vms: {} VMs in the gate's state", self.machines);
        let columns = [
            ("bytes of a VM", "bytes_per_machine"),
            ("ns per event that changes nothing, p50", "event_ns"),
            ("p99", "event_p99_ns"),
            ("ns per event that takes another size, p50", "growth_event_ns"),
        ];
        rows(&title, &columns, &[self])?;
        let columns = [
            ("to", "to"),
            ("ms", "ms"),
            ("the state was locked at most, ms", "lock_hold_max_ms"),
            ("parts", "parts"),
        ];
        rows("vms: counted by another calculator", &columns, &self.recount)
    }
}

impl Recount {
    fn measure(state: &mut State, to: Calculator) -> Self {
        let begin = Instant::now();
        state.count_machines_by(to, NOW);
        let mut longest = begin.elapsed();
        let mut parts = 1;
        while state.next_due_ms(NOW) == Some(0) {
            let slice = Instant::now();
            state.plan(NOW);
            longest = longest.max(slice.elapsed());
            parts += 1;
        }
        Self { to: format!("{to:?}"), ms: ms(begin.elapsed()), lock_hold_max_ms: ms(longest), parts }
    }
}

/// Namespaces with a quota each.
fn state(namespaces: u64) -> State {
    let mut state = objects::state();
    let controller = names::kubevirt_controller_username(KUBEVIRT).into();
    state.set_kubevirt(Some(KubeVirt { controller, facts: KubeVirtFacts::default() }), NOW);
    state.count_machines_by(Calculator::DedicatedVirtualResources, NOW);
    for number in 0..namespaces {
        let name = namespace(number * EACH);
        objects::apply_namespace(&mut state, &name, &Value::Null);
        let hard = json!({"requests.instances/vmi": "100", "requests.cpu/vmi": "1k", "requests.cpu": "1k", "pods": "1k"});
        state.apply_listed_quota(&objects::quota(&name, 1, &hard), NOW);
    }
    state
}

fn namespace(number: u64) -> String {
    format!("namespace-{:05}", number / EACH)
}

fn machine(number: u64, version: u64, now: u32, wanted: u32) -> VmiWire {
    let metadata = json!({
        "name": format!("vm-{number}"), "namespace": namespace(number), "uid": uid(number),
        "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    let domain = json!({"memory": {"guest": "2Gi"}, "cpu": {"sockets": wanted, "cores": 1, "threads": 1}});
    let status = json!({
        "phase": "Running", "nodeName": "node", "memory": {"guestCurrent": "2Gi"},
        "currentCPUTopology": {"sockets": now, "cores": 1, "threads": 1},
    });
    from_json(json!({"metadata": metadata, "spec": {"domain": domain}, "status": status}))
}

fn launcher(number: u64) -> PodWire {
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": format!("vm-{number}"),
        "uid": uid(number), "controller": true,
    });
    let stamp = json!({names::CREATED_BY_ANNOTATION: names::kubevirt_controller_username(KUBEVIRT)});
    let mut changes = json!({"metadata": {"ownerReferences": [owner], "annotations": stamp}});
    json_patch::merge(&mut changes, &objects::runs());
    let requests = json!({"cpu": "200m", "memory": "2300Mi"});
    objects::pod(&namespace(number), &format!("virt-launcher-{number}"), &requests, &changes)
}

/// As long as any.
fn uid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}
