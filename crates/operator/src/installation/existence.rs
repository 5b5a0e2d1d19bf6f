//! Which `AAQ` is there: one of the operator's own where there would be none, none of its own beside another.
//!
//! With `--installation=always` an installation does its work without an `AAQ`. That of the operator is there to be found:
//! it has the status, and a user has something to edit. With `--installation=cr` the `AAQ` is what installs, so none is
//! made.

use std::time::Duration;

use sluice_api::names;
use sluice_manifests::Installation;
use tokio::time::Instant;

use super::act::Act;
use super::finalizer;
use super::observe::World;
use super::wire::Order;

/// So long after the last `AAQ` has gone none is made: who replaces one deletes it and creates it again under its name.
const REPLACED: Duration = Duration::from_secs(10);

/// What is to be done; nothing as long as not all `AAQ`s are known. `may_make`: it is time for one of the operator's own.
pub(super) fn plan(world: &World, may_make: bool) -> Vec<Act> {
    let Some(aaqs) = &world.aaqs else { return Vec::new() };
    if aaqs.is_empty() {
        let makes = world.mode == Installation::Always && may_make;
        return makes.then_some(Act::Make).into_iter().chain(finalizer::plan(world)).collect();
    }
    let is_other = |order: &Order| !order.gives_way && !order.is_deleted;
    let is_superfluous = aaqs.values().any(is_other);
    let own = aaqs.get(names::AAQ_NAME).filter(|own| own.gives_way && !own.is_deleted);
    let taken_back = own
        .filter(|_| is_superfluous)
        .map(|own| Act::TakeBack { uid: own.uid.clone(), resource_version: own.resource_version.clone() });
    taken_back.into_iter().chain(finalizer::plan(world)).collect()
}

/// Since when there is no `AAQ`.
#[derive(Debug, Default)]
pub(super) struct Absence {
    had_one: bool,
    since: Option<Instant>,
}

impl Absence {
    /// Looks again. Returns when one may be made; `None` while there is one, or it is not known.
    pub(super) fn look(&mut self, world: &World, now: Instant) -> Option<Instant> {
        let is_there = !world.aaqs.as_ref()?.is_empty();
        self.had_one |= is_there;
        self.since = if is_there { None } else { self.since.or(Some(now)) };
        self.since.map(|since| if self.had_one { since + REPLACED } else { since })
    }
}
