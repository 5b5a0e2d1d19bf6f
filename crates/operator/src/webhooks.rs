//! The webhook configurations (`aaq.md` §2.1), with conditions that keep the API server from calling for nothing.

use serde_json::{Value, json};
use sluice_api::names;

use crate::options::{InstallOptions, WebhookClient};
use crate::render::{labels, set, set_in};

/// Seconds that the API server waits for an answer.
const TIMEOUT_SECONDS: u32 = 5;
/// The same while a migration is let in: quotas are raised and seen to be raised before the answer.
const HEADROOM_TIMEOUT_SECONDS: u32 = 10;

/// CEL: the update takes the gate from the pod.
pub const GATE_REMOVED: &str = "has(oldObject.spec.schedulingGates) \
    && oldObject.spec.schedulingGates.exists(g, g.name == 'ApplicationAwareQuotaGate') \
    && !(has(object.spec.schedulingGates) \
    && object.spec.schedulingGates.exists(g, g.name == 'ApplicationAwareQuotaGate'))";

/// CEL: the pod is created with a creator's stamp, or an update adds, removes or changes it.
pub const CREATOR_CHANGED: &str = "request.operation == 'CREATE' \
    ? has(object.metadata.annotations) && 'quota.sluice.dev/created-by' in object.metadata.annotations \
    : (has(object.metadata.annotations) && 'quota.sluice.dev/created-by' in object.metadata.annotations) \
    != (has(oldObject.metadata.annotations) && 'quota.sluice.dev/created-by' in oldObject.metadata.annotations) \
    || (has(object.metadata.annotations) && 'quota.sluice.dev/created-by' in object.metadata.annotations \
    && object.metadata.annotations['quota.sluice.dev/created-by'] \
    != oldObject.metadata.annotations['quota.sluice.dev/created-by'])";

/// What differs between the webhooks.
struct Hook<'a> {
    name: &'a str,
    path: &'a str,
    operations: &'a [&'a str],
    resource: &'a str,
    scope: &'a str,
    condition: Option<(&'a str, String)>,
}

/// The MutatingWebhookConfiguration.
pub fn mutating(options: &InstallOptions) -> Value {
    let mut gater = hook(
        options,
        Hook {
            name: names::WEBHOOK_GATER,
            path: names::PATH_SERVE,
            operations: &["CREATE"],
            resource: "pods",
            scope: "Namespaced",
            // Whatever Sluice itself needs to run must not wait for Sluice.
            condition: Some((
                "not-the-own-namespace",
                format!("request.namespace != '{}'", options.namespace),
            )),
        },
    );
    set(&mut gater, "namespaceSelector", json!(options.namespace_selector));
    // A webhook that runs later may replace the list of gates; adding ours again does no harm.
    set(&mut gater, "reinvocationPolicy", json!("IfNeeded"));
    configuration("MutatingWebhookConfiguration", names::MUTATING_CONFIG, vec![gater])
}

/// The ValidatingWebhookConfiguration. Upstream's order, then ours.
pub fn validating(options: &InstallOptions) -> Value {
    let hooks = [
        Hook {
            name: names::WEBHOOK_QUOTA,
            path: names::PATH_SERVE,
            operations: &["CREATE", "UPDATE"],
            resource: names::ARQS,
            scope: "Namespaced",
            condition: None,
        },
        Hook {
            name: names::WEBHOOK_GATE_GUARD,
            path: names::PATH_SERVE,
            operations: &["UPDATE"],
            resource: "pods",
            scope: "Namespaced",
            condition: Some(("gate-removed", GATE_REMOVED.to_owned())),
        },
        Hook {
            name: names::WEBHOOK_AAQ,
            path: names::PATH_SERVE,
            operations: &["CREATE"],
            resource: names::AAQS,
            scope: "Cluster",
            condition: None,
        },
        Hook {
            name: names::WEBHOOK_POD_IDENTITY,
            path: names::PATH_POD_IDENTITY,
            operations: &["CREATE", "UPDATE"],
            resource: "pods",
            scope: "Namespaced",
            condition: Some(("creator-changed", CREATOR_CHANGED.to_owned())),
        },
    ];
    let mut hooks: Vec<Value> = hooks.into_iter().map(|each| hook(options, each)).collect();
    hooks.push(headroom(options));
    configuration("ValidatingWebhookConfiguration", names::VALIDATING_CONFIG, hooks)
}

/// Target pods of live migrations only. Room for them is a service: without it they are created as if Sluice were
/// not there, so nothing is refused when it cannot be reached.
fn headroom(options: &InstallOptions) -> Value {
    let mut rendered = hook(
        options,
        Hook {
            name: names::WEBHOOK_HEADROOM,
            path: names::PATH_HEADROOM,
            operations: &["CREATE"],
            resource: "pods",
            scope: "Namespaced",
            condition: None,
        },
    );
    let targets =
        json!({ "matchExpressions": [{ "key": names::MIGRATION_JOB_LABEL, "operator": "Exists" }] });
    set(&mut rendered, "objectSelector", targets);
    set(&mut rendered, "failurePolicy", json!("Ignore"));
    set(&mut rendered, "sideEffects", json!("NoneOnDryRun"));
    set(&mut rendered, "timeoutSeconds", json!(HEADROOM_TIMEOUT_SECONDS));
    rendered
}

fn configuration(kind: &str, name: &str, webhooks: Vec<Value>) -> Value {
    let mut labels = labels(Some(names::WEBHOOK));
    // Scripts written for upstream find the objects by this label.
    set(&mut labels, names::MANAGED_LABEL, json!("aaq-server"));
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "webhooks": webhooks,
    })
}

fn hook(options: &InstallOptions, hook: Hook<'_>) -> Value {
    let mut rendered = json!({
        "name": hook.name,
        "admissionReviewVersions": ["v1", "v1beta1"],
        "clientConfig": client_config(options, hook.path),
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        // The API server's defaults, written out: an edit can be told from them.
        "namespaceSelector": {},
        "objectSelector": {},
        "rules": [{
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "operations": hook.operations,
            "resources": [hook.resource],
            "scope": hook.scope,
        }],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    });
    if let Some((name, expression)) = hook.condition {
        set(&mut rendered, "matchConditions", json!([{ "name": name, "expression": expression }]));
    }
    rendered
}

fn client_config(options: &InstallOptions, path: &str) -> Value {
    let path = match &options.webhook_path {
        Some(secret) => format!("/{secret}{path}"),
        None => path.to_owned(),
    };
    let mut config = match &options.webhook_client {
        WebhookClient::Service => json!({ "service": {
            "name": names::WEBHOOK,
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
