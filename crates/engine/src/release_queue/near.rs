//! Waiting pods that a deadline is near of: of all pods very few.

use std::collections::{BTreeMap, BTreeSet};

use super::ReleaseQueue;
use super::wait_order::{ClassId, Deadline, Rank, WaitKey};

/// Those of one class.
///
/// Invariant: both have the same pods, with the same deadlines.
#[derive(Debug, Default)]
pub(super) struct NearPods {
    deadlines: BTreeMap<WaitKey, Deadline>,
    order: BTreeSet<Rank>,
}

impl NearPods {
    /// The pod has this deadline, or none that is near. Returns whether that is news.
    pub(super) fn set(&mut self, key: &WaitKey, deadline: Option<Deadline>) -> bool {
        let old = match deadline {
            Some(deadline) => self.deadlines.insert(key.clone(), deadline),
            None => self.deadlines.remove(key),
        };
        if old == deadline {
            return false;
        }
        if let Some(old) = old {
            self.order.remove(&(old, key.clone()));
        }
        self.order.extend(deadline.map(|deadline| (deadline, key.clone())));
        true
    }

    pub(super) fn has(&self, key: &WaitKey) -> bool {
        self.deadlines.contains_key(key)
    }

    pub(super) fn of(&self, key: &WaitKey) -> Option<Deadline> {
        self.deadlines.get(key).copied()
    }

    pub(super) fn first(&self) -> Option<&Rank> {
        self.order.first()
    }
}

impl ReleaseQueue {
    /// A deadline of a pod of the class is near: from now on it goes before the others of its share, and takes the room that
    /// is kept for one of them. `None`: no more. What other shares get does not depend on it.
    pub fn hasten(&mut self, id: ClassId, key: &WaitKey, deadline: Option<Deadline>) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        let old = class.front();
        if class.hasten(key, deadline) {
            self.fresh.insert(id);
            self.move_front(id, old.as_ref());
        }
    }
}
