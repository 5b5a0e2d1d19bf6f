//! The quotas that both namespaces have, and what pods take of them by the plainest sum there is.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use sluice_engine::quantity::NANOS_PER_UNIT;
use sluice_engine::{Format, Quantity as Exact};

const MILLI: i128 = NANOS_PER_UNIT / 1000;
const MIB: i128 = NANOS_PER_UNIT << 20;

/// A quota that one namespace has as an ApplicationAwareResourceQuota, the other one as a ResourceQuota.
pub struct Quota {
    pub name: &'static str,
    scope: Option<&'static str>,
    hard: &'static [(&'static str, &'static str)],
    /// A pod for which this quota alone has no room, even if nothing is used; with or without a deadline.
    pub too_much: (Size, Option<i64>),
}

/// So tight that growth, other scopes and creations are often refused, each by more than one of them.
pub static QUOTAS: [Quota; 3] = [
    Quota {
        name: "compute",
        scope: None,
        hard: &[("limits.cpu", "4"), ("pods", "6"), ("requests.cpu", "2"), ("requests.memory", "2Gi")],
        too_much: (Size { cpu: 1, limit: 1, memory: 2049 }, None),
    },
    Quota {
        name: "batch",
        scope: Some("Terminating"),
        hard: &[("pods", "2"), ("requests.cpu", "900m")],
        too_much: (Size { cpu: 901, limit: 901, memory: 1 }, Some(1)),
    },
    Quota {
        name: "services",
        scope: Some("NotTerminating"),
        hard: &[("pods", "4"), ("requests.cpu", "1500m")],
        too_much: (Size { cpu: 1501, limit: 1501, memory: 1 }, None),
    },
];

/// What a pod asks for: requests and limit of CPU in thousandths, request of memory in MiB. Without a limit of memory its
/// quality of service stays the same however it is resized, which the API server demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub cpu: i64,
    pub limit: i64,
    pub memory: i64,
}

impl Size {
    /// Whether it is more of anything.
    pub fn exceeds(self, other: Self) -> bool {
        self.larger(other) != other
    }

    fn larger(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            limit: self.limit.max(other.limit),
            memory: self.memory.max(other.memory),
        }
    }

    /// `resources` of the only container.
    pub fn resources(self) -> Value {
        json!({
            "requests": { "cpu": format!("{}m", self.cpu), "memory": format!("{}Mi", self.memory) },
            "limits": { "cpu": format!("{}m", self.limit) },
        })
    }

    fn nanos(self, key: &str) -> i128 {
        match key {
            "pods" => NANOS_PER_UNIT,
            "requests.cpu" => i128::from(self.cpu) * MILLI,
            "limits.cpu" => i128::from(self.limit) * MILLI,
            "requests.memory" => i128::from(self.memory) * MIB,
            other => panic!("the pods here take no {other}"),
        }
    }
}

/// A pod that both namespaces have.
#[derive(Clone, Debug)]
pub struct Member {
    /// As its spec says.
    pub size: Size,
    /// As its node has reported.
    pub reported: Size,
    pub deadline: Option<i64>,
}

/// By name.
pub type Members = BTreeMap<String, Member>;

/// Amounts by quota and key.
pub type Used = BTreeMap<String, Exact>;

impl Quota {
    /// The object, of either kind.
    pub fn object(&self, api_version: &str, kind: &str) -> Value {
        let hard: serde_json::Map<_, _> =
            self.hard.iter().map(|(key, amount)| ((*key).to_owned(), json!(amount))).collect();
        let scopes: Vec<&str> = self.scope.into_iter().collect();
        json!({
            "apiVersion": api_version, "kind": kind, "metadata": { "name": self.name },
            "spec": { "hard": hard, "scopes": scopes },
        })
    }

    fn is_about(&self, has_deadline: bool) -> bool {
        match self.scope {
            Some("Terminating") => has_deadline,
            Some("NotTerminating") => !has_deadline,
            _ => true,
        }
    }

    /// A node that has not done a resize yet has to have room for the larger of both sizes.
    fn used(&self, members: &Members, key: &str) -> i128 {
        let governed = members.values().filter(|member| self.is_about(member.deadline.is_some()));
        governed.map(|member| member.size.larger(member.reported).nanos(key)).sum()
    }
}

fn exact(text: &str) -> Exact {
    Exact::parse(text).unwrap()
}

/// What the pods take.
pub fn used(members: &Members) -> Used {
    let mut used = Used::new();
    for quota in &QUOTAS {
        for (key, _) in quota.hard {
            let amount = Exact::from_nanos(quota.used(members, key), Format::DecimalSi);
            used.insert(format!("{} {key}", quota.name), amount);
        }
    }
    used
}

/// Whether all quotas have room for the pods.
pub fn fit(members: &Members) -> bool {
    let has_room =
        |quota: &Quota| quota.hard.iter().all(|(key, hard)| quota.used(members, key) <= exact(hard).nanos());
    QUOTAS.iter().all(has_room)
}

/// How much more a pod may take of CPU and memory, in the units of [`Size`].
pub fn room(members: &Members, has_deadline: bool) -> (i64, i64) {
    let left = |key: &str, unit: i128| {
        let quotas = QUOTAS.iter().filter(|quota| quota.is_about(has_deadline));
        let left = quotas.filter_map(|quota| {
            let (_, hard) = quota.hard.iter().find(|(limited, _)| *limited == key)?;
            Some((exact(hard).nanos() - quota.used(members, key)) / unit)
        });
        i64::try_from(left.min().unwrap()).unwrap()
    };
    (left("requests.cpu", MILLI), left("requests.memory", MIB))
}

/// `status.used` of all quotas as `status` gives it by name: of the keys that are limited, those that are there.
pub fn read(status: impl Fn(&str) -> Option<BTreeMap<String, Quantity>>) -> Used {
    let mut used = Used::new();
    for quota in &QUOTAS {
        let amounts = status(quota.name).unwrap_or_default();
        for (key, _) in quota.hard {
            if let Some(amount) = amounts.get(*key) {
                used.insert(format!("{} {key}", quota.name), exact(&amount.0));
            }
        }
    }
    used
}

/// For people.
pub fn shown(used: &Used) -> String {
    used.iter().map(|(key, amount)| format!("{key}={amount}")).collect::<Vec<_>>().join(", ")
}
