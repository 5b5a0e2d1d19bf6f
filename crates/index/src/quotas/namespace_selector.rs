//! Which namespaces a cluster quota selects.

use std::sync::Arc;

use kube::core::Expression;
use sluice_engine::FieldError;

use crate::annotations::Annotations;
use crate::kinds::acrq::SelectorWire;
use crate::kinds::namespace::Namespace;
use crate::selector::read_selector;

/// Selects the namespaces that have all that it names; one that names nothing selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSelector {
    labels: Box<[Expression]>,
    annotations: Annotations,
}

impl NamespaceSelector {
    /// Selects no namespace.
    pub(super) fn nothing() -> Self {
        let never = Expression::In(String::new(), std::collections::BTreeSet::new());
        Self { labels: [never].into(), annotations: Annotations::default() }
    }

    /// # Errors
    /// What is wrong with it, with its fields.
    pub(super) fn read(wire: SelectorWire) -> Result<Self, Arc<str>> {
        let labels = match wire.labels {
            Some(labels) => read_selector("spec.selector.labels", labels).map_err(|errors| {
                let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
                Arc::from(texts.join("; "))
            })?,
            None => kube::core::Selector::default(),
        };
        let annotations = Annotations::of(wire.annotations.iter().flatten());
        Ok(Self { labels: labels.into_iter().collect(), annotations })
    }

    /// Whether it selects the namespace. One that was not seen itself is not selected:
    /// what it is labelled with is not known.
    pub(super) fn selects(&self, namespace: &Namespace) -> bool {
        let Some(labels) = namespace.labels() else { return false };
        let value = |key: &str| {
            let at = labels.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
            labels.get(at).map(|(_, value)| &**value)
        };
        self.labels.iter().all(|expression| holds(expression, value))
            && namespace.annotations().include(&self.annotations)
    }
}

/// As the API server evaluates label selectors (k8s.io/apimachinery, `pkg/labels/selector.go`).
fn holds<'l>(expression: &Expression, value: impl Fn(&str) -> Option<&'l str>) -> bool {
    match expression {
        Expression::In(key, values) => value(key).is_some_and(|value| values.contains(value)),
        Expression::NotIn(key, values) => value(key).is_none_or(|value| !values.contains(value)),
        Expression::Equal(key, wanted) => value(key) == Some(wanted.as_str()),
        Expression::NotEqual(key, unwanted) => value(key) != Some(unwanted.as_str()),
        Expression::Exists(key) => value(key).is_some(),
        Expression::DoesNotExist(key) => value(key).is_none(),
    }
}
