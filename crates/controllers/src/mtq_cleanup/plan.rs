//! From what managed-tenant-quota left to the steps that end it, in an order that is safe to stop in.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_engine::Quantity;
use sluice_runtime::retry::Failure;

/// Everything that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The API server's clock, when everything else was read.
    pub(crate) now: Timestamp,
    /// Who held the lease last.
    pub(crate) holder: Option<Alive>,
    pub(crate) left: Vec<Left>,
}

/// A managed-tenant-quota with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// Namespace and name of the lease.
    pub lease: String,
    /// Who holds it.
    pub holder: String,
    /// Until when, if it is not renewed.
    pub until: Timestamp,
}

/// Everything that is left, and what is done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Leftovers {
    /// Then nothing is done.
    pub alive: Option<Alive>,
    /// In the order of their names.
    pub namespaces: Vec<Leftover>,
}

/// What is left in one namespace, and what is done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Leftover {
    /// The namespace.
    pub namespace: String,
    /// For how long there has been a lock, if there is one.
    pub locked_for: Option<SignedDuration>,
    /// Whether it is ended now.
    pub verdict: Verdict,
    /// What ends it.
    pub steps: Vec<Step>,
}

/// Whether something is ended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Due,
    /// The lock may belong to a managed-tenant-quota that is about to end it, for this time.
    Young(SignedDuration),
    /// Never: the lock is not one of managed-tenant-quota.
    Foreign,
}

/// Everything of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Left {
    pub(crate) namespace: String,
    /// Whether the namespace exists.
    pub(crate) exists: bool,
    pub(crate) lock: Option<Lock>,
    pub(crate) records: Vec<Record>,
    pub(crate) quotas: Vec<Quota>,
}

/// An object that forbids pods in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Whether it is exactly what managed-tenant-quota creates.
    pub(crate) genuine: bool,
    pub(crate) created: Option<Timestamp>,
}

/// A `VirtualMachineMigrationResourceQuota` that remembers quotas as they were.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// `status.originalBlockingResourceQuotas` as it is written.
    pub(crate) text: Value,
    /// `spec.hard` by name of the quota.
    pub(crate) originals: BTreeMap<String, BTreeMap<String, Quantity>>,
    /// What was added to it.
    pub(crate) additional: BTreeMap<String, Quantity>,
}

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Quota {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) spec: BTreeMap<String, Quantity>,
    pub(crate) status: BTreeMap<String, Quantity>,
}

/// Something to do. Each applies to what was read, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Have quota admission enforce the old amounts already while the lock is still there: it does not cover statuses.
    LowerStatus(Change),
    /// Delete the lock. It forbids to change quotas, so this has to come before [`Self::RestoreSpec`].
    DeleteLock(Lock),
    /// Give a quota its old amounts back.
    RestoreSpec(Change),
    /// Forget what was restored. Last: until then, the next run can do all of it again.
    ClearRecord {
        /// Name of the object.
        name: String,
        /// Identity of the object.
        uid: String,
        /// The record, as it has to be still.
        text: Value,
    },
    /// Tell people what was left alone.
    Say(String),
}

/// Amounts of a quota that change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub(crate) quota: String,
    pub(crate) uid: String,
    /// By key, from and to.
    pub(crate) keys: Vec<(String, Quantity, Quantity)>,
}

impl Step {
    /// Whether the others may go on without it when it failed like this. Another webhook, such as Rancher's, may keep
    /// the status of quotas to Kubernetes itself, which will lower it when the spec is restored.
    pub(crate) const fn is_dispensable(&self, failure: Failure) -> bool {
        matches!((self, failure), (Self::LowerStatus(_), Failure::Forbidden | Failure::Other(400)))
    }
}

/// What is left, and what is done about it now. A lock counts as left behind when it is `lock_age` old.
pub(crate) fn plan(seen: &Seen, lock_age: SignedDuration) -> Leftovers {
    let namespaces = seen.left.iter().map(|left| {
        let locked_for =
            left.lock.as_ref().and_then(|lock| lock.created).map(|created| seen.now.duration_since(created));
        let young = locked_for.map(|age| lock_age.saturating_sub(age)).filter(|time| time.is_positive());
        let verdict = match (&left.lock, young) {
            (Some(lock), _) if !lock.genuine => Verdict::Foreign,
            (_, Some(time)) => Verdict::Young(time),
            _ => Verdict::Due,
        };
        Leftover { namespace: left.namespace.clone(), locked_for, verdict, steps: steps(left) }
    });
    let alive = seen.holder.clone().filter(|holder| holder.until >= seen.now);
    Leftovers { alive, namespaces: namespaces.collect() }
}

/// What ends it. What an administrator has changed since is left, and said; first, lest it be lost.
pub(crate) fn steps(left: &Left) -> Vec<Step> {
    let (mut lower, mut restore, mut clear, mut say) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    match &left.lock {
        Some(lock) if !lock.genuine => {
            let text = format!("{} is not what managed-tenant-quota creates and is left alone", lock.name);
            return vec![Step::Say(text)];
        }
        Some(_) if left.exists && left.records.is_empty() => {
            let text = "there is no record of the quotas as they were before the lock; compare spec.hard with what \
                it should be";
            say.push(Step::Say(text.to_owned()));
        }
        _ => {}
    }
    for record in left.records.iter().filter(|_| left.exists) {
        for (name, original) in &record.originals {
            let Some(quota) = left.quotas.iter().find(|quota| quota.name == *name) else {
                say.push(Step::Say(format!("quota {name} does not exist any more; nothing is restored")));
                continue;
            };
            let (keys, foreign) = raised(original, &record.additional, &quota.spec);
            if !foreign.is_empty() {
                let keys = foreign.join(", ");
                say.push(Step::Say(format!("quota {name} was changed since and is left as it is in {keys}")));
            }
            let change = |keys| Change { quota: name.clone(), uid: quota.uid.clone(), keys };
            let enforced: Vec<_> = keys
                .iter()
                .filter_map(|(key, _, to)| Some((key.clone(), *quota.status.get(key)?, *to)))
                .filter(|(_, from, to)| from > to)
                .collect();
            if !enforced.is_empty() {
                lower.push(Step::LowerStatus(change(enforced)));
            }
            if !keys.is_empty() {
                restore.push(Step::RestoreSpec(change(keys)));
            }
        }
        let (name, uid) = (record.name.clone(), record.uid.clone());
        clear.push(Step::ClearRecord { name, uid, text: record.text.clone() });
    }
    let lock = left.lock.clone().map(Step::DeleteLock);
    say.into_iter().chain(lower).chain(lock).chain(restore).chain(clear).collect()
}

type Changes = Vec<(String, Quantity, Quantity)>;

/// The keys that are as managed-tenant-quota raised them, and those that are neither that nor as they were.
fn raised(
    original: &BTreeMap<String, Quantity>,
    additional: &BTreeMap<String, Quantity>,
    now: &BTreeMap<String, Quantity>,
) -> (Changes, Vec<String>) {
    let (mut changes, mut foreign) = (Vec::new(), Vec::new());
    for (key, before) in original {
        let is = now.get(key);
        if is == Some(before) {
            continue;
        }
        let raised = additional.get(key).and_then(|more| before.checked_add(*more).ok());
        match is {
            Some(is) if raised == Some(*is) => changes.push((key.clone(), *is, *before)),
            _ => foreign.push(key.clone()),
        }
    }
    foreign.extend(now.keys().filter(|key| !original.contains_key(*key)).cloned());
    (changes, foreign)
}
