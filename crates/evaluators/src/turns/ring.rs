//! Namespaces that take turns.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Turn;

/// The questions of each namespace in the order they came; the namespace that was served last is the last of the next round.
#[derive(Debug, Default)]
pub(super) struct Ring {
    order: VecDeque<Arc<str>>,
    queues: HashMap<Arc<str>, VecDeque<Turn>>,
    len: usize,
}

impl Ring {
    pub(super) fn push(&mut self, turn: Turn) {
        let queue = self.queues.entry(turn.namespace.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(turn.namespace.clone());
        }
        queue.push_back(turn);
        self.len += 1;
    }

    /// The next question of a namespace that may have a turn.
    pub(super) fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<Turn> {
        let place = self.order.iter().position(|namespace| may(namespace))?;
        let namespace = self.order.remove(place)?;
        let queue = self.queues.get_mut(&namespace)?;
        let turn = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&namespace);
        } else {
            self.order.push_back(namespace);
        }
        Some(turn)
    }

    /// How many questions the namespace with the most of them has.
    pub(super) fn longest(&self) -> usize {
        self.queues.values().map(VecDeque::len).max().unwrap_or(0)
    }

    /// Takes out the newest question of the namespace with the most of them.
    pub(super) fn drop_from_longest(&mut self) -> Option<Turn> {
        let (namespace, queue) = self.queues.iter_mut().max_by_key(|(_, queue)| queue.len())?;
        let turn = queue.pop_back()?;
        self.len -= 1;
        if queue.is_empty() {
            let namespace = namespace.clone();
            self.queues.remove(&namespace);
            self.order.retain(|it| *it != namespace);
        }
        Some(turn)
    }

    /// Takes out all questions of the namespaces that `of` names.
    pub(super) fn take(&mut self, of: impl Fn(&str) -> bool) -> Vec<Turn> {
        let mut taken = Vec::new();
        for namespace in self.order.iter().filter(|namespace| of(namespace)) {
            taken.extend(self.queues.remove(namespace).into_iter().flatten());
        }
        self.order.retain(|namespace| self.queues.contains_key(namespace));
        self.len -= taken.len();
        taken
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}
