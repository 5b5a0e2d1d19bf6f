//! What evaluators in the shadow say of pods, and the sums of what they would change.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use sluice_engine::{PodId, QuotaId, QuotaSet, Resource};

use crate::backoff::backoff_ms;
use crate::evaluators::Content;
use crate::shadow::{MOST_SHADOWS, Opinion, SaidLater, ShadowConfig};

/// After the first failure a sidecar is asked again about a pod after so long (milliseconds).
const RETRY_MS: u64 = 1_000;

/// By resource, how much more would be charged, or less (nano-units); none of it is 0.
pub type Change = BTreeMap<Resource, i128>;

/// What is known of a pod that one of them selects.
#[derive(Debug)]
struct Known {
    content: Content,
    /// By the place of the evaluator; what does not match is left out.
    opinions: Vec<(usize, Opinion)>,
    /// Those that are asked later and have said of this content what holds until it changes, a bit for each.
    said: u16,
    /// Those that had no answer.
    failing: Vec<Failing>,
    /// What is summed up of the pod, by the place of the evaluator.
    counted: Vec<(usize, Standing)>,
}

/// An evaluator that had no answer about the pod.
#[derive(Debug)]
struct Failing {
    place: usize,
    /// How often in a row.
    failures: u32,
    /// It is not asked about the pod before (milliseconds).
    retry_ms: u64,
}

/// What the pod is to one evaluator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It waits, and would be held.
    Held,
    /// It matches, and does not run.
    Matched,
    /// It runs, and these quotas would be charged so much more or less for it.
    Changed(Arc<QuotaSet>, Change),
}

/// The sums of one evaluator.
#[derive(Debug, Default)]
pub struct Sums {
    pub matched: usize,
    pub held: usize,
    /// Over all pods that run.
    pub total: Change,
    /// Those whose sums are others.
    pub quotas: BTreeMap<QuotaId, Change>,
}

/// Invariant: `sums` are the sums of what pods are counted as. A pod that may have to be counted as something else is moved.
#[derive(Debug, Default)]
pub struct Shadow {
    config: Option<Arc<ShadowConfig>>,
    revision: u32,
    pods: HashMap<PodId, Known>,
    moved: VecDeque<PodId>,
    sums: [Sums; MOST_SHADOWS],
}

impl Shadow {
    pub const fn is_on(&self) -> bool {
        self.config.is_some()
    }

    pub const fn revision(&self) -> u32 {
        self.revision
    }

    pub fn config(&self) -> Option<&ShadowConfig> {
        self.config.as_deref()
    }

    /// From now on these are evaluated. Nothing is known of what they say.
    pub fn configure(&mut self, config: Option<Arc<ShadowConfig>>) -> u32 {
        let revision = self.revision.wrapping_add(1).max(1);
        *self = Self { config, revision, ..Self::default() };
        revision
    }

    /// The pod was seen with this content. Whether its evaluators have to be asked.
    pub fn see(&mut self, id: PodId, content: Content) -> bool {
        if content.revision != self.revision || !self.is_on() {
            return false;
        }
        if content.selected_by == 0 {
            self.forget(id);
            return false;
        }
        self.note_moved(id);
        self.pods.get(&id).is_none_or(|known| known.content != content)
    }

    /// Those that answer at once say this of the pod with this content. What others have said stays until they say something
    /// else.
    pub fn take(&mut self, id: PodId, content: Content, opinions: Vec<(usize, Opinion)>) {
        if content.revision != self.revision {
            return;
        }
        let later = self.config().map_or(0, |config| config.later) & content.selected_by;
        let fresh =
            Known { content, opinions: Vec::new(), said: 0, failing: Vec::new(), counted: Vec::new() };
        let known = self.pods.entry(id).or_insert(fresh);
        if known.content.hash != content.hash {
            // Nothing was said yet of what it is now.
            known.said = 0;
            known.failing.iter_mut().for_each(|failing| failing.retry_ms = 0);
        }
        known.content = content;
        known.opinions.retain(|(place, _)| later >> place & 1 == 1);
        known.opinions.extend(opinions.into_iter().filter(|(_, opinion)| *opinion != Opinion::NoMatch));
        self.note_moved(id);
    }

    /// Those that are to be asked now about the pod, of those that are asked later, a bit for each, and its hash.
    pub fn to_ask(&self, id: PodId, now_ms: u64) -> Option<(u16, u64)> {
        let (known, config) = self.pods.get(&id).zip(self.config())?;
        let left_alone = known.failing.iter().filter(|failing| failing.retry_ms > now_ms);
        let left_alone = left_alone.fold(0, |bits, failing| bits | 1 << failing.place);
        let asked = config.later & known.content.selected_by & !known.said & !left_alone;
        (asked != 0).then_some((asked, known.content.hash))
    }

    /// What these have said of the pods says nothing of what they would say now.
    pub fn expire(&mut self, pods: &[PodId], places: u16) {
        for id in pods {
            if let Some(known) = self.pods.get_mut(id) {
                known.said &= !places;
            }
        }
    }

    /// These can be asked again: about each pod about which they had no answer.
    pub fn retry(&mut self, places: u16) {
        if places == 0 {
            return;
        }
        let failing = self.pods.values_mut().flat_map(|known| &mut known.failing);
        for failing in failing.filter(|failing| places >> failing.place & 1 == 1) {
            failing.retry_ms = 0;
        }
    }

    /// Evaluators that were asked later say this of the pod with this hash.
    pub fn take_later(&mut self, id: PodId, hash: u64, said: Vec<SaidLater>, now_ms: u64) {
        let Some(known) = self.pods.get_mut(&id).filter(|known| known.content.hash == hash) else { return };
        for SaidLater { place, opinion, is_final } in said.into_iter().filter(|it| it.place < MOST_SHADOWS) {
            known.note(place, is_final, now_ms);
            known.opinions.retain(|(known, _)| *known != place);
            if opinion != Opinion::NoMatch {
                known.opinions.push((place, opinion));
            }
        }
        // What was said before may be counted.
        self.moved.push_back(id);
    }

    /// What they say of the pod, by their places.
    pub fn opinions(&self, id: PodId) -> &[(usize, Opinion)] {
        self.pods.get(&id).map_or(&[], |known| &known.opinions)
    }

    /// The pod may have to be counted as something else.
    pub fn note_moved(&mut self, id: PodId) {
        if self.pods.get(&id).is_some_and(|known| !known.opinions.is_empty() || !known.counted.is_empty()) {
            self.moved.push_back(id);
        }
    }

    /// All pods of these may have to be counted as something else.
    pub fn note_all_moved(&mut self, pods: &[PodId]) {
        pods.iter().for_each(|id| self.note_moved(*id));
    }

    pub fn next_moved(&mut self) -> Option<PodId> {
        self.moved.pop_front()
    }

    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    pub fn forget(&mut self, id: PodId) {
        self.count(id, Vec::new());
        self.pods.remove(&id);
    }

    /// The pod is counted so from now on, by the place of the evaluator.
    pub fn count(&mut self, id: PodId, standings: Vec<(usize, Standing)>) {
        let Some(known) = self.pods.get_mut(&id) else { return };
        if known.counted == standings {
            return;
        }
        let before = std::mem::replace(&mut known.counted, standings);
        for (place, standing) in &before {
            if let Some(sums) = self.sums.get_mut(*place) {
                sums.add(standing, false);
            }
        }
        for (place, standing) in &known.counted {
            if let Some(sums) = self.sums.get_mut(*place) {
                sums.add(standing, true);
            }
        }
    }

    pub fn sums(&self) -> impl Iterator<Item = (&Arc<str>, &Sums)> {
        let evaluators = self.config.iter().flat_map(|config| &config.evaluators);
        evaluators.map(|(name, _)| name).zip(&self.sums)
    }
}

impl Known {
    /// The evaluator has an answer that holds until the pod changes, or is to be asked again.
    fn note(&mut self, place: usize, is_final: bool, now_ms: u64) {
        let before = self.failing.iter().position(|failing| failing.place == place);
        let before = before.map(|at| self.failing.swap_remove(at));
        if is_final {
            self.said |= 1 << place;
            return;
        }
        self.said &= !(1 << place);
        let failures = before.map_or(0, |failing| failing.failures).saturating_add(1);
        self.failing.push(Failing { place, failures, retry_ms: now_ms + backoff_ms(RETRY_MS, failures) });
    }
}

impl Sums {
    /// Adds what one pod is, or takes it away.
    fn add(&mut self, standing: &Standing, is_added: bool) {
        let count = |number: &mut usize| {
            *number = if is_added { *number + 1 } else { number.saturating_sub(1) };
        };
        match standing {
            Standing::Held => count(&mut self.held),
            Standing::Matched => count(&mut self.matched),
            Standing::Changed(quotas, change) => {
                count(&mut self.matched);
                add(&mut self.total, change, is_added);
                for quota in quotas.iter() {
                    let sum = self.quotas.entry(*quota).or_default();
                    add(sum, change, is_added);
                    if sum.is_empty() {
                        self.quotas.remove(quota);
                    }
                }
            }
        }
    }
}

fn add(sum: &mut Change, change: &Change, is_added: bool) {
    for (resource, amount) in change {
        let entry = sum.entry(resource.clone()).or_default();
        *entry = if is_added { entry.saturating_add(*amount) } else { entry.saturating_sub(*amount) };
        if *entry == 0 {
            sum.remove(resource);
        }
    }
}
