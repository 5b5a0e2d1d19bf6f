//! The webhook configurations, with upstream's names (`docs/predecessors.md`, *Admission of AAQ*) and conditions
//! that keep the API server from calling for nothing.

use serde_json::{Value, json};
use sluice_api::names;

use crate::admission_policies::rule;
use crate::expressions::{
    bound, gated, grows, mirror, not_exempt, removes_gates, stamp_kept, stamped_falsely, stamped_truly,
};
use crate::options::{InstallOptions, WebhookClient};
use crate::render::{labels, set, set_in};

/// Seconds that the API server waits for an answer.
const TIMEOUT_SECONDS: u32 = 5;
/// The same while a migration is let in: quotas are raised and seen to be raised before the answer.
const HEADROOM_TIMEOUT_SECONDS: u32 = 10;

/// What differs between the webhooks.
struct Hook<'a> {
    name: &'a str,
    path: &'a str,
    operations: &'a [&'a str],
    resource: &'a str,
    scope: &'a str,
    conditions: Vec<(&'a str, String)>,
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
            // Called only for pods that no admission policy has gated and stamped.
            conditions: vec![
                ("not-exempt", not_exempt(options)),
                ("not-bound", format!("!{}", bound())),
                ("not-gated-and-stamped", format!("!({} && {})", gated("object"), stamped_truly())),
            ],
        },
    );
    set(&mut gater, "namespaceSelector", json!(options.namespace_selector));
    add_probes(&mut gater);
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
            conditions: Vec::new(),
        },
        Hook {
            name: names::WEBHOOK_GATE_GUARD,
            path: names::PATH_SERVE,
            operations: &["UPDATE"],
            resource: "pods",
            scope: "Namespaced",
            // Where the admission policy is in force it has refused all that would come here.
            conditions: vec![
                ("gate-removed", format!("{} && !{}", gated("oldObject"), gated("object"))),
                ("not-by-a-remover", format!("!{}", removes_gates(options))),
            ],
        },
        Hook {
            name: names::WEBHOOK_AAQ,
            path: names::PATH_SERVE,
            operations: &["CREATE", "UPDATE"],
            resource: names::AAQS,
            scope: "Cluster",
            // Labels and finalizers need no webhook that is alive.
            conditions: vec![(
                "asks-for-something-new",
                "request.operation == 'CREATE' || object.spec != oldObject.spec".to_owned(),
            )],
        },
        Hook {
            name: names::WEBHOOK_POD_IDENTITY,
            path: names::PATH_POD_IDENTITY,
            operations: &["CREATE", "UPDATE"],
            resource: "pods",
            scope: "Namespaced",
            conditions: vec![(
                "creator-changed",
                format!("request.operation == 'CREATE' ? {} : !{}", stamped_falsely(), stamp_kept()),
            )],
        },
    ];
    let mut hooks: Vec<Value> = hooks.into_iter().map(|each| hook(options, each)).collect();
    hooks.push(bound_pods(options));
    hooks.push(growth(options));
    hooks.push(headroom(options));
    configuration("ValidatingWebhookConfiguration", names::VALIDATING_CONFIG, hooks)
}

/// Pods of targeted namespaces that name their node, should the admission policy that refuses them not be in force.
fn bound_pods(options: &InstallOptions) -> Value {
    let mut rendered = hook(
        options,
        Hook {
            name: names::WEBHOOK_BOUND,
            path: names::PATH_SERVE,
            operations: &["CREATE"],
            resource: "pods",
            scope: "Namespaced",
            conditions: vec![
                ("not-exempt", not_exempt(options)),
                ("bound", format!("{} && !{}", bound(), mirror())),
            ],
        },
    );
    set(&mut rendered, "namespaceSelector", json!(options.namespace_selector));
    add_probes(&mut rendered);
    rendered
}

/// Updates of pods without gates that may take more of a quota, or of another one.
fn growth(options: &InstallOptions) -> Value {
    let mut rendered = hook(
        options,
        Hook {
            name: names::WEBHOOK_GROWTH,
            path: names::PATH_GROWTH,
            operations: &["UPDATE"],
            resource: "pods",
            scope: "Namespaced",
            conditions: vec![
                ("not-exempt", not_exempt(options)),
                ("not-gated", format!("!{}", gated("oldObject"))),
                ("may-take-more", grows()),
            ],
        },
    );
    set(&mut rendered, "namespaceSelector", json!(options.namespace_selector));
    // A charge is taken, except in a dry run.
    set(&mut rendered, "sideEffects", json!("NoneOnDryRun"));
    set(&mut rendered, "rules", json!([rule("*", &["UPDATE"], &["pods", "pods/resize"], "Namespaced")]));
    rendered
}

/// What API servers are asked for to learn who gates pods.
fn add_probes(entry: &mut Value) {
    if let Some(rules) = entry.get_mut("rules").and_then(Value::as_array_mut) {
        rules.push(rule(names::OWN_GROUP, &["CREATE"], &[names::GATE_PROBES], "Cluster"));
    }
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
            conditions: Vec::new(),
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
    if !hook.conditions.is_empty() {
        let named = |(name, expression): &(&str, String)| json!({ "name": name, "expression": expression });
        set(&mut rendered, "matchConditions", hook.conditions.iter().map(named).collect());
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
