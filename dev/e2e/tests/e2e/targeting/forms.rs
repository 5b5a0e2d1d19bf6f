//! Every form of a selector, set on the `AAQ`: whose pods are gated then, and what the `AAQ` refuses.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{Answer, JSON_PATCH, call, get, post};
use sluice_e2e::objects::TARGETED;
use sluice_testbed::{TestNamespace, wait};

use super::{aaq, cluster, create_aaq, default_selector, dry_run_is_held, until_selector};
use crate::context::SOON;

const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";

/// Namespaces of the table, by the letter that stands for them.
const NAMESPACES: [(char, &[(&str, &str)]); 5] = [
    ('a', &[("team", "a"), ("stage", "prod")]),
    ('b', &[("team", "b")]),
    ('e', &[("team", "")]),
    ('d', TARGETED),
    ('n', &[]),
];

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    match values {
        [] => json!({ "key": key, "operator": operator }),
        values => json!({ "key": key, "operator": operator, "values": values }),
    }
}

fn one(operator: &str, values: &[&str]) -> Value {
    json!({ "matchExpressions": [expression("team", operator, values)] })
}

/// A selector (`null`: absent), and the namespaces whose pods are gated. No two neighbours select the same, or a selector
/// that never arrives could pass for its predecessor.
fn table() -> Vec<(Value, &'static str)> {
    vec![
        (json!({ "matchLabels": { "team": "a" } }), "a"),
        (json!({ "matchLabels": { "team": "" } }), "e"),
        (json!({ "matchLabels": { "team": "a", "stage": "prod" } }), "a"),
        (json!({ "matchLabels": { "team": "b", "stage": "prod" } }), ""),
        (one("In", &["a", "b"]), "ab"),
        (one("In", &[""]), "e"),
        (one("NotIn", &["a"]), "bedn"),
        (one("Exists", &[]), "abe"),
        (one("DoesNotExist", &[]), "dn"),
        (
            json!({
                "matchLabels": { "stage": "prod" },
                "matchExpressions": [expression("team", "NotIn", &["b", ""]), expression("team", "Exists", &[])],
            }),
            "a",
        ),
        (json!({}), "abedn"),
        (Value::Null, "d"),
    ]
}

/// Waits until pods of exactly these namespaces are gated.
async fn until_gated(
    client: &Client,
    namespaces: &[(char, TestNamespace)],
    expected: &str,
    selector: &Value,
) {
    let as_expected = || async {
        let mut gated = String::new();
        for (letter, namespace) in namespaces {
            if dry_run_is_held(client, &namespace.name).await? {
                gated.push(*letter);
            }
        }
        (gated == expected).then_some(())
    };
    let what = format!("{selector} to gate pods of {expected:?} alone");
    wait::eventually(SOON, as_expected, &what).await.unwrap();
}

async fn select(client: &Client, selector: &Value) -> Answer {
    // Adding replaces too; what is absent has to be there to be removed.
    let patch = match selector {
        Value::Null => json!([{ "op": "remove", "path": "/spec/namespaceSelector" }]),
        selector => json!([{ "op": "add", "path": "/spec/namespaceSelector", "value": selector }]),
    };
    call(client, Method::PATCH, &format!("{AAQS}/{}", names::AAQ_NAME), JSON_PATCH, &patch).await.unwrap()
}

#[tokio::test]
async fn every_form_of_a_selector_gates_the_namespaces_that_it_selects_and_no_others() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let mut namespaces = Vec::new();
    for (letter, labels) in NAMESPACES {
        namespaces.push((letter, bed.namespace(&format!("form-{letter}"), labels).await.unwrap()));
    }
    until_gated(&client, &namespaces, "d", &json!("no AAQ")).await;
    let mut before = "d";
    for (index, (selector, expected)) in table().into_iter().enumerate() {
        assert_ne!(before, expected, "{selector} would pass without an effect");
        if index == 0 {
            create_aaq(&client, selector.clone()).await;
        } else {
            let answer = select(&client, &selector).await;
            assert!(answer.is_ok(), "{selector}: {answer:?}");
        }
        until_gated(&client, &namespaces, expected, &selector).await;
        before = expected;
    }
    until_selector(bed, &default_selector()).await;
}

/// Selectors that the API server takes nowhere, and what the `AAQ` answers.
fn refused() -> Vec<(Value, &'static str)> {
    let long = "a".repeat(64);
    vec![
        (
            one("Sometimes", &[]),
            "[0].operator: Invalid value: \"Sometimes\": not a valid selector operator, use In, NotIn",
        ),
        (one("exists", &[]), "[0].operator: Invalid value: \"exists\""),
        (one("In", &[]), "[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        (one("NotIn", &[]), "[0].values: Required value"),
        (one("Exists", &["a"]), "[0].values: Forbidden: may not be specified when `operator` is 'Exists'"),
        (one("DoesNotExist", &["a"]), "[0].values: Forbidden"),
        (one("In", &["a", "b c"]), "[0].values[1]: Invalid value: \"b c\""),
        (one("In", &[&long]), "[0].values[0]: Invalid value"),
        (json!({ "matchExpressions": [expression("", "Exists", &[])] }), "[0].key: Invalid value: \"\""),
        (
            json!({ "matchExpressions": [expression("te am", "Exists", &[])] }),
            "[0].key: Invalid value: \"te am\"",
        ),
        (
            json!({ "matchLabels": { "team/": "a" } }),
            "matchLabels: Invalid value: \"team/\": must be a label key",
        ),
        (
            json!({ "matchLabels": { "team": "-a" } }),
            "matchLabels: Invalid value: \"-a\": must be a label value",
        ),
    ]
}

#[tokio::test]
async fn what_the_api_server_takes_for_no_selector_is_refused_at_the_aaq() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let good = one("Exists", &[]);
    for (selector, words) in refused() {
        // The API server's own word on it: where this is accepted, there is nothing to refuse.
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": "judge-of-selectors" },
            "spec": {
                "matchConstraints": { "namespaceSelector": selector, "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }] },
                "validations": [{ "expression": "true" }],
            },
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All";
        let judged = post(&client, path, &policy).await.unwrap();
        assert_eq!(judged.code, 422, "{selector}: {judged:?}");
        let object = aaq(names::AAQ_NAME, json!({ "namespaceSelector": selector }));
        let told = || async {
            let answer = post(&client, &format!("{AAQS}?dryRun=All"), &object).await.ok()?;
            // The webhook may still know of an AAQ that is gone already.
            (!answer.message().contains("only a single")).then_some(answer)
        };
        let answer = wait::eventually(SOON, told, "the selector to be judged").await.unwrap();
        assert_refused(&answer, &selector, words);
    }
    create_aaq(&client, good.clone()).await;
    for (selector, words) in refused() {
        assert_refused(&select(&client, &selector).await, &selector, words);
    }
    let kept = get(&client, &format!("{AAQS}/{}", names::AAQ_NAME)).await.unwrap();
    assert_eq!(kept.body["spec"]["namespaceSelector"], good);
    until_selector(bed, &good).await;
}

fn assert_refused(answer: &Answer, selector: &Value, words: &str) {
    assert_eq!(answer.code, 403, "{selector}: {answer:?}");
    let message = answer.message();
    assert!(message.contains(names::WEBHOOK_AAQ), "{selector}: {message}");
    assert!(message.contains("spec.namespaceSelector.") && message.contains(words), "{selector}: {message}");
}

#[tokio::test]
async fn who_gates_every_namespace_or_sets_what_is_not_in_force_is_warned() {
    let (bed, _turn) = cluster().await;
    create_aaq(&bed.admin().unwrap(), json!({ "matchLabels": { "team": "a" } })).await;
    let patch = |spec: Value| {
        let spec = json!({ "spec": spec }).to_string();
        async move {
            let args =
                ["patch", "aaq", names::AAQ_NAME, "--type=merge", "--dry-run=server", "--patch", &spec];
            crate::context::kubectl_tries(bed, &args).await
        }
    };
    let (done, stdout, stderr) = patch(json!({ "namespaceSelector": { "matchLabels": null } })).await;
    assert!(done, "{stdout}{stderr}");
    let warnings: Vec<&str> = stderr.lines().collect();
    assert!(
        matches!(warnings[..], [one] if one.starts_with("Warning: spec.namespaceSelector: {}") && one.ends_with("metadata.name")),
        "{stderr}"
    );
    let (done, stdout, stderr) = patch(json!({ "infra": { "nodeSelector": { "a": "b" } } })).await;
    assert!(done, "{stdout}{stderr}");
    assert!(stderr.starts_with("Warning: spec.infra is not in force"), "{stderr}");
    let label = ["label", "aaq", names::AAQ_NAME, "a=b", "--dry-run=server"];
    let (done, stdout, stderr) = crate::context::kubectl_tries(bed, &label).await;
    assert!(done && stderr.is_empty(), "{stdout}{stderr}");
}
