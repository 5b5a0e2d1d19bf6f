//! The finalizer by which an `AAQ` that installs waits until all is removed.
//!
//! It has application-aware-quota's name: an installation that is taken over, in either direction, needs no step for it.
//! Where the `AAQ` does not install, nothing waits, and a finalizer that another operator has left is taken away when the
//! object is deleted: nobody else would. That of the `MTQ` is never put there, for nothing ends with an `MTQ`.

use sluice_api::{AaqPhase, names};
use sluice_manifests::Installation;

use super::act::Act;
use super::apply::Target;
use super::observe::World;
use super::wire::Order;
use crate::presence::Presence;

/// What is to be done about finalizers.
pub(super) fn plan(world: &World) -> Vec<Act> {
    let aaqs = world.aaqs.iter().flatten().filter_map(|(name, order)| {
        let target = Target::Aaq(name.clone());
        if order.is_deleted {
            may_go(world, order).then(|| without(names::FINALIZER, target, order)).flatten()
        } else {
            let installs = world.mode == Installation::Cr && holds(world, order);
            installs.then(|| with(names::FINALIZER, target, order)).flatten()
        }
    });
    let mtqs = world.mtqs.iter().flatten().filter(|(_, order)| order.is_deleted);
    let mtqs =
        mtqs.filter_map(|(name, order)| without(names::MTQ_FINALIZER, Target::Mtq(name.clone()), order));
    aaqs.chain(mtqs).collect()
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
