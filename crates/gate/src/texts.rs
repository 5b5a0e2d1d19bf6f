//! The JSON of pods that are about to be evaluated.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use sluice_engine::Uid;

/// How much is kept (bytes). What is dropped is read from the API server when it is needed.
pub const MOST_BYTES: usize = 4 << 20;

/// With more than that (bytes), the text of a pod that runs is not kept. After a start all pods of a cluster stand in line,
/// and most of them are asked about long after they were seen.
const MOST_BYTES_WITH_RUNNING: usize = 1 << 20;

/// What is sent of pods, by uid and hash; the oldest are dropped first.
///
/// Invariant: both maps have the same pods, and `bytes` is the length of all texts, at most [`MOST_BYTES`].
#[derive(Debug, Default)]
pub struct Texts {
    by_age: BTreeMap<u64, (Uid, u64, Bytes)>,
    numbers: HashMap<Uid, u64>,
    bytes: usize,
    last: u64,
}

impl Texts {
    /// Keeps the text in place of an earlier one of the pod, if there is room.
    pub fn keep(&mut self, pod: Uid, hash: u64, text: Bytes, is_waiting: bool) {
        self.forget(&pod);
        let after = self.bytes + text.len();
        if text.len() > MOST_BYTES || !is_waiting && after > MOST_BYTES_WITH_RUNNING {
            return;
        }
        self.last += 1;
        self.bytes += text.len();
        self.numbers.insert(pod.clone(), self.last);
        self.by_age.insert(self.last, (pod, hash, text));
        while self.bytes > MOST_BYTES
            && let Some((_, (pod, _, text))) = self.by_age.pop_first()
        {
            self.numbers.remove(&pod);
            self.bytes -= text.len();
        }
    }

    /// The text of the pod with this hash, if it is kept.
    pub fn get(&self, pod: &Uid, hash: u64) -> Option<Bytes> {
        let (_, known, text) = self.by_age.get(self.numbers.get(pod)?)?;
        (*known == hash).then(|| text.clone())
    }

    /// The text of the pod is not needed any more.
    pub fn forget(&mut self, pod: &Uid) {
        let Some(number) = self.numbers.remove(pod) else { return };
        if let Some((_, _, text)) = self.by_age.remove(&number) {
            self.bytes -= text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_memory_is_bounded() {
        let mut texts = Texts::default();
        let uid = |n: usize| Uid::parse(&format!("pod-{n}"));
        let mebibyte = || Bytes::from(vec![b' '; 1 << 20]);
        for n in 0..6 {
            texts.keep(uid(n), 7, mebibyte(), true);
        }
        let kept: Vec<usize> = (0..6).filter(|n| texts.get(&uid(*n), 7).is_some()).collect();
        assert_eq!((kept, texts.bytes), (vec![2, 3, 4, 5], MOST_BYTES));
        texts.keep(uid(2), 8, mebibyte(), true);
        assert!(texts.get(&uid(2), 7).is_none() && texts.get(&uid(2), 8).is_some());
        texts.forget(&uid(3));
        texts.keep(uid(9), 7, Bytes::from(vec![b' '; MOST_BYTES + 1]), true);
        assert!(texts.get(&uid(9), 7).is_none());
        assert_eq!((texts.bytes, texts.by_age.len(), texts.numbers.len()), (3 << 20, 3, 3));
    }

    #[test]
    fn those_of_pods_that_run_leave_room_for_those_that_wait() {
        let mut texts = Texts::default();
        let uid = |n: usize| Uid::parse(&format!("pod-{n}"));
        let text = |bytes: usize| Bytes::from(vec![b' '; bytes]);
        texts.keep(uid(0), 7, text(MOST_BYTES_WITH_RUNNING), false);
        texts.keep(uid(1), 7, text(1), false);
        assert!(texts.get(&uid(0), 7).is_some() && texts.get(&uid(1), 7).is_none());
        texts.keep(uid(2), 7, text(1), true);
        assert!(texts.get(&uid(2), 7).is_some());
        texts.forget(&uid(0));
        texts.keep(uid(1), 7, text(1), false);
        assert!(texts.get(&uid(1), 7).is_some());
    }
}
