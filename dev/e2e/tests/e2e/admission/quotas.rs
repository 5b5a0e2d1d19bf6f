//! A quota that could not be enforced is refused with the name of the field.

use http::Method;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, WebhookEntry, names};
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, call, get, post};
use sluice_e2e::objects::{self, TARGETED};
use sluice_testbed::wait;

use super::quotas_path;
use crate::context::{SOON, gates, kubectl_tries, manifest, shared};
use crate::team::Team;

fn quota(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn hard(key: &str, amount: impl Into<Value>) -> Value {
    json!({"hard": {key: amount.into()}})
}

fn selector(expression: Value) -> Value {
    json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}})
}

/// Specs that are refused, and what the message says.
fn refused() -> Vec<(Value, &'static [&'static str])> {
    vec![
        (hard("illegalName", "1"), &["spec.hard[illegalName]", "standard resource for quota"]),
        (hard("a b", "1"), &["spec.hard[a b]"]),
        (hard("example.com/", "1"), &["spec.hard[example.com/]"]),
        (hard("pods", "-1"), &["spec.hard[pods]", "greater than or equal to 0"]),
        (hard("requests.cpu", "-500m"), &["spec.hard[requests.cpu]", "greater than or equal to 0"]),
        (hard("pods", "1.5"), &["spec.hard[pods]", "must be an integer"]),
        (hard("count/pods", "500m"), &["spec.hard[count/pods]", "must be an integer"]),
        (hard("pods", -3), &["spec.hard[pods]", "greater than or equal to 0"]),
        (hard("requests.cpu", "1e2147483648"), &["spec.hard[requests.cpu]", "exponent"]),
        (hard("requests.cpu", "1e-2147483649"), &["spec.hard[requests.cpu]", "exponent"]),
        (hard("requests.cpu", "9".repeat(10_000)), &["spec.hard[requests.cpu]", "1024"]),
        (hard("requests.memory", "1e40"), &["spec.hard[requests.memory]", "too large"]),
    ]
}

/// Specs whose scopes are refused, and what the message says.
fn refused_scopes() -> Vec<(Value, &'static [&'static str])> {
    vec![
        (
            json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
            &["spec.scopes", "conflicting scopes"],
        ),
        (
            json!({"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]}),
            &["spec.scopes", "conflicting scopes"],
        ),
        (json!({"hard": {"pods": "1"}, "scopes": ["Sometimes"]}), &["spec.scopes", "unsupported scope"]),
        (json!({"hard": {"requests.cpu": "1"}, "scopes": ["BestEffort"]}), &["spec.scopes", "requests.cpu"]),
        (
            selector(json!({"scopeName": "Never", "operator": "Exists"})),
            &["spec.scopeSelector.matchExpressions.scopeName"],
        ),
        (
            selector(json!({"scopeName": "PriorityClass", "operator": "Maybe"})),
            &["spec.scopeSelector.matchExpressions.operator"],
        ),
        (
            selector(json!({"scopeName": "PriorityClass", "operator": "In"})),
            &["spec.scopeSelector.matchExpressions.values", "Required"],
        ),
        (
            selector(json!({"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]})),
            &["spec.scopeSelector.matchExpressions.values"],
        ),
        (
            selector(json!({"scopeName": "Terminating", "operator": "In", "values": ["a"]})),
            &["spec.scopeSelector.matchExpressions.operator", "'Exists'"],
        ),
        // All that is wrong is said at once.
        (
            json!({"hard": {"pods": "-1", "illegalName": "1"}, "scopes": ["x"]}),
            &["spec.hard[pods]", "spec.hard[illegalName]", "spec.scopes"],
        ),
    ]
}

#[tokio::test]
async fn a_wrong_quota_is_refused_by_field() {
    let team = Team::on(shared().await.bed, "wrong-quota").await;
    let path = quotas_path(&team.namespace.name);
    for (spec, words) in refused().into_iter().chain(refused_scopes()) {
        let answer = post(&team.client, &path, &quota("q", &spec)).await.unwrap();
        let shown: String = spec.to_string().chars().take(120).collect();
        assert_eq!(answer.code, 403, "{shown}: {answer:?}");
        let message = answer.message();
        assert!(message.contains(WebhookEntry::QUOTA.name), "{shown}: {message}");
        for word in words {
            assert!(message.contains(word), "{shown}: {word} is missing: {message}");
        }
        assert!(message.len() < 1_000, "{shown}: {message}");
    }
    assert_eq!(get(&team.client, &path).await.unwrap().body["items"], json!([]), "none was created");
}

#[tokio::test]
async fn a_wrong_change_is_refused_and_the_quota_stays_as_it_was() {
    let team = Team::on(shared().await.bed, "wrong-change").await;
    let path = quotas_path(&team.namespace.name);
    let created = post(&team.client, &path, &quota("q", &hard("pods", "2"))).await.unwrap();
    assert_eq!(created.code, 201, "{created:?}");
    let path = format!("{path}/q");
    let change = |body: Value| {
        let (client, path) = (team.client.clone(), path.clone());
        async move { call(&client, Method::PATCH, &path, MERGE, &body).await.unwrap() }
    };
    let refused = change(json!({"spec": hard("pods", "-1")})).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert!(refused.message().contains("spec.hard[pods]"), "{}", refused.message());
    let refused = change(json!({"spec": {"scopes": ["Terminating", "NotTerminating"]}})).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert_eq!(get(&team.client, &path).await.unwrap().body["spec"], hard("pods", "2"));
    for accepted in [
        json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}}}),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"spec": {"hard": {"pods": "3", "requests.memory": "1m"}}}),
    ] {
        let answer = change(accepted.clone()).await;
        assert_eq!(answer.code, 200, "{accepted}: {answer:?}");
    }
}

#[tokio::test]
async fn what_upstream_accepts_is_accepted() {
    let team = Team::on(shared().await.bed, "right-quota").await;
    let path = quotas_path(&team.namespace.name);
    let specs = [
        json!({}),
        json!({"hard": {}}),
        hard("limits.memory", "1m"),
        json!({"hard": {"limits.memory": "1Gi", "limits.cpu": 2}}),
        hard("pods", 0),
        hard("requests.memory", "8Ei"),
        hard("requests.memory", "1000000Ei"),
        hard("example.com/license", "3"),
        hard("requests.example.com/gpu", "3"),
        hard("limits.cpu/vmi", "3"),
        json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}),
        selector(json!({"scopeName": "PriorityClass", "operator": "NotIn", "values": ["a", "b"]})),
    ];
    for (index, spec) in specs.iter().enumerate() {
        let answer = post(&team.client, &path, &quota(&format!("q{index}"), spec)).await.unwrap();
        assert_eq!(answer.code, 201, "{spec}: {answer:?}");
        assert_eq!(answer.body["spec"], *spec, "as it was written");
    }
}

#[tokio::test]
async fn who_limits_what_is_not_counted_is_warned() {
    let bed = shared().await.bed;
    let namespace = bed.namespace("warned", TARGETED).await.unwrap();
    let file = manifest(
        bed,
        "warned.json",
        &quota("q", &json!({"hard": {"cpu/vmi": 5, "services": 1}})).to_string(),
    );
    let create = ["create", "--namespace", &namespace.name, "--filename", &file];
    let (done, stdout, stderr) = kubectl_tries(bed, &create).await;
    assert!(done, "{stdout}{stderr}");
    assert_eq!(
        stderr.trim_end(),
        "Warning: spec.hard: not enforced: cpu/vmi: only virtual machines take it, where KubeVirt runs and the AAQ's \
         calculator is DedicatedVirtualResources, limit pods by requests.cpu and requests.memory"
    );
}

/// The message of the condition about keys that nothing counts.
fn told(quota: Option<&ApplicationAwareResourceQuota>) -> Option<&str> {
    let status = quota?.status.as_ref()?;
    let condition = status.conditions.iter().find(|condition| condition.type_ == names::UNCOUNTED_KEYS)?;
    (condition.status == "True" && condition.reason == "NotEnforced").then_some(&condition.message)
}

#[tokio::test]
async fn keys_that_nothing_counts_are_a_warning_and_a_condition_until_they_are_gone() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "uncounted").await;
    let hard = json!({"requests.cpu/vmi": 8, "instances/vmi": 2, "example.com/license": 3, "pods": 4});
    let file = manifest(bed, "uncounted.json", &quota("q", &json!({"hard": hard})).to_string());
    let create = ["create", "--namespace", &team.namespace.name, "--filename", &file];
    let (done, stdout, stderr) = kubectl_tries(bed, &create).await;
    assert!(done, "{stdout}{stderr}");
    let warnings: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix("Warning: ")).collect();
    let [machines, custom] = warnings[..] else { panic!("a warning per cause: {stderr}") };
    assert!(machines.contains("instances/vmi, requests.cpu/vmi: only virtual machines"), "{machines}");
    assert!(custom.contains("example.com/license: "), "{stderr}");

    let what = "the condition to say what the warnings say";
    let said = warnings.join("; ");
    let says = |quota: Option<&ApplicationAwareResourceQuota>| told(quota) == Some(&said);
    wait::wait_for(&team.quotas, "q", SOON, what, says).await.unwrap();
    // What pods may take is there from the start, as 0.
    let path = format!("{}/q", quotas_path(&team.namespace.name));
    let used =
        json!({"example.com/license": "0", "instances/vmi": "0", "pods": "0", "requests.cpu/vmi": "0"});
    assert_eq!(get(&team.client, &path).await.unwrap().body["status"]["used"], used);
    // A charge writes the whole status: the condition stays.
    team.pod("p", &[("cpu", "1m")]).await;
    team.until_released("p").await;
    team.until_used("q", "pods", "1").await;
    let status = get(&team.client, &path).await.unwrap().body["status"].clone();
    assert_eq!(status["conditions"][0]["message"], said, "{status}");
    assert_eq!(status["requests"], "pods: 1/4", "people are shown what holds");

    let fewer = json!([
        {"op": "remove", "path": "/spec/hard/example.com~1license"},
        {"op": "remove", "path": "/spec/hard/instances~1vmi"}, {"op": "remove", "path": "/spec/hard/requests.cpu~1vmi"},
    ]);
    let answer = call(&team.client, Method::PATCH, &path, JSON_PATCH, &fewer).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    let gone = |quota: Option<&ApplicationAwareResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()).is_some_and(|status| status.conditions.is_empty())
    };
    wait::wait_for(&team.quotas, "q", SOON, "the condition to go", gone).await.unwrap();
}

/// Only API servers since 1.34 serve the kind in this version.
#[tokio::test]
async fn a_key_that_claims_count_to_is_told_of_while_a_device_class_names_it() {
    const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
    let team = Team::on(shared().await.bed, "devices").await;
    if get(&team.client, CLASSES).await.unwrap().code == 404 {
        return;
    }
    team.quota("q", &[("requests.silent.example.com/gpu", "1")]).await;
    team.until_used("q", "requests.silent.example.com/gpu", "0").await;
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "silent.example.com"},
        "spec": {"extendedResourceName": "silent.example.com/gpu"},
    });
    let answer = post(&team.client, CLASSES, &class).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    // Where the feature gate DRAExtendedResource is off, the field is dropped.
    let names_it = answer.body["spec"]["extendedResourceName"] == "silent.example.com/gpu";
    if names_it {
        let says = |quota: Option<&ApplicationAwareResourceQuota>| {
            told(quota)
                .is_some_and(|words| words.contains("not enforced on ResourceClaims: requests.silent."))
        };
        wait::wait_for(&team.quotas, "q", SOON, "the condition about claims", says).await.unwrap();
    }
    let path = format!("{CLASSES}/silent.example.com");
    let gone = call(&team.client, Method::DELETE, &path, JSON, &json!({})).await.unwrap();
    assert!(gone.is_ok(), "{gone:?}");
    let silent = |quota: Option<&ApplicationAwareResourceQuota>| quota.is_some() && told(quota).is_none();
    wait::wait_for(&team.quotas, "q", SOON, "the condition to go", silent).await.unwrap();
}

#[tokio::test]
async fn pods_with_absurd_quantities_hurt_nobody() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "absurd").await;
    team.quota("q", &[("requests.memory", "8Ei"), ("pods", "5")]).await;
    let path = team.path("pods");
    let pod = |name: &str, amounts: &[&str]| {
        let mut pod = serde_json::to_value(objects::pod(name, &[])).unwrap();
        let containers = amounts.iter().enumerate().map(|(index, amount)| {
            let requests = json!({"requests": {"memory": amount}});
            json!({"name": format!("c{index}"), "image": "none", "resources": requests})
        });
        pod["spec"]["containers"] = containers.collect();
        pod
    };
    // Not here: exponents in the millions, which the API server itself would parse for hours.
    for amount in ["-1", "lots", "1e", "0x10", "NaN"] {
        let answer = post(&team.client, &path, &pod("refused", &[amount])).await.unwrap();
        assert!((400..500).contains(&answer.code), "{amount}: {answer:?}");
    }
    let digits = "9".repeat(10_000);
    let huge = [
        vec!["8Ei", "8Ei"],
        vec!["7Ei", "2Ei"],
        vec!["9223372036854775807"; 40],
        vec!["1e30"],
        vec![&digits],
    ];
    let mut expected = Vec::new();
    for (index, amounts) in huge.iter().enumerate() {
        let answer = post(&team.client, &path, &pod(&format!("huge-{index}"), amounts)).await.unwrap();
        assert!(answer.code == 201 || (400..500).contains(&answer.code), "{answer:?}");
        if answer.code == 201 {
            assert_eq!(gates(&answer.body), [names::GATE]);
            expected.push(format!("huge-{index}"));
        }
    }
    assert!(expected.len() >= 3, "the API server lets such pods in: {expected:?}");
    // Ordinary pods of the same quota are not kept waiting by them, and nothing has overflowed.
    team.pod("ordinary", &[("memory", "1Gi")]).await;
    team.until_released("ordinary").await;
    team.until_used("q", "requests.memory", "1Gi").await;
    assert_eq!(team.held().await, expected);
    assert!(shared.controller.program.is_running() && shared.webhook.program.is_running());
}
