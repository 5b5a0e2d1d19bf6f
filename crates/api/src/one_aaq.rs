//! Which `AAQ` holds where there are several, and which one is the operator's own.
//!
//! One that the operator has made is a placeholder: it asks for nothing, and any other holds before it. It is the user's
//! from the first field of its `spec` on. The label alone does not tell: who applies an object leaves labels of others on
//! it. Who has written which field (`managedFields`) does not tell either: an object that asks for nothing is the same
//! whoever applies it.

use std::collections::BTreeMap;

use crate::names;

/// Whether an `AAQ` gives way to any other: it has the name and the label that the operator gives, and asks for nothing.
#[must_use]
pub fn is_placeholder(
    name: Option<&str>,
    labels: Option<&BTreeMap<String, String>>,
    asks_for_nothing: bool,
) -> bool {
    let maker = labels.and_then(|labels| labels.get(names::MADE_BY_LABEL));
    let is_made = maker.is_some_and(|maker| maker == names::MADE_BY_OPERATOR);
    asks_for_nothing && is_made && name == Some(names::AAQ_NAME)
}

/// The one of `all` that holds, where `order` says of each whether it gives way and when it was created: the oldest, one
/// that gives way after all others, and of equals the first.
pub fn holding<T>(all: impl IntoIterator<Item = T>, order: impl Fn(&T) -> (bool, i64)) -> Option<T> {
    all.into_iter().min_by_key(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_has_the_label_and_asks_for_nothing() {
        let labels = |maker: &str| BTreeMap::from([(names::MADE_BY_LABEL.to_owned(), maker.to_owned())]);
        let is = |name: &str, maker: &str, asks_for_nothing: bool| {
            is_placeholder(Some(name), Some(&labels(maker)), asks_for_nothing)
        };
        assert!(is("aaq", "operator", true));
        assert!(!is("aaq", "operator", false), "somebody has asked for something");
        assert!(!is("aaq", "somebody", true));
        assert!(!is("copy", "operator", true), "the operator may delete that of its name alone");
        assert!(!is_placeholder(Some("aaq"), Some(&BTreeMap::new()), true));
        assert!(!is_placeholder(Some("aaq"), None, true));
    }

    #[test]
    fn the_oldest_holds_and_one_that_gives_way_only_alone() {
        for (all, expected) in [
            (vec![], None),
            (vec![("own", true, 1)], Some("own")),
            (vec![("own", true, 1), ("foreign", false, 9)], Some("foreign")),
            (vec![("foreign", false, 9), ("own", true, 1)], Some("foreign")),
            (vec![("a", false, 9), ("b", false, 8), ("own", true, 1)], Some("b")),
            (vec![("a", false, 8), ("b", false, 8)], Some("a")),
        ] {
            let holds = holding(&all, |(_, gives_way, created)| (*gives_way, *created));
            assert_eq!(holds.map(|(name, ..)| *name), expected, "{all:?}");
        }
    }
}
