//! Pods that run and stand in line to be asked about.
//!
//! After a start every running pod of the cluster stands in line. So such a pod has no [`Open`](super::open) and no timer.
//! [`Known`] holds its [`Place`], and one timer of its namespace says when the pods there are overdue.

use std::collections::HashMap;

use sluice_engine::{PodId, Timers};
use sluice_index::NamespaceId;

use super::Evaluations;
use super::known::{Known, Place};
use super::lanes::Class;
use super::open::{Open, PAUSED_MS};
use super::unready::Lack;
use crate::config::Moment;
use crate::tables::shrink;

/// A line takes further pods for so long after its first one (milliseconds). At a start the watch shows the pods of a
/// namespace within that time.
const JOINS_MS: u64 = 2_000;

/// The line of a namespace.
#[derive(Clone, Copy, Debug)]
struct Standing {
    pods: u32,
    /// Since then the line has not been empty (milliseconds).
    since_ms: u64,
    /// The pods have stood for [`PAUSED_MS`]. Quotas tell of them, and they no longer keep their namespace paused.
    are_overdue: bool,
}

/// The lines of all namespaces.
///
/// Invariant: a namespace is here exactly if a pod of it has a [`Place`], and has a timer until its pods are overdue.
#[derive(Debug, Default)]
pub struct Line {
    namespaces: HashMap<NamespaceId, Standing>,
    /// The moment from which the pods of a namespace are overdue (milliseconds).
    due: Timers<NamespaceId>,
}

impl Line {
    fn enter(&mut self, namespace: NamespaceId, now_ms: u64) {
        let due = &mut self.due;
        let standing = self.namespaces.entry(namespace).or_insert_with(|| {
            due.set(namespace, now_ms + PAUSED_MS);
            Standing { pods: 0, since_ms: now_ms, are_overdue: false }
        });
        standing.pods += 1;
    }

    /// A pod leaves the line of its namespace. Returns the line as it was before.
    fn leave(&mut self, namespace: NamespaceId) -> Option<Standing> {
        let standing = self.namespaces.get_mut(&namespace)?;
        let before = *standing;
        standing.pods = standing.pods.saturating_sub(1);
        if standing.pods == 0 {
            self.namespaces.remove(&namespace);
            self.due.cancel(&namespace);
            shrink(&mut self.namespaces);
        }
        Some(before)
    }

    /// Whether the line of the namespace is empty, or still takes further pods.
    fn is_young(&self, namespace: NamespaceId, now_ms: u64) -> bool {
        let standing = self.namespaces.get(&namespace);
        standing.is_none_or(|standing| now_ms < standing.since_ms + JOINS_MS)
    }

    fn are_overdue(&self, namespace: NamespaceId) -> bool {
        self.namespaces.get(&namespace).is_some_and(|standing| standing.are_overdue)
    }

    /// When the pods of the next namespace become overdue (milliseconds).
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.next()
    }
}

impl Evaluations {
    /// Whether the pod stands in line.
    pub(super) fn is_in_line(&self, id: PodId) -> bool {
        self.get(id).is_some_and(|known| known.place.is_some())
    }

    /// Whether the pod may share the timer of its namespace's line. A pod that comes late gets an [`Open`] with a time of
    /// its own, and so does a pod in line that further evaluators select.
    pub(super) fn fits_in_line(
        &self,
        id: PodId,
        (namespace, selected): (NamespaceId, u16),
        now: Moment,
    ) -> bool {
        match self.get(id).filter(|known| known.place.is_some()) {
            // All evaluators are assumed to select a pod that is not read yet. That fewer do is no new question.
            Some(known) => selected & !known.wanted == 0,
            None => self.line.is_young(namespace, now.mono_ms),
        }
    }

    /// Puts the pod in line for these evaluators, or updates its place there.
    pub(super) fn stand_in_line(
        &mut self,
        id: PodId,
        (namespace, selected): (NamespaceId, u16),
        is_answered: bool,
        now: Moment,
    ) {
        let is_known = self.is_read(id);
        let Some(known) = self.slot(id) else { return };
        let before = known.place;
        // A turn in the lane of other evaluators does not count.
        let had_turn = before.is_some_and(Place::has_turn) && known.wanted == selected;
        // A pod stays unanswered until it leaves the line.
        let was_unanswered = before.is_some_and(Place::is_unanswered);
        let after = Place::new(was_unanswered || !is_answered, had_turn || is_known);
        (known.place, known.wanted) = (Some(after), selected);
        if before.is_none() {
            self.line.enter(namespace, now.mono_ms);
        }
        let is_overdue = self.line.are_overdue(namespace);
        let before = before.map(|place| place.lack(is_overdue)).unwrap_or_default();
        self.unready.replace(namespace, before, after.lack(is_overdue));
        if is_overdue {
            self.moved.push(id);
        }
        if after.has_turn() && !had_turn {
            self.lanes.push(selected, Class::Running, namespace, id);
        }
        self.count(id);
    }

    /// Takes the turn of the pod. Returns whether it had one for these evaluators.
    pub(super) fn take_turn_in_line(&mut self, id: PodId, selected: u16) -> bool {
        let known = self.known.get_mut(id.0 as usize).filter(|known| known.wanted == selected);
        let place = known.and_then(|known| known.place.as_mut());
        place.is_some_and(|place| {
            std::mem::replace(place, Place::new(place.is_unanswered(), false)).has_turn()
        })
    }

    /// Gives the pod an [`Open`] in place of its place in line, if it has one. The time of the line becomes its time.
    pub(super) fn leave_line(&mut self, id: PodId, namespace: NamespaceId) {
        let Some(known) = self.known.get_mut(id.0 as usize) else { return };
        let (Some(place), selected) = (known.place.take(), known.wanted) else { return };
        let gone = Standing { pods: 0, since_ms: 0, are_overdue: true };
        let Standing { since_ms, are_overdue, .. } = self.line.leave(namespace).unwrap_or(gone);
        let open = Open {
            has_turn: place.has_turn(),
            lack: place.lack(are_overdue),
            is_told: are_overdue,
            has_expired: are_overdue,
            ..Open::new(namespace, selected, false, since_ms)
        };
        self.open.insert(id, open);
        self.arm(id);
    }

    /// Takes the pod out of the line, because no evaluator is asked about it any more.
    pub(super) fn drop_from_line(&mut self, id: PodId, namespace: NamespaceId) {
        let known = self.known.get_mut(id.0 as usize);
        let Some(place) = known.and_then(|known| known.place.take()) else { return };
        let are_overdue = self.line.leave(namespace).is_some_and(|standing| standing.are_overdue);
        if are_overdue {
            self.moved.push(id);
        }
        self.note_lack(namespace, place.lack(are_overdue), Lack::default());
    }

    /// Whether the pod stands in a line whose pods are overdue.
    pub(super) fn is_overdue_in_line(&self, id: PodId, namespace: NamespaceId) -> bool {
        self.is_in_line(id) && self.line.are_overdue(namespace)
    }

    /// All pods in line if those of one namespace are overdue, otherwise none. Callers check each pod anyway.
    pub(super) fn overdue_in_line(&self) -> impl Iterator<Item = PodId> {
        let is_any = self.line.namespaces.values().any(|standing| standing.are_overdue);
        let stands = move |(known, at): (&Known, u32)| (is_any && known.place.is_some()).then_some(PodId(at));
        self.known.iter().zip(0..).filter_map(stands)
    }

    /// Takes the timer of a namespace whose pods have become overdue. The caller passes them to [`Self::note_overdue`].
    pub fn next_overdue(&mut self, now: Moment) -> Option<NamespaceId> {
        self.line.due.pop_due(now.mono_ms)
    }

    /// Marks the pods of the namespace that stand in line as overdue. `pods` are all pods of the namespace.
    pub fn note_overdue(&mut self, namespace: NamespaceId, pods: &[PodId]) {
        if let Some(standing) = self.line.namespaces.get_mut(&namespace) {
            standing.are_overdue = true;
        }
        for id in pods {
            let Some(place) = self.get(*id).and_then(|known| known.place) else { continue };
            self.note_lack(namespace, place.lack(false), place.lack(true));
            self.moved.push(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_engine::{PodId, ShareId};
    use sluice_index::NamespaceId;

    use crate::accounts::parts::evaluations::Evaluations;
    use crate::config::Moment;
    use crate::evaluators::{Content, Price, Said};
    use crate::tests::evaluator::config;

    /// At a start memory and timers grow with the questions in flight, not with the pods of the cluster.
    #[test]
    fn a_pod_in_line_has_no_entry_and_no_timer_of_its_own() {
        let mut evaluations = Evaluations::default();
        let revision = evaluations.configure(Some(config()));
        let (namespace, now) = (NamespaceId::of_share(ShareId(0)), Moment { mono_ms: 1, unix_ms: 1 });
        for id in (0..1_000).map(PodId) {
            evaluations.see(id, Some(Content { hash: 7, selected_by: 1, revision }));
            evaluations.ask(id, (namespace, 1), false, now);
        }
        assert_eq!((evaluations.open.len(), evaluations.later.next()), (0, None));
        assert!(evaluations.is_pending(namespace) && evaluations.is_awaited(PodId(999)));
        let mut asked = 0;
        while let Some(id) = evaluations.next(16) {
            let Some((hash, serial)) = evaluations.begin(id, namespace, 1) else { panic!("{id:?}") };
            asked += 1;
            assert_eq!(evaluations.open.len(), 1);
            evaluations.answered(serial, hash, Ok(Said::from(Price::NoMatch)), now);
        }
        assert_eq!((asked, evaluations.open.len(), evaluations.line.next_due_ms()), (1_000, 0, None));
        assert_eq!((evaluations.is_pending(namespace), evaluations.without_answer()), (false, (0, 0)));
    }

    /// A further evaluator selects the namespace, or the pod is new there.
    #[test]
    fn the_time_of_an_old_line_is_not_that_of_a_new_question() {
        let at = |mono_ms| Moment { mono_ms, unix_ms: 1 };
        let (namespace, silent, relabelled, new) =
            (NamespaceId::of_share(ShareId(0)), PodId(0), PodId(1), PodId(2));
        let begin = || {
            let mut evaluations = Evaluations::default();
            let revision = evaluations.configure(Some(config()));
            for id in [silent, relabelled, new] {
                evaluations.see(id, Some(Content { hash: 7, selected_by: 3, revision }));
            }
            for id in [silent, relabelled] {
                evaluations.ask(id, (namespace, 1), false, at(1));
            }
            assert_eq!(
                (evaluations.next_overdue(at(30_000)), evaluations.is_pending(namespace)),
                (None, true)
            );
            assert_eq!(evaluations.next_overdue(at(30_001)), Some(namespace));
            evaluations.note_overdue(namespace, &[silent, relabelled]);
            assert!(!evaluations.is_pending(namespace) && evaluations.is_overdue(silent, namespace));
            evaluations
        };
        for (id, selected) in [(relabelled, 3), (new, 1)] {
            let mut evaluations = begin();
            evaluations.ask(id, (namespace, selected), false, at(31_000));
            assert!(evaluations.is_pending(namespace), "{id:?}");
            evaluations.pass_time(at(60_999));
            assert!(evaluations.is_pending(namespace), "{id:?}");
            evaluations.pass_time(at(61_000));
            assert!(!evaluations.is_pending(namespace), "{id:?}");
        }
        // The line is not overdue yet, and old.
        let mut evaluations = Evaluations::default();
        let revision = evaluations.configure(Some(config()));
        for (id, now) in [(silent, 1), (new, 29_900)] {
            evaluations.see(id, Some(Content { hash: 7, selected_by: 1, revision }));
            evaluations.ask(id, (namespace, 1), false, at(now));
        }
        assert_eq!(evaluations.next_overdue(at(30_001)), Some(namespace));
        evaluations.note_overdue(namespace, &[silent, new]);
        evaluations.pass_time(at(59_899));
        assert!(evaluations.is_pending(namespace));
        evaluations.pass_time(at(59_900));
        assert!(!evaluations.is_pending(namespace));
    }

    /// The quotas that count the pod have to take it out of what they tell.
    #[test]
    fn an_overdue_pod_that_is_no_longer_asked_about_has_moved() {
        let mut evaluations = Evaluations::default();
        evaluations.configure(Some(config()));
        let (namespace, gone, stays) = (NamespaceId::of_share(ShareId(0)), PodId(0), PodId(1));
        for id in [gone, stays] {
            evaluations.ask(id, (namespace, 1), false, Moment { mono_ms: 1, unix_ms: 1 });
        }
        let overdue = evaluations.next_overdue(Moment { mono_ms: 30_001, unix_ms: 1 });
        assert_eq!(overdue, Some(namespace));
        evaluations.note_overdue(namespace, &[gone, stays]);
        assert_eq!(evaluations.take_moved(), [gone, stays]);
        evaluations.leave(gone, namespace);
        assert_eq!(evaluations.take_moved(), [gone]);
        assert!(!evaluations.is_overdue(gone, namespace) && evaluations.is_overdue(stays, namespace));
    }
}
