//! Labels, kept small, and selectors over them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt};
use sluice_api::names;

/// Labels of an object, in order: each key and each value in one text, with [`END`] behind it. Every namespace has some, so
/// a piece of memory for each word of them would be most of what they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<str>);

/// No key and no value contains it (`k8s.io/apimachinery/pkg/api/validate/content`).
const END: char = '\0';

impl Labels {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let mut text = String::new();
        for word in meta.labels.iter().flatten().flat_map(<[&String; 2]>::from) {
            text.push_str(word);
            text.push(END);
        }
        Self(text.into())
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut words = self.0.split_terminator(END);
        std::iter::from_fn(move || words.next().zip(words.next()))
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// As selectors take them.
    #[must_use]
    pub fn map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Whether `selector` selects them.
    #[must_use]
    pub fn match_selector(&self, selector: &Selector) -> bool {
        selector.matches(&self.map())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// Whether an annotation of the object excludes it from head-room.
pub(crate) fn opted_out(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().and_then(|map| map.get(names::OWN_OPT_OUT)).is_some_and(|value| value == "true")
}

/// A selector ready for use.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn selector(text: &LabelSelector) -> Result<Selector, String> {
    Selector::try_from(text.clone()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::Labels;

    #[test]
    fn each_label_has_its_value() {
        let labels =
            [("a", ""), ("b/c", "d"), ("e", "f")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let kept =
            Labels::of(&ObjectMeta { labels: Some(BTreeMap::from(labels.clone())), ..ObjectMeta::default() });
        assert_eq!(kept.map(), BTreeMap::from(labels));
        assert_eq!(
            (kept.get("a"), kept.get("b/c"), kept.get("d"), kept.get("")),
            (Some(""), Some("d"), None, None)
        );
        assert_eq!(Labels::of(&ObjectMeta::default()), Labels::default());
    }
}
