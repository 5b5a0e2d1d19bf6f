//! Events of a watch, with lists as a whole.

use kube::runtime::watcher::Event;

/// What became of the objects of one kind.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// These there are, and no others.
    All(Vec<K>),
    /// One is new or has changed.
    Is(K),
    /// One is gone.
    Gone(K),
}

/// A list that is not complete yet.
#[derive(Clone, Debug)]
pub struct Listing<K>(Vec<K>);

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K> Listing<K> {
    /// The change that an event completes.
    pub fn take(&mut self, event: Event<K>) -> Option<Change<K>> {
        match event {
            Event::Init => {
                self.0.clear();
                None
            }
            Event::InitApply(object) => {
                self.0.push(object);
                None
            }
            Event::InitDone => Some(Change::All(std::mem::take(&mut self.0))),
            Event::Apply(object) => Some(Change::Is(object)),
            Event::Delete(object) => Some(Change::Gone(object)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::{Change, Listing};

    #[test]
    fn a_list_that_is_begun_again_is_told_once() {
        let mut listing = Listing::default();
        for event in [Event::Init, Event::InitApply(1), Event::Init, Event::InitApply(2)] {
            assert_eq!(listing.take(event), None);
        }
        assert_eq!(listing.take(Event::InitDone), Some(Change::All(vec![2])));
        assert_eq!(listing.take(Event::Delete(2)), Some(Change::Gone(2)));
    }
}
