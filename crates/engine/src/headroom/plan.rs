//! The decision: does the target fit, and if not, which raises let it in.

use std::sync::Arc;

use super::budget::{Budget, Grant};
use super::need::Need;
use super::quota::{MARK, NativeQuota, consumed};
use super::refusal::Refusal;
use super::shortage::Shortage;
use crate::charge::Amount;
use crate::quantity::{Format, NANOS_PER_UNIT, Quantity};
use crate::resource::{DEVICE_CLASS, Resource};
use crate::uid::Uid;

/// What to do for a target pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Quota admission lets it in as things are.
    Fits {
        /// Another pod of the same size would not fit beside it, or the limits are about to change: it may not
        /// fit any more a moment later.
        tight: bool,
    },
    /// These raises let it in, in the order in which they are to be written: by name, those without scopes last.
    Raise(Vec<Raise>),
    /// No grant alone allows the raises. Sorted by quota and key.
    NotEnough(Vec<Shortage>),
    /// The target would be rejected whatever is raised, or raising is not wanted.
    Refused(Vec<Refusal>),
}

/// What to write to let a pod in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Raise {
    /// `metadata.name` of the quota.
    pub quota: Arc<str>,
    /// `metadata.uid` of the quota.
    pub uid: Uid,
    /// What is set, by key.
    pub keys: Vec<RaisedKey>,
}

/// One key that is raised to an exact fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RaisedKey {
    /// The key, as the quota has it.
    pub key: Arc<str>,
    /// The present `status.hard`.
    pub from: Quantity,
    /// What is used and needed together; more than `from`.
    pub to: Quantity,
}

/// A key in which the pod does not fit.
struct Excess<'q> {
    key: &'q Arc<str>,
    resource: Resource,
    need: Amount,
    used: Quantity,
    /// What is used and needed together.
    total: Amount,
    spec: Quantity,
    enforced: Quantity,
}

/// What one quota that governs the pod says.
struct Verdict<'q> {
    quota: &'q NativeQuota,
    exceeded: Vec<Excess<'q>>,
    tight: bool,
}

/// Decides as quota admission would: with `status.hard` and `status.used` of every quota that governs the pod, and
/// only for keys of which it takes more than 0. What does not fit is raised to exactly what is used and needed, if
/// one grant of `budget` allows all of it above `spec.hard`.
///
/// Without any grant a raise that stays within `spec.hard` is still planned: it only anticipates what
/// kube-controller-manager is about to write.
#[must_use]
pub fn plan(need: &Need, quotas: &[NativeQuota], budget: &Budget) -> Plan {
    let mut refusals: Vec<Refusal> = negative(need).into_iter().collect();
    let mut verdicts = Vec::new();
    for quota in quotas.iter().filter(|quota| quota.scopes.matches(&need.facts)) {
        match judge(need, quota) {
            Ok(verdict) => verdicts.push(verdict),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if !refusals.is_empty() {
        return Plan::Refused(refusals);
    }
    let tight = verdicts.iter().any(|verdict| verdict.tight);
    verdicts.retain(|verdict| !verdict.exceeded.is_empty());
    if verdicts.is_empty() {
        return Plan::Fits { tight };
    }
    verdicts.sort_by(|a, b| (&a.quota.name, &a.quota.uid).cmp(&(&b.quota.name, &b.quota.uid)));
    let shortages = fewest_shortages(&verdicts, budget);
    if !shortages.is_empty() {
        return Plan::NotEnough(shortages);
    }
    verdicts.sort_by_key(|verdict| verdict.quota.scopes.is_empty());
    Plan::Raise(verdicts.iter().map(raise).collect())
}

/// The raises of [`plan`], and for every other quota in which a second pod of this size would not fit one without keys:
/// until the pod is admitted, another one could take the room that is left there, so that quota is to be marked. Ordered as
/// those of [`plan`]; quotas that are opted out are left alone.
#[must_use]
pub fn reserve(need: &Need, quotas: &[NativeQuota]) -> Vec<Raise> {
    let governing = quotas.iter().filter(|quota| quota.governs(&need.facts) && !quota.opted_out);
    let verdicts = governing.filter_map(|quota| judge(need, quota).ok());
    let mut verdicts: Vec<_> =
        verdicts.filter(|verdict| verdict.tight || !verdict.exceeded.is_empty()).collect();
    verdicts.sort_by(|a, b| (&a.quota.name, &a.quota.uid).cmp(&(&b.quota.name, &b.quota.uid)));
    verdicts.sort_by_key(|verdict| verdict.quota.scopes.is_empty());
    verdicts.iter().map(raise).collect()
}

fn negative(need: &Need) -> Option<Refusal> {
    let below = need.charge.iter().filter(|(_, amount)| *amount < Amount::ZERO);
    let keys: Vec<Arc<str>> = below.map(|(resource, _)| Arc::from(resource.key())).collect();
    (!keys.is_empty()).then_some(Refusal::NegativeNeed { keys })
}

fn judge<'q>(need: &Need, quota: &'q NativeQuota) -> Result<Verdict<'q>, Refusal> {
    // The limits that are wanted but not enforced yet decide a moment later.
    let mut tight = quota.spec_hard.keys().any(|key| {
        consumed(key)
            && !quota.status_hard.contains_key(key)
            && need.of(&Resource::from_quota_key(key)).is_some()
    });
    if !quota.governs(&need.facts) {
        return Ok(Verdict { quota, exceeded: Vec::new(), tight });
    }
    must_specify(need, quota)?;
    status_unknown(need, quota)?;
    let mut exceeded = Vec::new();
    let (mut unsynced, mut incalculable) = (Vec::new(), unreadable(need, quota));
    for (key, enforced) in quota.status_hard.iter().filter(|(key, _)| consumed(key)) {
        let resource = Resource::from_quota_key(key);
        let (Some(amount), Some(used)) = (need.of(&resource), quota.used.get(key).copied()) else { continue };
        let total = Amount::from(used).checked_add(amount);
        let limit = Amount::from(*enforced);
        tight |= total.and_then(|total| total.checked_add(amount)).is_none_or(|twice| twice > limit);
        match (total, quota.spec_hard.get(key)) {
            (Some(total), _) if total <= limit => {}
            (None, _) => incalculable.push(Arc::clone(key)),
            (Some(_), None) => unsynced.push(Arc::clone(key)),
            (Some(total), Some(spec)) => exceeded.push(Excess {
                key,
                resource,
                need: amount,
                used,
                total,
                spec: *spec,
                enforced: *enforced,
            }),
        }
    }
    incalculable.sort_unstable();
    let name = || Arc::clone(&quota.name);
    if !incalculable.is_empty() {
        return Err(Refusal::Incalculable { quota: name(), keys: incalculable });
    }
    if quota.opted_out && !(exceeded.is_empty() && unsynced.is_empty()) {
        let mut keys: Vec<_> = exceeded.iter().map(|excess| Arc::clone(excess.key)).chain(unsynced).collect();
        keys.sort_unstable();
        return Err(Refusal::OptedOut { quota: name(), keys });
    }
    if !exceeded.is_empty() {
        // kube-controller-manager's first sync of a quota would drop the mark of a raise.
        let missing =
            |key: &&Arc<str>| !quota.status_hard.contains_key(*key) && !quota.unreadable.contains(*key);
        unsynced.extend(quota.spec_hard.keys().filter(missing).cloned());
    }
    if !unsynced.is_empty() {
        return Err(Refusal::NotSynced { quota: name(), keys: unsynced });
    }
    if quota.spec_hard.contains_key(MARK) && !exceeded.is_empty() {
        return Err(Refusal::MarkTaken { quota: name() });
    }
    Ok(Verdict { quota, exceeded, tight })
}

fn must_specify(need: &Need, quota: &NativeQuota) -> Result<(), Refusal> {
    let lacking = need.unspecified.iter().flat_map(|missing| missing.iter());
    let missing: Vec<String> = lacking
        .filter(|(key, _)| quota.status_hard.contains_key(*key))
        .map(|(key, containers)| {
            let names: Vec<&str> = containers.iter().map(String::as_str).collect();
            format!("{key} for: {}", names.join(","))
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Refusal::MustSpecify { quota: Arc::clone(&quota.name), missing })
}

/// Even a key of which the pod takes nothing must have a known usage. Device classes are an exception where the
/// server is too old to count them; a pod that takes some proves that it is not.
fn status_unknown(need: &Need, quota: &NativeQuota) -> Result<(), Refusal> {
    let unknown = quota.status_hard.keys().filter(|key| {
        consumed(key)
            && !quota.used.contains_key(*key)
            && !quota.unreadable.contains(*key)
            && (!is_device_class(key) || need.of(&Resource::from_quota_key(key)).is_some())
    });
    let keys: Vec<Arc<str>> = unknown.cloned().collect();
    if keys.is_empty() {
        return Ok(());
    }
    Err(Refusal::StatusUnknown { quota: Arc::clone(&quota.name), keys })
}

fn is_device_class(key: &str) -> bool {
    key.strip_prefix("requests.").is_some_and(|short| short.starts_with(DEVICE_CLASS))
}

fn unreadable(need: &Need, quota: &NativeQuota) -> Vec<Arc<str>> {
    let needed = quota
        .unreadable
        .iter()
        .filter(|key| consumed(key) && need.of(&Resource::from_quota_key(key)).is_some());
    needed.cloned().collect()
}

fn raise(verdict: &Verdict<'_>) -> Raise {
    let quota = verdict.quota;
    let keys = verdict.exceeded.iter().map(|excess| RaisedKey {
        key: Arc::clone(excess.key),
        from: excess.enforced,
        to: written_like(excess.total, excess.enforced),
    });
    Raise { quota: Arc::clone(&quota.name), uid: quota.uid.clone(), keys: keys.collect() }
}

/// `amount` in the format of `model`. A binary amount above what servers can read is written in decimal, which they
/// read exactly.
fn written_like(amount: Amount, model: Quantity) -> Quantity {
    const BINARY_CAP: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
    match model.format() {
        Format::BinarySi if amount.nanos() > BINARY_CAP => amount.quantity(Format::DecimalSi),
        format => amount.quantity(format),
    }
}

/// What is missing with the grant that lacks the least: the fewest keys, then the smallest amounts, then the first.
/// Empty if one is enough.
fn fewest_shortages(verdicts: &[Verdict<'_>], budget: &Budget) -> Vec<Shortage> {
    if budget.grants.is_empty() {
        return shortages(verdicts, None);
    }
    let all = budget.grants.iter().map(|grant| shortages(verdicts, Some(grant)));
    all.min_by_key(|list| (list.len(), list.iter().map(|s| s.missing).collect::<Vec<_>>()))
        .unwrap_or_default()
}

fn shortages(verdicts: &[Verdict<'_>], grant: Option<&Grant>) -> Vec<Shortage> {
    let mut list = Vec::new();
    for verdict in verdicts {
        list.extend(
            verdict.exceeded.iter().filter_map(|excess| shortage(&verdict.quota.name, excess, grant)),
        );
    }
    list
}

fn shortage(quota: &Arc<str>, excess: &Excess<'_>, grant: Option<&Grant>) -> Option<Shortage> {
    let room = grant.map(|grant| grant.room(quota, &excess.resource, excess.spec));
    let (granted, additional, taken) = match room {
        Some(room) => (room.amount?, room.additional, room.taken),
        None => (Amount::ZERO, None, Quantity::ZERO),
    };
    let limit = Amount::from(excess.spec).saturating_add(granted);
    let missing = excess.total.saturating_sub(limit);
    (missing > Amount::ZERO).then(|| Shortage {
        quota: Arc::clone(quota),
        key: Arc::clone(excess.key),
        need: written_like(excess.need, excess.used),
        used: excess.used,
        hard: excess.spec,
        additional,
        taken,
        source: grant.map(|grant| Arc::clone(grant.source())),
        missing: written_like(missing, excess.spec),
    })
}
