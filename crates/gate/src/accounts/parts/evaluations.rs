//! What evaluators say of pods: the last answer of each, the questions that are open, and why they are.

mod broken;
mod counts;
mod in_rounds;
mod known;
pub mod lanes;
mod line;
mod next;
mod open;
mod questions;
pub mod rounds;
mod safeguards;
mod unready;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sluice_engine::{Charge, PodId, Timers};
use sluice_index::{NamespaceId, push_tightly};

use crate::evaluators::{Content, EvaluatorsConfig, Failed, Price};
use broken::Broken;
use counts::Counts;
use known::{Answer, Known, Read};
use lanes::{AtOnce, Lanes};
use line::Line;
use next::Next;
use open::Open;
use questions::NEVER;
use rounds::Rounds;
use unready::Unready;

/// What is to be charged of a pod by what evaluators say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation<'e> {
    /// The answer for its content.
    Current(&'e Price),
    /// There is none yet.
    Awaited,
    /// There is none, and why.
    Failed(&'e Arc<str>),
}

/// What an answer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Nothing: the pod has other content by now, or the gate has withdrawn the question.
    Dropped,
    /// The pod has a price.
    Priced,
    /// It has none.
    Failed,
}

/// Invariant: a pod whose content has no answer and that is asked about is open, or else it stands in line; an open one is
/// in flight, has a turn, is to be looked at later, or its content is not known. `unready` is the sum of what both lack.
#[derive(Debug, Default)]
pub struct Evaluations {
    config: Option<Arc<EvaluatorsConfig>>,
    /// The number of the configuration.
    revision: u32,
    /// By the number of the pod's handle.
    known: Vec<Known>,
    open: HashMap<PodId, Open>,
    line: Line,
    lanes: Lanes,
    at_once: AtOnce,
    rounds: Rounds,
    later: Timers<PodId>,
    unready: Unready,
    /// Namespaces that have no pending pod any more.
    ended: Vec<NamespaceId>,
    counts: Counts,
    /// Pods of which may be to be told something else: they run without an answer, or do so no more.
    moved: Vec<PodId>,
    /// Pods that have to be looked at, since another one went.
    looks: Vec<PodId>,
    broken: Broken,
    /// Those whose pods are counted natively now.
    native: u16,
    last_serial: u64,
    charges: HashSet<Arc<Charge>>,
    shared_since_sweep: usize,
    /// Evaluators that are about to be in force.
    next: Option<Next>,
    last_next: u32,
    /// What Kubernetes counts of pods is being read anew.
    are_read_anew: bool,
    /// Pods about which the evaluators of now had no answer when they were next: who was asked, and why there is none.
    refused: HashMap<PodId, (u16, Box<Failed>)>,
}

impl Evaluations {
    /// Whether there are evaluators.
    pub const fn is_on(&self) -> bool {
        self.config.is_some()
    }

    pub const fn revision(&self) -> u32 {
        self.revision
    }

    pub fn config(&self) -> Option<&EvaluatorsConfig> {
        self.config.as_deref()
    }

    pub fn shared_config(&self) -> Option<Arc<EvaluatorsConfig>> {
        self.config.clone()
    }

    /// From now on these are asked. What is answered by then stays the last answer of each pod, and is for no content.
    pub fn configure(&mut self, config: Option<Arc<EvaluatorsConfig>>) -> u32 {
        let ended = self.unready.pending();
        let (revision, last_serial) = (self.revision.wrapping_add(1).max(1), self.last_serial);
        let overdue = self.open.iter().filter(|(_, open)| open.is_overdue()).map(|(id, _)| *id);
        let moved = self.moved.iter().copied().chain(overdue).chain(self.overdue_in_line()).collect();
        let (known, charges) = match &config {
            Some(_) => {
                let mut known = std::mem::take(&mut self.known);
                known.iter_mut().for_each(Known::begin_anew);
                (known, std::mem::take(&mut self.charges))
            }
            None => Default::default(),
        };
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.clear();
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.configure(config.as_ref().is_some_and(|config| config.other_pods.is_some()));
        let ended = ended.into_iter().collect();
        *self = Self {
            config,
            revision,
            known,
            charges,
            lanes,
            at_once: self.at_once,
            rounds,
            ended,
            last_serial,
            moved,
            broken: std::mem::take(&mut self.broken),
            last_next: self.last_next,
            are_read_anew: self.are_read_anew,
            ..Self::default()
        };
        revision
    }

    fn get(&self, id: PodId) -> Option<&Known> {
        self.known.get(id.0 as usize)
    }

    fn slot(&mut self, id: PodId) -> Option<&mut Known> {
        let at = id.0 as usize;
        while self.known.len() <= at {
            push_tightly(&mut self.known, Known::default());
        }
        self.known.get_mut(at)
    }

    /// A new version of the pod was seen, perhaps with its content. Returns whether that is other content, or is not known.
    pub fn see(&mut self, id: PodId, content: Option<Content>) -> bool {
        let revision = self.revision;
        let Some(known) = self.slot(id) else { return false };
        let Some(content) = content.filter(|content| content.revision == revision) else {
            return std::mem::replace(&mut known.read, Read::Earlier) != Read::Earlier;
        };
        let is_changed = known.hash != content.hash;
        let is_other = known.read != Read::Latest || is_changed || known.selected_by != content.selected_by;
        (known.hash, known.selected_by, known.read) = (content.hash, content.selected_by, Read::Latest);
        if is_changed {
            known.outdate();
            self.refused.remove(&id);
        }
        if let Some(open) = self.open.get_mut(&id).filter(|_| is_changed) {
            // Nothing was said yet of what it is now. It does not leave the turns of those that fail by that.
            (open.failure, open.is_again) = (None, false);
            if open.retry_ms == NEVER || !self.broken.is_any_of(open.selected) {
                open.retry_ms = 0;
            }
            self.count(id);
        }
        is_other
    }

    /// The evaluators that select the pod by its labels; all if that is not known.
    pub fn selected_by(&self, id: PodId, is_waiting: bool) -> u16 {
        match self.get(id) {
            Some(known) if known.read == Read::Latest || !is_waiting => known.selected_by,
            _ => u16::MAX,
        }
    }

    /// What is to be charged by what these evaluators say of its content.
    pub fn of(&self, id: PodId, selected: u16) -> Evaluation<'_> {
        let is_current = |known: &&Known| {
            known.answer == Answer::Current && known.asked == selected && known.read == Read::Latest
        };
        if let Some(price) = self.get(id).filter(is_current).and_then(Known::last) {
            return Evaluation::Current(price);
        }
        let open = self.open.get(&id).filter(|open| open.selected == selected);
        match open.and_then(|open| open.failure.as_ref()) {
            Some(why) => Evaluation::Failed(why),
            None => Evaluation::Awaited,
        }
    }

    /// The last answer about the pod, whatever its content was.
    pub fn last(&self, id: PodId) -> Option<&Price> {
        self.get(id)?.last()
    }

    /// Whether what Kubernetes counts is in the last answer about the pod.
    pub fn retains(&self, id: PodId) -> bool {
        self.get(id).is_some_and(Known::retains)
    }

    /// The pod is priced as this one until there is an answer about it.
    pub fn inherit(&mut self, id: PodId, from: PodId) {
        let Some(from) = self.get(from).filter(|known| known.last().is_some()).cloned() else { return };
        if let Some(known) = self.slot(id).filter(|known| known.last().is_none()) {
            known.inherit(&from);
        }
    }

    /// Whether the content of the pod was read by the evaluators of now.
    pub fn is_read(&self, id: PodId) -> bool {
        self.get(id).is_some_and(|known| known.read == Read::Latest)
    }

    /// Forgets the last answer about the pod. Returns whether there was one.
    pub fn unprice(&mut self, id: PodId) -> bool {
        self.known.get_mut(id.0 as usize).is_some_and(Known::unprice)
    }

    /// Whether one of these evaluators is sent the other pods: then the pod is asked about in rounds.
    pub fn is_in_rounds(&self, selected: u16) -> bool {
        self.rounds.are_on() && self.config().is_some_and(|config| selected & config.in_rounds != 0)
    }

    /// The pod is counted natively. Returns whether it was not before.
    pub fn note_native(&mut self, id: PodId) -> bool {
        self.open.get_mut(&id).is_some_and(|open| !std::mem::replace(&mut open.is_native, true))
    }

    /// All gated pods that are asked about, and some that run.
    pub fn open(&self) -> impl Iterator<Item = (PodId, NamespaceId)> {
        self.open.iter().map(|(id, open)| (*id, open.namespace))
    }

    /// How many pods have no answer: those that wait, and those that run.
    pub fn without_answer(&self) -> (usize, usize) {
        let waiting = self.open.values().filter(|open| open.is_waiting && !open.is_again).count();
        (waiting, self.unready.unanswered())
    }

    /// Whether the pod with this content is asked about.
    pub fn is_open(&self, id: PodId, hash: u64) -> bool {
        self.is_awaited(id) && self.has_content(id, hash)
    }

    /// Whether there is to be an answer about the pod.
    pub fn is_awaited(&self, id: PodId) -> bool {
        self.open.contains_key(&id) || self.is_in_line(id)
    }

    /// Whether what keeps the pod waiting is to be told.
    pub fn is_told(&self, id: PodId) -> bool {
        self.open.get(&id).is_some_and(|open| open.is_told)
    }

    /// Whether the pod runs and has had no answer for a while.
    pub fn is_overdue(&self, id: PodId, namespace: NamespaceId) -> bool {
        self.open.get(&id).is_some_and(Open::is_overdue) || self.is_overdue_in_line(id, namespace)
    }

    /// The pod claims something else than before.
    pub fn note_moved(&mut self, id: PodId, namespace: NamespaceId) {
        if self.is_overdue(id, namespace) {
            self.moved.push(id);
        }
    }

    pub fn take_moved(&mut self) -> Vec<PodId> {
        std::mem::take(&mut self.moved)
    }

    pub fn take_ended(&mut self) -> Vec<NamespaceId> {
        std::mem::take(&mut self.ended)
    }

    pub fn look_at(&mut self, id: PodId) {
        self.looks.push(id);
    }

    pub fn take_looks(&mut self) -> Vec<PodId> {
        std::mem::take(&mut self.looks)
    }

    /// Whether no question is in flight or waits for its turn.
    pub fn is_idle(&self) -> bool {
        self.lanes.are_empty() && !self.has_next(0)
    }

    /// The rounds in which pods are asked about together.
    pub const fn rounds(&mut self) -> &mut Rounds {
        &mut self.rounds
    }

    /// Many pods have equal prices.
    fn share(&mut self, price: Price) -> Price {
        let Price::Charge(charge) = price else { return price };
        self.shared_since_sweep += 1;
        if self.shared_since_sweep > 1024 + self.charges.len() {
            self.shared_since_sweep = 0;
            self.charges.retain(|charge| Arc::strong_count(charge) > 1);
        }
        if let Some(known) = self.charges.get(&charge) {
            return Price::Charge(Arc::clone(known));
        }
        self.charges.insert(Arc::clone(&charge));
        Price::Charge(charge)
    }
}
