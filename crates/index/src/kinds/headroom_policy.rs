//! `HeadroomPolicy`s: what is granted to the migrations of many namespaces.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::Selector;
use serde::Deserialize;
use sluice_api::{HeadroomPolicy, HeadroomPolicyStatus};
use sluice_engine::headroom::Amounts;

use super::namespace::NamespaceRecord;
use super::resource_quota::ResourceQuotaState;
use super::vmmrq::MAX_KEYS;
use crate::amounts::read_amounts;
use crate::labels::selector;
use crate::quantity::{ResourceTexts, resource_list};
use crate::stated::Stated;
use crate::store::{Affected, Indexed, Key, Record, Store};

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = HeadroomPolicy)]
pub struct HeadroomPolicyWire {
    /// Name, uid, version and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// What is granted, and where.
    #[serde(default)]
    pub spec: HeadroomPolicySpecWire,
    /// The status; `None` if it cannot be read, or is not kept.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<HeadroomPolicyStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomPolicySpecWire {
    /// Which namespaces; absent selects none, since the field is required.
    #[serde(default)]
    pub namespace_selector: Option<LabelSelector>,
    /// How much.
    #[serde(default)]
    pub budget: HeadroomBudgetWire,
    /// What is left alone.
    #[serde(default)]
    pub opt_out: Option<HeadroomOptOutWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomBudgetWire {
    /// `Unlimited`, `PerNamespace` or `Pool`.
    #[serde(default)]
    pub mode: String,
    /// Amounts by key of a ResourceQuota.
    #[serde(default, deserialize_with = "resource_list")]
    pub resources: ResourceTexts,
    /// Hundredths of each quota's own limits.
    #[serde(default)]
    pub percent: Option<i64>,
    /// What one namespace may take of a pool at most, by key of a ResourceQuota.
    #[serde(default, deserialize_with = "resource_list")]
    pub per_namespace: ResourceTexts,
}

/// `spec.optOut` of a `HeadroomPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomOptOutWire {
    /// Names of namespaces.
    #[serde(default)]
    pub namespaces: Option<Vec<String>>,
    /// ResourceQuotas by their labels; absent means none.
    #[serde(default)]
    pub resource_quota_selector: Option<LabelSelector>,
}

/// A grant of more than ten times a quota is a mistake; the CRD allows none.
const MAX_PERCENT: u32 = 1000;

/// Who shares the amounts of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// There are no amounts: whatever migrations need.
    Unlimited,
    /// Each namespace has them for itself.
    PerNamespace,
    /// All selected namespaces have them together.
    Pool,
    /// A mode that this version does not know: it grants nothing.
    #[default]
    Unknown,
}

impl Mode {
    fn read(text: &str, errors: &mut Vec<String>) -> Self {
        match text {
            "Unlimited" => Self::Unlimited,
            "PerNamespace" => Self::PerNamespace,
            "Pool" => Self::Pool,
            other => {
                errors.push(format!("spec.budget.mode: {other} is not known"));
                Self::Unknown
            }
        }
    }
}

/// What is kept of a `HeadroomPolicy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Who shares the amounts.
    pub mode: Mode,
    /// The amounts, as far as they can be read.
    pub additional: Amounts,
    /// With [`Mode::PerNamespace`]: so many hundredths of each quota's own `spec.hard`, beside the amounts.
    pub percent: Option<u32>,
    /// With [`Mode::Pool`]: what one namespace may take of the amounts at most. A resource that is not there has no bound.
    pub per_namespace: Amounts,
    /// What could not be read.
    pub errors: Vec<String>,
    /// What conditions are written from; `None` if the status cannot be read, or is not kept.
    pub stated: Option<Arc<Stated<HeadroomPolicyStatus>>>,
    /// `None` selects nothing.
    namespaces: Option<Selector>,
    /// Names of namespaces that are left alone, sorted.
    opted_out: Box<[Box<str>]>,
    /// Quotas that are left alone; `None` leaves none alone.
    quotas: Option<Selector>,
}

pub type PolicyRecord = Record<Policy>;

impl Policy {
    /// Whether the policy grants anything in the namespace.
    #[must_use]
    pub fn covers(&self, namespace: &NamespaceRecord) -> bool {
        self.mode != Mode::Unknown
            && !namespace.opted_out
            && self.opted_out.binary_search_by(|name| (**name).cmp(&namespace.name)).is_err()
            && self.namespaces.as_ref().is_some_and(|selector| namespace.labels.match_selector(selector))
    }

    /// Whether the policy leaves the quota alone.
    #[must_use]
    pub fn excludes(&self, quota: &ResourceQuotaState) -> bool {
        self.quotas.as_ref().is_some_and(|selector| quota.labels.match_selector(selector))
    }

    fn read(wire: &HeadroomPolicyWire) -> Self {
        let spec = &wire.spec;
        let (additional, mut errors) = read_amounts(&spec.budget.resources, MAX_KEYS);
        let mut mode = Mode::read(&spec.budget.mode, &mut errors);
        let (per_namespace, unread) = read_amounts(&spec.budget.per_namespace, MAX_KEYS);
        if !unread.is_empty() {
            // What one namespace may take at most is not known.
            mode = Mode::Unknown;
            errors.extend(unread.into_iter().map(|error| format!("spec.budget.perNamespace: {error}")));
        }
        let opt_out = spec.opt_out.as_ref();
        let mut opted_out: Vec<Box<str>> = opt_out
            .iter()
            .flat_map(|out| out.namespaces.iter().flatten())
            .map(|name| name.as_str().into())
            .collect();
        opted_out.sort_unstable();
        let namespaces = usable("spec.namespaceSelector", spec.namespace_selector.as_ref(), &mut errors);
        let quota_text = opt_out.and_then(|out| out.resource_quota_selector.as_ref());
        let quotas = usable("spec.optOut.resourceQuotaSelector", quota_text, &mut errors);
        if quota_text.is_some() && quotas.is_none() {
            // What is to be left alone is not known, so everything is.
            mode = Mode::Unknown;
        }
        let stated = Stated::of(&wire.metadata, wire.status.as_ref());
        Self {
            mode,
            additional,
            percent: spec.budget.percent.and_then(|percent| usable_percent(percent, &mut errors)),
            per_namespace,
            errors,
            stated,
            namespaces,
            opted_out: opted_out.into_boxed_slice(),
            quotas,
        }
    }
}

/// A percentage, if it is one that the CRD allows.
fn usable_percent(percent: i64, errors: &mut Vec<String>) -> Option<u32> {
    let usable = u32::try_from(percent).ok().filter(|percent| (1..=MAX_PERCENT).contains(percent));
    if usable.is_none() {
        errors.push(format!("spec.budget.percent: {percent} is not from 1 to {MAX_PERCENT}"));
    }
    usable
}

/// A selector, if it is there and can be used.
fn usable(field: &str, text: Option<&LabelSelector>, errors: &mut Vec<String>) -> Option<Selector> {
    match text.map(selector)? {
        Ok(selector) => Some(selector),
        Err(error) => {
            errors.push(format!("{field}: {error}"));
            None
        }
    }
}

/// All `HeadroomPolicy`s.
#[derive(Debug, Default)]
pub struct Policies {
    store: Store<Policy>,
}

impl Policies {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<PolicyRecord>> {
        self.store.get("", name)
    }

    /// All of them by name.
    #[must_use]
    pub fn all(&self) -> &[Arc<PolicyRecord>] {
        self.store.in_namespace("")
    }
}

impl Indexed for Policies {
    type Wire = HeadroomPolicyWire;
    type Body = Policy;

    fn store_mut(&mut self) -> &mut Store<Policy> {
        &mut self.store
    }
    fn meta(wire: &HeadroomPolicyWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &HeadroomPolicyWire) -> Policy {
        Policy::read(wire)
    }
    fn affects(_: &Key) -> Affected {
        Affected::Everywhere
    }
}
