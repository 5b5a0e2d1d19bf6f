//! Whose turn it is. Pure: calls by number, no clock.
//!
//! Namespaces take turns, pods that wait come before pods that run but for one in [`RUNNING_AFTER`], and pods whose last
//! question had no answer share one slot: a tenant whose pods make an evaluator hang or fail leaves the other slots to
//! everybody else. A call that missed its deadline keeps its slot, for the evaluator goes on with it (grpc-go's handlers do
//! not look whether the caller has gone), and its namespace has at most half of the slots until one of its pods is answered.

mod ring;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use self::ring::Ring;

/// Most questions that wait for their turn.
pub(crate) const MOST_WAITING: usize = 1024;
/// After so many pods that wait, one that runs has its turn: who asks about it waits for the answer too.
const RUNNING_AFTER: u8 = 8;
/// Most pods that are remembered as failed; the oldest are forgotten.
const MOST_FAILED: usize = 16 << 10;

/// A question that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) id: u64,
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) is_waiting: bool,
}

#[derive(Debug)]
struct Flight {
    turn: Turn,
    is_failing: bool,
    is_abandoned: bool,
}

/// Order of importance; the value is the place in [`Turns::rings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Waiting,
    Running,
    Failing,
}

/// The turns of one evaluator.
#[derive(Debug)]
pub(crate) struct Turns {
    slots: usize,
    waiting: Ring,
    running: Ring,
    failing: Ring,
    flights: HashMap<u64, Flight>,
    failed: HashSet<Arc<str>>,
    failed_order: VecDeque<Arc<str>>,
    /// Namespaces of which a call missed its deadline, and none was answered since.
    suspects: HashSet<Arc<str>>,
    /// With one slot, failing pods and others alternate.
    was_failing: bool,
    /// How many pods that wait had their turn since one that runs had.
    waiting_in_a_row: u8,
}

impl Turns {
    /// From now on there are so many slots. Calls that have one keep it.
    pub(crate) fn allow(&mut self, slots: usize) {
        self.slots = slots.max(1);
    }

    /// For an evaluator with so many slots.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            waiting: Ring::default(),
            running: Ring::default(),
            failing: Ring::default(),
            flights: HashMap::new(),
            failed: HashSet::new(),
            failed_order: VecDeque::new(),
            suspects: HashSet::new(),
            was_failing: false,
            waiting_in_a_row: 0,
        }
    }

    /// Puts a question in its place. Returns the one for which there is no more room: of the namespace with the most, so
    /// that nobody is kept out by another.
    pub(crate) fn push(&mut self, turn: Turn) -> Option<u64> {
        let class = if self.failed.contains(&turn.uid) {
            Class::Failing
        } else if turn.is_waiting {
            Class::Waiting
        } else {
            Class::Running
        };
        self.ring(class).push(turn);
        if self.len() <= MOST_WAITING {
            return None;
        }
        let longest = |class: &Class| match class {
            Class::Waiting => self.waiting.longest(),
            Class::Running => self.running.longest(),
            Class::Failing => self.failing.longest(),
        };
        // Of equal ones the last, the least important, gives way.
        let class = [Class::Waiting, Class::Running, Class::Failing].into_iter().max_by_key(longest)?;
        self.ring(class).drop_from_longest().map(|turn| turn.id)
    }

    /// The question that is asked now, if there is a slot for any; it has one then.
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.flights.len() >= self.slots {
            return None;
        }
        let has_failing_flight = self.flights.values().any(|flight| flight.is_failing);
        let is_their_turn = self.slots > 1 || !self.was_failing;
        let held = self.held_namespaces();
        let may = |namespace: &str| !held.contains(namespace);
        let mut failing = |may_be: bool| {
            let turn = if may_be && !has_failing_flight { self.failing.pop(may) } else { None };
            turn.map(|turn| (turn, true))
        };
        let is_turn_of_running = self.waiting_in_a_row >= RUNNING_AFTER;
        let mut others = || {
            let running = if is_turn_of_running { self.running.pop(may) } else { None };
            running.or_else(|| self.waiting.pop(may)).or_else(|| self.running.pop(may))
        };
        let found = failing(is_their_turn).or_else(|| Some((others()?, false))).or_else(|| failing(true));
        let (turn, is_failing) = found?;
        let id = turn.id;
        self.was_failing = is_failing;
        self.waiting_in_a_row = match (is_failing, turn.is_waiting) {
            (true, _) => self.waiting_in_a_row,
            (false, true) => self.waiting_in_a_row.saturating_add(1),
            (false, false) => 0,
        };
        self.flights.insert(id, Flight { turn, is_failing, is_abandoned: false });
        Some(id)
    }

    /// Takes a slot for a call that waits for no turn, if one is free and no question waits for it.
    pub(crate) fn take_slot(&mut self, turn: Turn) -> bool {
        let has_one = !self.is_full() && self.len() == 0;
        if has_one {
            self.flights.insert(turn.id, Flight { turn, is_failing: false, is_abandoned: false });
        }
        has_one
    }

    /// Namespaces that have their half of the slots, and no right to more.
    fn held_namespaces(&self) -> HashSet<Arc<str>> {
        let half = (self.slots / 2).max(1);
        let mut flights: HashMap<&Arc<str>, (usize, bool)> = HashMap::new();
        for flight in self.flights.values() {
            let (count, has_abandoned) = flights.entry(&flight.turn.namespace).or_default();
            *count += 1;
            *has_abandoned |= flight.is_abandoned;
        }
        let is_held = |(namespace, (count, has_abandoned)): &(&Arc<str>, (usize, bool))| {
            *count >= half && (*has_abandoned || self.suspects.contains(*namespace))
        };
        flights.into_iter().filter(is_held).map(|(namespace, _)| namespace.clone()).collect()
    }

    /// The call had an answer, valid or not: its slot is free. Late answers count as well.
    pub(crate) fn answered(&mut self, id: u64, is_good: bool) {
        let Some(flight) = self.flights.remove(&id) else { return };
        if is_good && !flight.is_abandoned {
            self.failed.remove(&flight.turn.uid);
            self.suspects.remove(&flight.turn.namespace);
        } else {
            self.remember(flight.turn.uid);
        }
    }

    /// The call missed its deadline. It keeps its slot.
    pub(crate) fn abandon(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.is_abandoned = true;
        let (uid, namespace) = (flight.turn.uid.clone(), flight.turn.namespace.clone());
        if self.suspects.len() < MOST_WAITING {
            self.suspects.insert(namespace);
        }
        self.remember(uid);
    }

    fn remember(&mut self, uid: Arc<str>) {
        if !self.failed.insert(uid.clone()) {
            return;
        }
        self.failed_order.push_back(uid);
        if self.failed_order.len() > MOST_FAILED
            && let Some(oldest) = self.failed_order.pop_front()
        {
            self.failed.remove(&oldest);
        }
    }

    /// The question is not asked: its slot is free, and nothing is known of the pod by it.
    pub(crate) fn withdrawn(&mut self, id: u64) {
        self.flights.remove(&id);
    }

    /// Questions wait, and a call that missed its deadline is why none of them is asked.
    pub(crate) fn is_stuck(&self) -> bool {
        self.len() > 0 && self.flights.values().any(|flight| flight.is_abandoned)
    }

    /// Whether a call about this pod runs that missed its deadline.
    pub(crate) fn is_abandoned(&self, uid: &str) -> bool {
        self.flights.values().any(|flight| flight.is_abandoned && &*flight.turn.uid == uid)
    }

    /// Calls that run and have not missed their deadline.
    pub(crate) fn live_flights(&self) -> usize {
        self.flights.values().filter(|flight| !flight.is_abandoned).count()
    }

    /// Whether all slots are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.flights.len() >= self.slots
    }

    /// Whether a call runs that missed its deadline.
    pub(crate) fn has_abandoned(&self) -> bool {
        self.flights.values().any(|flight| flight.is_abandoned)
    }

    /// Takes out all questions of the namespaces that `of` names.
    pub(crate) fn take(&mut self, of: impl Fn(&str) -> bool) -> Vec<u64> {
        let rings = [&mut self.waiting, &mut self.running, &mut self.failing];
        rings.into_iter().flat_map(|ring| ring.take(&of)).map(|turn| turn.id).collect()
    }

    /// Questions that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.running.len() + self.failing.len()
    }

    const fn ring(&mut self, class: Class) -> &mut Ring {
        match class {
            Class::Waiting => &mut self.waiting,
            Class::Running => &mut self.running,
            Class::Failing => &mut self.failing,
        }
    }
}

#[cfg(test)]
mod tests;
