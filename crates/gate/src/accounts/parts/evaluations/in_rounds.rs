//! Whom a round asks about, and what becomes of those of a namespace that cannot be read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::NamespaceId;

use super::questions::RETRY_MS;
use super::rounds::Member;
use super::{Evaluation, Evaluations, Open};
use crate::backoff::backoff_ms;
use crate::config::Moment;
use crate::evaluators::NotRead;

impl Evaluations {
    /// The namespace is read for its round: those of its pods that are to be asked about are. Returns those that wait and
    /// whose content is not known. The round passes them over, so what was said of them before does not hold any more.
    pub fn begin_round(&mut self, namespace: NamespaceId, members: Vec<Member>, now: Moment) -> Vec<PodId> {
        let asks_running = self.rounds.asks_running(namespace, now.mono_ms);
        let (mut left, mut passed_over) = (HashSet::new(), Vec::new());
        // Those that are due and failed before, by the evaluators that are asked.
        let mut failing = BTreeMap::<u16, Vec<PodId>>::new();
        for Member { pod: id, selected, is_waiting } in members {
            self.leave_line(id, namespace);
            let is_answered = matches!(self.of(id, selected), Evaluation::Current(_));
            if is_answered && (is_waiting || asks_running) {
                let fresh =
                    Open { is_again: true, ..Open::new(namespace, selected, is_waiting, now.mono_ms) };
                self.open.entry(id).or_insert(fresh);
            }
            let is_read = self.is_read(id);
            if let Some(known) = self.slot(id).filter(|_| is_waiting && !is_read) {
                known.outdate();
                passed_over.push(id);
            }
            let Some(open) = self.open.get_mut(&id) else { continue };
            // This is its round, also where it is not to be asked about yet: it is when its time has come.
            open.awaits_round = false;
            open.is_again &= is_read;
            let is_due = is_read && open.serial.is_none() && !open.has_turn && open.retry_ms <= now.mono_ms;
            match is_due {
                true if open.failures > 0 => failing.entry(open.selected).or_default().push(id),
                true => {
                    left.insert(id);
                    self.give_turn(id);
                }
                false => {}
            }
            self.arm(id);
        }
        for (selected, pods) in failing {
            self.try_one(selected, &pods, &mut left, now);
        }
        self.rounds.begin(namespace, left, asks_running, now.mono_ms);
        passed_over
    }

    /// All of the same evaluators that failed share one turn, and a round does not stand in line for it: of these one has it
    /// if it is free, and the others are asked about later.
    fn try_one(&mut self, selected: u16, failed: &[PodId], left: &mut HashSet<PodId>, now: Moment) {
        let is_broken = self.broken.is_any_of(selected);
        let failures = failed.first().and_then(|id| self.open.get(id)).map_or(0, |open| open.failures);
        let turn = usize::try_from(failures).unwrap_or(0).checked_rem(failed.len()).unwrap_or(0);
        // Another one each time, for it may be the one that the evaluators cannot stand.
        let one = failed
            .get(if is_broken { turn } else { 0 })
            .filter(|_| !self.lanes.has_failing(selected))
            .copied();
        for id in failed {
            if Some(*id) == one {
                left.insert(*id);
                self.give_turn(*id);
            } else if let Some(open) = self.open.get_mut(id) {
                // While they do not work, as if it had been asked about too. When they work again it is.
                open.failures = open.failures.saturating_add(u32::from(is_broken));
                let after = if is_broken { backoff_ms(RETRY_MS, open.failures) } else { RETRY_MS };
                open.retry_ms = now.mono_ms + after;
            }
            self.arm(*id);
        }
    }

    /// Whether the pod has failed and is not to be asked about now, for evaluators that are asked about it do not work. What
    /// changes in its namespace meanwhile is no reason to read that.
    pub fn is_resting(&self, id: PodId, now: Moment) -> bool {
        let is_later = |open: &&Open| open.failures > 0 && !open.awaits_round && open.retry_ms > now.mono_ms;
        let open = self.open.get(&id).filter(is_later);
        open.is_some_and(|open| self.broken.is_any_of(open.selected))
    }

    /// The pods of a namespace cannot be sent along: of those that wait is told why, and nothing that was said before holds
    /// where they are too many.
    pub fn end_unread(&mut self, namespace: NamespaceId, members: Vec<Member>, why: &NotRead, now: Moment) {
        for Member { pod: id, selected, is_waiting } in members {
            let is_answered = matches!(self.of(id, selected), Evaluation::Current(_));
            if is_answered && !(is_waiting && why.are_too_many) {
                continue;
            }
            if let Some(known) = self.slot(id) {
                known.outdate();
            }
            self.leave_line(id, namespace);
            let fresh = Open::new(namespace, selected, is_waiting, now.mono_ms);
            let open = self.open.entry(id).or_insert(fresh);
            (open.failure, open.awaits_round, open.is_again) = (Some(Arc::clone(&why.text)), true, false);
            self.end_pending(id);
            self.arm(id);
            self.count(id);
        }
        self.rounds.not_read(namespace, why.are_too_many, now.mono_ms);
    }
}
