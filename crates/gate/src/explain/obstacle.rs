//! What one quota has against a pod.

use std::sync::Arc;

use sluice_engine::status::keys_of;
use sluice_engine::{Amount, CompiledQuota, Excess, Quantity, QuotaKind, Reason};

use crate::messages::reasons;

/// A quota as people name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaName {
    /// Of a namespace or of the cluster.
    pub kind: QuotaKind,
    pub name: Arc<str>,
}

impl QuotaName {
    /// `compute`, or `cluster tenants`.
    #[must_use]
    pub fn for_people(&self) -> String {
        match self.kind {
            QuotaKind::Namespace => self.name.to_string(),
            QuotaKind::Cluster => format!("cluster {}", self.name),
        }
    }
}

/// Why there is no room in a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There is too little.
    Exceeded,
    /// It is kept for this pod of the same namespace.
    KeptForOwn(Box<str>),
    /// It is kept for a pod of another namespace, of which nothing is told, or for one that has gone.
    KeptForOther,
}

/// A key of a quota of which there is too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The key as the quota has it.
    pub key: Arc<str>,
    /// What the pod takes.
    pub needs: Quantity,
    pub used: Quantity,
    pub limit: Quantity,
    /// How much more would have to be free; 0 where room is kept for another pod.
    pub short_by: Quantity,
    /// The pod takes more than the limit.
    pub never: bool,
    /// What of `used` the pods of the namespace take, in a cluster quota.
    pub own: Option<Quantity>,
}

/// What one quota has against a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub quota: QuotaName,
    /// Why there is no room.
    pub lack: Lack,
    /// The keys that are short, sorted; if room is kept for another pod, all that it is kept of.
    pub keys: Vec<Short>,
}

impl Obstacle {
    /// What the queue found, in the keys and the formats of the quota. `own`: what pods of the namespace take.
    pub(crate) fn of(
        quota: QuotaName,
        compiled: &CompiledQuota,
        reason: &Reason,
        lack: Lack,
        own: impl Fn(&Excess) -> Option<Amount>,
    ) -> Self {
        let mut keys: Vec<Short> = Vec::new();
        for excess in &reason.excess {
            for entry in keys_of(compiled, &excess.resource) {
                let (format, limit) = (entry.hard.format(), Amount::from(entry.hard));
                let short = excess.used.saturating_add(excess.requested).saturating_sub(limit);
                // A quota may name a resource twice (`cpu` and `requests.cpu`) with different limits.
                if lack == Lack::Exceeded && short <= Amount::ZERO {
                    continue;
                }
                keys.push(Short {
                    key: Arc::clone(&entry.key),
                    needs: excess.requested.quantity(format),
                    used: excess.used.quantity(format),
                    limit: entry.hard,
                    short_by: short.max(Amount::ZERO).quantity(format),
                    never: excess.requested > limit,
                    own: own(excess).map(|amount| amount.quantity(format)),
                });
            }
        }
        keys.sort_by_cached_key(|short| format!("{}=", short.key));
        Self { quota, lack, keys }
    }

    /// Whether the pod does not fit whatever ends.
    #[must_use]
    pub fn never(&self) -> bool {
        self.keys.iter().any(|short| short.never)
    }

    /// As `reason` of an event.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match (&self.lack, self.quota.kind) {
            _ if self.never() => reasons::EXCEEDS_LIMIT,
            (Lack::Exceeded, QuotaKind::Namespace) => reasons::EXCEEDED,
            (Lack::Exceeded, QuotaKind::Cluster) => reasons::CLUSTER_EXCEEDED,
            (Lack::KeptForOwn(_) | Lack::KeptForOther, _) => reasons::QUEUED,
        }
    }

    /// `exceeded quota: q, requested: …, used: …, limited: …` with only the keys that are exceeded, sorted
    /// (`docs/quota-semantics.md`, *Enforcement*). If room is kept for another pod, all keys.
    #[must_use]
    pub fn sentence(&self) -> String {
        let list = |amount: fn(&Short) -> Quantity| {
            let parts: Vec<String> =
                self.keys.iter().map(|short| format!("{}={}", short.key, amount(short))).collect();
            parts.join(",")
        };
        let quota = &self.quota.name;
        let amounts = format!(
            "requested: {}, used: {}, limited: {}",
            list(|short| short.needs),
            list(|short| short.used),
            list(|short| short.limit)
        );
        let kept = format!("waiting in queue: room in quota {quota} is kept for");
        match &self.lack {
            Lack::Exceeded => format!("exceeded quota: {quota}, {amounts}"),
            Lack::KeptForOwn(pod) => format!("{kept} pod {pod}, which has waited longer, {amounts}"),
            Lack::KeptForOther => format!("{kept} a pod that has waited longer, {amounts}"),
        }
    }

    /// The field of the quota with the limits that the pod alone is above; `None`: it is above none.
    pub(crate) fn field_to_raise(&self) -> Option<String> {
        let keys: Vec<&str> = self.keys.iter().filter(|short| short.never).map(|short| &*short.key).collect();
        (!keys.is_empty()).then(|| format!("{}[{}]", self.quota.kind.field(), keys.join(",")))
    }
}

/// All that is in the way, as one sentence of so many bytes at most, and its reason. First what can never be.
pub(crate) fn sentence(obstacles: &[Obstacle], most: usize) -> (&'static str, String) {
    const REMEDY: &str = "the pod alone is more than the whole quota and can never be released: raise";
    const OR: &str = ", or change the template of the pod's controller and delete the pod";
    let (never, not_yet): (Vec<_>, Vec<_>) = obstacles.iter().partition(|obstacle| obstacle.never());
    let fields = never.iter().filter_map(|obstacle| {
        let field = obstacle.field_to_raise()?;
        let quota = if obstacles.len() > 1 {
            format!("quota {}", obstacle.quota.name)
        } else {
            "the quota".to_owned()
        };
        Some(format!("{field} of {quota}"))
    });
    let fields: Vec<String> = fields.collect();
    let remedy = (!fields.is_empty()).then(|| format!("{REMEDY} {}{OR}", fields.join(" and ")));
    // What to do is said even where the amounts take more room than there is.
    let remedy = remedy.map(|remedy| words_of(remedy, most / 2));
    let left = remedy.as_ref().map_or(most, |remedy| most.saturating_sub(remedy.len() + 2));
    let parts: Vec<String> = never.iter().chain(&not_yet).map(|obstacle| obstacle.sentence()).collect();
    let mut text = super::words::fit(&parts, left, "quotas");
    if let Some(remedy) = remedy {
        text = format!("{text}; {remedy}");
    }
    let by_weight = [reasons::EXCEEDS_LIMIT, reasons::EXCEEDED, reasons::CLUSTER_EXCEEDED, reasons::QUEUED];
    let has = |reason: &&str| obstacles.iter().any(|obstacle| obstacle.reason() == *reason);
    (by_weight.into_iter().find(has).unwrap_or(reasons::PENDING), text)
}

fn words_of(remedy: String, most: usize) -> String {
    if remedy.len() <= most { remedy } else { super::words::fit(&[remedy], most, "quotas") }
}
