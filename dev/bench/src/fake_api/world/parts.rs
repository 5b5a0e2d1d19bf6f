//! Parts of lists.

use super::{World, index};
use crate::pod_json::Facts;

/// A part of a list.
#[derive(Debug)]
pub(in super::super) struct Part<T> {
    pub(in super::super) version: u64,
    pub(in super::super) items: Vec<T>,
    /// The number of the first object of the next part, if there is one.
    pub(in super::super) next: Option<u64>,
}

impl World {
    pub(in super::super) fn pods_from(&self, first: u64, limit: u64) -> Part<Facts> {
        let most = index(limit);
        let pods = self.pods.range(first..).map(|(_, pod)| *pod);
        let mut items: Vec<Facts> = pods.take(most.saturating_add(1)).collect();
        let more = if items.len() > most { items.pop() } else { None };
        Part { version: self.version, items, next: more.map(|pod| pod.number) }
    }

    pub(in super::super) fn namespaces_from(&self, first: u64, limit: u64) -> Part<u64> {
        let count = u64::try_from(self.tenants.len()).unwrap_or(u64::MAX);
        let end = first.saturating_add(limit).min(count);
        Part { version: self.version, items: (first..end).collect(), next: (end < count).then_some(end) }
    }

    pub(in super::super) fn quotas_from(&self, first: u64, limit: u64) -> Part<String> {
        let Part { version, items, next } = self.namespaces_from(first, limit);
        Part { version, items: items.into_iter().filter_map(|number| self.quota(number)).collect(), next }
    }

    /// Of a kind of which there is nothing.
    pub(in super::super) const fn none(&self) -> Part<()> {
        Part { version: self.version, items: Vec::new(), next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::Size;

    #[test]
    fn parts_are_a_whole_together() {
        let mut world = World::new(Size { namespaces: 2, pods: 8, waiting: 2 });
        assert!(world.create(1) && !world.create(2));
        let first = world.pods_from(0, 5);
        let rest = world.pods_from(first.next.unwrap(), 5);
        let numbers = first.items.iter().chain(&rest.items).map(|pod| pod.number);
        assert!(numbers.eq(0..9) && rest.next.is_none());
        let (one, two) = (world.quotas_from(0, 1), world.quotas_from(1, 1));
        assert_eq!((one.items.len(), one.next, two.items.len(), two.next), (1, Some(1), 1, None));
        assert!(world.namespaces_from(0, u64::MAX).next.is_none() && world.none().items.is_empty());
        assert!(World::new(Size::default()).pods_from(0, u64::MAX).items.is_empty());
    }
}
