//! Clusters and pods of these tests.

use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, Response, call};
use sluice_e2e::{Running, Setup, objects};
use sluice_testbed::Bed;
use tokio::sync::OnceCell;

use crate::context::{gates, idle_options};

const ROOT: &str = "/apis/admissionregistration.k8s.io/v1";

/// A cluster on which Sluice was installed and ran, and no process of it is left.
pub async fn asleep() -> &'static Bed {
    static BED: OnceCell<&'static Bed> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(idle_options()).await.unwrap();
        let running = Running::on(bed, Setup::default()).await.unwrap();
        running.kill_all().await.unwrap();
        bed
    };
    BED.get_or_init(start).await
}

pub fn pod(name: &str) -> Value {
    let mut pod = serde_json::to_value(objects::pod(name, &[])).unwrap();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod
}

pub fn with_gates(mut pod: Value, gates: &[&str]) -> Value {
    pod["spec"]["schedulingGates"] = gates.iter().map(|name| json!({ "name": name })).collect();
    pod
}

pub fn with_stamp(mut pod: Value, stamp: &str) -> Value {
    pod["metadata"]["annotations"][names::CREATED_BY_ANNOTATION] = json!(stamp);
    pod
}

pub fn stamp(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][names::CREATED_BY_ANNOTATION].as_str()
}

/// The answer created a pod that is gated and stamped with this name.
pub fn assert_gated(answer: &Response, creator: &str) {
    assert!(answer.is_ok(), "{answer:?}");
    assert!(gates(&answer.body).contains(&names::GATE), "{answer:?}");
    assert_eq!(stamp(&answer.body), Some(creator), "{answer:?}");
}

pub fn assert_refused(answer: &Response, words: &[&str]) {
    assert_eq!(answer.code, 403, "{answer:?}");
    for word in words {
        assert!(answer.message().contains(word), "{word}: {}", answer.message());
    }
}

/// Path of a mutating policy, or with `validating` of a validating one.
pub fn policy_path(kind: &str, name: &str) -> String {
    format!("{ROOT}/{kind}/{name}")
}

pub async fn delete(client: &Client, path: &str) {
    let answer = call(client, http::Method::DELETE, path, JSON, &json!({})).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}

/// The mutating policy that gates, gone.
pub async fn delete_gate_policy(client: &Client) {
    delete(client, &policy_path("mutatingadmissionpolicies", names::GATE_POLICY)).await;
    delete(client, &policy_path("mutatingadmissionpolicybindings", names::GATE_POLICY)).await;
}

/// The policy with the last word, gone.
pub async fn delete_last_word(client: &Client) {
    delete(client, &policy_path("validatingadmissionpolicies", names::GATED_POLICY)).await;
    delete(client, &policy_path("validatingadmissionpolicybindings", names::GATED_POLICY)).await;
}
