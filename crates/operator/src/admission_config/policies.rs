//! Admission policies and their bindings: put back as they are shipped, with the namespaces that the `AAQ` selects.
//!
//! `sluice-gated` refuses what is not gated, so wherever it holds pods have to be gated already. It holds where its policy
//! *and* its binding select, and a change of the selector goes through in three stages: the policy of `sluice-gated` (from
//! now on only namespaces count that were and will be targeted), then all that gates, then the binding. Which targets of
//! migrations need no gate changes at once: `sluice-gated` lets them in with and without one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_manifests::{AdmissionPolicy, InstallOptions, admission_policies, is_standing};

use super::aks;
use super::gated::{GATED, GATED_BINDING, is_last};
use super::observe::{Fixed, Kind, World};
use super::step::{Step, patch};
use super::upkeep::Upkeep;
use crate::compare::same;
use crate::version::Version;

const GATE: Kind = Kind::Policy { name: names::GATE_POLICY, mutates: true };

/// Where `sluice-gate` says which pods it gates.
const MUTATIONS: &str = "/mutations";
/// Where a policy has its namespaces.
const OF_POLICY: &str = "/matchConstraints/namespaceSelector";
/// Where the binding of `sluice-gated` has them.
const OF_BINDING: &str = "/matchResources/namespaceSelector";

/// How far a change of the selector has come.
pub(super) struct Selectors {
    /// What `sluice-gated` holds for is at most what is wanted.
    narrowed: bool,
    /// And all that is wanted is gated.
    gates: bool,
    /// All that is in force before `sluice-gated` is there.
    complete: bool,
}

impl Selectors {
    /// Where nothing is known of the selector, no stage is reached.
    pub(super) fn of(world: &World, wanted: Option<&LabelSelector>) -> Self {
        let wanted = wanted.map(|selector| json!(selector));
        let is = |spec: Option<&Value>, path: &str| {
            let live = spec.and_then(|spec| spec.pointer(path)).unwrap_or(&Value::Null);
            wanted.as_ref().is_some_and(|wanted| same(live, wanted))
        };
        let spec = |kind: &Kind| world.fixed.get(kind).map(|found| found.as_ref().map(|found| &found.spec));
        let absent_or = |found: Option<Option<&Value>>, path: &str| match found {
            Some(Some(spec)) => is(Some(spec), path),
            Some(None) => true,
            None => false,
        };
        let narrowed = absent_or(spec(&GATED), OF_POLICY);
        let entry = world.mutating.as_ref().and_then(Option::as_ref).and_then(|hooks| {
            let found = hooks.webhooks.iter().find(|(name, _)| name == WebhookEntry::GATER.name);
            found.map(|(_, entry)| entry)
        });
        // Without policies that gate, none was looked for.
        let policy = spec(&GATE).is_none_or(|found| is(found, OF_POLICY));
        let entry = entry.zip(wanted.as_ref());
        let gates =
            narrowed && policy && entry.is_some_and(|(entry, wanted)| aks::is_selected(entry, wanted));
        let missing = world.fixed.iter().any(|(kind, found)| found.is_none() && !is_last(*kind));
        Self { narrowed, gates, complete: gates && !missing }
    }

    /// Whether those that gate may be given another selector.
    pub(super) const fn may_gate_others(&self) -> bool {
        self.narrowed
    }

    /// Whether the object may be given another selector.
    fn may_select(&self, kind: Kind) -> bool {
        match kind {
            GATED => true,
            GATED_BINDING => self.gates,
            _ => self.narrowed,
        }
    }
}

/// The writes that are needed to have all policies as they are in `options`.
pub(super) fn plan(
    world: &World,
    options: &InstallOptions,
    selectors: &Selectors,
    version: Version<'_>,
) -> Vec<Step> {
    if !world.installed {
        return Vec::new();
    }
    let known = world.selector.is_some();
    let step = |policy: AdmissionPolicy| {
        let follows = policy.follows_selector();
        let upkeep = if is_standing(policy.name) { Upkeep::All } else { world.upkeep };
        let kinds = [Kind::policy(&policy), Kind::binding(&policy)];
        let objects = kinds.into_iter().zip([policy.policy, policy.binding]);
        objects.filter_map(move |(kind, object)| match world.fixed.get(&kind)? {
            Some(is) if upkeep >= Upkeep::Existing => {
                let mut object = object;
                if kind == GATE && world.lets_in_targets_of.is_none() {
                    keep(&mut object, MUTATIONS, &is.spec);
                }
                let may_select = selectors.may_select(kind) && known;
                if version.leaves(is.identity.writer.as_deref()) {
                    select(kind, is, &object, may_select)
                } else {
                    repair(kind, is, &object, may_select)
                }
            }
            Some(_) => None,
            None if upkeep < Upkeep::All => None,
            // A policy without its namespaces holds for the wrong ones.
            None if follows && !known => None,
            None if is_last(kind) && !selectors.complete => None,
            None => Some(Step::Create { kind, object }),
        })
    };
    admission_policies(options).into_iter().flat_map(step).collect()
}

/// This part of the spec of `object` becomes what it is.
fn keep(object: &mut Value, part: &str, live: &Value) {
    if let (Some(at), Some(live)) = (object.pointer_mut(&format!("/spec{part}")), live.pointer(part)) {
        *at = live.clone();
    }
}

/// What brings `is` to the spec of `object`. The selector of a policy that has one comes apart from all else and after it:
/// one that the API server refuses must not keep the rest from being repaired.
fn repair(kind: Kind, is: &Fixed, object: &Value, may_select: bool) -> Option<Step> {
    let wanted = object.get("spec")?;
    let mut kept = wanted.clone();
    let selector = place(kind);
    if let Some(selector) = selector
        && let (Some(at), Some(live)) = (kept.pointer_mut(selector), is.spec.pointer(selector))
    {
        *at = live.clone();
    }
    if !same(&is.spec, &kept) {
        return Some(patch(
            kind,
            &is.identity.resource_version,
            vec![json!({ "op": "replace", "path": "/spec", "value": kept })],
        ));
    }
    select(kind, is, object, may_select)
}

/// What brings the selector of `is`, if it has one, to that of `object`.
fn select(kind: Kind, is: &Fixed, object: &Value, may_select: bool) -> Option<Step> {
    let selector = place(kind).filter(|_| may_select)?;
    let (live, wanted) = (is.spec.pointer(selector), object.pointer(&format!("/spec{selector}"))?);
    let add = json!({ "op": "add", "path": format!("/spec{selector}"), "value": wanted });
    let differs = !same(live.unwrap_or(&Value::Null), wanted);
    differs.then(|| patch(kind, &is.identity.resource_version, vec![add]))
}

/// Where the object has the namespaces that the `AAQ` selects.
fn place(kind: Kind) -> Option<&'static str> {
    match kind {
        GATED | GATE => Some(OF_POLICY),
        GATED_BINDING => Some(OF_BINDING),
        _ => None,
    }
}
