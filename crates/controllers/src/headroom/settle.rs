//! How actions went.

use std::sync::Arc;

use sluice_engine::Uid;

use super::action::{Action, Cause, Done, Ending, Failed, Opened, Outcome, Tell};
use super::place::{Doing, Place};
use super::state::State;
use crate::gate::Moment;

/// After a target has entered, the migration is seen as rejected for a moment longer.
const SEEN_WITHIN_MS: u64 = 1_000;

impl State {
    /// Takes note of how an action went. Returns what people are to be told.
    pub fn settle(&mut self, outcome: Outcome, now: Moment) -> Vec<Action> {
        let namespace = outcome.namespace;
        self.dirty.insert(Arc::clone(&namespace));
        let mut place = self.take_place(&namespace);
        let Some(doing) = place.doing.take() else {
            let summary = place.summary.clone();
            self.put_place(&namespace, place, None, summary);
            return Vec::new();
        };
        if matches!(doing, Doing::Open(..)) {
            self.dirty.extend(self.slots.give_back());
            self.stats.windows += 1;
        }
        let forbidden = self.note(&mut place, &doing, outcome.result, now.mono_ms);
        let told = forbidden.and_then(|said| {
            self.stats.forbidden += 1;
            let said = place.forbid(&said, now.mono_ms)?;
            let (quota, uid) = doing.quota()?;
            Some(Action::Tell(Tell::Forbidden { namespace: Arc::clone(&namespace), quota, uid, said }))
        });
        let summary = place.summary.clone();
        // Kept although nothing is under way: the next look decides whether it is needed.
        self.put_place(&namespace, place, None, summary);
        told.into_iter().collect()
    }

    /// Returns what was said if somebody forbids it.
    fn note(&mut self, place: &mut Place, doing: &Doing, result: Done, now_ms: u64) -> Option<Arc<str>> {
        match result {
            Done::Swept { restored, live } => {
                let restored = u64::try_from(restored).unwrap_or(u64::MAX);
                self.stats.restored += restored;
                match doing {
                    Doing::Sweep(Cause::Expired, _) => self.stats.swept_expired += u64::from(!live),
                    _ => self.stats.swept_raised += 1,
                }
                place.allowed();
                if live && restored == 0 {
                    // Too early, by the API server's clock.
                    place.looked_into = None;
                }
                // What is seen may still be what was before; if it stays so, it is tried again, ever more rarely.
                place.sweep.failed(now_ms);
                None
            }
            Done::Looked(uid, source) => {
                if let Some(entry) = place.blocked.get_mut(&uid) {
                    entry.source = Some(source);
                    entry.look.reset();
                }
                None
            }
            Done::Nudged => {
                place.allowed();
                None
            }
            Done::Opened(uid, opened) => self.note_window(place, &uid, opened, now_ms),
            Done::Failed(failed) => {
                let retry = match doing {
                    Doing::Sweep(..) => Some(&mut place.sweep),
                    Doing::Look(uid) => place.blocked.get_mut(uid).map(|entry| &mut entry.look),
                    Doing::Open(uid, _) => place.blocked.get_mut(uid).map(|entry| &mut entry.retry),
                    // The migration for which it was done has its own time to try again.
                    Doing::Nudge(_) => None,
                };
                if let Some(retry) = retry {
                    retry.failed(now_ms);
                }
                match failed {
                    Failed::Forbidden(said) => Some(said),
                    Failed::Other(_) => None,
                }
            }
        }
    }

    fn note_window(&mut self, place: &mut Place, uid: &Uid, opened: Opened, now_ms: u64) -> Option<Arc<str>> {
        let others = place.has_let_in();
        if !matches!(opened.ending, Ending::Entered) && !others {
            let rest = opened.took_ms.saturating_mul(self.config.rest_factor);
            place.rest_until = now_ms.saturating_add(rest);
        }
        let entry = place.blocked.get_mut(uid);
        match opened.ending {
            Ending::Entered => {
                place.rest_until = 0;
                if let Some(entry) = entry {
                    entry.retry.reset();
                    entry.retry.not_before = now_ms + SEEN_WITHIN_MS;
                }
                place.allowed();
                None
            }
            Ending::Forbidden(said) => Some(said),
            // Somebody else took the room, and is out of the way.
            Ending::InVain if others => None,
            Ending::InVain => {
                if let Some(entry) = entry {
                    entry.retry.failed(now_ms);
                }
                None
            }
        }
    }
}
