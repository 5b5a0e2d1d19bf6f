//! What is kept of the objects that pages show.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use sluice_api::{ClusterQuotaStatus, names};
use sluice_engine::{Amount, Quantity};
use sluice_gate::percent;
use sluice_index::{
    AacrqWire, AcrqWire, ArqWire, Phase, ResourceQuotaWire, ResourceTexts, VmimRecord, VmimWire,
};

use crate::history::History;
use crate::table::Name;

/// What kind of quota it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An `ApplicationAwareResourceQuota`.
    Namespaced,
    /// An `ApplicationAwareClusterResourceQuota`, or its mirror where that is all that may be read.
    Cluster,
    /// A `ResourceQuota`, which refuses pods in place of letting them wait.
    Native,
}

/// One key of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The key as the quota has it.
    pub key: String,
    /// What is taken; `None`: the status does not say, or it is no quantity.
    pub used: Option<Quantity>,
    /// The limit; `None`: it is no quantity.
    pub limit: Option<Quantity>,
}

impl Line {
    /// In hundredths of the limit.
    #[must_use]
    pub fn percent(&self) -> i64 {
        self.used.zip(self.limit).map_or(0, |(used, limit)| percent(used, limit))
    }
}

/// What one namespace takes of a cluster quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub namespace: String,
    /// By key.
    pub used: BTreeMap<String, Quantity>,
}

/// A quota as its status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub lines: Vec<Line>,
    /// How many pods wait for it.
    pub held: i64,
    /// When the oldest of them was created, in seconds since the epoch.
    pub since: Option<i64>,
    /// What its conditions tell of it, but for the pods that wait.
    pub told: Vec<String>,
    /// Of a cluster quota.
    pub shares: Vec<Share>,
    pub(crate) history: History,
}

impl Quota {
    /// The key that is nearest to its limit, or above it.
    #[must_use]
    pub fn fullest(&self) -> Option<&Line> {
        self.lines.iter().rev().max_by_key(|line| line.percent())
    }

    /// Whether a key has no room at all.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.fullest().is_some_and(|line| line.percent() >= 100)
    }

    /// Reads an `ApplicationAwareResourceQuota`.
    #[must_use]
    pub fn namespaced(wire: &ArqWire) -> (Name, Self) {
        let status = wire.status.clone().unwrap_or_default();
        let conditions = status.conditions.into_iter().flatten();
        let told = conditions
            .filter(|it| is_told(&it.kind, &it.status))
            .map(|it| format!("{}: {}", it.kind, it.message));
        let quota = Self {
            lines: lines(&texts(&wire.spec.hard), &texts(&status.used)),
            held: status.held.unwrap_or_default(),
            since: status.held_since.map(|since| since.0.as_second()),
            told: told.collect(),
            ..Self::default()
        };
        (name(&wire.metadata), quota)
    }

    /// Reads an `ApplicationAwareClusterResourceQuota`.
    #[must_use]
    pub fn cluster(wire: &AcrqWire) -> (Name, Self) {
        (name(&wire.metadata), Self::of_cluster(&wire.spec, &wire.status))
    }

    /// Reads a mirror as the cluster quota that it mirrors.
    #[must_use]
    pub fn mirror(wire: &AacrqWire) -> (Name, Self) {
        let (_, name) = name(&wire.metadata);
        ((String::new(), name), Self::of_cluster(&wire.spec, &wire.status))
    }

    /// Reads a `ResourceQuota`.
    #[must_use]
    pub fn native(wire: &ResourceQuotaWire) -> (Name, Self) {
        let lines = lines(&texts(&wire.spec.hard), &texts(&wire.status.used));
        (name(&wire.metadata), Self { lines, ..Self::default() })
    }

    fn of_cluster(spec: &Value, status: &Value) -> Self {
        let status: ClusterQuotaStatus = serde_json::from_value(status.clone()).unwrap_or_default();
        let hard = spec.pointer("/quota/hard").and_then(Value::as_object).into_iter().flatten();
        let used = |used: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
            used.iter().map(|(key, text)| (key.clone(), text.0.clone())).collect::<BTreeMap<_, _>>()
        };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let hard: BTreeMap<String, String> = hard.map(|(key, value)| (key.clone(), text(value))).collect();
        let shares = status.namespaces.iter().flatten().map(|share| Share {
            namespace: share.namespace.clone(),
            used: used(&share.status.used)
                .into_iter()
                .filter_map(|(key, text)| Some((key, Quantity::parse(&text).ok()?)))
                .collect(),
        });
        let told = status.conditions.iter().filter(|it| is_told(&it.type_, &it.status));
        Self {
            lines: lines(&hard, &used(&status.total.used)),
            held: status.held.unwrap_or_default(),
            since: status.held_since.as_ref().map(|since| since.0.as_second()),
            told: told.map(|it| format!("{}: {}", it.type_, it.message)).collect(),
            shares: shares.collect(),
            ..Self::default()
        }
    }
}

/// Whether a condition is about something that is not as it should be.
fn is_told(kind: &str, status: &str) -> bool {
    match kind {
        names::PODS_HELD | names::VIRTUAL_MACHINES => false,
        names::ENFORCED => status == "False",
        _ => status == "True",
    }
}

fn name(meta: &ObjectMeta) -> Name {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn texts(list: &ResourceTexts) -> BTreeMap<String, String> {
    list.iter().map(|(key, text)| (key.clone(), text.0.clone())).collect()
}

fn lines(hard: &BTreeMap<String, String>, used: &BTreeMap<String, String>) -> Vec<Line> {
    let read = |text: Option<&String>| text.and_then(|text| Quantity::parse_json_text(text).ok());
    let line = |(key, limit): (&String, _)| Line {
        key: key.clone(),
        used: read(used.get(key)),
        limit: read(Some(limit)),
    };
    hard.iter().map(line).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The VM that moves.
    pub machine: String,
    /// How far it is.
    pub phase: Phase,
    /// `status.phase`, or `Pending`.
    pub told: String,
    /// A quota has refused its target.
    pub is_refused: bool,
    /// When it was created, in seconds since the epoch.
    pub created: i64,
    /// After so many seconds without a target that runs KubeVirt gives it up.
    pub limit: i64,
}

impl Migration {
    #[must_use]
    pub fn read(wire: &VmimWire) -> (Name, Self) {
        let record = VmimRecord::read(wire);
        let migration = Self {
            machine: record.machine.to_string(),
            phase: record.phase,
            told: wire
                .status
                .phase
                .clone()
                .filter(|told| !told.is_empty())
                .unwrap_or_else(|| "Pending".to_owned()),
            is_refused: record.is_waiting(),
            created: record.created,
            limit: record.pending_timeout,
        };
        (name(&wire.metadata), migration)
    }

    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// A condition of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub message: String,
}

/// What `amounts` are together, in the format of the first.
pub(crate) fn sum(amounts: impl IntoIterator<Item = Quantity>) -> Option<Quantity> {
    let mut amounts = amounts.into_iter();
    let first = amounts.next()?;
    let sum = amounts.fold(Amount::from(first), |sum, amount| sum.saturating_add(Amount::from(amount)));
    Some(sum.quantity(first.format()))
}
