//! The webhook configurations of an installation.

mod common;

use common::of_kind;
use serde_json::{Value, json};
use sluice_manifests::{InstallOptions, WebhookClient, render};

/// The entry of this name; `null` if there is none.
fn named<'a>(configuration: &'a Value, name: &str) -> &'a Value {
    let mut entries = configuration["webhooks"].as_array().into_iter().flatten();
    entries.find(|webhook| webhook["name"] == name).unwrap_or(&Value::Null)
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
            "aaq.cr.validator",
            "cluster.apps.resource.quota.validator",
            "evaluator.quota.sluice.dev",
            "bound.pod.validator",
            "growth.quota.sluice.dev",
            "growth.vmi.quota.sluice.dev",
            "size.vm.quota.sluice.dev",
            "target.quota.sluice.dev",
            "headroom.quota.sluice.dev",
            "growth.headroom.quota.sluice.dev"
        ]
    );
    assert_eq!(mutating[0]["metadata"]["name"], "gating-mutator");
    let names: Vec<_> = mutating[0]["webhooks"]
        .as_array()
        .expect("webhooks")
        .iter()
        .map(|webhook| &webhook["name"])
        .collect();
    assert_eq!(names, ["gater.cqo.kubevirt.io", "explain.quota.sluice.dev"]);
    for configuration in [mutating[0], validating[0]] {
        for webhook in configuration["webhooks"].as_array().expect("webhooks") {
            // Room for a migration is a service, and so are a warning and an answer; an AAQ may be what brings the webhook
            // back. What is not let in without us fails closed.
            let headroom = webhook["name"] == "headroom.quota.sluice.dev";
            let others = [
                "aaq.cr.validator",
                "evaluator.quota.sluice.dev",
                "explain.quota.sluice.dev",
                "size.vm.quota.sluice.dev",
                "target.quota.sluice.dev",
                "growth.headroom.quota.sluice.dev",
            ];
            let service = headroom || others.iter().any(|name| webhook["name"] == *name);
            assert_eq!(webhook["failurePolicy"], if service { "Ignore" } else { "Fail" });
            let growth = ["growth.quota.sluice.dev", "growth.vmi.quota.sluice.dev"];
            let takes = headroom || growth.iter().any(|name| webhook["name"] == *name);
            assert_eq!(webhook["sideEffects"], if takes { "NoneOnDryRun" } else { "None" });
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
    let exempt = gater["matchConditions"][0]["expression"].as_str().expect("an expression");
    assert!(
        exempt.starts_with("!has(request.namespace) || !(request.namespace in [\"elsewhere\","),
        "{exempt}"
    );
    assert!(exempt.ends_with("|| request.namespace.startsWith('openshift-'))"), "{exempt}");
    let services = of_kind(&objects, "Service");
    assert_eq!(services.len(), 2);
    let service = services[0];
    assert_eq!(service["metadata"]["namespace"], "elsewhere");
}

#[test]
fn what_only_the_leader_knows_is_left_out_of_the_manifest() {
    let gater = |options: &InstallOptions| {
        of_kind(&render(options), "MutatingWebhookConfiguration")[0]["webhooks"][0]["clientConfig"].clone()
    };
    let fields = |config: &Value| -> Vec<String> {
        config["service"].as_object().expect("a service").keys().cloned().collect()
    };
    let shipped = gater(&InstallOptions::default());
    assert_eq!(fields(&shipped), ["name", "namespace", "port"], "no path: applied again, it stays as it is");
    assert!(shipped.get("caBundle").is_none());
    let known = InstallOptions {
        ca_bundle: Some("PEM".to_owned()),
        webhook_path: Some("secret".to_owned()),
        ..InstallOptions::default()
    };
    assert_eq!(gater(&known)["service"]["path"], "/secret/serve-path");
}

#[test]
fn the_headroom_webhook_sees_target_pods_of_migrations_and_no_others() {
    let objects = render(&InstallOptions { ca_bundle: Some("PEM".to_owned()), ..InstallOptions::default() });
    let validating = of_kind(&objects, "ValidatingWebhookConfiguration");
    let headroom = named(validating[0], "headroom.quota.sluice.dev");
    assert_eq!(
        headroom["objectSelector"],
        json!({ "matchExpressions": [{ "key": "kubevirt.io/migrationJobUID", "operator": "Exists" }] })
    );
    assert_eq!(headroom["rules"][0]["operations"], json!(["CREATE"]));
    assert_eq!(headroom["rules"][0]["resources"], json!(["pods"]));
    assert_eq!(headroom["namespaceSelector"], json!({}));
    assert_eq!(headroom["timeoutSeconds"], 3);
    assert_eq!(headroom["clientConfig"]["service"]["path"], "/headroom");
    let conditions = |webhook: &Value| -> Vec<Value> {
        let conditions = webhook["matchConditions"].as_array().expect("conditions").iter();
        conditions.map(|condition| condition["name"].clone()).collect()
    };
    assert_eq!(conditions(headroom), ["by-kubevirt"]);
    // Beside it, whether one that has no gate is one, where pods are gated.
    let target = named(validating[0], "target.quota.sluice.dev");
    for same in ["objectSelector", "rules", "timeoutSeconds", "failurePolicy"] {
        assert_eq!(target[same], headroom[same], "{same}");
    }
    let gater = &of_kind(&objects, "MutatingWebhookConfiguration")[0]["webhooks"][0];
    assert_eq!(target["namespaceSelector"], gater["namespaceSelector"]);
    assert_eq!(conditions(target), ["not-exempt", "by-kubevirt", "ungated"]);
    assert_eq!(target["clientConfig"]["service"]["path"], "/target");
}

#[test]
fn growth_is_asked_about_where_pods_are_gated_and_only_if_they_are_not() {
    let objects = render(&InstallOptions::default());
    let growth = named(of_kind(&objects, "ValidatingWebhookConfiguration")[0], "growth.quota.sluice.dev");
    let gater = &of_kind(&objects, "MutatingWebhookConfiguration")[0]["webhooks"][0];
    assert_eq!(growth["namespaceSelector"], gater["namespaceSelector"]);
    assert_eq!(growth["rules"][0]["resources"], json!(["pods", "pods/resize"]));
    let conditions: Vec<_> =
        growth["matchConditions"].as_array().expect("conditions").iter().map(|one| &one["name"]).collect();
    assert_eq!(conditions, ["not-exempt", "not-gated", "may-take-more"]);
}

#[test]
fn growth_of_vms_is_asked_about_where_pods_are_gated_and_only_if_their_size_changes() {
    let objects = render(&InstallOptions { ca_bundle: Some("PEM".to_owned()), ..InstallOptions::default() });
    let validating = of_kind(&objects, "ValidatingWebhookConfiguration")[0];
    let [pods, vms] =
        ["growth.quota.sluice.dev", "growth.vmi.quota.sluice.dev"].map(|name| named(validating, name));
    for field in ["clientConfig", "namespaceSelector", "failurePolicy", "sideEffects"] {
        assert_eq!(vms[field], pods[field], "{field}");
    }
    let rule = json!({
        "apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["virtualmachineinstances"], "scope": "Namespaced",
    });
    assert_eq!(vms["rules"], json!([rule]));
    assert_eq!(vms["matchConditions"][0], pods["matchConditions"][0]);
    let resized = json!({
        "name": "resized",
        "expression": "['cpu', 'memory', 'resources'].exists(key, \
            object.?spec.?domain[?key] != oldObject.?spec.?domain[?key]) || \
            object.metadata.?annotations[?'alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity'].hasValue() != \
            oldObject.metadata.?annotations[?'alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity'].hasValue()",
    });
    assert_eq!((&vms["matchConditions"][1], &vms["matchConditions"][2]), (&resized, &Value::Null));
}

#[test]
fn the_size_of_vms_is_looked_at_where_pods_are_gated_and_waits_for_nothing() {
    let objects = render(&InstallOptions { ca_bundle: Some("PEM".to_owned()), ..InstallOptions::default() });
    let validating = of_kind(&objects, "ValidatingWebhookConfiguration")[0];
    let [growth, size] =
        ["growth.vmi.quota.sluice.dev", "size.vm.quota.sluice.dev"].map(|name| named(validating, name));
    assert_eq!(size["namespaceSelector"], growth["namespaceSelector"]);
    assert_eq!(size["clientConfig"]["service"]["path"], "/vm-size");
    assert_eq!(size["timeoutSeconds"], 2);
    // Not the subresource by which the status of a VirtualMachine is written.
    let rule = |operations: &[&str], resource| {
        json!({
            "apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "operations": operations,
            "resources": [resource], "scope": "Namespaced",
        })
    };
    let rules =
        [rule(&["CREATE", "UPDATE"], "virtualmachines"), rule(&["CREATE"], "virtualmachineinstances")];
    assert_eq!(size["rules"], json!(rules));
    let conditions: Vec<_> =
        size["matchConditions"].as_array().expect("conditions").iter().map(|one| &one["name"]).collect();
    assert_eq!(conditions, ["not-exempt", "states-resources", "new-or-resized", "made-by-hand"]);
}

#[test]
fn reviews_are_answered_in_every_namespace_and_without_the_webhook_nowhere() {
    let objects = render(&InstallOptions { ca_bundle: Some("PEM".to_owned()), ..InstallOptions::default() });
    let explain = named(of_kind(&objects, "MutatingWebhookConfiguration")[0], "explain.quota.sluice.dev");
    let rule = json!({
        "apiGroups": ["quota.sluice.dev"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["quotareviews"], "scope": "Namespaced",
    });
    assert_eq!(explain["rules"], json!([rule]));
    assert_eq!((&explain["namespaceSelector"], &explain["matchConditions"]), (&json!({}), &Value::Null));
    assert_eq!((&explain["failurePolicy"], &explain["sideEffects"]), (&json!("Ignore"), &json!("None")));
    assert_eq!((&explain["timeoutSeconds"], &explain["reinvocationPolicy"]), (&json!(3), &json!("Never")));
    assert_eq!(explain["clientConfig"]["service"]["path"], "/explain");
}
