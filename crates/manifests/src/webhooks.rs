//! The webhook configurations, with upstream's names (`docs/predecessors.md`, *Admission of AAQ*), rendered from the table
//! of admission endpoints ([`Endpoint`]).

use serde_json::{Value, json};
use sluice_api::{Condition, Endpoint, WebhookEntry, names};

use crate::expressions::{
    bound, by_kubevirt, by_platform, gated, grows, let_in_target, made_by_hand, may_be_gated, mirror,
    new_or_resized, not_bound_by_others, not_exempt, resized, resized_or_plugged, stamped_truly,
    states_resources,
};
use crate::object::{labels, set, set_in};
use crate::options::{InstallOptions, WebhookClient};
use crate::policy::rule;

/// The MutatingWebhookConfiguration.
pub fn mutating(options: &InstallOptions) -> Value {
    configuration(options, "MutatingWebhookConfiguration", names::MUTATING_CONFIG, true)
}

/// The ValidatingWebhookConfiguration.
pub fn validating(options: &InstallOptions) -> Value {
    configuration(options, "ValidatingWebhookConfiguration", names::VALIDATING_CONFIG, false)
}

fn configuration(options: &InstallOptions, kind: &str, name: &str, mutating: bool) -> Value {
    let mut labels = labels(Some(names::WEBHOOK));
    // Scripts written for upstream find the objects by this label.
    set(&mut labels, names::MANAGED_LABEL, json!("aaq-server"));
    let of = |endpoint: &Endpoint| {
        let path = endpoint.path();
        let of_kind = |webhook: &&WebhookEntry| webhook.reinvocation_policy.is_some() == mutating;
        endpoint.webhooks().iter().filter(of_kind).map(|webhook| entry(options, path, webhook))
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "webhooks": Endpoint::ALL.iter().flat_map(of).collect::<Vec<_>>(),
    })
}

/// The API server's defaults are written out: an edit can be told from them.
fn entry(options: &InstallOptions, path: &str, webhook: &WebhookEntry) -> Value {
    let rules = webhook.rules.iter();
    let has_label = |key| json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
    let mut entry = json!({
        "name": webhook.name,
        "admissionReviewVersions": ["v1", "v1beta1"],
        "clientConfig": client_config(options, path),
        "failurePolicy": webhook.failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": if webhook.selected_namespaces { json!(options.namespace_selector) } else { json!({}) },
        "objectSelector": webhook.object_label.map_or_else(|| json!({}), has_label),
        "rules": rules.map(|on| rule(on.group, on.operations, on.resources, on.scope)).collect::<Vec<_>>(),
        "sideEffects": webhook.side_effects,
        "timeoutSeconds": webhook.timeout_seconds,
    });
    if let Some(policy) = webhook.reinvocation_policy {
        set(&mut entry, "reinvocationPolicy", json!(policy));
    }
    if !webhook.conditions.is_empty() {
        let conditions = webhook.conditions.iter().map(|each| {
            let (name, expression) = condition(*each, options);
            json!({ "name": name, "expression": expression })
        });
        set(&mut entry, "matchConditions", conditions.collect());
    }
    entry
}

/// Name and expression.
fn condition(condition: Condition, options: &InstallOptions) -> (&'static str, String) {
    match condition {
        Condition::NotExempt => ("not-exempt", not_exempt(options)),
        Condition::NotBoundByOthers => ("not-bound-by-others", not_bound_by_others(options)),
        Condition::BoundByOthers => {
            ("bound-by-others", format!("{} && !{} && !{}", bound(), mirror(), by_platform(options)))
        }
        Condition::NotGatedAndStamped => (
            "not-gated-and-stamped",
            format!(
                "!(({} || {} || {}) && {})",
                may_be_gated("object"),
                bound(),
                let_in_target(options),
                stamped_truly()
            ),
        ),
        Condition::NotGated => ("not-gated", format!("!{}", gated("oldObject"))),
        Condition::Ungated => ("ungated", format!("!{}", gated("object"))),
        Condition::ByKubevirt => ("by-kubevirt", by_kubevirt()),
        Condition::AsksForSomethingNew => (
            "asks-for-something-new",
            "request.operation == 'CREATE' || object.spec != oldObject.spec".to_owned(),
        ),
        Condition::MayTakeMore => ("may-take-more", grows()),
        Condition::Resized => ("resized", resized()),
        Condition::ResizedOrPlugged => ("resized-or-plugged", resized_or_plugged()),
        Condition::MadeByHand => ("made-by-hand", made_by_hand()),
        Condition::StatesResources => ("states-resources", states_resources()),
        Condition::NewOrResized => ("new-or-resized", new_or_resized()),
    }
}

fn client_config(options: &InstallOptions, path: &str) -> Value {
    let path = match &options.webhook_path {
        Some(secret) => format!("/{secret}{path}"),
        None => path.to_owned(),
    };
    let mut config = match &options.webhook_client {
        WebhookClient::Service => json!({ "service": {
            "name": options.naming.parts().webhook,
            "namespace": options.namespace,
            "port": names::WEBHOOK_SERVICE_PORT,
        }}),
        WebhookClient::Url(base) => json!({ "url": format!("{}{path}", base.trim_end_matches('/')) }),
    };
    if let Some(bundle) = &options.ca_bundle {
        // Left out where it is not known yet: who applies the manifest again does not take it away.
        set_in(&mut config, "service", "path", json!(path));
        set(&mut config, "caBundle", json!(k8s_openapi::ByteString(bundle.clone().into_bytes())));
    }
    config
}
