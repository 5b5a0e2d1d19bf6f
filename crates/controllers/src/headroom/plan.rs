//! From what is seen to what is done: what to sweep, whom to help, what to tell.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_engine::headroom::{NativeQuota, Plan, Refusal, plan as fit, sentence};

use super::action::{Action, Blocked, Cause, Nudge, Tell};
use super::facts::{BlockedFacts, NamespaceFacts};
use super::place::{Doing, Entry, NUDGE_KEY, Place};
use super::state::State;
use super::summary::Summary;
use crate::gate::Moment;

/// What comes of looking at a namespace.
#[derive(Default)]
struct Look {
    actions: Vec<Action>,
    /// When to look again.
    due: Option<u64>,
    summary: Summary,
    /// Somebody waits for one of KubeVirt's slots.
    limited: bool,
}

/// How long before the end of a window a look is taken at what is still raised: in the last second of the API server's
/// clock (see `Headroom::clear`), which tells whole seconds, and early enough to write while the lock still holds.
const CLOSING_MS: u64 = 700;

impl Look {
    fn at(&mut self, due: u64) {
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }
}

impl State {
    /// Decides, and says what is to be done now. `facts` reads what is seen of a namespace; only namespaces are read
    /// in which something changed or is due. Does nothing until [`State::lead`] was called.
    pub fn plan(&mut self, now: Moment, facts: impl Fn(&str) -> NamespaceFacts) -> Vec<Action> {
        self.pass_time(now);
        let mut actions = Vec::new();
        // Looking at a namespace can make another one worth looking at, which is looked at in the same round.
        while let Some(namespace) = self.dirty.pop_first() {
            if self.leading {
                let seen = facts(&namespace);
                actions.extend(self.look_at(&namespace, &seen, now));
            }
        }
        actions
    }

    fn look_at(&mut self, namespace: &Arc<str>, facts: &NamespaceFacts, now: Moment) -> Vec<Action> {
        let mut place = self.take_place(namespace);
        if self.running.replace(&place.running, &facts.running) {
            self.dirty.append(&mut self.limited);
        }
        let seed = self.seed_of(namespace);
        self.stats.rejected += place.see(facts, &self.config, seed, now.mono_ms);
        let mut look = Look::default();
        look.summary.opted_out = facts.opted_out;
        look.summary.forbidden = place.forbidden.as_ref().map(|forbidden| Arc::clone(&forbidden.said));
        if self.found.remove(namespace) && place.raised_since.is_some() {
            place.raised_since = Some(0);
        }
        self.sweep(namespace, &mut place, facts, now, &mut look);
        if facts.window.is_none() {
            self.help(namespace, &mut place, facts, now.mono_ms, &mut look);
        } else {
            // The end of the window shows what there is to do.
            look.summary.not_enough.clone_from(&place.summary.not_enough);
        }
        if look.limited {
            self.limited.insert(Arc::clone(namespace));
        }
        self.dirty.extend(self.slots.passed(namespace));
        self.put_place(namespace, place, look.due, look.summary);
        look.actions
    }

    fn sweep(
        &self,
        namespace: &Arc<str>,
        place: &mut Place,
        facts: &NamespaceFacts,
        now: Moment,
        look: &mut Look,
    ) {
        let due = match (&facts.window, &place.window, place.raised_since) {
            (Some(window), Some((nonce, since)), _) => {
                let left = window.until.saturating_mul(1000).saturating_sub(now.unix_ms);
                let left = u64::try_from(left).unwrap_or(0);
                let over = if left > 0 { now.mono_ms + left + self.config.sweep_after_ms } else { 0 };
                let over = over.min(since + self.config.longest_window_ms);
                // What its holder has not restored in the last second is restored while the lock still holds.
                let raised = facts.quotas.iter().any(NativeQuota::is_raised);
                let first = raised && place.looked_into.as_ref() != Some(nonce);
                let closing = now.mono_ms + left.saturating_sub(CLOSING_MS);
                Some((Cause::Expired, if first { over.min(closing) } else { over }))
            }
            (_, _, Some(0)) => Some((Cause::Raised, 0)),
            (_, _, Some(since)) => Some((Cause::Raised, since + self.config.sweep_after_ms)),
            _ => None,
        };
        let Some((cause, due)) = due else { return place.sweep.reset() };
        let due = due.max(place.sweep.not_before).max(place.writes_from());
        if due > now.mono_ms {
            return look.at(due);
        }
        if place.doing.is_none() {
            let raised = facts.quotas.iter().find(|quota| quota.is_raised());
            place.doing = Some(Doing::Sweep(cause, raised.map(named)));
            place.looked_into = place.window.as_ref().map(|(nonce, _)| Arc::clone(nonce));
            look.actions.push(Action::Sweep(Arc::clone(namespace), cause));
        }
    }

    fn help(
        &mut self,
        namespace: &Arc<str>,
        place: &mut Place,
        facts: &NamespaceFacts,
        now_ms: u64,
        look: &mut Look,
    ) {
        let Some(creator) = facts.creator.as_deref() else { return };
        for seen in &facts.blocked {
            let blocked = blocked(namespace, seen, creator);
            let limits = facts.limits;
            if self.running.total >= limits.cluster
                || self.running.away_from(seen.node.as_ref()) >= limits.outbound
            {
                look.limited = true;
                continue;
            }
            self.help_one(&blocked, place, facts, now_ms, look);
        }
        if place.nudge {
            self.nudge(namespace, place, facts, now_ms, look);
        }
    }

    fn help_one(
        &mut self,
        blocked: &Blocked,
        place: &mut Place,
        facts: &NamespaceFacts,
        now_ms: u64,
        look: &mut Look,
    ) {
        let Some(entry) = place.blocked.get_mut(&blocked.uid) else { return };
        if entry.source.is_none() && entry.look.not_before > now_ms {
            return look.at(entry.look.not_before);
        }
        if entry.source.is_none() && place.doing.is_none() {
            place.doing = Some(Doing::Look(blocked.uid.clone()));
            look.actions.push(Action::Look(blocked.clone()));
        }
        let Some((need, source)) = entry.need() else { return };
        match fit(&need, &facts.quotas, &facts.budget) {
            Plan::Fits { .. } => {
                let due = *entry.fits_since.get_or_insert(now_ms) + self.config.nudge_after_ms;
                let due = due.max(entry.retry.not_before);
                if due > now_ms {
                    look.at(due);
                } else if place.doing.is_none() && !place.nudge {
                    entry.retry.failed(now_ms);
                    place.nudge = true;
                }
            }
            Plan::Raise(raises) => {
                let due = entry.retry.not_before;
                let quota = raises.first().map(|raise| (Arc::clone(&raise.quota), raise.uid.clone()));
                let open = Action::Open { blocked: blocked.clone(), source: source.clone(), need };
                self.make_room(place, (open, blocked, quota), due, now_ms, look);
            }
            Plan::NotEnough(shortages) => {
                let text = sentence(&blocked.name, &blocked.machine, &shortages);
                lacks(&mut look.summary, &text);
                let tell = |sentence| Tell::NotEnough { blocked: blocked.clone(), sentence };
                self.stats.not_enough += u64::from(self.tell(entry, &text, tell, now_ms, look));
            }
            Plan::Refused(refusals) => {
                look.summary.opted_out |= refusals.iter().any(|why| matches!(why, Refusal::OptedOut { .. }));
                let told: Vec<String> =
                    refusals.iter().filter(|why| lasts(why)).map(Refusal::to_string).collect();
                if !told.is_empty() {
                    let tell = |sentence| Tell::Refused { blocked: blocked.clone(), sentence };
                    self.tell(entry, &told.join("; "), tell, now_ms, look);
                }
            }
        }
    }

    /// Opens a window, not before `due`, and when a slot is free.
    fn make_room(
        &mut self,
        place: &mut Place,
        (open, blocked, quota): (Action, &Blocked, Option<(Arc<str>, Uid)>),
        due: u64,
        now_ms: u64,
        look: &mut Look,
    ) {
        let due = due.max(place.rest_until).max(place.writes_from());
        if due > now_ms {
            return look.at(due);
        }
        if place.doing.is_none() && self.slots.take(&blocked.namespace, place, self.config.windows) {
            place.open(&blocked.uid, quota);
            look.actions.push(open);
        }
    }

    /// Tells it, if it is news and the last was not just told. Returns whether it was told.
    fn tell(
        &self,
        entry: &mut Entry,
        text: &str,
        tell: impl FnOnce(Arc<str>) -> Tell,
        now_ms: u64,
        look: &mut Look,
    ) -> bool {
        match entry.tells(text, now_ms, self.config.tell_spacing_ms) {
            Ok(Some(sentence)) => {
                look.actions.push(Action::Tell(tell(sentence)));
                return true;
            }
            Ok(None) => {}
            Err(due) => look.at(due),
        }
        false
    }

    /// Writes one quota: any will do, because KubeVirt's controller tries all rejected migrations of a namespace
    /// again when one of its quotas changes.
    fn nudge(
        &mut self,
        namespace: &Arc<str>,
        place: &mut Place,
        facts: &NamespaceFacts,
        now_ms: u64,
        look: &mut Look,
    ) {
        // A quota without usage is about to be written by kube-controller-manager anyway.
        let Some(quota) = facts.quotas.iter().find(|quota| !quota.used.is_empty()) else {
            place.nudge = false;
            return;
        };
        if place.writes_from() > now_ms {
            return look.at(place.writes_from());
        }
        if place.doing.is_some() {
            return;
        }
        place.nudge = false;
        place.doing = Some(Doing::Nudge(named(quota)));
        self.stats.nudges += 1;
        look.actions.push(Action::Nudge(Nudge {
            namespace: Arc::clone(namespace),
            quota: Arc::clone(&quota.name),
            uid: quota.uid.clone(),
            marked: quota.used.contains_key(NUDGE_KEY),
        }));
    }
}

fn named(quota: &NativeQuota) -> (Arc<str>, Uid) {
    (Arc::clone(&quota.name), quota.uid.clone())
}

fn blocked(namespace: &Arc<str>, seen: &BlockedFacts, creator: &str) -> Blocked {
    Blocked {
        namespace: Arc::clone(namespace),
        name: Arc::clone(&seen.name),
        uid: seen.uid.clone(),
        machine: Arc::clone(&seen.machine),
        machine_uid: Arc::clone(&seen.machine_uid),
        creator: creator.into(),
    }
}

/// Whether a refusal stays until somebody does something about it. The others end with the next sync of the quota.
const fn lasts(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::StatusUnknown { .. } | Refusal::NotSynced { .. })
}

fn lacks(summary: &mut Summary, text: &str) {
    match &mut summary.not_enough {
        Some((_, count)) => *count += 1,
        none => *none = Some((text.into(), 1)),
    }
}
