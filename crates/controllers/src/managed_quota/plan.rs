//! What is to be done about a managed quota, and what it says.

use std::sync::Arc;

use serde_json::Value;
use sluice_engine::{ManagedStatus, Uid, not_enforced};
use sluice_index::Key;

use super::existing::{Existing, Used, is_same_selector};
use super::kind::ManagedKind;
use super::object::{object, patch};
use super::wishes::{Limits, Wish};

/// Longest text of a refusal that is repeated.
const MAX_SHOWN: usize = 320;

/// What is known of a quota and of its managed one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'c> {
    /// The kind of the managed one.
    pub kind: ManagedKind,
    /// The quota.
    pub key: &'c Key,
    /// What it wants; `None`: nothing, or it does not exist.
    pub wish: Option<&'c Wish>,
    /// What there is of the managed one's name.
    pub existing: Option<&'c Existing>,
    /// Whether the cluster serves the kind; `None`: that is not known yet.
    pub is_served: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    Leave,
    /// Nothing: the object of that name belongs to another.
    Foreign,
    /// Nothing: an object cannot have such a name.
    NameTooLong,
    /// Nothing: the cluster does not serve the kind.
    NotServed,
    Write(Write),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// Create this object.
    Create(Value),
    /// Send this merge patch.
    Update(Value),
    /// Delete the one that has this uid.
    Delete(Uid),
}

impl<'c> Case<'c> {
    fn ours(&self) -> Option<&'c Existing> {
        self.existing.filter(|existing| existing.is_ours(&self.key.name))
    }

    /// Decides about the managed quota.
    ///
    /// What counts, kube-controller-manager or OpenShift, does so again when `hard` changes, not when scopes do, and
    /// `spec.scopes` of a ResourceQuota cannot be changed: with other scopes the managed quota is replaced.
    pub fn plan(&self) -> Plan {
        let delete = |existing: &Existing| Plan::Write(Write::Delete(existing.quota.uid.clone()));
        let (wish, limits) = match self.wish {
            None => {
                return match self.ours() {
                    Some(existing) if !existing.quota.deleting => delete(existing),
                    _ => Plan::Leave,
                };
            }
            // Of a quota that is being deleted the garbage collector deletes the managed one.
            Some(Wish { deleting: true, .. } | Wish { limits: None, .. }) => return Plan::Leave,
            Some(wish @ Wish { limits: Some(limits), .. }) => (wish, limits),
        };
        match self.existing {
            None => match self.is_served {
                None => Plan::Leave,
                Some(false) => Plan::NotServed,
                Some(true) if self.key.name.len() > self.kind.max_name() => Plan::NameTooLong,
                Some(true) => Plan::Write(Write::Create(object(self.kind, self.key, wish, limits))),
            },
            Some(_) if self.ours().is_none() => Plan::Foreign,
            Some(existing) if existing.quota.deleting => Plan::Leave,
            Some(existing) if *existing.quota.scopes() != limits.scopes => delete(existing),
            Some(existing) if is_limited(existing, limits) && existing.is_marked(&wish.uid) => Plan::Leave,
            Some(existing) => Plan::Write(Write::Update(patch(self.kind, self.key, wish, limits, existing))),
        }
    }

    /// What the managed quota says of the keys of its quota; `None` if it has no such keys. `refusal` is what the API server
    /// said to the last write.
    ///
    /// What is used is told as soon as the managed quota says it, whatever its limits are at that moment: it counts the same
    /// with other limits.
    pub fn status(&self, refusal: Option<&str>) -> Option<ManagedStatus> {
        let limits = self.wish?.limits.as_ref()?;
        let all = || limits.hard.keys().map(|key| &**key);
        let trouble = self.trouble(limits, refusal);
        let ours = self.ours().filter(|existing| {
            *existing.quota.scopes() == limits.scopes
                && is_same_selector(existing.selector(), &limits.selector)
        });
        let Some(ours) = ours else {
            return Some(ManagedStatus { trouble, ..ManagedStatus::default() });
        };
        let own = |used: &Used| -> Used {
            let used = used.iter().filter(|(key, _)| limits.hard.contains_key(*key));
            used.map(|(key, amount)| (Arc::clone(key), *amount)).collect()
        };
        let each = ours.namespaces().into_iter().flatten();
        let namespaces = each.map(|(name, used)| (Arc::clone(name), own(used))).collect();
        let native = ours.quota.native();
        // Limits and usage are written at once: what is missing then is of no kind that is known there. Of a quota that
        // selects no namespace nothing is counted.
        let counted = native.status_hard == limits.hard
            && ours.namespaces().is_none_or(|namespaces| !namespaces.is_empty());
        let unknown = all().filter(|key| counted && !native.used.contains_key(*key));
        let remedy = "Kubernetes counts no such objects, name a kind as count/<resource>.<group>";
        let unknown = not_enforced(self.kind.of(), unknown, remedy);
        Some(ManagedStatus { used: own(&native.used), namespaces, trouble: trouble.or(unknown) })
    }

    /// Why these limits are not enforced.
    fn trouble(&self, limits: &Limits, refusal: Option<&str>) -> Option<String> {
        let (kind, name) = (self.kind.kind(), self.kind.name(self.key));
        let why = match self.plan() {
            Plan::Foreign => {
                format!("the {kind} {name} is not Sluice's, delete it or rename this quota")
            }
            Plan::NameTooLong => {
                format!("use a name of at most {} characters for the quota", self.kind.max_name())
            }
            Plan::NotServed => {
                let api = self.kind.api_version();
                format!("this cluster has no {kind} ({api}), limit them by a quota in each namespace")
            }
            Plan::Write(_) => {
                let said = refusal?;
                let said = said.get(..said.floor_char_boundary(MAX_SHOWN)).unwrap_or_default();
                format!("the {kind} {name} cannot be written: {said}")
            }
            Plan::Leave => return None,
        };
        not_enforced(self.kind.of(), limits.hard.keys().map(|key| &**key), &why)
    }
}

fn is_limited(existing: &Existing, limits: &Limits) -> bool {
    // Also a key whose amount cannot be read is one too many.
    existing.quota.raw().spec_hard.len() == limits.hard.len()
        && existing.quota.native().spec_hard == limits.hard
        && is_same_selector(existing.selector(), &limits.selector)
}
