//! Which `AAQ` is there: one of the operator's own where there would be none, none of its own beside another.
//!
//! With `--installation=always` an installation does its work without an `AAQ`. That of the operator is there to be found:
//! it has the status, and a user has something to edit. With `--installation=cr` the `AAQ` is what installs, so none is
//! made. Nor is one made where another program keeps the CRD: its operator, which takes any `AAQ` as an order, may wait
//! there.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sluice_api::{holding, names, read_pause};
use sluice_manifests::Installation;
use sluice_runtime::backoff::{Backoff, process_seed};
use tokio::time::Instant;

use super::act::Act;
use super::finalizer;
use super::observe::World;
use super::wire::Order;

/// So long after the last `AAQ` has gone, or after a start without one, none is made: who replaces one deletes it and
/// creates it again under its name.
const REPLACED: Duration = Duration::from_secs(10);

/// What is to be done; nothing as long as not all `AAQ`s are known. `may_make`: it is time for one of the operator's own.
pub(super) fn plan(world: &World, may_make: bool, now: Timestamp) -> Vec<Act> {
    let Some(aaqs) = &world.aaqs else { return Vec::new() };
    let finalizers = finalizer::plan(world, now);
    if aaqs.is_empty() {
        let makes = world.mode == Installation::Always && world.is_kind_of_others == Some(false);
        return (makes && may_make).then_some(Act::Make).into_iter().chain(finalizers).collect();
    }
    let others = aaqs.values().filter(|order| !order.gives_way && !order.is_deleted);
    let holds = holding(others, |order| (order.gives_way, order.created));
    let own = aaqs.get(names::AAQ_NAME).filter(|own| own.gives_way && !own.is_deleted);
    let gives_way =
        own.zip(holds).map(|(own, holds)| carried_over(own, holds, now).unwrap_or_else(|| taken_back(own)));
    gives_way.into_iter().chain(finalizers).collect()
}

fn taken_back(own: &Order) -> Act {
    Act::TakeBack { uid: own.uid.clone(), resource_version: own.resource_version.clone() }
}

/// The pause that `own` says, told by the `AAQ` that holds in its place: with the one that holds from now on it would end,
/// also if the other stayed. None if it says no pause, or that `AAQ` has its own.
fn carried_over(own: &Order, holds: &Order, now: Timestamp) -> Option<Act> {
    let is_paused = matches!(read_pause(Some(&own.pause), now), Ok(Some(_)));
    let has_own = holds.pause.contains_key(names::PAUSED_ANNOTATION);
    (is_paused && !has_own).then(|| Act::Pause {
        name: holds.name.clone(),
        uid: holds.uid.clone(),
        resource_version: holds.resource_version.clone(),
        annotations: own.pause.clone(),
    })
}

/// Whether none is made because of the program that keeps the CRD.
pub(super) fn is_withheld(world: &World) -> bool {
    let is_missing = world.aaqs.as_ref().is_some_and(BTreeMap::is_empty);
    world.mode == Installation::Always && is_missing && world.is_kind_of_others == Some(true)
}

/// Since when there is no `AAQ`.
#[derive(Debug, Default)]
pub(super) struct Absence {
    since: Option<Instant>,
}

impl Absence {
    /// Looks again. Returns when one may be made; `None` while there is one, or it is not known.
    pub(super) fn look(&mut self, world: &World, now: Instant) -> Option<Instant> {
        let is_there = !world.aaqs.as_ref()?.is_empty();
        self.since = if is_there { None } else { self.since.or(Some(now)) };
        self.since.map(|since| since + REPLACED)
    }
}

/// What has failed, by what it is about, and when it is sent again. Another object that changes meanwhile does not hasten
/// it.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<String, (Backoff, Instant)>);

impl Failures {
    /// When the act is to be sent, if that is later than `now`.
    pub(super) fn held(&self, act: &Act, now: Instant) -> Option<Instant> {
        self.0.get(&act.about()).map(|(_, due)| *due).filter(|due| *due > now)
    }

    /// It has failed. Returns when it is to be sent again.
    pub(super) fn failed(&mut self, act: &Act, now: Instant) -> Instant {
        let first = || Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
        let (backoff, due) = self.0.entry(act.about()).or_insert_with(|| (first(), now));
        *due = now + backoff.failed();
        *due
    }

    pub(super) fn done(&mut self, act: &Act) {
        self.0.remove(&act.about());
    }
}
