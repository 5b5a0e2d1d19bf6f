//! The classes that wait for one quota, by the share that they belong to, and which share comes first.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use super::dominant_share::DominantShare;
use super::equivalence_class::Front;
use super::quota_set::ShareId;
use super::wait_order::{Age, ClassId, Rank};

/// A class by the pod that is to be looked at.
pub(super) type Head = (Rank, ClassId);

/// A share's place in the order: the smaller dominant share comes first, of equal ones that which has waited longest since
/// one of its pods went. It comes nearer only when a pod ends, upon which the quota is swept again:
/// what a sweep has passed is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) dominant: DominantShare,
    /// A number that is larger the later the share began to wait, or a pod of it went.
    pub(super) since: u64,
    pub(super) share: ShareId,
}

/// Since when a pod is taken to have waited when room is to be kept for one: since it is seen waiting, but not since
/// before its share had its turn last, if pods of several shares wait. So of a share with many such pods one comes in
/// turn with those of others.
pub(super) type Turn = (u64, Age);

/// The shares of a quota that have waiting classes. In a quota that is not shared all classes are of one.
///
/// Invariant: each lane has a class, and is in `places` and in `turns` as it says itself.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<ShareId, Lane>,
    places: BTreeSet<Place>,
    turns: BTreeSet<(Turn, ShareId)>,
    /// See [`Place::since`].
    last_since: u64,
}

/// The classes of one share.
#[derive(Debug, Default)]
pub(super) struct Lane {
    heads: BTreeSet<Head>,
    /// By the pod of each that has waited longest.
    ages: BTreeSet<(Age, ClassId)>,
    /// When a turn of one of its pods was over, on the clock of ages, or since when one waited that went before others
    /// because of its deadline; 0 if never since it has pods here.
    served_ms: u64,
    /// See [`Place`]; 0 until it is found.
    since: u64,
    place: Option<Place>,
    turn: Option<Turn>,
}

impl Lane {
    /// The class has these pods in front and no longer those.
    pub(super) fn replace(&mut self, id: ClassId, old: Option<&Front>, new: Option<&Front>) {
        if let Some(old) = old {
            self.heads.remove(&(old.head.clone(), id));
            self.ages.remove(&(old.eldest.clone(), id));
        }
        if let Some(new) = new {
            self.heads.insert((new.head.clone(), id));
            self.ages.insert((new.eldest.clone(), id));
        }
    }

    /// A pod of the share has gone.
    pub(super) const fn went(&mut self) {
        self.since = 0;
    }

    /// The pods of the lane count as waiting from this moment on at the earliest.
    pub(super) fn serve(&mut self, moment_ms: u64) {
        self.served_ms = self.served_ms.max(moment_ms);
    }

    fn turn_of(&self, eldest: Age) -> Turn {
        (eldest.0.max(self.served_ms), eldest)
    }
}

/// How far the heads of a quota were looked at.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// All shares before this one are done.
    place: Option<Place>,
    /// Of each share up to here.
    passed: HashMap<ShareId, Head>,
}

impl Cursor {
    /// Whether it is before the first head.
    pub(super) fn is_at_start(&self) -> bool {
        self.passed.is_empty()
    }

    pub(super) fn passed(&self, share: ShareId) -> Option<&Head> {
        self.passed.get(&share)
    }

    /// Moves behind this head of this share.
    pub(super) fn pass(&mut self, place: Option<Place>, share: ShareId, head: Head) {
        self.place = place;
        self.passed.insert(share, head);
    }
}

impl Lanes {
    /// Changes the lane of a share that takes so much.
    pub(super) fn update(&mut self, share: ShareId, dominant: DominantShare, change: impl FnOnce(&mut Lane)) {
        let lane = self.lanes.entry(share).or_default();
        change(lane);
        if lane.since == 0 && !lane.heads.is_empty() {
            self.last_since += 1;
            lane.since = self.last_since;
        }
        let since = lane.since;
        let place = (!lane.heads.is_empty()).then_some(Place { dominant, since, share });
        let turn = lane.ages.first().map(|(eldest, _)| lane.turn_of(eldest.clone()));
        if lane.place != place {
            let old = std::mem::replace(&mut lane.place, place.clone());
            old.map(|old| self.places.remove(&old));
            self.places.extend(place);
        }
        if lane.turn != turn {
            let old = std::mem::replace(&mut lane.turn, turn.clone());
            old.map(|old| self.turns.remove(&(old, share)));
            self.turns.extend(turn.map(|turn| (turn, share)));
        }
        if lane.heads.is_empty() {
            self.lanes.remove(&share);
        }
    }

    pub(super) fn place(&self, share: ShareId) -> Option<&Place> {
        self.lanes.get(&share)?.place.as_ref()
    }

    /// The first head behind the cursor: of the share that comes first now, the first one.
    pub(super) fn next(&self, cursor: &Cursor) -> Option<&Head> {
        let from = cursor.place.as_ref().map_or(Bound::Unbounded, Bound::Included);
        self.places.range((from, Bound::Unbounded)).find_map(|place| {
            let passed = cursor.passed(place.share).map_or(Bound::Unbounded, Bound::Excluded);
            self.lanes.get(&place.share)?.heads.range((passed, Bound::Unbounded)).next()
        })
    }

    /// The next shares behind `searched`, in the order of turns: of each the first classes, if they have waited since this
    /// moment or before.
    pub(super) fn impatient(
        &self,
        since_ms: Option<u64>,
        searched: &mut Option<(Turn, ShareId)>,
        (shares, of_each): (usize, usize),
    ) -> Vec<ClassId> {
        let from = searched.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let is_alone = self.lanes.len() == 1;
        let turns = self.turns.range((from, Bound::Unbounded));
        let turns = turns.take_while(|(turn, _)| is_alone || Some(turn.0) <= since_ms).take(shares);
        let (mut found, mut last) = (Vec::new(), None);
        for turn in turns {
            let lane = self.lanes.get(&turn.1);
            let ages = lane.into_iter().flat_map(|lane| lane.ages.iter().take(of_each));
            found.extend(ages.filter(|(age, _)| Some(age.0) <= since_ms).map(|(_, id)| *id));
            last = Some(turn.clone());
        }
        if last.is_some() {
            *searched = last;
        }
        found
    }

    /// Whether the same classes wait in both.
    pub(super) fn lists_the_same(&self, all: &Self) -> bool {
        let is_same = |(share, lane): (&ShareId, &Lane)| {
            let other = all.lanes.get(share);
            other.is_some_and(|other| lane.heads == other.heads && lane.ages == other.ages)
        };
        self.lanes.len() == all.lanes.len() && self.lanes.iter().all(is_same)
    }

    /// Whether each share has the place that follows from what it takes, and both orders have it as it says.
    pub(super) fn is_in_order(&self, dominant: impl Fn(ShareId) -> DominantShare) -> bool {
        let is_right = |(share, lane): (&ShareId, &Lane)| {
            let (since, share) = (lane.since, *share);
            let place = (!lane.heads.is_empty()).then(|| Place { dominant: dominant(share), since, share });
            let turn = lane.ages.first().map(|(eldest, _)| lane.turn_of(eldest.clone()));
            lane.place == place
                && lane.turn == turn
                && place.is_some_and(|place| self.places.contains(&place))
                && turn.is_none_or(|turn| self.turns.contains(&(turn, share)))
        };
        let turns = self.lanes.values().filter(|lane| lane.turn.is_some()).count();
        (self.places.len(), self.turns.len()) == (self.lanes.len(), turns) && self.lanes.iter().all(is_right)
    }
}
