//! Evaluators that are about to be in force, and what they say of pods before they are.
//!
//! Meanwhile pods are charged by those that are still in force. So a quota stands still only while its pods are charged
//! anew, and not while they are read.

use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::{Version, push_tightly};

use super::{Evaluations, Read};
use crate::evaluators::{Content, EvaluatorsConfig, Failed, Said};

/// What the next evaluators say of a pod. There is one of each pod, so it is small.
#[derive(Debug)]
struct Entry {
    /// The version of the pod that this is about.
    version: Version,
    /// The hash of its content.
    hash: u64,
    /// The evaluators that select the pod by its labels.
    selected_by: u16,
    /// Those that were asked; 0: none are to be.
    asked: u16,
    /// `None`: they have not answered.
    said: Option<Result<Said, Box<Failed>>>,
}

/// Evaluators that are about to be in force.
#[derive(Debug)]
pub struct Next {
    config: Arc<EvaluatorsConfig>,
    /// Tells them from others that were next.
    number: u32,
    /// By the number of the pod's handle.
    pods: Vec<Option<Entry>>,
}

impl Next {
    fn entry(&mut self, id: PodId) -> Option<&mut Option<Entry>> {
        let at = id.0 as usize;
        while self.pods.len() <= at {
            push_tightly(&mut self.pods, None);
        }
        self.pods.get_mut(at)
    }
}

impl Evaluations {
    /// Makes these the next evaluators. Returns their number, by which contents of pods are read for them; `None` while pods
    /// are [read anew](Self::read_pods_anew).
    pub fn expect(&mut self, config: Arc<EvaluatorsConfig>) -> Option<u32> {
        if self.are_read_anew {
            return None;
        }
        self.last_next = self.last_next.wrapping_add(1).max(1);
        let number = self.last_next;
        self.next = Some(Next { config, number, pods: Vec::new() });
        Some(number)
    }

    /// Begins or ends a time in which pods are read by other rules of Kubernetes. Answers rest on what Kubernetes counts, so
    /// those for the next evaluators are dropped at its begin.
    pub fn read_pods_anew(&mut self, begins: bool) {
        self.are_read_anew = begins;
        if begins {
            self.next = None;
        }
    }

    /// Whether these evaluators are the next ones.
    pub fn expects(&self, config: &Arc<EvaluatorsConfig>) -> bool {
        self.next.as_ref().is_some_and(|next| Arc::ptr_eq(&next.config, config))
    }

    /// The next evaluators, if they have this number.
    pub fn next_config(&self, number: u32) -> Option<Arc<EvaluatorsConfig>> {
        self.next.as_ref().filter(|next| next.number == number).map(|next| Arc::clone(&next.config))
    }

    /// The pod has this content in this version, about which the `asked` of the next evaluators are asked.
    pub fn see_for_next(&mut self, id: PodId, version: Version, content: Content, asked: u16) {
        let Content { hash, selected_by, .. } = content;
        let Some(next) = self.next.as_mut().filter(|next| next.number == content.revision) else { return };
        if let Some(entry) = next.entry(id) {
            *entry = Some(Entry { version, hash, selected_by, asked, said: None });
        }
    }

    /// Stores the answer about the pod in this version, if the entry still waits for just these evaluators.
    pub fn say_for_next(
        &mut self,
        id: PodId,
        (version, number, asked): (Version, u32, u16),
        said: Result<Said, Failed>,
    ) {
        let said = match said {
            Ok(Said { price, matched, retains }) => Ok(Said { price: self.share(price), matched, retains }),
            Err(failed) => Err(Box::new(failed)),
        };
        let next = self.next.as_mut().filter(|next| next.number == number);
        let entry = next.and_then(|next| next.pods.get_mut(id.0 as usize)?.as_mut());
        if let Some(entry) = entry.filter(|entry| entry.version == version && entry.asked == asked) {
            entry.said = Some(said);
        }
    }

    /// The pod goes, and another one may have its handle.
    pub(super) fn forget_for_next(&mut self, id: PodId) {
        self.refused.remove(&id);
        if let Some(entry) = self.next.as_mut().and_then(|next| next.pods.get_mut(id.0 as usize)) {
            *entry = None;
        }
    }

    /// Takes the next evaluators, if they are these.
    pub fn take_next(&mut self, config: Option<&Arc<EvaluatorsConfig>>) -> Option<Next> {
        if config.is_some_and(|config| self.expects(config)) { self.next.take() } else { None }
    }

    /// Takes over what the evaluators said before they were put in force, of each pod that has not changed since it was
    /// read.
    pub fn adopt(&mut self, next: Next, is_as_read: impl Fn(PodId, Version) -> bool) {
        for (id, entry) in (0..).map(PodId).zip(next.pods) {
            let Some(Entry { version, hash, selected_by, asked, said }) = entry else { continue };
            if !is_as_read(id, version) {
                continue;
            }
            let Some(known) = self.slot(id) else { return };
            (known.hash, known.selected_by) = (hash, selected_by);
            known.read = Read::Latest;
            known.outdate();
            match said {
                Some(Ok(Said { price, matched, retains })) => {
                    known.say(price, retains, (asked, matched));
                }
                Some(Err(failed)) => {
                    self.refused.insert(id, (asked, failed));
                }
                None => {}
            }
        }
    }

    /// Takes the failure of the evaluators in force from the time when they were next, if the pod has one.
    pub fn take_refused(&mut self, id: PodId, selected: u16) -> Option<Failed> {
        let (asked, failed) = self.refused.remove(&id)?;
        (asked == selected && selected != 0).then_some(*failed)
    }
}

#[cfg(test)]
mod tests {
    use super::Entry;

    /// The gate keeps one for each pod of the cluster while it prepares evaluators.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Option<Entry>>(), 40);
    }
}
