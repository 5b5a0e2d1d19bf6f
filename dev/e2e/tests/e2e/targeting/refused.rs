//! What the `AAQ` refuses, and what it warns of.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_e2e::call::{JSON_PATCH, Response, call, get, post};
use sluice_testbed::wait;

use super::{aaq, cluster, create_aaq, until_selector};
use crate::context::{SOON, kubectl_tries};

const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    match values {
        [] => json!({ "key": key, "operator": operator }),
        values => json!({ "key": key, "operator": operator, "values": values }),
    }
}

fn one(operator: &str, values: &[&str]) -> Value {
    json!({ "matchExpressions": [expression("team", operator, values)] })
}

async fn select(client: &Client, selector: &Value) -> Response {
    let patch = json!([{ "op": "replace", "path": "/spec/namespaceSelector", "value": selector }]);
    call(client, Method::PATCH, &format!("{AAQS}/{}", names::AAQ_NAME), JSON_PATCH, &patch).await.unwrap()
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

fn assert_refused(answer: &Response, selector: &Value, words: &str) {
    assert_eq!(answer.code, 403, "{selector}: {answer:?}");
    let message = answer.message();
    assert!(message.contains(WebhookEntry::AAQ.name), "{selector}: {message}");
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
            kubectl_tries(bed, &args).await
        }
    };
    let (done, stdout, stderr) = patch(json!({ "namespaceSelector": { "matchLabels": null } })).await;
    assert!(done, "{stdout}{stderr}");
    let warnings: Vec<&str> = stderr.lines().collect();
    assert!(
        matches!(
            warnings[..],
            [one] if one.starts_with("Warning: spec.namespaceSelector: {}") && one.ends_with("metadata.name"),
        ),
        "{stderr}"
    );
    let (done, stdout, stderr) = patch(json!({ "workload": { "nodeSelector": { "a": "b" } } })).await;
    assert!(done, "{stdout}{stderr}");
    assert!(stderr.starts_with("Warning: spec.workload is not in force"), "{stderr}");
    let label = ["label", "aaq", names::AAQ_NAME, "a=b", "--dry-run=server"];
    let (done, stdout, stderr) = kubectl_tries(bed, &label).await;
    assert!(done && stderr.is_empty(), "{stdout}{stderr}");
}
