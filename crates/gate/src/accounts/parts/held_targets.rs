//! Targets of migrations that wait at the gate, and when something is to be done about each.

use std::collections::{BTreeSet, HashMap};

use sluice_engine::{Deadline, PodId, Timers, Uid};

/// So many seconds after its creation a target that is held is late. KubeVirt gives up a target that cannot be scheduled
/// when it is so old (`pkg/virt-controller/watch/migration/migration.go`, `defaultUnschedulablePendingTimeoutSeconds`): one
/// that goes later has to find its node at once.
const LATE_S: i64 = 300;

/// What is true of a target in some second.
#[derive(Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The target's deadline, if that is near.
    pub near: Option<Deadline>,
    /// An event is to say that the target is held for long.
    pub is_late: bool,
    /// The second from which on something else is true.
    pub until: Option<i64>,
}

impl Outlook {
    /// Of a target that was created in this second.
    pub fn of(created: i64, deadline: Deadline, second: i64) -> Self {
        let late_from = created.saturating_add(LATE_S).min(deadline.near_from());
        let changes = [late_from, deadline.near_from(), deadline.0];
        Self {
            near: Some(deadline).filter(|deadline| deadline.is_near(second)),
            is_late: late_from <= second,
            until: changes.into_iter().filter(|change| *change > second).min(),
        }
    }
}

/// Pods that are held and say that they are targets.
///
/// Invariant: each is in `by_migration`, and `due` has no others.
#[derive(Debug, Default)]
pub struct HeldTargets {
    held: HashMap<PodId, Target>,
    by_migration: BTreeSet<(Uid, PodId)>,
    /// When each is to be looked at (seconds since the epoch).
    due: Timers<PodId, i64>,
}

#[derive(Debug)]
struct Target {
    migration: Uid,
    is_late: bool,
}

impl HeldTargets {
    /// The pod is held and says that it is the target of this migration. It is to be looked at.
    pub fn hold(&mut self, id: PodId, migration: &Uid) {
        if self.migration(id) != Some(migration) {
            self.forget(id);
            self.held.insert(id, Target { migration: migration.clone(), is_late: false });
            self.by_migration.insert((migration.clone(), id));
        }
        self.look_at(id, Some(i64::MIN));
    }

    /// The pod is not held any more, or no target.
    pub fn forget(&mut self, id: PodId) {
        let Some(target) = self.held.remove(&id) else { return };
        self.due.cancel(&id);
        self.by_migration.remove(&(target.migration, id));
    }

    /// It is to be looked at from this second on, and not before.
    pub fn look_at(&mut self, id: PodId, second: Option<i64>) {
        match second.filter(|_| self.held.contains_key(&id)) {
            Some(second) => self.due.set(id, second),
            None => self.due.cancel(&id),
        }
    }

    /// One that is to be looked at in this second.
    pub fn take_due(&mut self, second: i64) -> Option<PodId> {
        self.due.pop_due(second)
    }

    /// When the next one is to be looked at (seconds since the epoch).
    pub fn next_due(&self) -> Option<i64> {
        self.due.next()
    }

    /// The migration whose target the pod says that it is.
    pub fn migration(&self, id: PodId) -> Option<&Uid> {
        self.held.get(&id).map(|target| &target.migration)
    }

    /// Those that say that they are the target of this migration.
    pub fn of_migration(&self, migration: &Uid) -> Vec<PodId> {
        let key = |id| (migration.clone(), PodId(id));
        self.by_migration.range(key(0)..=key(u32::MAX)).map(|(_, id)| *id).collect()
    }

    /// The target is late, or not. Returns whether it is and was not.
    pub fn set_late(&mut self, id: PodId, is_late: bool) -> bool {
        let target = self.held.get_mut(&id);
        target.is_some_and(|target| !std::mem::replace(&mut target.is_late, is_late) && is_late)
    }

    pub fn is_late(&self, id: PodId) -> bool {
        self.held.get(&id).is_some_and(|target| target.is_late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: i64 = 10_000;

    fn at(timeout: i64, age: i64) -> (bool, bool, Option<i64>) {
        let outlook = Outlook::of(CREATED, Deadline::after(CREATED, timeout), CREATED + age);
        (outlook.near.is_some(), outlook.is_late, outlook.until.map(|until| until - CREATED))
    }

    #[test]
    fn a_target_is_late_after_five_minutes_and_near_in_the_last_five() {
        assert_eq!(at(900, 0), (false, false, Some(300)));
        assert_eq!(at(900, 299), (false, false, Some(300)));
        assert_eq!(at(900, 300), (false, true, Some(600)));
        assert_eq!(at(900, 600), (true, true, Some(900)));
        assert_eq!(at(900, 899), (true, true, Some(900)));
        assert_eq!(at(900, 900), (false, true, None), "it is given up whether it goes or not");
    }

    #[test]
    fn one_that_is_near_is_late_as_well() {
        assert_eq!(at(400, 99), (false, false, Some(100)));
        assert_eq!(at(400, 100), (true, true, Some(400)));
        assert_eq!(at(60, 0), (true, true, Some(60)));
    }

    #[test]
    fn no_number_is_too_small_or_too_large() {
        assert_eq!(at(0, 0), (false, true, None));
        assert_eq!(at(i64::MIN, 0), (false, true, None));
        assert!(!at(i64::MAX, 300).0);
        let latest = Outlook::of(i64::MAX, Deadline::after(i64::MAX, i64::MAX), i64::MAX);
        assert!(latest.near.is_none());
        let earliest = Outlook::of(i64::MIN, Deadline::after(i64::MIN, i64::MIN), i64::MIN);
        assert!(earliest.near.is_none());
    }
}
