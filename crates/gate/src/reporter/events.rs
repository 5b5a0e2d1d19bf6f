//! Which pods have news, and when an event is written about them.
//!
//! Kept is who has news, not the text: that is made when it is the pod's turn, so an event says how things are then, and a
//! flood of changes makes no flood of events. What cannot be written is tried again.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sluice_engine::{PodId, Timers};
use sluice_index::{NamespaceId, Namespaces};

use crate::action::GateEvent;
use crate::backoff::backoff_ms;
use crate::config::Moment;
use crate::messages::Text;
use crate::turns::Turns;

/// Events that are written at a time.
const AT_A_TIME: usize = 4;
/// Pods that are looked at in one round; the others in the next.
pub const MAX_PER_STEP: usize = 256;
/// After an event about a pod another one comes so much later, and each time twice that (milliseconds).
const OTHER_TEXT_MS: u64 = 10_000;
/// That takes no longer than so (milliseconds); client-go allows one event of an object in this time
/// (`k8s.io/client-go/tools/record/events_cache.go`).
const OTHER_TEXT_AT_MOST_MS: u64 = 300_000;
/// The same text is written again after this time (milliseconds), for API servers drop events after an hour (`--event-ttl`).
const SAME_TEXT_MS: u64 = 1_800_000;
/// An event that could not be written is tried again so much later, and each time twice that (milliseconds).
const FAILED_MS: u64 = 1_000;
/// With more namespaces that back off than these, those that have gone are dropped.
const MANY: usize = 1_024;
/// An event about something else than a pod is tried so often.
const ATTEMPTS: u32 = 8;

/// What an event is to be written about next.
#[derive(Debug)]
pub enum Turn {
    /// This one is written.
    Announcement(GateEvent),
    /// The pod of the namespace has its turn, see [`Events::write_about`].
    Pod(NamespaceId, PodId),
}

/// Who was told what, and who is to be told something.
///
/// Invariant: a pod with news has either a time in `due` or a place among the turns, never both; at most four events are in
/// flight.
#[derive(Debug, Default)]
pub struct Events {
    recipients: HashMap<PodId, Recipient>,
    /// When pods are to be looked at again (milliseconds); the others when there is news.
    due: Timers<PodId>,
    /// Pods that are to be told something now.
    turns: Turns<PodId>,
    /// Where events cannot be written: how often in a row, and until when (milliseconds) none is tried.
    backing_off: HashMap<NamespaceId, (u32, u64)>,
    /// Events about quotas and the configuration, by the moment (milliseconds) from which on they are written.
    announcements: BTreeMap<(u64, u64), Announcement>,
    announcements_in_flight: Vec<Announcement>,
    /// The last turn was that of an announcement.
    announced_last: bool,
    next_number: u64,
    in_flight: usize,
}

/// An event about a quota or the configuration.
#[derive(Debug)]
struct Announcement {
    event: GateEvent,
    failures: u32,
}

/// A pod that events are written about.
#[derive(Debug, Default)]
struct Recipient {
    /// The pod has a place among the turns.
    has_turn: bool,
    /// When the last event was written (milliseconds).
    at_ms: u64,
    /// The hash of its text; 0 before the first one.
    text: u64,
    /// How often the text was another one.
    times: u32,
    /// How often in a row writing failed.
    failures: u32,
}

impl Recipient {
    /// When another text may be written.
    fn other_text_ms(&self) -> u64 {
        match self.times {
            0 => 0,
            times => self.at_ms + (OTHER_TEXT_MS << (times - 1).min(8)).min(OTHER_TEXT_AT_MOST_MS),
        }
    }
}

impl Events {
    /// There may be something new about the pod.
    pub fn news(&mut self, id: PodId, now: Moment) {
        let recipient = self.recipients.entry(id).or_default();
        let due = recipient.other_text_ms().max(now.mono_ms);
        if !recipient.has_turn {
            self.due.set_earlier(id, due);
        }
    }

    /// Nothing more is written about the pod.
    pub fn forget(&mut self, id: PodId) {
        self.recipients.remove(&id);
        self.due.cancel(&id);
    }

    /// Writes an event about something else than a pod.
    pub fn announce(&mut self, event: GateEvent) {
        self.announce_at(0, Announcement { event, failures: 0 });
    }

    fn announce_at(&mut self, due_ms: u64, announcement: Announcement) {
        self.next_number += 1;
        self.announcements.insert((due_ms, self.next_number), announcement);
    }

    /// When there is an event to write (milliseconds of the monotonic clock).
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        if self.in_flight >= AT_A_TIME {
            return None;
        }
        if self.turns.has_one(|_| true) {
            return Some(now.mono_ms);
        }
        let announcement = self.announcements.first_key_value().map(|((at, _), _)| *at);
        self.due.next().into_iter().chain(announcement).min()
    }

    /// Pods whose time has come take their place behind others of their namespace.
    pub fn give_turns(&mut self, namespace_of: impl Fn(PodId) -> Option<NamespaceId>, now: Moment) {
        for _ in 0..MAX_PER_STEP {
            let Some(id) = self.due.pop_due(now.mono_ms) else { break };
            let Some(recipient) = self.recipients.get_mut(&id) else { continue };
            if let Some(namespace) = namespace_of(id) {
                recipient.has_turn = true;
                self.turns.push(namespace, id);
            }
        }
    }

    /// Whose turn it is, announcements and pods alternating; `None` while as many events as allowed are in flight. An
    /// announcement is in flight from now on.
    pub fn next_turn(&mut self, now: Moment) -> Option<Turn> {
        let is_announced =
            self.announcements.first_key_value().is_some_and(|((at, _), _)| *at <= now.mono_ms);
        let has_turns = self.turns.has_one(|_| true);
        if self.in_flight >= AT_A_TIME || !(is_announced || has_turns) {
            return None;
        }
        self.announced_last = is_announced && !(has_turns && self.announced_last);
        if !self.announced_last {
            return self.turns.pop(|_| true).map(|(namespace, id)| Turn::Pod(namespace, id));
        }
        let (_, announcement) = self.announcements.pop_first()?;
        let event = announcement.event.clone();
        self.announcements_in_flight.push(announcement);
        self.in_flight += 1;
        Some(Turn::Announcement(event))
    }

    /// Uses the turn of a pod: whether an event with this text is written now. It is in flight from then on. Without a text
    /// there is nothing to write; `is_open` says that there soon will be.
    pub fn write_about(
        &mut self,
        namespace: NamespaceId,
        id: PodId,
        text: Option<&Text>,
        is_open: bool,
        now: Moment,
    ) -> bool {
        let Some(recipient) = self.recipients.get_mut(&id).filter(|recipient| recipient.has_turn) else {
            return false;
        };
        recipient.has_turn = false;
        let Some(text) = text else {
            if is_open {
                self.due.set(id, now.mono_ms + FAILED_MS);
            }
            return false;
        };
        let backs_off = self.backing_off.get(&namespace).filter(|(_, until)| *until > now.mono_ms);
        if let Some((_, until)) = backs_off.copied() {
            self.due.set(id, until);
            return false;
        }
        let hash = hash_of(text);
        let again_ms = recipient.at_ms + SAME_TEXT_MS;
        if recipient.text == hash && now.mono_ms < again_ms {
            self.due.set(id, again_ms);
            return false;
        }
        recipient.times += u32::from(recipient.text != hash);
        (recipient.text, recipient.at_ms) = (hash, now.mono_ms);
        self.due.set(id, now.mono_ms + SAME_TEXT_MS);
        self.in_flight += 1;
        true
    }

    /// An event is not in flight any more.
    pub fn end_request(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// An event about a pod of this namespace was written, or could not be.
    pub fn on_pod_event(
        &mut self,
        namespace: NamespaceId,
        id: PodId,
        is_written: bool,
        namespaces: &Namespaces,
        now: Moment,
    ) {
        if is_written {
            self.backing_off.remove(&namespace);
        } else {
            let (failures, until) = self.backing_off.entry(namespace).or_default();
            *failures = failures.saturating_add(1);
            *until = now.mono_ms + backoff_ms(FAILED_MS, *failures);
            if self.backing_off.len() > MANY {
                self.backing_off.retain(|namespace, _| namespaces.get(*namespace).is_some());
            }
        }
        let Some(recipient) = self.recipients.get_mut(&id) else { return };
        recipient.failures = if is_written { 0 } else { recipient.failures.saturating_add(1) };
        if !is_written {
            recipient.text = 0;
            recipient.times = recipient.times.saturating_sub(1);
            let due_ms = now.mono_ms + backoff_ms(FAILED_MS, recipient.failures);
            self.due.set(id, due_ms);
        }
    }

    /// An event about something else was written, or could not be.
    pub fn on_announcement(&mut self, event: &GateEvent, is_written: bool, now: Moment) {
        let in_flight = &mut self.announcements_in_flight;
        let Some(at) = in_flight.iter().position(|announcement| announcement.event == *event) else { return };
        let mut announcement = in_flight.swap_remove(at);
        announcement.failures += 1;
        if !is_written && announcement.failures < ATTEMPTS {
            let due_ms = now.mono_ms + backoff_ms(FAILED_MS, announcement.failures);
            self.announce_at(due_ms, announcement);
        }
    }
}

fn hash_of((reason, message): &Text) -> u64 {
    let mut text = DefaultHasher::new();
    (reason, message).hash(&mut text);
    // 0 stands for no event.
    text.finish().max(1)
}
