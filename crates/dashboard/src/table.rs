//! Objects of one kind as a list and a watch tell of them.

use std::collections::BTreeMap;

/// Namespace and name; the namespace of an object of the cluster is empty.
pub type Name = (String, String);

/// What a watch tells. `Begin` begins a complete list, and what was not told since is not there at its `End`.
#[derive(Clone, Debug)]
pub enum Change<V> {
    Begin,
    /// An object is as told.
    Is(Name, V),
    /// An object has gone.
    Gone(Name),
    /// The list is complete.
    End,
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<V> {
    rows: BTreeMap<Name, (u64, V)>,
    round: u64,
    is_complete: bool,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), round: 0, is_complete: false }
    }
}

impl<V> Table<V> {
    /// Takes over a change; `merge` makes the new row of the known one and what is told.
    pub fn apply(&mut self, change: Change<V>, merge: impl FnOnce(Option<V>, V) -> V) {
        match change {
            Change::Begin => self.round += 1,
            Change::Is(name, value) => {
                let known = self.rows.remove(&name).map(|(_, known)| known);
                self.rows.insert(name, (self.round, merge(known, value)));
            }
            Change::Gone(name) => drop(self.rows.remove(&name)),
            Change::End => {
                let round = self.round;
                self.rows.retain(|_, (seen, _)| *seen == round);
                self.is_complete = true;
            }
        }
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.rows.get(&(namespace.to_owned(), name.to_owned())).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, &V)> {
        self.rows.iter().map(|(name, (_, value))| (name, value))
    }

    /// Whether a list was complete once.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_complete_list_leaves_out_has_gone() {
        let name = |name: &str| ("team".to_owned(), name.to_owned());
        let mut table = Table::default();
        let mut apply = |change| table.apply(change, |_, value| value);
        apply(Change::Begin);
        apply(Change::Is(name("a"), 1));
        apply(Change::Is(name("b"), 2));
        apply(Change::End);
        // A list that fails half-way changes nothing but what it told.
        apply(Change::Begin);
        apply(Change::Is(name("a"), 3));
        apply(Change::Begin);
        apply(Change::Is(name("b"), 4));
        apply(Change::End);
        assert_eq!(table.iter().map(|((_, name), value)| (&**name, *value)).collect::<Vec<_>>(), [("b", 4)]);
    }
}
