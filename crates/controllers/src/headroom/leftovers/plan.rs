//! From what managed-tenant-quota left to the steps that end it, in an order that is safe to stop in.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_engine::Quantity;

/// Everything of one namespace, read from the API server and not from a cache.
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
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Whether it is exactly what managed-tenant-quota creates.
    pub(crate) genuine: bool,
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
pub(crate) enum Step {
    /// Have quota admission enforce the old amounts already while the lock is still there: it does not cover statuses.
    LowerStatus(Change),
    /// Delete the lock. It forbids to change quotas, so this has to come before [`Self::RestoreSpec`].
    DeleteLock(Lock),
    /// Give a quota its old amounts back.
    RestoreSpec(Change),
    /// Forget what was restored. Last: until then, whoever comes next can do all of it again.
    ClearRecord {
        /// Name of the object.
        name: String,
        /// Identity of the object.
        uid: String,
        /// The record, as it has to be still.
        text: Value,
    },
    /// Tell people what was left alone.
    Say {
        /// Name and identity of the object that it is about; `None`: the namespace.
        record: Option<(String, String)>,
        /// What.
        text: String,
    },
}

/// Amounts of a quota that change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) quota: String,
    pub(crate) uid: String,
    /// By key, from and to.
    pub(crate) keys: Vec<(String, Quantity, Quantity)>,
}

impl Step {
    /// What it does, for logs, events and the list.
    pub(crate) fn sentence(&self) -> String {
        let changes = |change: &Change| {
            let keys = change.keys.iter().map(|(key, from, to)| format!("{key} from {from} to {to}"));
            keys.collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::LowerStatus(change) => {
                format!("lower status.hard of quota {}: {}", change.quota, changes(change))
            }
            Self::DeleteLock(lock) => format!("delete the lock {}", lock.name),
            Self::RestoreSpec(change) => {
                format!("restore spec.hard of quota {}: {}", change.quota, changes(change))
            }
            Self::ClearRecord { name, .. } => format!("clear the record of {name}"),
            Self::Say { text, .. } => text.clone(),
        }
    }
}

/// What ends it. What an administrator has changed since is left, and said.
pub(crate) fn plan(left: &Left) -> Vec<Step> {
    let (mut lower, mut restore, mut clear, mut say) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut unlocked = true;
    match &left.lock {
        Some(lock) if !lock.genuine => {
            unlocked = false;
            let text = format!("{} is not what managed-tenant-quota creates and is left alone", lock.name);
            say.push(Step::Say { record: None, text });
        }
        Some(_) if left.exists && left.records.is_empty() => {
            let text = "there is no record of the quotas as they were before the lock; compare spec.hard with what \
                it should be";
            say.push(Step::Say { record: None, text: text.to_owned() });
        }
        _ => {}
    }
    for record in left.records.iter().filter(|_| left.exists && unlocked) {
        let about = Some((record.name.clone(), record.uid.clone()));
        for (name, original) in &record.originals {
            let Some(quota) = left.quotas.iter().find(|quota| quota.name == *name) else {
                let text = format!("quota {name} does not exist any more; nothing is restored");
                say.push(Step::Say { record: about.clone(), text });
                continue;
            };
            let (keys, foreign) = raised(original, &record.additional, &quota.spec);
            if !foreign.is_empty() {
                let text =
                    format!("quota {name} was changed since and is left as it is in {}", foreign.join(", "));
                say.push(Step::Say { record: about.clone(), text });
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
    let lock = left.lock.clone().filter(|lock| lock.genuine).map(Step::DeleteLock);
    lower.into_iter().chain(lock).chain(restore).chain(say).chain(clear).collect()
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
