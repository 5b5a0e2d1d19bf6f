//! What is to be done about a managed quota, and what it says.

use std::sync::Arc;

use serde_json::Value;
use sluice_api::names;
use sluice_engine::{ManagedStatus, Uid, not_enforced};
use sluice_index::{Key, ResourceQuotaRecord};

use super::arqs::{Arq, Limits};
use super::object::{is_marked, is_ours, object, patch};

/// Longest text of a refusal that is repeated.
const MAX_SHOWN: usize = 320;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing.
    Leave,
    /// Nothing: the object of that name belongs to another.
    Foreign,
    /// Nothing: an object cannot have such a name.
    NameTooLong,
    /// This.
    Write(Write),
}

/// A write to a ResourceQuota.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// Create this object.
    Create(Value),
    /// Send this merge patch.
    Update(Value),
    /// Delete the one that has this uid.
    Delete(Uid),
}

/// Decides about the managed quota of the quota `key`: `arq` is what it wants, `quota` what there is of that name.
///
/// kube-controller-manager recounts when `spec.hard` changes, not when scopes do, and `spec.scopes` cannot be changed: with
/// other scopes the managed quota is replaced.
pub(super) fn plan(key: &Key, arq: Option<&Arq>, quota: Option<&ResourceQuotaRecord>) -> Plan {
    let ours = quota.is_some_and(|quota| is_ours(quota, &key.name));
    let (arq, limits) = match arq {
        None => match quota {
            Some(quota) if ours && !quota.deleting => return Plan::Write(Write::Delete(quota.uid.clone())),
            _ => return Plan::Leave,
        },
        // Of a quota that is being deleted the garbage collector deletes the managed one.
        Some(Arq { deleting: true, .. } | Arq { limits: None, .. }) => return Plan::Leave,
        Some(arq @ Arq { limits: Some(limits), .. }) => (arq, limits),
    };
    match quota {
        None if key.name.len() > names::MAX_NAME_OF_MANAGED => Plan::NameTooLong,
        None => Plan::Write(Write::Create(object(key, arq, limits))),
        Some(_) if !ours => Plan::Foreign,
        Some(quota) if quota.deleting => Plan::Leave,
        Some(quota) if *quota.scopes() != limits.scopes => Plan::Write(Write::Delete(quota.uid.clone())),
        Some(quota) if is_limited(quota, limits) && is_marked(quota, &arq.uid) => Plan::Leave,
        Some(quota) => Plan::Write(Write::Update(patch(key, arq, limits, quota))),
    }
}

fn is_limited(quota: &ResourceQuotaRecord, limits: &Limits) -> bool {
    // Also a key whose amount cannot be read is one too many.
    quota.raw().spec_hard.len() == limits.hard.len() && quota.native().spec_hard == limits.hard
}

/// What the managed quota says of the keys of its quota; `None` if it has no such keys. `refusal` is what the API server said
/// to the last write.
///
/// What is used is told as soon as the managed quota says it, whatever its limits are at that moment: it counts the same with
/// other limits.
pub(super) fn status(
    key: &Key,
    arq: Option<&Arq>,
    quota: Option<&ResourceQuotaRecord>,
    refusal: Option<&str>,
) -> Option<ManagedStatus> {
    let limits = arq?.limits.as_ref()?;
    let name = names::managed_quota(&key.name);
    let all = || limits.hard.keys().map(|key| &**key);
    let trouble = match plan(key, arq, quota) {
        Plan::Foreign => not_enforced(
            all(),
            &format!("the ResourceQuota {name} is not Sluice's, delete it or rename this quota"),
        ),
        Plan::NameTooLong => {
            let most = names::MAX_NAME_OF_MANAGED;
            not_enforced(all(), &format!("use a name of at most {most} characters for the quota"))
        }
        Plan::Write(_) => refusal.and_then(|refusal| {
            let said = refusal.get(..refusal.floor_char_boundary(MAX_SHOWN)).unwrap_or_default();
            not_enforced(all(), &format!("the ResourceQuota {name} cannot be written: {said}"))
        }),
        Plan::Leave => None,
    };
    let ours = quota.filter(|quota| is_ours(quota, &key.name) && *quota.scopes() == limits.scopes);
    let Some(ours) = ours.map(|quota| quota.native()) else {
        return Some(ManagedStatus { used: Default::default(), trouble });
    };
    let used = ours.used.iter().filter(|(key, _)| limits.hard.contains_key(*key));
    let used = used.map(|(key, amount)| (Arc::clone(key), *amount)).collect();
    // kube-controller-manager writes limits and usage at once: what is missing then is of no kind that it knows.
    let counted = ours.status_hard == limits.hard;
    let unknown = all().filter(|key| counted && !ours.used.contains_key(*key));
    let unknown =
        not_enforced(unknown, "Kubernetes counts no such objects, name a kind as count/<resource>.<group>");
    Some(ManagedStatus { used, trouble: trouble.or(unknown) })
}
