//! Which namespaces the configurations target.

use std::sync::Arc;

use kube::core::{Expression, Selector};
use sluice_api::names;
use sluice_engine::{FieldError, NamespacePattern};
use sluice_index::{Aaqs, Targeting, read_selector};

use super::state::State;

/// The `AAQ` that counts is the oldest, as for the webhook configurations; there should be only one.
pub(super) fn targeting(aaqs: &Aaqs, exempt: &Arc<[NamespacePattern]>) -> Targeting {
    let selector = aaqs.oldest().and_then(|aaq| aaq.selector.clone());
    let selector =
        selector.map(|selector| read_selector("spec.namespaceSelector", selector).unwrap_or_else(unreadable));
    Targeting::new(selector.unwrap_or_else(default_selector), Arc::clone(exempt))
}

/// Waiting pods of namespaces that are no longer targeted go without a charge: a person who did not mean that reads it here.
/// After [`State::retarget`], with what it returned.
pub(super) fn report_released(state: &mut State, aaqs: &Aaqs, released: usize) {
    if released == 0 || !state.is_leading() {
        return;
    }
    tracing::warn!(
        pods = released,
        "namespaces are no longer targeted, their waiting pods go without a charge"
    );
    if let Some(aaq) = aaqs.oldest() {
        let message = format!(
            "spec.namespaceSelector targets fewer namespaces than before: {released} pods that waited there go without a charge"
        );
        state.announce_configuration(&aaq.name, aaq.uid.clone(), message);
    }
}

fn default_selector() -> Selector {
    Expression::Exists(names::TARGET_LABEL.to_owned()).into()
}

/// The webhook refuses such a selector, and the API server in all that gates, so pods are gated as before. If no namespace
/// counted as targeted, all that wait would go without a charge; if all do, they wait for their quotas.
fn unreadable(errors: Vec<FieldError>) -> Selector {
    for error in errors {
        tracing::error!(%error, "AAQ has a namespaceSelector that cannot be read, gated pods of all namespaces wait for their quotas");
    }
    Selector::default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use serde_json::{Value, json};
    use sluice_index::{Namespaces, Watched as _};
    use sluice_runtime::watch::Event;

    use super::*;

    /// Whether a namespace with the default label and one with `team: a` are targeted.
    fn targeted(specs: &[Value]) -> (bool, bool) {
        let mut aaqs = Aaqs::default();
        for (age, spec) in specs.iter().enumerate() {
            let metadata = json!({ "name": format!("aaq-{age}"), "creationTimestamp": format!("2026-01-01T00:00:0{age}Z") });
            let aaq = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            aaqs.apply(&Event::Apply(aaq));
        }
        let mut namespaces = Namespaces::new(targeting(&aaqs, &[].into()));
        let labelled = |name: &str, key: &str| {
            let labels = Some(BTreeMap::from([(key.to_owned(), "a".to_owned())]));
            namespaces.upsert(&ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() });
            namespaces.is_targeted(namespaces.id(name).unwrap()).unwrap()
        };
        let mut labelled = labelled;
        (labelled("by-default", names::TARGET_LABEL), labelled("by-team", "team"))
    }

    #[test]
    fn the_oldest_configuration_says_which_namespaces_are_targeted() {
        let team = json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } });
        assert_eq!(targeted(&[]), (true, false));
        assert_eq!(targeted(&[json!({}), team.clone()]), (true, false));
        assert_eq!(targeted(&[team, json!({})]), (false, true));
        assert_eq!(targeted(&[json!({ "namespaceSelector": {} })]), (true, true));
    }

    #[test]
    fn a_selector_that_cannot_be_read_lets_no_pod_go_without_a_charge() {
        for expression in [
            json!({ "key": "team", "operator": "Sometimes" }),
            json!({ "key": "team", "operator": "In", "values": [] }),
            json!({ "key": "te am", "operator": "Exists" }),
        ] {
            let spec = json!({ "namespaceSelector": { "matchExpressions": [expression] } });
            assert_eq!(targeted(std::slice::from_ref(&spec)), (true, true), "{spec}");
        }
    }
}
