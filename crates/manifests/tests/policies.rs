//! The admission policies of an installation.

mod common;

use common::{list, of_kind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{AdmissionPolicy, Gating, InstallOptions, Installation, admission_policies, render};

#[test]
fn policies_and_bindings_speak_of_the_same_things() {
    let policies = admission_policies(&InstallOptions::default());
    assert_eq!(policies.len(), 12);
    for AdmissionPolicy { name, mutates, policy, binding } in &policies {
        let kind = if *mutates { "MutatingAdmissionPolicy" } else { "ValidatingAdmissionPolicy" };
        assert_eq!((&policy["kind"], &policy["metadata"]["name"]), (&json!(kind), &json!(name)));
        assert_eq!(binding["kind"], format!("{kind}Binding"));
        assert_eq!(
            (&binding["spec"]["policyName"], &binding["metadata"]["name"]),
            (&json!(name), &json!(name))
        );
        assert_eq!(policy["spec"].get("paramKind").is_some(), binding["spec"].get("paramRef").is_some());
        let headroom = name.starts_with("sluice-headroom");
        assert_eq!(policy["spec"]["failurePolicy"], if headroom { "Ignore" } else { "Fail" }, "{name}");
        for validation in policy["spec"]["validations"].as_array().into_iter().flatten() {
            assert_eq!(validation["reason"], "Forbidden");
            let expression = validation["expression"].as_str().expect("an expression");
            assert!(!expression.contains("MARK") && !expression.contains("END"), "{expression}");
        }
    }
}

fn resources(policy: &Value) -> Vec<Value> {
    let rules = policy.pointer("/spec/matchConstraints/resourceRules").and_then(Value::as_array);
    let resources = rules.into_iter().flatten().filter_map(|rule| rule.get("resources")?.as_array());
    resources.flatten().cloned().collect()
}

#[test]
fn the_policies_of_headroom_deny_in_quotas_words_and_the_mark_counts_probes() {
    let objects = render(&InstallOptions::default());
    let policies = admission_policies(&InstallOptions::default());
    let [charge, lock] = [&policies[0].policy, &policies[1].policy];
    for policy in [charge, lock] {
        // What a tenant's controller is told has to make it try again.
        let denials = policy["spec"]["validations"][0]["message"].as_str().expect("a message");
        assert!(denials.starts_with("exceeded quota: "), "{denials}");
    }
    assert_eq!(resources(charge), ["resourcequotas/status"]);
    let crds = of_kind(&objects, "CustomResourceDefinition");
    let probe = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == "HeadroomProbe").expect("a CRD");
    let probes = probe["spec"]["names"]["plural"].clone();
    assert_eq!(resources(lock), [json!("pods"), json!("pods/resize"), probes]);
    let mark = format!("count/{}", probe["metadata"]["name"].as_str().expect("a name"));
    assert_eq!(mark, sluice_engine::headroom::MARK, "the mark counts probes");
    assert!(lock["spec"]["validations"][0]["expression"].to_string().contains(&mark));
}

#[test]
fn new_machines_are_judged_in_every_namespace_whoever_creates_them() {
    let policies = admission_policies(&InstallOptions::default());
    let policy = policies.iter().find(|each| each.name == names::VMI_STATUS_POLICY).expect("a policy");
    let spec = &policy.policy["spec"];
    let rule = &spec["matchConstraints"]["resourceRules"][0];
    assert_eq!((&rule["apiVersions"], &rule["operations"]), (&json!(["*"]), &json!(["CREATE"])));
    assert_eq!(spec["matchConstraints"]["namespaceSelector"], json!({}));
    assert!(spec.get("matchConditions").is_none(), "no creator is exempt");
    for validation in spec["validations"].as_array().expect("validations") {
        let told = validation["message"].as_str().expect("a message");
        let is_label = told.starts_with("metadata.labels[kubevirt.io/migrationJobUID]")
            && told.contains("leave the label off");
        assert!(
            is_label || told.starts_with("status.") && told.contains("create it without status"),
            "{told}"
        );
    }
}

/// The names that are never gated are those that tenants cannot create.
#[test]
fn names_of_exempt_namespaces_are_kept_for_administrators() {
    let exempt_namespaces = ["infra-*", "db"].map(|name| name.parse().expect("a pattern")).to_vec();
    let options = InstallOptions { exempt_namespaces, ..InstallOptions::default() };
    let policies = admission_policies(&options);
    let expression = |name: &str, path: &str| {
        let policy = &policies.iter().find(|each| each.name == name).expect("a policy").policy;
        policy.pointer(path).and_then(Value::as_str).expect("an expression").to_owned()
    };
    let exempt = "(NAME in [\"sluice-system\",\"db\"] || NAME.startsWith('infra-'))";
    let kept = expression(names::EXEMPT_NAMES_POLICY, "/spec/validations/0/expression");
    assert!(
        kept.starts_with(&format!(
            "!{} || (!('openshift.io/requester' in ",
            exempt.replace("NAME", "object.metadata.name")
        )),
        "{kept}"
    );
    let gated = expression(names::GATE_POLICY, "/spec/matchConditions/0/expression");
    assert!(gated.ends_with(&format!("|| !{}", exempt.replace("NAME", "request.namespace"))), "{gated}");
}

/// What gates and what refuses hold for the same pods: those of the namespaces that the webhook gates.
#[test]
fn policies_and_webhook_gate_the_same_namespaces() {
    let chosen: LabelSelector =
        serde_json::from_value(json!({ "matchLabels": { "team": "a" } })).expect("a selector");
    let options = InstallOptions {
        namespace: "elsewhere".to_owned(),
        namespace_selector: chosen.clone(),
        ..InstallOptions::default()
    };
    let following: Vec<_> =
        admission_policies(&options).into_iter().filter(AdmissionPolicy::follows_selector).collect();
    assert_eq!(following.iter().map(|each| each.name).collect::<Vec<_>>(), ["sluice-gate", "sluice-gated"]);
    let objects = render(&options);
    let gater = &of_kind(&objects, "MutatingWebhookConfiguration")[0]["webhooks"][0];
    assert_eq!(gater["namespaceSelector"], json!(chosen));
    for each in &following {
        assert_eq!(each.policy["spec"]["matchConstraints"]["namespaceSelector"], json!(chosen));
        let condition =
            |object: &Value| object["matchConditions"][0]["expression"].as_str().expect("one").to_owned();
        let [policy, gater] = [&each.policy["spec"], gater].map(condition);
        assert!(policy.contains(&gater), "not the own namespace: {policy}");
        assert_eq!(resources(&each.policy), ["pods", "gateprobes"]);
    }
    assert_eq!(following[1].binding["spec"]["matchResources"]["namespaceSelector"], json!(chosen));
}

#[test]
fn where_the_webhook_alone_gates_no_policy_changes_objects() {
    let options = InstallOptions { gating: Gating::Webhook, ..InstallOptions::default() };
    let objects = render(&options);
    assert!(of_kind(&objects, "MutatingAdmissionPolicy").is_empty());
    assert!(of_kind(&objects, "MutatingAdmissionPolicyBinding").is_empty());
    assert_eq!(of_kind(&objects, "ValidatingAdmissionPolicy").len(), 10);
}

#[test]
fn only_the_controller_and_who_is_named_remove_gates() {
    let guard = |options: &InstallOptions| {
        let policies = admission_policies(options);
        let guard = policies.iter().find(|each| each.name == "sluice-guard").expect("a policy");
        guard.policy["spec"]["validations"][0]["expression"].as_str().expect("an expression").to_owned()
    };
    let mut options = InstallOptions::default();
    let account = "system:serviceaccount:sluice-system:sluice-controller";
    // Administrators in paused namespaces, and nobody else, beside them.
    let paused = "namespaceObject.metadata.?annotations[?'quota.sluice.dev/paused'].hasValue()";
    let administers = "authorizer.group('aaq.kubevirt.io').resource('aaqs').check('update').allowed()";
    let ends = |accounts: &str| {
        format!(" || (request.userInfo.username in [{accounts}]) || ({paused} && {administers})")
    };
    assert!(guard(&options).ends_with(&ends(&format!("\"{account}\""))));
    options.further_gate_removers.push("other".to_owned());
    assert!(guard(&options).ends_with(&ends(&format!("\"{account}\",\"other\""))));
    options.installation = Installation::Cr;
    let operator = "system:serviceaccount:sluice-system:sluice-operator";
    assert!(guard(&options).ends_with(&ends(&format!("\"{account}\",\"{operator}\",\"other\""))));
}

/// What a stolen token of it could order would be what runs in the cluster.
#[test]
fn the_operator_changes_what_is_asked_of_it_nowhere() {
    let all = admission_policies(&InstallOptions::default());
    let accounts = all.iter().find(|policy| policy.name == names::ACCOUNTS_POLICY).expect("a policy");
    let spec = &accounts.policy["spec"];
    let rules = spec["matchConstraints"]["resourceRules"].as_array().expect("rules");
    for resource in [names::AAQS, names::MTQS] {
        let rule = rules.iter().find(|rule| list(&rule["resources"]) == [resource]).expect("a rule");
        assert_eq!((list(&rule["operations"]), &rule["scope"]), (vec!["UPDATE"], &json!("Cluster")));
    }
    let condition = spec["matchConditions"][0]["expression"].as_str().expect("an expression");
    let operator = "request.userInfo.username == 'system:serviceaccount:sluice-system:sluice-operator'";
    assert!(condition.contains(&format!("({operator} && request.resource.resource in [\"aaqs\",\"mtqs\"])")));
    let said: Vec<_> = spec["validations"].as_array().expect("a list").iter().collect();
    let kept = said.iter().filter(|each| {
        let expression = each["expression"].as_str().expect("an expression");
        expression.ends_with("(object.?spec == oldObject.?spec)")
    });
    assert_eq!(kept.count(), 1);
    // It gives and takes finalizers of these.
    let finalizers =
        said.iter().find(|each| each["message"].as_str().expect("a text").contains("finalizers"));
    let expression = finalizers.expect("a validation")["expression"].as_str().expect("an expression");
    assert!(expression.contains("request.resource.resource in [\"aaqs\",\"mtqs\"] || "), "{expression}");
}

#[test]
fn reviews_are_never_stored() {
    let options = InstallOptions::default();
    let policies = admission_policies(&options);
    let policy = policies.iter().find(|each| each.name == names::REVIEW_POLICY).expect("a policy");
    assert_eq!(resources(&policy.policy), [names::QUOTA_REVIEWS]);
    let spec = &policy.policy["spec"];
    assert_eq!((&spec["failurePolicy"], spec.get("matchConditions")), (&json!("Fail"), None));
    assert_eq!(spec["validations"][0]["expression"], "request.?dryRun.orValue(false)");
}
