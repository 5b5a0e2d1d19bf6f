//! Judges updates of pods for the webhook, which waits for the answer.

use std::time::Duration;

use sluice_index::PodWire;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::admission::{Asked, Change, Judgement, Ticket, UNSEEN};
use super::handle::Gate;
use super::metrics::Work;

/// So long an update of a pod waits for its charge to be recorded.
const RECORDED_IN: Duration = Duration::from_millis(2_500);

/// So long an update of a pod waits for the watch to have come to the version that it is about.
const SEEN_IN: Duration = Duration::from_secs(1);

impl Gate {
    /// Judges an update of a pod. If it takes more of a quota, it is charged, and recorded as charged, before this returns.
    pub async fn admit(&self, before: &PodWire, after: &PodWire, dry_run: bool) -> Judgement {
        let change = Change::read(before, after, dry_run, &self.config.read(), self.now());
        let judgement = self.admit_as_seen(&change).await;
        if judgement != UNSEEN {
            return judgement;
        }
        let version = before.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        match version {
            Some(version) if timeout(SEEN_IN, self.watches.pods.reached(version)).await.is_ok() => {
                self.admit_as_seen(&change).await
            }
            _ => judgement,
        }
    }

    async fn admit_as_seen(&self, change: &Change) -> Judgement {
        let asked = self.locked(Work::Admit, |state, now| match state.ask(change, now) {
            Asked::Judged(judgement) => Err(judgement),
            Asked::Recording(ticket) => {
                let (sender, answer) = oneshot::channel();
                self.asking.lock().insert(ticket, sender);
                Ok((ticket, answer))
            }
        });
        let (ticket, answer) = match asked {
            Ok(recording) => recording,
            Err(judgement) => return judgement,
        };
        self.news.notify_one();
        match timeout(RECORDED_IN, answer).await {
            Ok(answer) => answer.unwrap_or(Judgement::Undecided("the process ends")),
            Err(_) => {
                let mut state = self.state.lock();
                self.asking.lock().remove(&ticket);
                state.abandon(ticket);
                Judgement::Undecided("the quota's status could not be written in time")
            }
        }
    }

    pub(super) fn answer(&self, ticket: Ticket, judgement: Judgement) {
        if let Some(sender) = self.asking.lock().remove(&ticket) {
            // It fails when the webhook has closed its connection.
            let _ = sender.send(judgement);
        }
    }
}
