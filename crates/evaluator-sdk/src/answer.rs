//! What an evaluator answers.

use std::collections::BTreeMap;

use sluice_engine::{Charge, Format, Resource};

/// What a pod takes, by this evaluator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The evaluator is not about this pod: other evaluators and Kubernetes' own count decide.
    NoMatch,
    /// It takes these amounts: names of quota keys (`requests.memory`, `example.com/license`) to quantities (`512Mi`, `1`).
    Charge(BTreeMap<String, String>),
}

impl Answer {
    /// These amounts, by name of their quota key.
    pub fn charge<K: Into<String>, V: Into<String>>(amounts: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Charge(amounts.into_iter().map(|(key, amount)| (key.into(), amount.into())).collect())
    }
}

/// Each amount stands there with all names of its key, as application-aware-quota looks them up by name.
impl From<&Charge> for Answer {
    fn from(charge: &Charge) -> Self {
        let mut amounts = BTreeMap::new();
        for (resource, amount) in charge {
            let text = amount.quantity(Format::DecimalSi).to_string();
            let long = format!("requests.{}", resource.key());
            if Resource::from_quota_key(&long) == *resource {
                amounts.insert(long, text.clone());
            }
            amounts.insert(resource.key().to_owned(), text);
        }
        Self::Charge(amounts)
    }
}
