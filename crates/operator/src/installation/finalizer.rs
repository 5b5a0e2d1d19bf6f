//! The finalizer by which an `AAQ` that installs waits until all is removed.
//!
//! It has application-aware-quota's name: an installation that is taken over, in either direction, needs no step for it.
//! Where the `AAQ` does not install, nothing waits, and a finalizer that another operator has left is taken away when the
//! object is deleted: nobody else would. That other operator may be at work, though, and has a minute to take it away. That
//! of the `MTQ` is never put there, for nothing ends with an `MTQ`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sluice_api::{AaqPhase, names};
use sluice_manifests::Installation;

use super::act::Act;
use super::apply::Target;
use super::observe::World;
use super::wire::Order;
use crate::presence::Presence;

/// So many seconds after the deletion an operator that is at work has taken its finalizer away, or never will.
const PATIENCE: i64 = 60;

/// What is to be done about finalizers.
pub(super) fn plan(world: &World, now: Timestamp) -> Vec<Act> {
    let aaqs = world.aaqs.iter().flatten().filter_map(|(name, order)| {
        let target = Target::Aaq(name.clone());
        if order.is_deleted {
            (may_go(world, order) && until_due(order, now).is_none())
                .then(|| without(names::FINALIZER, target, order))
                .flatten()
        } else {
            let installs = world.mode == Installation::Cr && holds(world, order);
            installs.then(|| with(names::FINALIZER, target, order)).flatten()
        }
    });
    let mtqs = world.mtqs.iter().flatten();
    let mtqs = mtqs.filter(|(_, order)| order.is_deleted && until_due(order, now).is_none());
    let mtqs =
        mtqs.filter_map(|(name, order)| without(names::MTQ_FINALIZER, Target::Mtq(name.clone()), order));
    aaqs.chain(mtqs).collect()
}

/// When to look again for one of another operator.
pub(super) fn later(world: &World, now: Timestamp) -> Option<Duration> {
    let aaqs = world.aaqs.iter().flat_map(BTreeMap::values).map(|order| (names::FINALIZER, order));
    let mtqs = world.mtqs.iter().flat_map(BTreeMap::values).map(|order| (names::MTQ_FINALIZER, order));
    let waits = aaqs.chain(mtqs).filter(|(name, order)| order.finalizers.iter().any(|one| one == name));
    waits.filter_map(|(_, order)| until_due(order, now)).min()
}

/// So long the finalizer of an object that is being deleted is left to another operator that has put it there.
fn until_due(order: &Order, now: Timestamp) -> Option<Duration> {
    let is_left = order.is_deleted && !order.is_held_by_us;
    let seconds = order.deleted.saturating_add(PATIENCE).saturating_sub(now.as_second());
    u64::try_from(seconds).ok().filter(|seconds| is_left && *seconds > 0).map(Duration::from_secs)
}

fn holds(world: &World, order: &Order) -> bool {
    world.aaq().is_some_and(|holds| holds.name == order.name)
}

/// Whether nothing is left for which the `AAQ` has to stay, and that is said in its status.
fn may_go(world: &World, order: &Order) -> bool {
    let presence = world.presence();
    if presence == Presence::Installed {
        return true;
    }
    let phase = order.status.as_ref().map(|status| status.phase.as_deref().unwrap_or_default());
    let is_said = phase.is_none_or(|phase| phase == AaqPhase::Deleted.as_str());
    world.removal.is_done(&presence) && (is_said || !holds(world, order))
}

fn with(finalizer: &str, target: Target, order: &Order) -> Option<Act> {
    let mut finalizers = order.finalizers.clone();
    if finalizers.iter().any(|one| one == finalizer) {
        return None;
    }
    finalizers.push(finalizer.to_owned());
    Some(Act::Finalizers { target, resource_version: order.resource_version.clone(), finalizers })
}

fn without(finalizer: &str, target: Target, order: &Order) -> Option<Act> {
    let others = order.finalizers.iter().filter(|one| *one != finalizer);
    let finalizers: Vec<_> = others.cloned().collect();
    let is_there = finalizers.len() < order.finalizers.len();
    is_there.then(|| Act::Finalizers { target, resource_version: order.resource_version.clone(), finalizers })
}
