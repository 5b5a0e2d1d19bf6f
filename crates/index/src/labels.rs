//! Labels, kept small, and selectors over them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt};
use sluice_api::names;

/// Labels of an object, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let labels = meta.labels.iter().flatten();
        Self(labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect())
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// As selectors take them.
    #[must_use]
    pub fn map(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    /// Whether `selector` selects them.
    #[must_use]
    pub fn match_selector(&self, selector: &Selector) -> bool {
        selector.matches(&self.map())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| size_of::<(Box<str>, Box<str>)>() + key.len() + value.len()).sum()
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
