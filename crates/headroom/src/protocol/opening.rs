//! One opening of a window, from the lock to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::headroom::{Budget, Grant, MARK, NativeQuota, Need, Plan, Raise, mark, plan};
use sluice_engine::{Amount, Resource};

use super::words::{Answer, Command, Ending, QuotaRef, Theft};

/// A raise is only sent while the lock holds for at least this long: twice what the API server is given for it.
const LEAST_LEFT: Duration = Duration::from_secs(2);
/// How often the quotas are read again because they changed between reading and raising.
const MOST_READS: u32 = 8;

/// What was known of a quota when it was raised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Touched {
    quota: QuotaRef,
    raise: Raise,
    before: NativeQuota,
}

/// A raise without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unanswered {
    raise: Raise,
    /// The quota was raised once more since: what it shows says nothing of this raise.
    overlaid: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Locking,
    Waiting,
    Clearing,
    /// Looks whether the room that somebody else made for this target is enough.
    Looking,
    /// It is; quota admission has to know of it, too.
    Joining(Option<QuotaRef>),
    Proving,
    Draining,
    Recalling,
    Reading,
    CatchingUp,
    ReadingBudget,
    Raising(VecDeque<Raise>),
    Settling(Option<QuotaRef>),
    Admitting,
    Awaiting,
    Restoring(VecDeque<QuotaRef>),
    Unlocking,
    /// The lock is gone or was never there; the creation may still wait for its answer.
    Leaving,
    Done,
}

/// The machine. It is driven by [`Self::command`] and [`Self::take`] in turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opening {
    need: Need,
    phase: Phase,
    touched: Vec<Touched>,
    /// Raises that may still be written: their answers were lost, and nothing shows that they arrived.
    unanswered: Vec<Unanswered>,
    quotas: Vec<NativeQuota>,
    reads: u32,
    /// The budget was read, not only watched: a grant may be younger than what our watches have shown.
    budget_is_read: bool,
    /// What others do with a pool that is shared with this namespace is known up to our window.
    caught_up: bool,
    admitted: bool,
    ending: Ending,
    thefts: Vec<Theft>,
}

impl Opening {
    /// An opening for a target with this need.
    #[must_use]
    pub const fn new(need: Need) -> Self {
        Self {
            need,
            phase: Phase::Locking,
            touched: Vec::new(),
            unanswered: Vec::new(),
            quotas: Vec::new(),
            reads: 0,
            budget_is_read: false,
            caught_up: false,
            admitted: false,
            ending: Ending::NotSeen,
            thefts: Vec::new(),
        }
    }

    /// What to do next.
    #[must_use]
    pub fn command(&self) -> Command {
        match &self.phase {
            Phase::Locking => Command::Lock,
            Phase::Waiting => Command::WaitForOther,
            Phase::Clearing => Command::ClearOther,
            Phase::Proving => Command::Prove,
            Phase::Draining => Command::Drain,
            Phase::Recalling => Command::Recall,
            Phase::Looking | Phase::Reading => Command::Read,
            Phase::CatchingUp => Command::Catchup,
            Phase::ReadingBudget => Command::ReadBudget,
            Phase::Raising(raises) => raises.front().cloned().map_or(Command::Settle(None), Command::Raise),
            Phase::Joining(marked) | Phase::Settling(marked) => Command::Settle(marked.clone()),
            Phase::Admitting => Command::Admit,
            Phase::Awaiting => Command::Await,
            Phase::Restoring(quotas) => quotas.front().cloned().map_or(Command::Unlock, Command::Restore),
            Phase::Unlocking => Command::Unlock,
            Phase::Leaving if !self.admitted => Command::Admit,
            Phase::Leaving | Phase::Done => Command::Stop(self.ending.clone()),
        }
    }

    /// The raises that may be in force: written, or sent without an answer.
    pub fn raises(&self) -> impl Iterator<Item = &Raise> {
        self.touched.iter().map(|touched| &touched.raise)
    }

    /// What others took of the room that was made.
    #[must_use]
    pub fn thefts(&self) -> &[Theft] {
        &self.thefts
    }

    /// Takes note of how the last command went. An answer that does not belong to it changes nothing.
    pub fn take(&mut self, answer: Answer) {
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        self.phase = match (phase, answer) {
            (Phase::Locking, Answer::Locked) => Phase::Proving,
            (Phase::Locking, Answer::Held) => Phase::Waiting,
            (Phase::Locking, Answer::HeldForTarget) => Phase::Looking,
            (Phase::Locking, Answer::HeldExpired) => Phase::Clearing,
            (Phase::Locking, Answer::Failed(why)) => self.leave(Ending::NotLocked(why)),
            (Phase::Waiting | Phase::Clearing, Answer::Free) => Phase::Locking,
            (Phase::Waiting | Phase::Clearing, Answer::Failed(why)) => self.leave(Ending::NotLocked(why)),
            (Phase::Locking | Phase::Waiting | Phase::Clearing, Answer::TimeUp) => {
                self.leave(Ending::TimedOut)
            }
            (Phase::Looking, Answer::Quotas { quotas, budget, .. }) => self.look(&quotas, &budget),
            (Phase::Looking, Answer::Failed(_)) => Phase::Waiting,
            (Phase::Joining(_), Answer::Settled) => self.leave(Ending::Covered),
            (Phase::Joining(_), Answer::Lowered | Answer::Failed(_)) => Phase::Waiting,
            (Phase::Proving, Answer::Proven(left)) if left >= LEAST_LEFT => Phase::Draining,
            (Phase::Proving, Answer::Proven(_)) => self.give_up(Ending::Overtaken),
            (Phase::Proving | Phase::Draining, Answer::Failed(why)) => self.give_up(Ending::NotProven(why)),
            (Phase::Draining, Answer::Drained) => Phase::Recalling,
            (Phase::Recalling | Phase::Reading, Answer::Quotas { budget, .. }) if self.is_behind(&budget) => {
                Phase::CatchingUp
            }
            (Phase::CatchingUp, Answer::CaughtUp | Answer::Failed(_)) => {
                self.caught_up = true;
                Phase::Reading
            }
            (Phase::Recalling, Answer::Quotas { quotas, budget, left }) => {
                self.plan_from_memory(quotas, &budget, left)
            }
            (Phase::Recalling, Answer::Failed(_)) => Phase::Reading,
            (Phase::Reading, Answer::Quotas { quotas, budget, left }) => self.plan(quotas, &budget, left),
            (Phase::Reading, Answer::Failed(why)) => self.give_up(Ending::Failed(why)),
            (Phase::ReadingBudget, Answer::BudgetRead | Answer::Failed(_)) => {
                self.budget_is_read = true;
                Phase::Reading
            }
            (Phase::Raising(raises), answer) => self.raised(raises, answer),
            (Phase::Settling(_), Answer::Settled) if self.admitted => Phase::Awaiting,
            (Phase::Settling(_), Answer::Settled) => Phase::Admitting,
            (Phase::Admitting, Answer::Admitted) => {
                self.admitted = true;
                Phase::Awaiting
            }
            (Phase::Awaiting, Answer::Seen) => self.give_up(Ending::Entered),
            (Phase::Awaiting, Answer::NotSeen) => self.give_up(Ending::NotSeen),
            (Phase::Settling(_) | Phase::Awaiting, Answer::Lowered) if self.reads > MOST_READS => {
                self.give_up(Ending::Overtaken)
            }
            (Phase::Settling(_) | Phase::Awaiting, Answer::Lowered) => Phase::Reading,
            (Phase::Restoring(quotas), answer) => self.restored(quotas, answer),
            (Phase::Unlocking, Answer::Unlocked | Answer::Failed(_)) => Phase::Leaving,
            (Phase::Leaving, Answer::Admitted) => {
                self.admitted = true;
                Phase::Done
            }
            (phase, _) => phase,
        };
    }

    fn look(&self, quotas: &[NativeQuota], budget: &Budget) -> Phase {
        match plan(&self.need, quotas, budget) {
            Plan::Fits { .. } => Phase::Joining(marked(quotas)),
            // What was raised to wake the migration is less than it needs: it gets a window of its own.
            Plan::Raise(_) | Plan::NotEnough(_) | Plan::Refused(_) => Phase::Waiting,
        }
    }

    /// Of two windows that share a pool, the later one has to know of the earlier one.
    fn is_behind(&self, budget: &Budget) -> bool {
        !self.caught_up && budget.grants.iter().any(|grant| matches!(grant, Grant::Pool { .. }))
    }

    /// Raises quotas as they were last seen, which saves a read: the write fails if one of them has changed. What is not
    /// written has to be known for sure, unless there is plenty.
    fn plan_from_memory(&mut self, quotas: Vec<NativeQuota>, budget: &Budget, left: Duration) -> Phase {
        let Plan::Raise(raises) = plan(&self.need, &quotas, budget) else { return Phase::Reading };
        let is_written = |quota: &&NativeQuota| raises.iter().any(|raise| raise.uid == quota.uid);
        let is_plenty = |quota: &NativeQuota| {
            let alone = plan(&self.need, std::slice::from_ref(quota), budget);
            matches!(alone, Plan::Fits { tight: false })
        };
        let is_certain = quotas.iter().filter(|quota| !is_written(quota)).all(is_plenty);
        if !is_certain || left < LEAST_LEFT {
            return Phase::Reading;
        }
        self.quotas = quotas;
        self.raising(raises.into())
    }

    fn plan(&mut self, quotas: Vec<NativeQuota>, budget: &Budget, left: Duration) -> Phase {
        self.reads += 1;
        self.unanswered.retain(|lost| lost.overlaid || !has_arrived(&lost.raise, &quotas));
        let planned = plan(&self.need, &quotas, budget);
        self.quotas = quotas;
        match planned {
            Plan::Fits { .. } if self.touched.is_empty() && !self.admitted => Phase::Admitting,
            Plan::Fits { .. } => self.settling(left),
            Plan::Raise(_) if left < LEAST_LEFT || self.reads > MOST_READS => self.give_up(Ending::Overtaken),
            Plan::Raise(raises) => self.raising(raises.into()),
            Plan::NotEnough(_) if !self.budget_is_read => Phase::ReadingBudget,
            Plan::NotEnough(shortages) => self.give_up(Ending::NotEnough(shortages)),
            Plan::Refused(refusals) => self.give_up(Ending::Refused(refusals)),
        }
    }

    /// What was raised is enough, or more than that. The last raise tells that quota admission knows of it if it is marked;
    /// if the quota that was to be marked needs no raise any more, the mark alone is written.
    fn settling(&mut self, left: Duration) -> Phase {
        let last = self.touched.last();
        let now = last.and_then(|last| self.quotas.iter().find(|quota| quota.uid == last.quota.uid));
        let (Some(last), Some(now)) = (last, now) else { return Phase::Settling(None) };
        if last.raise.marked && now.status_hard.contains_key(MARK) {
            return Phase::Settling(Some(last.quota.clone()));
        }
        let Some(mut marked) = mark(now, &self.quotas) else { return Phase::Settling(None) };
        if left < LEAST_LEFT || self.reads > MOST_READS {
            return self.give_up(Ending::Overtaken);
        }
        marked.keys = last.raise.keys.clone();
        marked.keys.retain(|raised| now.status_hard.get(&raised.key) == Some(&raised.to));
        self.raising([marked].into())
    }

    /// A quota counts as raised from the moment the write is asked for: its answer may be lost.
    fn raising(&mut self, raises: VecDeque<Raise>) -> Phase {
        if let Some(raise) = raises.front() {
            for lost in self.unanswered.iter_mut().filter(|lost| lost.raise.uid == raise.uid) {
                lost.overlaid = true;
            }
            let quota = QuotaRef { name: Arc::clone(&raise.quota), uid: raise.uid.clone() };
            let before = self.quotas.iter().find(|known| known.uid == raise.uid);
            if let Some(before) = before.cloned() {
                self.touched.retain(|touched| touched.quota != quota);
                self.touched.push(Touched { quota, raise: raise.clone(), before });
            }
        }
        Phase::Raising(raises)
    }

    fn raised(&mut self, mut raises: VecDeque<Raise>, answer: Answer) -> Phase {
        match answer {
            Answer::Raised => {
                let done = raises.pop_front();
                if !raises.is_empty() {
                    return self.raising(raises);
                }
                let marked = done.filter(|raise| raise.marked);
                Phase::Settling(marked.map(|raise| QuotaRef { name: raise.quota, uid: raise.uid }))
            }
            Answer::Conflict => Phase::Reading,
            Answer::Unanswered => {
                let overlaid = raises.front().is_some_and(|raise| self.was_lost(raise));
                let lost = raises.pop_front().map(|raise| Unanswered { raise, overlaid });
                self.unanswered.extend(lost);
                Phase::Reading
            }
            Answer::Forbidden(why) => {
                if let Some(refused) = raises.front() {
                    self.was_refused(refused);
                }
                self.give_up(Ending::Forbidden(why))
            }
            Answer::Failed(why) => self.give_up(Ending::Failed(why)),
            _ => Phase::Raising(raises),
        }
    }

    /// A refused write has changed nothing. Restoring would be refused too, and the lock would be left to expire.
    fn was_refused(&mut self, raise: &Raise) {
        let was_lost = self.was_lost(raise);
        self.touched
            .retain(|touched| touched.quota.uid != raise.uid || was_lost || touched.before.is_raised());
    }

    /// Whether an earlier raise of the same quota has no answer either.
    fn was_lost(&self, raise: &Raise) -> bool {
        self.unanswered.iter().any(|lost| lost.raise.uid == raise.uid)
    }

    fn restored(&mut self, mut quotas: VecDeque<QuotaRef>, answer: Answer) -> Phase {
        match answer {
            Answer::Restored(now) => {
                if let (Some(quota), Some(now)) = (quotas.pop_front(), now) {
                    self.audit(&quota, &now);
                }
                match (quotas.is_empty(), self.unanswered.is_empty()) {
                    (true, true) => Phase::Unlocking,
                    // What may still arrive has to find the lock. It arrives before the lock ends, or never, and whoever
                    // clears the window then restores it.
                    (true, false) => Phase::Leaving,
                    (false, _) => Phase::Restoring(quotas),
                }
            }
            // The lock stays until it expires; whoever finds it then restores first.
            Answer::Failed(_) => Phase::Leaving,
            _ => Phase::Restoring(quotas),
        }
    }

    /// Compares what a raised quota holds now with what it held and what the target takes.
    fn audit(&mut self, quota: &QuotaRef, now: &NativeQuota) {
        let Some(touched) = self.touched.iter().find(|touched| touched.quota == *quota) else { return };
        let entered = self.ending == Ending::Entered;
        for raised in &touched.raise.keys {
            let target = self.need.charge.get(&Resource::from_quota_key(&raised.key)).filter(|_| entered);
            let allowed = used(&touched.before, &raised.key).saturating_add(target.unwrap_or_default());
            if used(now, &raised.key) > allowed {
                self.thefts.push(Theft { quota: quota.clone(), key: Arc::clone(&raised.key) });
            }
        }
    }

    fn give_up(&mut self, ending: Ending) -> Phase {
        self.ending = ending;
        if self.touched.is_empty() {
            return Phase::Unlocking;
        }
        Phase::Restoring(self.touched.iter().map(|touched| touched.quota.clone()).collect())
    }

    fn leave(&mut self, ending: Ending) -> Phase {
        self.ending = ending;
        Phase::Leaving
    }
}

/// The quota with the mark of a raise.
pub(crate) fn marked(quotas: &[NativeQuota]) -> Option<QuotaRef> {
    let is_marked =
        |quota: &&NativeQuota| quota.status_hard.contains_key(MARK) && !quota.spec_hard.contains_key(MARK);
    let quota = quotas.iter().find(is_marked)?;
    Some(QuotaRef { name: Arc::clone(&quota.name), uid: quota.uid.clone() })
}

/// Whether a quota shows what only this raise can have written.
fn has_arrived(raise: &Raise, quotas: &[NativeQuota]) -> bool {
    quotas.iter().any(|quota| quota.uid == raise.uid && quota.status_hard == raise.hard)
}

fn used(quota: &NativeQuota, key: &str) -> Amount {
    quota.used.get(key).copied().map(Amount::from).unwrap_or_default()
}
