//! One session: from the question whether raising helps to the end of the raise.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_engine::headroom::{Grant, NativeQuota, Need, Plan, Raise, plan, reserve};

use super::messages::{Command, Done, Ending, Look, QuotaRef, Snapshot};

/// How often quotas are looked at again because they changed between look and write.
const MOST_LOOKS: u32 = 8;
/// How often a mark is set anew.
const MOST_RENEWALS: u32 = 1;
/// A lock is renewed in its last seconds, and then ends so much later (milliseconds).
pub const RENEWAL_MS: i64 = 7_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Looking(Look),
    Waiting,
    Clearing,
    Raising(VecDeque<Raise>),
    Settling(i64),
    LettingIn,
    Awaiting,
    Renewing,
    Restoring,
    /// Nothing is raised any more, or never was. The webhook allows the target all the same if that still waits: the quota
    /// decides.
    Leaving,
    Confirming,
    Done,
}

/// The machine. It is driven by [`Self::command`] and [`Self::on_done`] in turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowSession {
    need: Need,
    /// What is granted is shared with other namespaces.
    shares: bool,
    phase: Phase,
    /// The mark of this session, once a raise was sent.
    mark: Option<i64>,
    /// Quotas that carry the raise, or may: a raise without an answer counts.
    raised: Vec<QuotaRef>,
    /// Quotas of which a write had no answer: these may carry the raise, whatever a later write is answered.
    unanswered: Vec<QuotaRef>,
    /// The quota that carries the mark which API servers are asked for, or may carry it.
    primary: Option<QuotaRef>,
    looks: u32,
    renewals: u32,
    let_in: bool,
    ending: Ending,
}

impl WindowSession {
    /// A session for a target with this need.
    #[must_use]
    pub const fn new(need: Need) -> Self {
        Self {
            need,
            shares: false,
            phase: Phase::Looking(Look::Grants),
            mark: None,
            raised: Vec::new(),
            unanswered: Vec::new(),
            primary: None,
            looks: 0,
            renewals: 0,
            let_in: false,
            ending: Ending::NotSeen,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn command(&self) -> Command {
        match &self.phase {
            Phase::Looking(look) => Command::Look(*look),
            Phase::Waiting => Command::WaitForOther,
            Phase::Clearing => Command::Clear,
            Phase::Raising(raises) => self.raise(raises),
            Phase::Settling(mark) => Command::Settle(*mark),
            Phase::LettingIn => Command::LetIn,
            Phase::Awaiting => Command::Await,
            Phase::Renewing => Command::Renew,
            Phase::Restoring => Command::Restore,
            Phase::Leaving => Command::LetIn,
            Phase::Confirming => Command::Confirm,
            Phase::Done => Command::Stop(self.ending.clone()),
        }
    }

    /// The quotas that carry the raise, or may.
    #[must_use]
    pub fn raised(&self) -> &[QuotaRef] {
        &self.raised
    }

    /// Whether the next look is to confirm that the target gets no room.
    #[must_use]
    pub fn confirms(&self) -> bool {
        let is_live = matches!(self.phase, Phase::Looking(Look::Live));
        is_live && self.ending.is_refusal()
    }

    #[must_use]
    pub fn is_own(&self, mark: i64) -> bool {
        self.mark.is_some_and(|own| [0, 1, RENEWAL_MS, RENEWAL_MS + 1].contains(&mark.saturating_sub(own)))
    }

    fn raise(&self, raises: &VecDeque<Raise>) -> Command {
        let mark = self.mark.unwrap_or_default();
        match raises.front().cloned() {
            Some(raise) => Command::Raise { raise, mark: if raises.len() == 1 { mark } else { mark + 1 } },
            None => Command::Settle(mark),
        }
    }

    /// Takes note of how the last command went. An outcome that does not belong to it changes nothing.
    pub fn on_done(&mut self, outcome: Done) {
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        self.phase = match (phase, outcome) {
            (Phase::Looking(Look::Raised), Done::Seen(snapshot)) => self.shared(&snapshot),
            (Phase::Looking(look), Done::Seen(snapshot)) => self.seen(look, &snapshot),
            (Phase::Looking(_), Done::Spared) => self.give_up(self.ending.clone()),
            (Phase::Waiting, Done::Free) | (Phase::Clearing, Done::Written) => Phase::Looking(Look::Live),
            (Phase::Raising(raises), outcome) => self.written(raises, outcome),
            (Phase::Settling(_), Done::Settled) if self.shares => Phase::Looking(Look::Raised),
            (Phase::Settling(_), Done::Settled) => Phase::LettingIn,
            (Phase::LettingIn, Done::LetIn) => {
                self.let_in = true;
                Phase::Awaiting
            }
            (Phase::Awaiting, Done::Closing) if self.renewals < MOST_RENEWALS => {
                self.renewals += 1;
                Phase::Renewing
            }
            (Phase::Awaiting, Done::Closing) => self.give_up(Ending::NotSeen),
            (Phase::Renewing, Done::Written) => Phase::Awaiting,
            (Phase::Restoring, Done::Written) => self.leave(),
            (Phase::Leaving, Done::LetIn) => {
                self.let_in = true;
                Phase::Done
            }
            (Phase::Confirming, Done::Ended(ending)) => {
                if matches!(ending, Ending::Entered | Ending::Denied) {
                    self.ending = ending;
                }
                Phase::Done
            }
            (
                Phase::Looking(_)
                | Phase::Waiting
                | Phase::Clearing
                | Phase::Settling(_)
                | Phase::Awaiting
                | Phase::Renewing,
                Done::Ended(ending),
            ) => self.give_up(ending),
            (phase, _) => phase,
        };
    }

    fn seen(&mut self, look: Look, snapshot: &Snapshot) -> Phase {
        self.shares = snapshot.budget.grants.iter().any(is_pool);
        if !snapshot.budget.grants.is_empty() {
            let foreign = |quota: &NativeQuota| quota.mark().filter(|mark| !self.is_own(*mark));
            let live =
                |quota: &NativeQuota| foreign(quota).is_some_and(|mark| !is_over(mark, snapshot.now_ms));
            if snapshot.quotas.iter().any(live) {
                return Phase::Waiting;
            }
            if snapshot.quotas.iter().any(|quota| foreign(quota).is_some()) {
                return Phase::Clearing;
            }
        }
        let wanted = match self.decide(look, snapshot) {
            Ok(wanted) => wanted,
            Err(phase) => return phase,
        };
        self.ending = Ending::NotSeen;
        self.mark.get_or_insert(snapshot.mark);
        self.raising(wanted)
    }

    /// The raises that are still to be written, or where to go on without any.
    fn decide(&mut self, look: Look, snapshot: &Snapshot) -> Result<VecDeque<Raise>, Phase> {
        let Snapshot { quotas, budget, account, .. } = snapshot;
        let own = |quota: &NativeQuota| quota.mark().is_some_and(|mark| self.is_own(mark));
        let mut wanted = reserve(&self.need, quotas);
        wanted.retain(|raise| !quotas.iter().any(|quota| quota.uid == raise.uid && own(quota)));
        let owned = quotas.iter().filter(|quota| own(quota));
        let owned = owned.map(|quota| QuotaRef { name: Arc::clone(&quota.name), uid: quota.uid.clone() });
        let missed: Vec<_> = owned.filter(|quota| !self.raised.contains(quota)).collect();
        self.raised.extend(missed);
        let is_granted = !budget.grants.is_empty();
        let mut plan = plan(&self.need, quotas, budget);
        if let Plan::Raise(raises) = &plan
            && is_granted
        {
            let objections = account.objections(&self.need, raises, quotas);
            if !objections.is_empty() {
                plan = Plan::Refused(objections);
            }
        }
        match plan {
            Plan::Fits { tight: true } | Plan::Raise(_) if is_granted && !wanted.is_empty() => {}
            Plan::Fits { .. } | Plan::Raise(_) if !self.raised.is_empty() => return Err(self.settle(quotas)),
            Plan::Fits { .. } | Plan::Raise(_) => return Err(self.give_up(Ending::NotNeeded)),
            // What the watches have shown may be late.
            Plan::NotEnough(shortages) if look == Look::Grants => {
                self.ending = Ending::NotEnough(shortages);
                return Err(Phase::Looking(Look::Live));
            }
            Plan::Refused(refusals) if look == Look::Grants => {
                self.ending = Ending::Refused(refusals);
                return Err(Phase::Looking(Look::Live));
            }
            Plan::NotEnough(shortages) => return Err(self.give_up(Ending::NotEnough(shortages))),
            Plan::Refused(refusals) => return Err(self.give_up(Ending::Refused(refusals))),
        }
        if look == Look::Live {
            self.looks += 1;
        }
        // The last raise carries the mark that API servers are asked for. If two quotas carried it, an API server that knows
        // one of them would seem to know both.
        let is_other =
            |raise: &Raise| self.primary.as_ref().is_some_and(|primary| *primary != reference(raise));
        if self.looks > MOST_LOOKS || wanted.iter().any(is_other) {
            return Err(self.give_up(Ending::Overtaken));
        }
        Ok(wanted.into())
    }

    /// Nothing is left to raise. Where no quota carries the mark that API servers are asked for, none can tell whether it
    /// knows of the raises, and the session gives up.
    fn settle(&mut self, quotas: &[NativeQuota]) -> Phase {
        let is_there = |mark: &i64| quotas.iter().any(|quota| quota.mark() == Some(*mark));
        match self.mark.filter(is_there) {
            Some(mark) => Phase::Settling(mark),
            None => self.give_up(Ending::Overtaken),
        }
    }

    /// A quota counts as raised from the moment the write is asked for: its answer may be lost.
    fn raising(&mut self, raises: VecDeque<Raise>) -> Phase {
        if let Some(raise) = raises.front() {
            let quota = reference(raise);
            if raises.len() == 1 {
                self.primary = Some(quota.clone());
            }
            if !self.raised.contains(&quota) {
                self.raised.push(quota);
            }
        }
        Phase::Raising(raises)
    }

    fn written(&mut self, mut raises: VecDeque<Raise>, outcome: Done) -> Phase {
        match outcome {
            Done::Written => {
                raises.pop_front();
                if raises.is_empty() {
                    Phase::Settling(self.mark.unwrap_or_default())
                } else {
                    self.raising(raises)
                }
            }
            // The next look tells whether the write has arrived after all.
            Done::Unanswered => {
                self.unanswered.extend(raises.front().map(reference));
                Phase::Looking(Look::Live)
            }
            Done::Conflict => {
                self.was_not_written(&raises);
                self.primary = None;
                Phase::Looking(Look::Live)
            }
            Done::Refused(why) => {
                self.was_not_written(&raises);
                self.give_up(Ending::Forbidden(why))
            }
            Done::Ended(ending) => self.give_up(ending),
            _ => Phase::Raising(raises),
        }
    }

    fn was_not_written(&mut self, raises: &VecDeque<Raise>) {
        if let Some(quota) = raises.front().map(reference).filter(|quota| !self.unanswered.contains(quota)) {
            self.raised.retain(|other| *other != quota);
        }
    }

    /// The pool has to be enough for all that share it, now that the raises of earlier sessions are known. Of two at once
    /// both may give way; KubeVirt's controller creates one target after the other.
    fn shared(&mut self, snapshot: &Snapshot) -> Phase {
        let mut quotas = snapshot.quotas.clone();
        for quota in &mut quotas {
            let own = quota.mark().is_some_and(|mark| self.is_own(mark));
            if own && quota.is_charged() != Some(true) {
                quota.status_hard = quota.spec_hard.clone();
            }
        }
        match plan(&self.need, &quotas, &snapshot.budget) {
            Plan::NotEnough(shortages) => self.give_up(Ending::NotEnough(shortages)),
            _ => Phase::LettingIn,
        }
    }

    fn give_up(&mut self, ending: Ending) -> Phase {
        self.ending = ending;
        if self.raised.is_empty() { self.leave() } else { Phase::Restoring }
    }

    fn leave(&self) -> Phase {
        match self.ending {
            _ if !self.let_in => Phase::Leaving,
            // Charged, but the target itself was not seen.
            Ending::Taken => Phase::Confirming,
            _ => Phase::Done,
        }
    }
}

fn reference(raise: &Raise) -> QuotaRef {
    QuotaRef { name: Arc::clone(&raise.quota), uid: raise.uid.clone() }
}

fn is_pool(grant: &Grant) -> bool {
    match grant {
        Grant::Pool { .. } => true,
        Grant::Except { grant, .. } => is_pool(grant),
        Grant::Unlimited { .. } | Grant::Amounts { .. } => false,
    }
}

/// What comes of a target at once, by what the watches have shown: it fits beside others of its size, or what is granted is
/// not enough. Neither needs a request. A grant that the watches show later is followed by a nudge. `None`:
/// a session is needed.
#[must_use]
pub fn at_once(need: &Need, snapshot: &Snapshot) -> Option<Ending> {
    let is_granted = !snapshot.budget.grants.is_empty();
    let is_marked = snapshot.quotas.iter().any(|quota| quota.mark().is_some());
    match plan(need, &snapshot.quotas, &snapshot.budget) {
        Plan::Fits { tight: true } | Plan::Raise(_) if is_granted => None,
        Plan::Fits { tight: false } | Plan::NotEnough(_) if is_granted && is_marked => None,
        Plan::Fits { .. } | Plan::Raise(_) => Some(Ending::NotNeeded),
        Plan::NotEnough(shortages) => Some(Ending::NotEnough(shortages)),
        Plan::Refused(refusals) => (!is_granted).then_some(Ending::Refused(refusals)),
    }
}

/// Whether a lock is over for an API server with this clock, which compares in whole seconds.
pub const fn is_over(mark: i64, now_ms: i64) -> bool {
    now_ms.div_euclid(1000) >= mark.div_euclid(1000)
}
