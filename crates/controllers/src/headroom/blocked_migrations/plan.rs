//! From what is seen to what is done: whom to wake, what to tell.

use std::sync::Arc;

use sluice_engine::headroom::{Plan, Refusal, plan as fit, sentence};
use sluice_window::MigrationRef;

use super::messages::{Action, BlockedEvent, Done, NamespaceFacts, QuotaName, Summary};
use super::namespace_state::{Doing, Entry, NamespaceState};
use super::state::State;
use crate::gate::Moment;

/// A target that is refused again and again although a pod like its source would fit is not like its source.
const MOST_WAKES: u32 = 3;
const LARGER: &str = "its target is refused although a pod like its source would fit: a LimitRange or another version of \
    KubeVirt makes it larger, see the FailedCreate events of the machine";

/// What comes of looking at a namespace.
#[derive(Default)]
struct Look {
    actions: Vec<Action>,
    /// When to look again.
    due: Option<u64>,
    summary: Summary,
}

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
        while let Some(namespace) = self.dirty.pop_first() {
            if self.leading {
                let seen = facts(&namespace);
                actions.extend(self.look_at(&namespace, &seen, now.mono_ms));
            }
        }
        actions
    }

    fn look_at(&mut self, namespace: &Arc<str>, facts: &NamespaceFacts, now_ms: u64) -> Vec<Action> {
        let mut namespace_state = self.take_namespace(namespace);
        self.stats.rejected += namespace_state.see(facts, &self.config, self.seed_of(namespace));
        let mut look = Look::default();
        look.summary.opted_out = facts.opted_out;
        look.summary.forbidden = namespace_state.forbidden.clone();
        for seen in &facts.blocked {
            self.help(&seen.migration, &mut namespace_state, facts, now_ms, &mut look);
        }
        if namespace_state.nudge {
            self.nudge(namespace, &mut namespace_state, facts, now_ms, &mut look);
        }
        self.put_namespace(namespace, namespace_state, look.due, look.summary);
        look.actions
    }

    fn help(
        &mut self,
        blocked: &MigrationRef,
        namespace_state: &mut NamespaceState,
        facts: &NamespaceFacts,
        now_ms: u64,
        look: &mut Look,
    ) {
        let Some(entry) = namespace_state.blocked.get_mut(&blocked.uid) else { return };
        if entry.source.is_none() && entry.look.is_waiting(now_ms) {
            return look.at(entry.look.not_before_ms());
        }
        if entry.source.is_none() && namespace_state.doing.is_none() {
            namespace_state.doing = Some(Doing::Look(blocked.uid.clone()));
            look.actions.push(Action::Look(blocked.clone()));
        }
        let Some(need) = entry.source.clone().flatten() else { return };
        match fit(&need, &facts.quotas, &facts.budget) {
            Plan::Fits { .. } if entry.wakes >= MOST_WAKES => {
                let tell = |sentence| BlockedEvent::Refused { blocked: blocked.clone(), sentence };
                self.tell(entry, LARGER, tell, now_ms, look);
            }
            Plan::Fits { .. } => {
                self.wake(entry, self.config.nudge_after_ms, (&mut namespace_state.nudge, now_ms), look);
            }
            // No quota changes when something is granted.
            Plan::Raise(_) => self.wake(entry, 0, (&mut namespace_state.nudge, now_ms), look),
            Plan::NotEnough(shortages) => {
                entry.passes_since = None;
                let text = sentence(&blocked.name, &blocked.machine, &shortages);
                lacks(&mut look.summary, &text);
                let tell = |sentence| BlockedEvent::NotEnough { blocked: blocked.clone(), sentence };
                self.stats.not_enough += u64::from(self.tell(entry, &text, tell, now_ms, look));
            }
            Plan::Refused(refusals) => {
                entry.passes_since = None;
                look.summary.opted_out |= refusals.iter().any(|why| matches!(why, Refusal::OptedOut { .. }));
                let told: Vec<String> =
                    refusals.iter().filter(|why| lasts(why)).map(Refusal::to_string).collect();
                if !told.is_empty() {
                    let tell = |sentence| BlockedEvent::Refused { blocked: blocked.clone(), sentence };
                    self.tell(entry, &told.join("; "), tell, now_ms, look);
                }
            }
        }
    }

    /// The migration would be let in, were it tried. `after_ms`: how long KubeVirt's controller gets to notice by itself.
    fn wake(&self, entry: &mut Entry, after_ms: u64, (nudge, now_ms): (&mut bool, u64), look: &mut Look) {
        if entry.passes_since.is_none() {
            entry.retry.reset();
        }
        let due = *entry.passes_since.get_or_insert(now_ms) + after_ms;
        let due = due.max(entry.retry.not_before_ms());
        if due > now_ms {
            look.at(due);
        } else if !*nudge {
            entry.retry.failed(now_ms);
            entry.wakes += 1;
            *nudge = true;
            look.at(entry.retry.not_before_ms());
        }
    }

    /// Tells it, if it is news and the last was not just told. Returns whether it was told.
    fn tell(
        &self,
        entry: &mut Entry,
        text: &str,
        tell: impl FnOnce(Arc<str>) -> BlockedEvent,
        now_ms: u64,
        look: &mut Look,
    ) -> bool {
        match entry.tells(text, now_ms, self.config.tell_spacing_ms) {
            Ok(Some(sentence)) => {
                look.actions.push(Action::Publish(tell(sentence)));
                return true;
            }
            Ok(None) => {}
            Err(due) => look.at(due),
        }
        false
    }

    /// Writes one quota: any will do, because KubeVirt's controller tries all rejected migrations of a namespace
    /// again when one of its quotas changes; its queue has them by priority.
    fn nudge(
        &mut self,
        namespace: &Arc<str>,
        namespace_state: &mut NamespaceState,
        facts: &NamespaceFacts,
        now_ms: u64,
        look: &mut Look,
    ) {
        // A quota without usage is about to be written by kube-controller-manager, a marked one by who raised it.
        let is_still =
            |quota: &&sluice_engine::headroom::NativeQuota| !quota.used.is_empty() && quota.mark().is_none();
        let Some(quota) = facts.quotas.iter().find(is_still) else {
            namespace_state.nudge = false;
            return;
        };
        let due = namespace_state.nudge_from.max(namespace_state.forbidden_retry.not_before_ms());
        if due > now_ms {
            return look.at(due);
        }
        if namespace_state.doing.is_some() {
            return;
        }
        namespace_state.nudge = false;
        namespace_state.nudge_from = now_ms + self.config.nudge_spacing_ms;
        let quota = QuotaName {
            namespace: Arc::clone(namespace),
            name: Arc::clone(&quota.name),
            uid: quota.uid.clone(),
        };
        namespace_state.doing = Some(Doing::Nudge(quota.clone()));
        self.stats.nudges += 1;
        look.actions.push(Action::Nudge(quota));
    }

    /// Takes note of how an action went. `facts` is what is seen of the namespace. Returns what people are to be told.
    pub fn on_done(
        &mut self,
        namespace: &Arc<str>,
        done: Done,
        facts: &NamespaceFacts,
        now: Moment,
    ) -> Vec<Action> {
        self.dirty.insert(Arc::clone(namespace));
        let mut namespace_state = self.take_namespace(namespace);
        let doing = namespace_state.doing.take();
        let mut told = Vec::new();
        match (done, doing) {
            (Done::Looked(uid, source), _) => {
                if let Some(entry) = namespace_state.blocked.get_mut(&uid) {
                    entry.source = Some(source);
                    entry.look.reset();
                }
            }
            (Done::Nudged, _) => namespace_state.allowed(),
            (Done::Forbidden(said), Some(Doing::Nudge(quota))) => {
                self.stats.forbidden += 1;
                if namespace_state.forbid(&said, now.mono_ms) {
                    let blocked = facts.blocked.iter().map(|blocked| blocked.migration.clone()).collect();
                    told.push(Action::Publish(BlockedEvent::Forbidden { quota, blocked, said }));
                }
            }
            (Done::Failed | Done::Forbidden(_), Some(Doing::Look(uid))) => {
                if let Some(entry) = namespace_state.blocked.get_mut(&uid) {
                    entry.look.failed(now.mono_ms);
                }
            }
            // The migration for which a nudge was meant has its own time to try again.
            (Done::Failed | Done::Forbidden(_), _) => {}
        }
        let summary = namespace_state.summary.clone();
        self.put_namespace(namespace, namespace_state, None, summary);
        told
    }
}

/// Whether a refusal stays until an administrator changes something. The others end with the next sync of the quota.
const fn lasts(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::StatusUnknown { .. } | Refusal::NotSynced { .. })
}

fn lacks(summary: &mut Summary, text: &str) {
    match &mut summary.not_enough {
        Some((_, count)) => *count += 1,
        none => *none = Some((text.into(), 1)),
    }
}
