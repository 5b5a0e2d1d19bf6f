//! What waits for a turn.

use std::collections::{HashMap, VecDeque};

use sluice_index::NamespaceId;

/// What waits, by namespace. Namespaces take turns, so that a crowd in one delays no other.
#[derive(Debug)]
pub struct Turns<T> {
    order: VecDeque<NamespaceId>,
    waiting: HashMap<NamespaceId, VecDeque<T>>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), waiting: HashMap::new() }
    }
}

impl<T> Turns<T> {
    /// The last of its namespace.
    pub fn push(&mut self, namespace: NamespaceId, item: T) {
        let waiting = self.waiting.entry(namespace).or_insert_with(|| {
            self.order.push_back(namespace);
            VecDeque::new()
        });
        waiting.push_back(item);
    }

    /// The first of the next namespace that may have a turn.
    pub fn pop(&mut self, may: impl Fn(NamespaceId) -> bool) -> Option<(NamespaceId, T)> {
        let at = self.order.iter().position(|namespace| may(*namespace))?;
        // Those that may not keep their order, behind all others.
        self.order.rotate_left(at);
        let namespace = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let item = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.order.push_back(namespace);
        }
        Some((namespace, item?))
    }

    /// Whether [`Self::pop`] has one.
    pub fn has_one(&self, may: impl Fn(NamespaceId) -> bool) -> bool {
        self.order.iter().any(|namespace| may(*namespace))
    }
}
