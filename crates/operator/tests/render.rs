//! Rules that every installation keeps, whatever its options. The whole text is compared by `xtask gen --check`.

use serde_json::{Value, json};
use sluice_operator::{InstallOptions, WebhookClient, render};

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn objects_come_after_what_they_need_and_webhooks_last() {
    let objects = render(&InstallOptions::default());
    let kinds: Vec<_> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds[0], "Namespace");
    assert_eq!(kinds[1..4], ["CustomResourceDefinition"; 3]);
    assert_eq!(kinds[kinds.len() - 2..], ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
    for object in &objects {
        let namespace = object["metadata"]["namespace"].as_str();
        assert!(namespace.is_none_or(|name| name == "sluice-system"), "{object}");
    }
}

#[test]
fn no_rule_has_a_wildcard_or_a_verb_that_gives_more_rights() {
    let objects = render(&InstallOptions::default());
    for role in of_kind(&objects, "ClusterRole").into_iter().chain(of_kind(&objects, "Role")) {
        for rule in role["rules"].as_array().expect("rules") {
            for field in ["apiGroups", "resources", "verbs"] {
                assert!(!list(&rule[field]).contains(&"*"), "{rule}");
            }
            let verbs = list(&rule["verbs"]);
            for verb in ["escalate", "bind", "impersonate", "delete", "deletecollection"] {
                assert!(!verbs.contains(&verb), "{rule}");
            }
            let resources = list(&rule["resources"]);
            if resources.contains(&"secrets") && verbs != ["create"] {
                assert!(!list(&rule["resourceNames"]).is_empty(), "{rule}");
                assert_eq!(role["kind"], "Role");
            }
        }
    }
}

#[test]
fn tenants_may_read_their_quotas_and_nothing_more() {
    let objects = render(&InstallOptions::default());
    let mut aggregated = 0;
    for role in of_kind(&objects, "ClusterRole") {
        let labels = role["metadata"]["labels"].as_object().expect("labels");
        if labels.keys().any(|label| label.contains("aggregate-to-")) {
            aggregated += 1;
            assert_eq!(list(&role["rules"][0]["verbs"]), ["get", "list", "watch"]);
        }
    }
    assert_eq!(aggregated, 1);
}

#[test]
fn webhooks_fail_closed_and_keep_upstreams_order() {
    let objects = render(&InstallOptions::default());
    let mutating = of_kind(&objects, "MutatingWebhookConfiguration");
    let validating = of_kind(&objects, "ValidatingWebhookConfiguration");
    let names: Vec<_> =
        validating[0]["webhooks"].as_array().expect("webhooks").iter().map(|w| &w["name"]).collect();
    assert_eq!(
        names,
        [
            "application.resource.quota.validator",
            "remove.pod.gate.validator",
            "aaq.cr.validator",
            "pod.identity.validator"
        ]
    );
    assert_eq!(mutating[0]["metadata"]["name"], "gating-mutator");
    assert_eq!(mutating[0]["webhooks"][0]["name"], "gater.cqo.kubevirt.io");
    for configuration in [mutating[0], validating[0]] {
        for webhook in configuration["webhooks"].as_array().expect("webhooks") {
            assert_eq!(webhook["failurePolicy"], "Fail");
            assert_eq!(webhook["clientConfig"]["service"]["name"], "sluice-webhook");
            assert!(webhook["clientConfig"]["caBundle"].is_null());
        }
    }
}

#[test]
fn a_webhook_outside_of_the_cluster_is_called_by_its_address() {
    let options = InstallOptions {
        namespace: "elsewhere".to_owned(),
        webhook_client: WebhookClient::Url("https://127.0.0.1:8443/".to_owned()),
        ca_bundle: Some("PEM".to_owned()),
        ..InstallOptions::default()
    };
    let objects = render(&options);
    let gater = &of_kind(&objects, "MutatingWebhookConfiguration")[0]["webhooks"][0];
    assert_eq!(
        gater["clientConfig"],
        json!({ "url": "https://127.0.0.1:8443/serve-path", "caBundle": "UEVN" })
    );
    assert_eq!(gater["matchConditions"][0]["expression"], "request.namespace != 'elsewhere'");
    let service = of_kind(&objects, "Service")[0];
    assert_eq!(service["metadata"]["namespace"], "elsewhere");
}
