//! What waits for a turn.

use std::collections::{HashMap, VecDeque};

use sluice_index::NamespaceId;

use crate::tables::shrink;

/// What waits, by namespace. Namespaces take turns, so that a crowd in one delays no other.
#[derive(Debug)]
pub struct Turns<T> {
    order: VecDeque<NamespaceId>,
    waiting: HashMap<NamespaceId, VecDeque<T>>,
    /// So many of a namespace have their turn after each other, and so many of the first one had.
    in_a_row: usize,
    had: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self::of(1)
    }
}

impl<T> Turns<T> {
    /// Of which so many of a namespace have their turn after each other.
    pub fn of(in_a_row: usize) -> Self {
        Self { order: VecDeque::new(), waiting: HashMap::new(), in_a_row, had: 0 }
    }

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
        self.had = if at == 0 { self.had + 1 } else { 1 };
        let is_over = self.had >= self.in_a_row;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
            shrink(&mut self.waiting);
        } else if is_over {
            self.order.push_back(namespace);
        } else {
            self.order.push_front(namespace);
        }
        if is_over || !self.waiting.contains_key(&namespace) {
            self.had = 0;
        }
        Some((namespace, item?))
    }

    /// Whether one of the namespace waits.
    pub fn has_of(&self, namespace: NamespaceId) -> bool {
        self.waiting.contains_key(&namespace)
    }

    /// All of a namespace, which wait no more.
    pub fn take(&mut self, namespace: NamespaceId) -> VecDeque<T> {
        let taken = self.waiting.remove(&namespace).unwrap_or_default();
        if !taken.is_empty() {
            if self.order.front() == Some(&namespace) {
                self.had = 0;
            }
            self.order.retain(|other| *other != namespace);
        }
        taken
    }

    /// Whether [`Self::pop`] has one.
    pub fn has_one(&self, may: impl Fn(NamespaceId) -> bool) -> bool {
        self.order.iter().any(|namespace| may(*namespace))
    }
}
