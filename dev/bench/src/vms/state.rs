//! Many VMs in the gate's state, without a server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_api::names;
use sluice_controllers::gate::{GateConfig, KubeVirt, Moment, State};
use sluice_e2e::objects::from_json;
use sluice_engine::ChargeRules;
use sluice_engine::vm::{Calculator, KubeVirtFacts};
use sluice_index::{PodWire, Targeting, VmiWire};

use super::figures;
use crate::memory::Held;
use crate::pod_json::mix;
use crate::report::{median, ms, quantile, round, say};

/// VMs of a namespace.
const EACH: u64 = 10;
const NOW: Moment = Moment { mono_ms: 1_000, unix_ms: 1_772_500_000_000 };
const KUBEVIRT: &str = "kubevirt";

/// What was measured.
pub(super) struct Machines {
    count: u64,
    bytes: f64,
    event_ns: f64,
    event_p99_ns: f64,
    growth_ns: f64,
    recounts: Vec<Recount>,
}

/// Another calculator.
struct Recount {
    to: Calculator,
    /// From the order to the last VM.
    whole: Duration,
    /// Of the times that the state was locked.
    longest: Duration,
    slices: usize,
}

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
        while state.next_due_ms(NOW) == Some(0) {
            state.plan(NOW);
        }
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
        let recounts = to.into_iter().map(|to| Recount::measure(&mut state, to)).collect();
        #[allow(clippy::cast_precision_loss)]
        let bytes = (after.allocated_mib - before.allocated_mib) * f64::from(1 << 20) / count as f64;
        let (event_ns, event_p99_ns) = (median(&mut same), quantile(&mut same, 0.99));
        Ok(Self { count, bytes, event_ns, event_p99_ns, growth_ns: median(&mut grown), recounts })
    }

    pub(super) fn longest_ms(&self) -> f64 {
        self.recounts.iter().map(|it| ms(it.longest)).fold(0.0, f64::max)
    }

    pub(super) fn print(&self) {
        let mut rows = vec![
            ("bytes of a VM", format!("{:.0}", self.bytes)),
            ("ns per event of a VM that changes nothing, p50", format!("{:.0}", self.event_ns)),
            ("the same, p99", format!("{:.0}", self.event_p99_ns)),
            ("ns per event of one that takes another size, p50", format!("{:.0}", self.growth_ns)),
        ];
        let texts: Vec<(String, String)> = self.recounts.iter().map(Recount::cells).collect();
        rows.extend(texts.iter().map(|(name, value)| (name.as_str(), value.clone())));
        figures(&format!("vms: {} VMs in the gate's state", self.count), &rows);
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "machines": self.count,
            "bytes_per_machine": round(self.bytes, 0),
            "event_ns": round(self.event_ns, 0),
            "event_p99_ns": round(self.event_p99_ns, 0),
            "growth_event_ns": round(self.growth_ns, 0),
            "event": "a VirtualMachineInstance is modified: applied to the gate's state, with the round of decisions that follows",
            "recount": self.recounts.iter().map(Recount::json).collect::<Vec<_>>(),
        })
    }
}

impl Recount {
    fn measure(state: &mut State, to: Calculator) -> Self {
        let begin = Instant::now();
        state.count_machines_by(to, NOW);
        let mut longest = begin.elapsed();
        let mut slices = 1;
        while state.next_due_ms(NOW) == Some(0) {
            let slice = Instant::now();
            state.plan(NOW);
            longest = longest.max(slice.elapsed());
            slices += 1;
        }
        Self { to, whole: begin.elapsed(), longest, slices }
    }

    fn cells(&self) -> (String, String) {
        let Self { whole, longest, slices, .. } = self;
        let value = format!("{:.1} ms in {slices} parts, the longest {:.2} ms", ms(*whole), ms(*longest));
        (format!("counted by {:?}", self.to), value)
    }

    fn json(&self) -> Value {
        json!({
            "to": format!("{:?}", self.to),
            "ms": round(ms(self.whole), 2),
            "lock_hold_max_ms": round(ms(self.longest), 3),
            "parts": self.slices,
        })
    }
}

/// Namespaces with a quota each.
fn state(namespaces: u64) -> State {
    let targeting = Targeting::new(kube::core::Selector::default(), [].into());
    let mut state = State::new(GateConfig::new(names::GATE, ChargeRules::for_minor(36)), targeting);
    let controller = names::kubevirt_controller_username(KUBEVIRT).into();
    state.set_kubevirt(Some(KubeVirt { controller, facts: KubeVirtFacts::default() }), NOW);
    state.count_machines_by(Calculator::DedicatedVirtualResources, NOW);
    for number in 0..namespaces {
        let name = namespace(number * EACH);
        state.apply_namespace(&from_json(json!({"metadata": {"name": name, "uid": name}})), NOW);
        let hard = json!({"requests.instances/vmi": "100", "requests.cpu/vmi": "1k", "requests.cpu": "1k", "pods": "1k"});
        let metadata =
            json!({"name": "vms", "namespace": name, "uid": format!("quota-{name}"), "resourceVersion": "1"});
        state.apply_listed_quota(&from_json(json!({"metadata": metadata, "spec": {"hard": hard}})), NOW);
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
    let metadata = json!({
        "name": format!("virt-launcher-{number}"), "namespace": namespace(number), "uid": format!("pod-{number}"),
        "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner],
        "annotations": stamp,
    });
    let requests = json!({"cpu": "200m", "memory": "2300Mi"});
    let containers = json!([{"name": "compute", "resources": {"requests": requests}}]);
    let spec = json!({"nodeName": "node", "containers": containers});
    from_json(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}))
}

/// As long as any.
fn uid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}
