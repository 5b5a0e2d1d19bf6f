//! Judges updates of pods and VMs for the webhook, which waits for the answer.

use std::borrow::Cow;
use std::time::Duration;

use sluice_index::{PodWire, VmiWire};
use sluice_runtime::watch::WatchHealth;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::admission::{Asked, Change, Judgement, MachineChange, Ticket, UNSEEN};
use super::config::Moment;
use super::evaluators::{Again, Failed};
use super::handle::Gate;
use super::metrics::Work;
use super::state::State;

/// So long an update waits for its charge to be recorded.
const RECORDED_IN: Duration = Duration::from_millis(2_500);

/// So long an update waits for the watch to have come to the version that it is about.
const SEEN_IN: Duration = Duration::from_secs(1);

impl Gate {
    /// Judges an update of a pod. If it takes more of a quota, it is charged, and recorded as charged, before this returns.
    pub async fn admit(&self, before: &PodWire, after: &PodWire, dry_run: bool) -> Judgement {
        self.admit_with_text(before, after, None, dry_run).await
    }

    /// As [`Self::admit`], with the JSON of the pod as it is to be. Without it nothing is admitted of which evaluators say
    /// what it takes.
    pub async fn admit_with_text(
        &self,
        before: &PodWire,
        after: &PodWire,
        text: Option<&str>,
        dry_run: bool,
    ) -> Judgement {
        let mut change = Change::read(before, after, dry_run, &self.config.read(), self.now());
        match self.price_of_update(&change.after, text).await {
            Some(Ok(priced)) => change.price = Some(priced),
            Some(Err(failed)) => change.unpriced = Some(unpriced(&failed)),
            None => {}
        }
        let version = before.metadata.resource_version.as_deref();
        self.admit_when_seen(version, &self.watches.pods, |state, now| state.ask(&change, now)).await
    }

    /// As [`Self::admit`], an update of a VirtualMachineInstance.
    pub async fn admit_machine(&self, before: &VmiWire, after: &VmiWire, dry_run: bool) -> Judgement {
        let change = MachineChange::read(before, after, dry_run);
        let version = before.metadata.resource_version.as_deref();
        let ask = |state: &mut State, now| state.ask_about_machine(&change, now);
        self.admit_when_seen(version, &self.watches.machines, ask).await
    }

    /// Asks, and if the version was not seen yet once more when the watch has come to it.
    async fn admit_when_seen(
        &self,
        version: Option<&str>,
        watch: &WatchHealth,
        ask: impl Fn(&mut State, Moment) -> Asked,
    ) -> Judgement {
        let judgement = self.admit_as_seen(&ask).await;
        if judgement != UNSEEN {
            return judgement;
        }
        match version.and_then(|version| version.parse().ok()) {
            Some(version) if timeout(SEEN_IN, watch.reached(version)).await.is_ok() => {
                self.admit_as_seen(&ask).await
            }
            _ => judgement,
        }
    }

    async fn admit_as_seen(&self, ask: impl Fn(&mut State, Moment) -> Asked) -> Judgement {
        let asked = self.locked(Work::Admit, |state, now| match ask(state, now) {
            Asked::Judged(judgement) => Err(judgement),
            Asked::Recording(ticket) => {
                let (sender, answer) = oneshot::channel();
                self.asking.lock().insert(ticket, sender);
                Ok((ticket, answer))
            }
        });
        // What is refused may have to be told.
        self.news.notify_one();
        let (ticket, answer) = match asked {
            Ok(recording) => recording,
            Err(judgement) => return judgement,
        };
        match timeout(RECORDED_IN, answer).await {
            Ok(answer) => answer.unwrap_or(Judgement::Undecided(Cow::Borrowed("the process ends"))),
            Err(_) => {
                let mut state = self.state.lock();
                self.asking.lock().remove(&ticket);
                state.abandon(ticket);
                Judgement::Undecided(Cow::Borrowed("the quota's status could not be written in time"))
            }
        }
    }

    pub(super) fn answer(&self, ticket: Ticket, judgement: Judgement) {
        if let Some(sender) = self.asking.lock().remove(&ticket) {
            // Sending fails where the webhook has closed its connection.
            let _ = sender.send(judgement);
        }
    }
}

/// What is answered about an update of a pod that evaluators have not priced. A rule gives the same answer until the rule or
/// the pod changes, so the client is not asked to retry.
fn unpriced(failed: &Failed) -> Judgement {
    match failed.again {
        Again::WhenChanged => Judgement::Refused(failed.text.to_string()),
        Again::Later | Again::In(_) => Judgement::Undecided(Cow::Owned(failed.text.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_evaluators_do_not_say_is_refused_for_now_or_until_something_changes() {
        let failed = |again| Failed { text: "evaluator label is not there".into(), by: 0, again };
        for again in [Again::Later, Again::In(Duration::from_secs(1))] {
            assert_eq!(unpriced(&failed(again)), Judgement::Undecided("evaluator label is not there".into()));
        }
        let lasting = unpriced(&failed(Again::WhenChanged));
        assert_eq!(lasting, Judgement::Refused("evaluator label is not there".to_owned()));
    }
}
