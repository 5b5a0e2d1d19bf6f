//! Clusters, namespaces and pods of these tests.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{Answer, JSON, call, post};
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Controller, Installation, Setup, Webhook};
use sluice_testbed::{Bed, BedOptions, TestNamespace, wait};
use tokio::sync::OnceCell;

/// How long anything may take that should take milliseconds: the machine may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(60);

const ROOT: &str = "/apis/admissionregistration.k8s.io/v1";

/// Sluice on a bed of its own.
pub struct World<'b> {
    pub bed: &'b Bed,
    pub installation: Installation<'b>,
    pub controller: Controller,
    pub webhook: Webhook,
}

impl<'b> World<'b> {
    /// Runs and gates.
    pub async fn on(bed: &'b Bed, setup: Setup) -> Self {
        let (installation, controller, webhook) = Installation::running(bed, setup).await.unwrap();
        Self { bed, installation, controller, webhook }
    }

    /// From now on nothing that is deleted is put back. Its lease is given back.
    pub async fn end_operator(&self) {
        let operator = self.installation.operator().unwrap();
        operator.terminate();
        operator.wait().await;
    }

    /// Kills what runs of Sluice.
    pub async fn kill_all(&self) {
        let operator = self.installation.operator().unwrap();
        for program in [&self.controller.program, &self.webhook.program, operator] {
            program.kill();
            program.wait().await;
        }
    }
}

pub async fn bed() -> Bed {
    Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap()
}

/// A cluster on which Sluice was installed and ran, and no process of it is left.
pub async fn asleep() -> &'static Bed {
    static BED: OnceCell<&'static Bed> = OnceCell::const_new();
    let start = || async {
        let bed: &'static Bed = Box::leak(Box::new(bed().await));
        World::on(bed, Setup::default()).await.kill_all().await;
        bed
    };
    BED.get_or_init(start).await
}

/// A cluster on which Sluice runs.
pub async fn awake() -> &'static World<'static> {
    static WORLD: OnceCell<World<'static>> = OnceCell::const_new();
    let start = || async {
        let bed: &'static Bed = Box::leak(Box::new(bed().await));
        World::on(bed, Setup::default()).await
    };
    WORLD.get_or_init(start).await
}

/// A namespace and its pods.
pub struct Team {
    pub namespace: TestNamespace,
    pub client: Client,
    pub pods: Api<Pod>,
}

impl Team {
    /// Whose pods are gated.
    pub async fn targeted(bed: &Bed, prefix: &str) -> Self {
        Self::with(bed, prefix, TARGETED).await
    }

    /// With these labels.
    pub async fn with(bed: &Bed, prefix: &str, labels: &[(&str, &str)]) -> Self {
        let namespace = bed.namespace(prefix, labels).await.unwrap();
        let client = bed.admin().unwrap();
        Self { pods: Api::namespaced(client.clone(), &namespace.name), client, namespace }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub async fn create(&self, pod: &Value) -> Answer {
        self.create_by(&self.client, pod).await
    }

    pub async fn create_by(&self, client: &Client, pod: &Value) -> Answer {
        post(client, &self.path("pods"), pod).await.unwrap()
    }

    /// What would become of a new pod.
    pub async fn tries(&self, pod: &Value) -> Answer {
        post(&self.client, &self.path("pods?dryRun=All"), pod).await.unwrap()
    }

    /// Waits until the pods are these many and all are without our gate.
    pub async fn until_released(&self, count: usize) {
        let released = |pods: &[Pod]| pods.len() == count && pods.iter().all(|pod| !is_held(pod));
        let what = format!("{count} pods to be released");
        wait::wait_for_all(&self.pods, watcher::Config::default(), SOON, &what, released).await.unwrap();
    }

    /// Waits until there are these many pods; returns them.
    pub async fn until_pods(&self, count: usize) -> Vec<Pod> {
        let there = |pods: &[Pod]| pods.len() >= count;
        let what = format!("{count} pods to be created");
        wait::wait_for_all(&self.pods, watcher::Config::default(), SOON, &what, there).await.unwrap()
    }

    pub async fn label(&self, labels: Value) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        namespaces.patch(&self.namespace.name, &PatchParams::default(), &patch).await.unwrap();
    }
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

pub fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.into_iter().flatten().filter_map(|gate| gate["name"].as_str()).collect()
}

/// The answer created a pod that is gated and stamped with this name.
pub fn assert_gated(answer: &Answer, creator: &str) {
    assert!(answer.is_ok(), "{answer:?}");
    assert!(gates(&answer.body).contains(&names::GATE), "{answer:?}");
    assert_eq!(stamp(&answer.body), Some(creator), "{answer:?}");
}

pub fn assert_refused(answer: &Answer, words: &[&str]) {
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
