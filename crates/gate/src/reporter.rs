//! What people are told: events on pods, quotas, VMs and the configuration, and numbers for metrics.
//!
//! Nothing here is decided on. What happens elsewhere arrives as [news](super::orders::News), and texts are made from the
//! [view](super::view) when it is their turn.

mod events;
mod held;
mod pauses;
mod quotas;

use std::collections::HashMap;

use sluice_engine::{QuotaId, Uid};

use super::action::{GateEvent, Regarding};
use super::cluster::Cluster;
use super::config::Moment;
use super::contest::Contest;
use super::messages::reasons;
use super::orders::News;
use super::stats::Stats;
use super::view::View;
use events::{Events, MAX_PER_STEP, Turn};

/// Who is told what and when, and what is counted.
#[derive(Debug, Default)]
pub struct Reporter {
    events: Events,
    /// By quota: the gates of pods that wait for it are removed by another client.
    gates: HashMap<QuotaId, Contest>,
    stats: Stats,
}

impl Reporter {
    /// Something has happened.
    pub fn hear(&mut self, cluster: &Cluster, news: News) {
        match news {
            News::Held(pod, now) => self.events.news(pod, now),
            News::Nothing(pod) => self.events.forget(pod),
            News::Released(waited_ms) => self.stats.note_release(waited_ms),
            News::Reverted(many) => self.stats.reverted += many,
            News::CountedNatively => self.stats.counted_natively += 1,
            News::GateRemoved(quota, pod, now) => self.on_gate_removed(cluster, quota, &pod, now),
            News::Paused(scope, paused) => self.tell_pause(scope, &paused),
            News::PauseEnded(scope, paused) => self.tell_pause_end(scope, &paused),
        }
    }

    /// The events to write now.
    pub fn plan(&mut self, view: View<'_>, now: Moment) -> Vec<GateEvent> {
        let mut events = Vec::new();
        self.events.give_turns(|id| view.cluster.pods.get(id).map(|record| record.namespace), now);
        for _ in 0..MAX_PER_STEP {
            match self.events.next_turn(now) {
                Some(Turn::Announcement(event)) => events.push(event),
                Some(Turn::Pod(namespace, id)) => events.extend(self.tell_of_pod(view, namespace, id, now)),
                None => break,
            }
        }
        events
    }

    /// When there is an event to write (milliseconds of the monotonic clock).
    pub fn next_due_ms(&self, now: Moment) -> Option<u64> {
        self.events.next_due_ms(now)
    }

    /// An event was written, or could not be.
    pub fn on_event_written(&mut self, cluster: &Cluster, event: &GateEvent, is_written: bool, now: Moment) {
        self.events.end_request();
        let Regarding::Pod(id) = event.regarding else {
            return self.events.on_announcement(event, is_written, now);
        };
        let Some(record) = cluster.pods.get(id).filter(|record| record.uid == event.uid) else { return };
        self.events.on_pod_event(record.namespace, id, is_written, &cluster.namespaces, now);
    }

    /// The configuration has an effect that its author should know of.
    pub fn tell_configuration(&mut self, name: &str, uid: Uid, message: String) {
        let (regarding, reason) = (Regarding::Configuration, reasons::NO_LONGER_TARGETED);
        let (namespace, name) = ("".into(), name.into());
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }

    /// The sums of a quota were made anew to compare. `differ`: something is not as the pods say.
    pub fn note_audit(&mut self, differ: bool) {
        match differ {
            true => self.stats.audit_differences += 1,
            false => self.stats.audited += 1,
        }
    }

    /// What has happened since this was asked last.
    pub fn take_stats(&mut self) -> Stats {
        std::mem::take(&mut self.stats)
    }
}
