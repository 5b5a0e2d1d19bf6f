//! Which namespaces the configurations target.

use std::sync::Arc;

use sluice_engine::NamespacePattern;
use sluice_index::{Aaqs, Targeting};

use super::state::State;

/// The namespaces that count as targeted ([`Targeting::by`]). What is wrong with the selector is an error in the log.
pub(super) fn targeting(aaqs: &Aaqs, exempt: &Arc<[NamespacePattern]>) -> Targeting {
    let (targeting, errors) = Targeting::by(aaqs, exempt);
    for error in errors {
        tracing::error!(%error, "AAQ has a namespaceSelector that cannot be read, \
                                 gated pods of all namespaces wait for their quotas");
    }
    targeting
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
    if let Some(aaq) = aaqs.holding() {
        let message = format!(
            "spec.namespaceSelector targets fewer namespaces than before: \
             {released} pods that waited there go without a charge"
        );
        state.announce_configuration(&aaq.name, aaq.uid.clone(), message);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use serde_json::{Value, json};
    use sluice_api::names;
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
