//! Native quotas of a namespace, beside the engine's view of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_e2e::random::Random;
use sluice_engine::pod::{Container, Resources, constraints};
use sluice_engine::quantity::NANOS_PER_UNIT;
use sluice_engine::quota_spec::compile;
use sluice_engine::resource::KeyKind;
use sluice_engine::status::{enforced, keys_of};
use sluice_engine::{
    Amount, Charge, CompiledQuota, Ledger, PodInput, Quantity, RawQuotaSpec, Resource, ScopeFacts,
    ScopeRequirementText,
};
use sluice_index::{ContainerWire, PodWire, ResourcesWire};

use crate::differential::quantities::exact_text;
use crate::differential::server::{Server, amounts};

/// Keys with a typical amount of a pod, in nano-units.
const KEYS: [(&str, i128); 24] = [
    ("pods", NANOS_PER_UNIT),
    ("count/pods", NANOS_PER_UNIT),
    ("cpu", 2 * NANOS_PER_UNIT),
    ("requests.cpu", 2 * NANOS_PER_UNIT),
    ("limits.cpu", 4 * NANOS_PER_UNIT),
    ("memory", NANOS_PER_UNIT << 30),
    ("requests.memory", NANOS_PER_UNIT << 30),
    ("limits.memory", NANOS_PER_UNIT << 31),
    ("ephemeral-storage", NANOS_PER_UNIT << 28),
    ("requests.ephemeral-storage", NANOS_PER_UNIT << 28),
    ("limits.ephemeral-storage", NANOS_PER_UNIT << 29),
    ("hugepages-2Mi", NANOS_PER_UNIT << 24),
    ("requests.hugepages-2Mi", NANOS_PER_UNIT << 24),
    ("requests.nvidia.com/gpu", NANOS_PER_UNIT),
    ("requests.example.com/Dongle", NANOS_PER_UNIT),
    ("requests.deviceclass.resource.kubernetes.io/x", NANOS_PER_UNIT / 20),
    // Never taken by pods:
    ("nvidia.com/gpu", NANOS_PER_UNIT),
    ("limits.nvidia.com/gpu", NANOS_PER_UNIT),
    ("limits.example.com/Dongle", NANOS_PER_UNIT),
    ("requests.kubernetes.io/foo", NANOS_PER_UNIT),
    ("count/deployments.apps", NANOS_PER_UNIT),
    ("services", NANOS_PER_UNIT),
    ("requests.storage", NANOS_PER_UNIT << 30),
    ("gold.storageclass.storage.k8s.io/requests.storage", NANOS_PER_UNIT << 30),
];

/// Places in [`KEYS`] that scopes for pods allow.
const SCOPED_KEYS: [usize; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 13, 14, 15, 16, 1, 20];
const BEST_EFFORT_KEYS: [usize; 4] = [0, 1, 0, 20];

/// How much room the quotas of a namespace leave.
#[derive(Clone, Copy, PartialEq)]
pub enum Room {
    Ample,
    Tight,
}

/// A native quota.
pub struct Native {
    pub name: String,
    pub spec: RawQuotaSpec,
    quota: CompiledQuota,
    pub ledger: Ledger,
    /// What its status said at the beginning.
    start: BTreeMap<String, Amount>,
}

/// Amounts by key, in nano-units.
type Nanos = BTreeMap<String, i128>;

/// What is said of a quota that is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excesses {
    quota: String,
    requested: Nanos,
    used: Nanos,
    limited: Nanos,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Verdict {
    Allowed,
    /// Texts, one of which the server will give.
    Incomplete(BTreeSet<String>),
    /// By quota; the server names one of them.
    Exceeded(Vec<Excesses>),
}

fn scopes(random: &mut Random) -> (Vec<String>, Option<Vec<ScopeRequirementText>>) {
    let plain = |random: &mut Random| {
        let names = [
            "Terminating",
            "NotTerminating",
            "BestEffort",
            "NotBestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
        ];
        random.pick(&names).to_owned()
    };
    let requirement = |random: &mut Random| {
        if random.chance(50) {
            return ScopeRequirementText {
                scope_name: plain(random),
                operator: "Exists".to_owned(),
                values: Vec::new(),
            };
        }
        let operator = random.pick(&["In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist"]);
        let count = if operator.contains("In") { 1 + random.below(2) } else { 0 };
        let values = random.several(&["low", "middle", "high", "absent"], count);
        let values = values.into_iter().map(str::to_owned).collect();
        ScopeRequirementText { scope_name: "PriorityClass".to_owned(), operator: operator.to_owned(), values }
    };
    match random.below(10) {
        0..4 => (Vec::new(), None),
        4..6 => (vec![plain(random)], None),
        6 => (vec![plain(random), plain(random)], None),
        7 => (vec![plain(random)], Some(vec![requirement(random)])),
        8 => (Vec::new(), Some(vec![requirement(random)])),
        _ => (Vec::new(), Some(vec![requirement(random), requirement(random)])),
    }
}

/// A spec that the engine accepts.
fn spec(random: &mut Random, room: Room) -> RawQuotaSpec {
    for _ in 0..1000 {
        let (scopes, scope_selector) = scopes(random);
        let best_effort = |name: &str| {
            scopes
                .iter()
                .map(String::as_str)
                .chain(scope_selector.iter().flatten().map(|r| r.scope_name.as_str()))
                .any(|s| s == name)
        };
        let count = 1 + random.below(6);
        let chosen: Vec<usize> = if best_effort("BestEffort") {
            random.several(&BEST_EFFORT_KEYS, count)
        } else if !scopes.is_empty() || scope_selector.is_some() {
            random.several(&SCOPED_KEYS, count)
        } else {
            (0..count).map(|_| random.below(KEYS.len())).collect()
        };
        let hard = chosen.into_iter().map(|place| {
            let (key, typical) = KEYS[place];
            let pods = if room == Room::Ample { 1_000_000 } else { random.between(2, 50) };
            // Away from round numbers of every suffix.
            let nanos = typical * pods / NANOS_PER_UNIT * NANOS_PER_UNIT;
            (key.to_owned(), Quantity::parse(&exact_text(random, nanos)).unwrap())
        });
        let spec = RawQuotaSpec { hard: hard.collect(), scopes, scope_selector };
        if compile(&spec).is_ok() {
            return spec;
        }
    }
    panic!("no acceptable quota in 1000 tries");
}

impl Native {
    /// A quota with something used already.
    pub fn generate(random: &mut Random, name: String, room: Room) -> Self {
        let spec = spec(random, room);
        let quota = compile(&spec).unwrap();
        let mut by_resource: BTreeMap<Resource, i128> = BTreeMap::new();
        let mut start = BTreeMap::new();
        for entry in quota.entries.iter().filter(|entry| entry.kind == KeyKind::Pod) {
            // Two names of one resource have the same sum.
            let nanos = *by_resource.entry(entry.resource.clone()).or_insert_with(|| {
                let whole = entry.hard.nanos() / NANOS_PER_UNIT;
                random.between(0, whole / 4) * NANOS_PER_UNIT
            });
            start.insert(entry.key.to_string(), Amount::from_nanos(nanos));
        }
        let mut ledger = Ledger::new(enforced(&quota));
        ledger.reserve_in_flight(
            by_resource.into_iter().map(|(resource, nanos)| (resource, Amount::from_nanos(nanos))),
            &[],
        );
        Self { name, spec, quota, ledger, start }
    }

    /// Creates it and writes its status, as the resource quota controller would.
    pub async fn create(&self, server: &Server, path: &str) {
        let texts = |amounts: Vec<(&String, Quantity)>| -> serde_json::Map<String, Value> {
            amounts.into_iter().map(|(key, amount)| (key.clone(), json!(amount.to_string()))).collect()
        };
        let hard = texts(self.spec.hard.iter().map(|(key, amount)| (key, *amount)).collect());
        let format = sluice_engine::Format::DecimalSi;
        let used = texts(self.start.iter().map(|(key, amount)| (key, amount.quantity(format))).collect());
        let selector = self.spec.scope_selector.as_ref().map(|expressions| {
            let one = |r: &ScopeRequirementText| {
                json!({"scopeName": r.scope_name, "operator": r.operator, "values": r.values})
            };
            json!({"matchExpressions": expressions.iter().map(one).collect::<Vec<_>>()})
        });
        let quota = json!({
            "metadata": {"name": self.name},
            "spec": {"hard": hard, "scopes": self.spec.scopes, "scopeSelector": selector},
        });
        server.set_up(path, &quota).await;
        server.record(path, &self.name, json!({"hard": hard, "used": used})).await;
    }

    /// Whether the quota governs such pods (`docs/quota-semantics.md`, *Enforcement*).
    pub fn concerns(&self, facts: &ScopeFacts) -> bool {
        self.quota.entries.iter().any(|entry| entry.kind == KeyKind::Pod) && self.quota.scopes.matches(facts)
    }

    fn excesses(&self, charge: &Charge) -> Option<Excesses> {
        let mut found = Excesses {
            quota: self.name.clone(),
            requested: Nanos::new(),
            used: Nanos::new(),
            limited: Nanos::new(),
        };
        for excess in self.ledger.excess(charge, None) {
            // Of two names of a resource only the exceeded ones are told.
            for entry in keys_of(&self.quota, &excess.resource) {
                if excess.used.nanos() + excess.requested.nanos() > entry.hard.nanos() {
                    found.requested.insert(entry.key.to_string(), excess.requested.nanos());
                    found.used.insert(entry.key.to_string(), excess.used.nanos());
                    found.limited.insert(entry.key.to_string(), entry.hard.nanos());
                }
            }
        }
        (!found.requested.is_empty()).then_some(found)
    }

    /// How the server's `status.used` differs from the ledger.
    pub fn difference(&self, used: &Value) -> Option<String> {
        let mut differences = Vec::new();
        for entry in self.quota.entries.iter().filter(|entry| entry.kind == KeyKind::Pod) {
            let ours = self.ledger.line(&entry.resource).unwrap().used().nanos();
            let text = used[&*entry.key].as_str().unwrap_or("absent");
            if Quantity::parse(text).map(Quantity::nanos) != Ok(ours) {
                let ours = Amount::from_nanos(ours).quantity(entry.hard.format());
                differences.push(format!("{}: ours {ours}, the server's {text}", entry.key));
            }
        }
        let others = self.quota.entries.iter().filter(|entry| entry.kind != KeyKind::Pod);
        differences.extend(
            others
                .filter(|entry| !used[&*entry.key].is_null())
                .map(|entry| format!("{}: not pods' by us", entry.key)),
        );
        (!differences.is_empty())
            .then(|| format!("used of {} {:?}: {}", self.name, self.spec, differences.join("; ")))
    }
}

/// The engine's verdict on a request that adds `charge`.
pub fn predict(quotas: &[Native], charge: &Charge, facts: &ScopeFacts, wire: &PodWire) -> Verdict {
    let concerned: Vec<&Native> = quotas.iter().filter(|quota| quota.concerns(facts)).collect();
    let input = requests_of(wire);
    let incomplete = concerned.iter().filter_map(|quota| {
        let missing = constraints(quota.spec.hard.keys().map(String::as_str), &input).err()?;
        Some(format!("failed quota: {}: {missing}", quota.name))
    });
    let incomplete: BTreeSet<String> = incomplete.collect();
    if !incomplete.is_empty() {
        return Verdict::Incomplete(incomplete);
    }
    let exceeded: Vec<Excesses> = concerned.iter().filter_map(|quota| quota.excesses(charge)).collect();
    if exceeded.is_empty() { Verdict::Allowed } else { Verdict::Exceeded(exceeded) }
}

/// What the rule of mandatory amounts looks at.
fn requests_of(wire: &PodWire) -> PodInput<'_> {
    fn list(list: Option<&sluice_index::ListWire>) -> sluice_engine::pod::ResourceList<'_> {
        let entries = list.into_iter().flat_map(|list| &list.0);
        entries.map(|(name, text)| (name.as_str(), Quantity::parse(&text.0).unwrap())).collect()
    }
    fn resources(wire: &ResourcesWire) -> Resources<'_> {
        Resources { requests: list(wire.requests.as_ref()), limits: list(wire.limits.as_ref()) }
    }
    fn containers(wire: &[ContainerWire]) -> Vec<Container<'_>> {
        wire.iter()
            .map(|ContainerWire { name, resources: own, .. }| Container {
                name,
                resources: own.as_ref().map(resources).unwrap_or_default(),
                restartable: false,
            })
            .collect()
    }
    PodInput {
        containers: containers(&wire.spec.containers),
        init_containers: containers(&wire.spec.init_containers),
        pod_resources: wire.spec.resources.as_ref().map(resources),
        ..PodInput::default()
    }
}

/// Reads `… exceeded quota: q, requested: …, used: …, limited: …`, after which may follow what to do.
pub fn read_excesses(message: &str) -> Option<Excesses> {
    let message = message.split("; ").next()?;
    let (_, rest) = message.split_once("exceeded quota: ")?;
    let (quota, rest) = rest.split_once(", requested: ")?;
    let (requested, rest) = rest.split_once(", used: ")?;
    let (used, limited) = rest.split_once(", limited: ")?;
    let nanos = |text: &str| -> Option<Nanos> {
        amounts(text)
            .into_iter()
            .map(|(key, amount)| Some((key, Quantity::parse(&amount).ok()?.nanos())))
            .collect()
    };
    Some(Excesses {
        quota: quota.to_owned(),
        requested: nanos(requested)?,
        used: nanos(used)?,
        limited: nanos(limited)?,
    })
}
