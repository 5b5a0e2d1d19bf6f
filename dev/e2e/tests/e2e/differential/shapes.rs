//! Pods of all shapes that quotas care for.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_e2e::random::Random;
use sluice_engine::quantity::NANOS_PER_UNIT;

use crate::differential::quantities::exact_text;

pub const PRIORITY_CLASSES: [&str; 3] = ["low", "middle", "high"];

/// Runtime classes with what they add to a pod.
pub const RUNTIME_CLASSES: [(&str, &[(&str, &str)]); 3] = [
    ("plain", &[]),
    ("sandbox", &[("cpu", "100m"), ("memory", "50Mi")]),
    ("exotic", &[("memory", "0.1Gi"), ("ephemeral-storage", "1e6"), ("cpu", "0")]),
];

const MIB: i128 = (1 << 20) * NANOS_PER_UNIT;
const MILLI: i128 = 1_000_000;

type Amounts = BTreeMap<&'static str, i128>;

#[derive(Clone, Default)]
struct Shape {
    requests: Amounts,
    limits: Amounts,
}

/// How much of their resources the containers of a pod name.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// Nothing.
    Bare,
    /// Requests and limits of cpu and memory, at least.
    Complete,
    /// Anything.
    Any,
}

/// An amount of cpu or bytes; sometimes none, sometimes an odd one.
fn amount(random: &mut Random, name: &str) -> i128 {
    match name {
        "cpu" => match random.below(20) {
            0 => 0,
            1 => random.between(1, 1_000_000) * 1000,
            _ => random.between(1, 40) * 50 * MILLI,
        },
        _ => match random.below(20) {
            0 => 0,
            1 => random.between(1, 1 << 30) * NANOS_PER_UNIT,
            2 => random.between(1, 1000) * 1_000_000 * NANOS_PER_UNIT,
            // Millibytes: the server warns of them and takes them.
            3 => random.between(1, 1 << 30) * MILLI,
            _ => random.between(1, 64) * 16 * MIB,
        },
    }
}

/// Adds what may be requested and limited differently.
fn overcommittable(random: &mut Random, name: &'static str, complete: bool, shape: &mut Shape) {
    let request = amount(random, name);
    let mode = if complete { random.pick(&[0, 0, 1]) } else { random.below(5) };
    if mode != 2 && mode != 4 {
        shape.requests.insert(name, request);
    }
    match mode {
        0 | 2 => drop(shape.limits.insert(name, request + amount(random, name))),
        1 => drop(shape.limits.insert(name, request)),
        _ => {}
    }
}

/// Adds what has to be limited to what is requested.
fn exact(random: &mut Random, name: &'static str, amount: i128, shape: &mut Shape) {
    shape.limits.insert(name, amount);
    if random.chance(70) {
        shape.requests.insert(name, amount);
    }
}

fn shape(random: &mut Random, style: Style) -> Shape {
    let mut shape = Shape::default();
    if style == Style::Bare {
        return shape;
    }
    let complete = style == Style::Complete;
    for name in ["cpu", "memory"] {
        if complete || random.chance(70) {
            overcommittable(random, name, complete, &mut shape);
        }
    }
    if random.chance(25) {
        overcommittable(random, "ephemeral-storage", false, &mut shape);
    }
    for name in ["nvidia.com/gpu", "example.com/Dongle"] {
        if random.chance(15) {
            let count = random.between(0, 8) * NANOS_PER_UNIT;
            exact(random, name, count, &mut shape);
        }
    }
    if random.chance(3) {
        exact(random, "deviceclass.resource.kubernetes.io/x", NANOS_PER_UNIT, &mut shape);
    }
    let computes = ["cpu", "memory"]
        .iter()
        .any(|name| shape.limits.contains_key(name) || shape.requests.contains_key(name));
    if computes && random.chance(15) {
        let pages = random.between(1, 64) * 2 * MIB;
        exact(random, "hugepages-2Mi", pages, &mut shape);
    }
    shape
}

/// Texts of amounts.
fn list(random: &mut Random, amounts: &Amounts) -> Value {
    let texts = amounts.iter().map(|(name, nanos)| ((*name).to_owned(), json!(exact_text(random, *nanos))));
    Value::Object(texts.collect::<Map<_, _>>())
}

fn resources(random: &mut Random, shape: &Shape) -> Value {
    let mut value = json!({});
    for (field, amounts) in [("requests", &shape.requests), ("limits", &shape.limits)] {
        if !amounts.is_empty() || random.chance(10) {
            value[field] = list(random, amounts);
        }
    }
    value
}

/// Pod-level resources that the containers' fit into.
fn pod_level(random: &mut Random, shapes: &[Shape]) -> Shape {
    let mut own = Shape::default();
    for name in ["cpu", "memory"] {
        let sum = |limits: bool| -> i128 {
            let of = |shape: &Shape| {
                let request = shape.requests.get(name).or_else(|| shape.limits.get(name));
                let limit = shape.limits.get(name);
                (if limits { limit } else { request }).copied().unwrap_or(0)
            };
            shapes.iter().map(of).sum()
        };
        let request = sum(false) + amount(random, name);
        let limit = request.max(sum(true)) + amount(random, name);
        if random.chance(60) {
            own.requests.insert(name, request);
        }
        if random.chance(60) {
            own.limits.insert(name, limit);
        }
    }
    let pages: i128 = shapes.iter().filter_map(|shape| shape.limits.get("hugepages-2Mi")).sum();
    if pages > 0 && random.chance(60) {
        let pages = pages + random.between(0, 8) * 2 * MIB;
        exact(random, "hugepages-2Mi", pages, &mut own);
    }
    own
}

fn affinity(random: &mut Random) -> Value {
    let mut term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}});
    match random.below(5) {
        0 => {}
        1 => term["namespaces"] = json!([]),
        2 => term["namespaces"] = json!(["elsewhere"]),
        3 => term["namespaceSelector"] = json!({}),
        _ => term["namespaceSelector"] = json!({"matchLabels": {"team": "a"}}),
    }
    let rule = if random.chance(50) {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
    } else {
        json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]})
    };
    json!({random.pick(&["podAffinity", "podAntiAffinity"]): rule})
}

/// A pod as a user may send it. Some break a rule of the API server that has nothing to do with quotas.
pub fn pod(random: &mut Random, name: &str) -> Value {
    let style = random.pick(&[
        Style::Bare,
        Style::Complete,
        Style::Complete,
        Style::Complete,
        Style::Complete,
        Style::Any,
        Style::Any,
        Style::Any,
    ]);
    let mut shapes = Vec::new();
    let mut containers = |random: &mut Random, kind: &str, count: usize| -> Vec<Value> {
        let one = |number| {
            let shape = shape(random, style);
            let mut container = json!({"name": format!("{kind}{number}"), "image": "none"});
            if !(shape.requests.is_empty() && shape.limits.is_empty()) || random.chance(50) {
                container["resources"] = resources(random, &shape);
            }
            if kind == "init" && random.chance(40) {
                container["restartPolicy"] = json!("Always");
            }
            shapes.push(shape);
            container
        };
        (0..count).map(one).collect()
    };
    let count = random.pick(&[1, 1, 2, 3]);
    let mains = containers(random, "main", count);
    let count = random.pick(&[0, 0, 1, 2, 3]);
    let inits = containers(random, "init", count);
    let mut spec = json!({
        "automountServiceAccountToken": false,
        "containers": mains,
        "initContainers": inits,
        "runtimeClassName": random.pick(&RUNTIME_CLASSES).0,
    });
    if style != Style::Bare && random.chance(20) {
        let own = pod_level(random, &shapes);
        spec["resources"] = resources(random, &own);
    }
    if random.chance(60) {
        spec["priorityClassName"] = json!(random.pick(&PRIORITY_CLASSES));
    }
    if random.chance(35) {
        spec["activeDeadlineSeconds"] = json!(random.pick(&[1, 600, 2_147_483_647]));
    }
    if random.chance(40) {
        spec["affinity"] = affinity(random);
    }
    if random.chance(30) {
        spec["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}
