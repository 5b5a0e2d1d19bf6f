//! Whose turn it is to be asked about, and who is.
//!
//! Pods wait for their turn by the evaluators that are to be asked about them, and each such set has places of its own. So
//! one that answers slowly, or fails slowly, takes no place of another, and one that takes many questions at once has them.
//! The evaluators themselves are never asked more than they take: further questions wait there for their turn.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use sluice_engine::PodId;
use sluice_index::NamespaceId;

use super::Evaluations;
use crate::evaluators::MOST_EVALUATORS;
use crate::turns::Turns;

/// Questions in flight together. Labels of pods choose which evaluators are asked, and so how many sets there are.
const MOST: usize = 512;
/// Where there are as many, each set has so many places still: no label of a tenant takes the last place of another set.
const RESERVED: usize = 4;
/// Questions about pods that failed before, of one set at a time.
const FAILING_AT_A_TIME: usize = 1;
/// After so many pods that wait, one that runs has its turn.
const RUNNING_AFTER: u8 = 8;
/// So many pods that run in a namespace have their turn after each other: what waits there goes when the last of them is
/// answered, and if all namespaces took turns pod by pod, that would be at the end of all in each of them.
const RUNNING_IN_A_ROW: usize = 64;
/// Of an evaluator that takes so many questions at once, so many times as many are on their way: the next one is there when
/// it has answered.
const AHEAD: usize = 2;

/// Order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It has failed before.
    Failing,
    Waiting,
    Running,
}

/// A question in flight.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub pod: PodId,
    /// The evaluators that are asked, a bit for each.
    pub selected: u16,
    pub has_failed: bool,
}

/// The pods of one set of evaluators.
#[derive(Debug)]
struct Lane {
    waiting: Turns<PodId>,
    /// Those that run where one waits, and elsewhere.
    pressing: Turns<PodId>,
    running: Turns<PodId>,
    failing: Turns<PodId>,
    in_flight: usize,
    failing_in_flight: usize,
    /// How many pods that wait had their turn since one that runs had.
    waiting_in_a_row: u8,
    /// How many that run where one waits had theirs since one elsewhere had.
    pressing_in_a_row: u8,
}

impl Default for Lane {
    fn default() -> Self {
        let of_running = || Turns::of(RUNNING_IN_A_ROW);
        Self {
            waiting: Turns::default(),
            pressing: of_running(),
            running: of_running(),
            failing: Turns::default(),
            in_flight: 0,
            failing_in_flight: 0,
            waiting_in_a_row: 0,
            pressing_in_a_row: 0,
        }
    }
}

impl Lane {
    fn push(&mut self, class: Class, namespace: NamespaceId, id: PodId) {
        match class {
            Class::Failing => self.failing.push(namespace, id),
            Class::Waiting => {
                self.waiting.push(namespace, id);
                for running in self.running.take(namespace) {
                    self.pressing.push(namespace, running);
                }
            }
            Class::Running if self.waiting.has_of(namespace) || self.pressing.has_of(namespace) => {
                self.pressing.push(namespace, id);
            }
            Class::Running => self.running.push(namespace, id),
        }
    }

    fn pop_running(&mut self) -> Option<PodId> {
        let is_turn_of_others = self.pressing_in_a_row >= RUNNING_AFTER;
        let pressing = if is_turn_of_others { None } else { self.pressing.pop(|_| true) };
        if let Some((_, id)) = pressing {
            self.pressing_in_a_row += 1;
            return Some(id);
        }
        self.pressing_in_a_row = 0;
        self.running.pop(|_| true).or_else(|| self.pressing.pop(|_| true)).map(|(_, id)| id)
    }

    fn may_fail(&self) -> bool {
        self.failing_in_flight < FAILING_AT_A_TIME
    }

    fn has_next(&self, places: usize) -> bool {
        let may = |turns: &Turns<PodId>| turns.has_one(|_| true);
        let runs = may(&self.pressing) || may(&self.running);
        let has_turn = may(&self.waiting) || runs || self.may_fail() && may(&self.failing);
        self.in_flight < places && has_turn
    }

    fn pop(&mut self) -> Option<PodId> {
        let failing = if self.may_fail() { self.failing.pop(|_| true) } else { None };
        if let Some((_, id)) = failing {
            return Some(id);
        }
        let is_turn_of_running = self.waiting_in_a_row >= RUNNING_AFTER;
        let waiting = if is_turn_of_running { None } else { self.waiting.pop(|_| true) };
        if let Some((_, id)) = waiting {
            self.waiting_in_a_row += 1;
            return Some(id);
        }
        self.waiting_in_a_row = 0;
        self.pop_running().or_else(|| self.waiting.pop(|_| true).map(|(_, id)| id))
    }

    fn has_turns(&self) -> bool {
        [&self.waiting, &self.pressing, &self.running, &self.failing]
            .iter()
            .any(|turns| turns.has_one(|_| true))
    }
}

/// Invariant: the numbers of lanes are those of `flights`.
#[derive(Debug, Default)]
pub struct Lanes {
    by_set: BTreeMap<u16, Lane>,
    /// By serial.
    flights: HashMap<u64, Flight>,
    /// The set that had the last turn.
    last: u16,
}

impl Lanes {
    /// Takes all pods out of their turns. Questions in flight keep their places until they are answered.
    pub fn clear(&mut self) {
        for lane in self.by_set.values_mut() {
            let Lane { in_flight, failing_in_flight, .. } = *lane;
            *lane = Lane { in_flight, failing_in_flight, ..Lane::default() };
        }
        self.by_set.retain(|_, lane| lane.in_flight > 0);
    }

    pub fn push(&mut self, selected: u16, class: Class, namespace: NamespaceId, id: PodId) {
        self.by_set.entry(selected).or_default().push(class, namespace, id);
    }

    /// Whose turn it is in which set, where sets have so many places; they take turns too.
    fn next(&mut self, places: impl Fn(u16) -> usize) -> Option<(u16, PodId)> {
        let is_full = self.flights.len() >= MOST;
        let after = self.by_set.range((Bound::Excluded(self.last), Bound::Unbounded));
        let mut sets = after.chain(self.by_set.range(..=self.last));
        let (set, _) = sets.find(|(set, lane)| lane.has_next(left(places(**set), is_full)))?;
        self.last = *set;
        let lane = self.by_set.get_mut(&self.last)?;
        let id = lane.pop();
        if lane.in_flight == 0 && !lane.has_turns() {
            self.by_set.remove(&self.last);
        }
        Some((self.last, id?))
    }

    fn has_next(&self, places: impl Fn(u16) -> usize) -> bool {
        let is_full = self.flights.len() >= MOST;
        self.by_set.iter().any(|(set, lane)| lane.has_next(left(places(*set), is_full)))
    }

    /// Whether no pod waits for its turn, and no question is in flight.
    pub fn are_empty(&self) -> bool {
        self.flights.is_empty() && !self.by_set.values().any(Lane::has_turns)
    }

    /// Whether one of the set that failed before is asked about, or will be.
    pub fn has_failing(&self, selected: u16) -> bool {
        let is_such = |lane: &Lane| !lane.may_fail() || lane.failing.has_one(|_| true);
        self.by_set.get(&selected).is_some_and(is_such)
    }

    pub fn begin(&mut self, serial: u64, flight: Flight) {
        let lane = self.by_set.entry(flight.selected).or_default();
        lane.in_flight += 1;
        lane.failing_in_flight += usize::from(flight.has_failed);
        self.flights.insert(serial, flight);
    }

    /// The question is answered.
    pub fn end(&mut self, serial: u64) -> Option<Flight> {
        let flight = self.flights.remove(&serial)?;
        if let Some(lane) = self.by_set.get_mut(&flight.selected) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
            lane.failing_in_flight = lane.failing_in_flight.saturating_sub(usize::from(flight.has_failed));
            if lane.in_flight == 0 && !lane.has_turns() {
                self.by_set.remove(&flight.selected);
            }
        }
        Some(flight)
    }
}

/// So many of its places a set may have now.
fn left(places: usize, is_full: bool) -> usize {
    if is_full { places.min(RESERVED) } else { places }
}

/// How many questions each evaluator takes at once, by its place; 0: it is in this process, or that is not known.
pub type AtOnce = [usize; MOST_EVALUATORS];

/// The places of a set: by the one of it that takes the fewest, for all of it answer a question together.
fn places(at_once: &AtOnce, selected: u16, least: usize) -> usize {
    let of_set = at_once.iter().enumerate().filter(|(place, _)| selected >> place & 1 == 1);
    let fewest = of_set.map(|(_, at_once)| *at_once).filter(|at_once| *at_once > 0).min();
    least.max(fewest.unwrap_or(0).saturating_mul(AHEAD))
}

impl Evaluations {
    /// From now on the evaluators take so many questions at once. Nothing is asked again.
    pub const fn limit(&mut self, at_once: AtOnce) {
        self.at_once = at_once;
    }

    /// The next pod to ask about. At least so many of each set of evaluators are in flight at a time.
    pub fn next(&mut self, least: usize) -> Option<PodId> {
        let at_once = self.at_once;
        while let Some((set, id)) = self.lanes.next(|set| places(&at_once, set, least)) {
            // The turn may be that of a pod that is gone, whose handle is another one's, or of one that has its turn among
            // those of another set by now.
            let open = self.open.get_mut(&id).filter(|open| open.selected == set);
            let had_turn = open.is_some_and(|open| std::mem::take(&mut open.has_turn));
            if had_turn || self.take_turn_in_line(id, set) {
                return Some(id);
            }
        }
        None
    }

    /// Whether [`Self::next`] has one, or something else is to be done at once.
    pub fn has_next(&self, least: usize) -> bool {
        let is_something = !self.ended.is_empty() || !self.looks.is_empty() || self.rounds.has_next();
        is_something || self.lanes.has_next(|set| places(&self.at_once, set, least))
    }
}

#[cfg(test)]
mod tests {
    use sluice_engine::{PodId, ShareId};
    use sluice_index::NamespaceId;

    use super::{Class, Flight, Lanes, MOST, RESERVED};

    fn namespace(number: u32) -> NamespaceId {
        NamespaceId::of_share(ShareId(number))
    }

    #[test]
    fn pods_that_run_have_their_turn_however_many_wait() {
        let mut lanes = Lanes::default();
        lanes.push(1, Class::Running, namespace(0), PodId(100));
        for id in 0..20 {
            lanes.push(1, Class::Waiting, namespace(1), PodId(id));
        }
        let order: Vec<u32> = std::iter::from_fn(|| lanes.next(|_| 64)).map(|(_, id)| id.0).collect();
        assert_eq!((order.len(), order.iter().position(|id| *id == 100)), (21, Some(8)), "{order:?}");
    }

    /// A namespace in which one waits is the last of many, by its place and by when it is known that one waits.
    #[test]
    fn a_namespace_in_which_one_waits_has_its_answers_before_all_others_have_theirs() {
        for waits_first in [false, true] {
            let mut lanes = Lanes::default();
            let (last, waiting) = (namespace(999), PodId(1_000_000));
            if waits_first {
                lanes.push(1, Class::Waiting, last, waiting);
            }
            for id in 0..15_000 {
                lanes.push(1, Class::Running, namespace(id / 15), PodId(id));
            }
            if !waits_first {
                lanes.push(1, Class::Waiting, last, waiting);
            }
            let order: Vec<u32> = std::iter::from_fn(|| lanes.next(|_| 64)).map(|(_, id)| id.0).collect();
            let answered = order.iter().rposition(|id| *id >= 999 * 15);
            assert!(
                order.len() == 15_001 && answered.is_some_and(|at| at < 20),
                "{waits_first}: {answered:?}"
            );
        }
    }

    #[test]
    fn pods_that_run_are_answered_namespace_by_namespace_and_a_crowd_delays_no_other_for_long() {
        let mut lanes = Lanes::default();
        for id in 0..1_000 {
            lanes.push(1, Class::Running, namespace(0), PodId(id));
        }
        for id in 1_000..1_045 {
            lanes.push(1, Class::Running, namespace(1 + id % 3), PodId(id));
        }
        let order: Vec<u32> = std::iter::from_fn(|| lanes.next(|_| 64)).map(|(_, id)| id.0).collect();
        let ends = [0, 1, 2].map(|of| order.iter().rposition(|id| *id >= 1_000 && id % 3 == of).unwrap_or(0));
        assert_eq!((order.len(), ends), (1_045, [108, 78, 93]), "64 of the crowd, then 15 of each");
    }

    /// Pods go on waiting in one namespace, and those that run there go on changing.
    #[test]
    fn pods_that_run_where_none_waits_have_their_turn() {
        let mut lanes = Lanes::default();
        lanes.push(1, Class::Running, namespace(1), PodId(0));
        let mut order = Vec::new();
        for id in 1..200 {
            lanes.push(1, Class::Waiting, namespace(0), PodId(2 * id));
            lanes.push(1, Class::Running, namespace(0), PodId(2 * id + 1));
            order.extend(lanes.next(|_| 64).map(|(_, id)| id.0));
        }
        assert!(order.iter().position(|id| *id == 0).is_some_and(|at| at < 100), "{order:?}");
    }

    /// Labels make many sets of which each has a slow evaluator.
    #[test]
    fn however_many_sets_are_slow_another_one_has_places() {
        let mut lanes = Lanes::default();
        let mut serial = 0;
        let mut begin = |lanes: &mut Lanes, (selected, pod): (u16, PodId)| {
            serial += 1;
            lanes.begin(serial, Flight { pod, selected, has_failed: false });
        };
        for id in 0..2_000 {
            lanes.push(1 + id % 8, Class::Waiting, namespace(0), PodId(u32::from(id)));
        }
        while let Some(next) = lanes.next(|_| 64) {
            begin(&mut lanes, next);
        }
        assert_eq!(lanes.flights.len(), MOST);
        for id in 2_000..2_010 {
            lanes.push(16, Class::Waiting, namespace(1), PodId(id));
        }
        let mut others = 0;
        while let Some(next) = lanes.next(|_| 64) {
            assert_eq!(next.0, 16);
            begin(&mut lanes, next);
            others += 1;
        }
        assert_eq!(others, RESERVED);
    }
}
