//! Which namespaces the configurations target.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::{Expression, Selector};
use sluice_api::names;
use sluice_engine::{FieldError, NamespacePattern, Uid};
use sluice_index::wire::AaqWire;
use sluice_index::{Targeting, read_selector};
use sluice_runtime::watch::Event;

use super::state::State;

/// All configurations, by age and name.
pub(super) type Configurations = BTreeMap<(Option<Timestamp>, String), Configuration>;

/// What matters of a configuration.
pub(super) struct Configuration {
    uid: Uid,
    /// `None`: the default label.
    selector: Option<Selector>,
}

/// A configuration was seen.
pub(super) fn on_event(configurations: &mut Configurations, event: Event<AaqWire>) {
    let key = |aaq: &AaqWire| {
        let created = aaq.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, aaq.metadata.name.clone().unwrap_or_default())
    };
    match event {
        Event::Init => configurations.clear(),
        Event::InitDone => {}
        Event::InitApply(aaq) | Event::Apply(aaq) => {
            let key = key(&aaq);
            let uid = Uid::parse(aaq.metadata.uid.as_deref().unwrap_or_default());
            let selector = aaq
                .spec
                .namespace_selector
                .map(|selector| read_selector("spec.namespaceSelector", selector).unwrap_or_else(unreadable));
            configurations.insert(key, Configuration { uid, selector });
        }
        Event::Delete(aaq) => {
            configurations.remove(&key(&aaq));
        }
    }
}

/// The configuration that counts is the oldest, as for the webhook configurations; there should be only one.
pub(super) fn targeting(configurations: &Configurations, exempt: &Arc<[NamespacePattern]>) -> Targeting {
    let selector = configurations.values().next().and_then(|one| one.selector.clone());
    Targeting::new(selector.unwrap_or_else(default_selector), Arc::clone(exempt))
}

/// Waiting pods of namespaces that are no longer targeted go without a charge: a person who did not mean that reads it here.
/// After [`State::retarget`], with what it returned.
pub(super) fn report_released(state: &mut State, configurations: &Configurations, released: usize) {
    if released == 0 || !state.is_leading() {
        return;
    }
    tracing::warn!(
        pods = released,
        "namespaces are no longer targeted, their waiting pods go without a charge"
    );
    if let Some(((_, name), configuration)) = configurations.first_key_value() {
        let message = format!(
            "spec.namespaceSelector targets fewer namespaces than before: {released} pods that waited there go without a charge"
        );
        state.announce_configuration(name, configuration.uid.clone(), message);
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

    use serde_json::{Value, json};
    use sluice_index::Namespaces;

    use super::*;

    /// Whether a namespace with the default label and one with `team: a` are targeted.
    fn targeted(specs: &[Value]) -> (bool, bool) {
        let mut configurations = Configurations::new();
        for (age, spec) in specs.iter().enumerate() {
            let metadata = json!({ "name": format!("aaq-{age}"), "creationTimestamp": format!("2026-01-01T00:00:0{age}Z") });
            let aaq = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            on_event(&mut configurations, Event::Apply(aaq));
        }
        let mut namespaces = Namespaces::new(targeting(&configurations, &[].into()));
        let labelled = |name: &str, key: &str| {
            namespaces.upsert(name, BTreeMap::from([(key.to_owned(), "a".to_owned())]), false);
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
