//! A webhook that reaches the API server through a proxy of its own.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_e2e::call::JSON;
use sluice_e2e::metrics::Samples;
use sluice_e2e::{Webhook, objects};
use sluice_manifests::{InstallOptions, WebhookClient, render};
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::proxy::FaultProxy;
use sluice_testbed::{Bed, Identity, ports, wait};
use tokio::net::{TcpListener, TcpStream};

use crate::faults::world::World;

/// How long an API server may take to learn of a webhook configuration.
const SOON: Duration = Duration::from_secs(60);

/// A label of namespaces whose targets are shown to another webhook than the shared one.
pub const OWN_WEBHOOK: &str = "test.sluice.dev/own-webhook";

/// A webhook and its proxy.
pub struct Gate {
    pub proxy: FaultProxy,
    pub webhook: Arc<Webhook>,
    pub port: u16,
}

impl Gate {
    /// A webhook that no API server asks yet; it has proven the policies.
    pub async fn start(world: &World, identity: &Identity, args: &[&str]) -> Self {
        Self::start_at(world, identity, ports::free().unwrap(), args).await
    }

    /// As [`Self::start`], at this port.
    pub async fn start_at(world: &World, identity: &Identity, port: u16, args: &[&str]) -> Self {
        let proxy = FaultProxy::start(world.bed, identity).await.unwrap();
        let (cert, key) = world.bed.serving_certificate(&["127.0.0.1"]).unwrap();
        let file = |name: &str, text: &str| {
            let path = world.bed.dir().join(format!("webhook-{port}.{name}"));
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let files = [
            format!("--tls-cert-file={}", file("crt", &cert)),
            format!("--tls-key-file={}", file("key", &key)),
        ];
        let all: Vec<&str> = files.iter().map(String::as_str).chain(args.iter().copied()).collect();
        let webhook = world.installation.webhook_with(proxy.kubeconfig(), port, &all).await.unwrap();
        webhook.until_proven().await.unwrap();
        Self { proxy, webhook: Arc::new(webhook), port }
    }

    /// Targets of all namespaces but those with a webhook of their own are shown to it; returns when each of `servers`
    /// does that.
    pub async fn serve_all(&self, bed: &Bed, servers: &[Client]) {
        let not = json!({ "matchExpressions": [{ "key": OWN_WEBHOOK, "operator": "DoesNotExist" }] });
        register(bed, self.port, "headroom-shared", not, None).await;
        let namespace = bed.namespace("asked", &[]).await.unwrap();
        for server in servers {
            self.until_asked(server, &namespace.name).await;
        }
    }

    /// Targets of one namespace are shown to it; returns when each of `servers` does that.
    pub async fn serve(&self, bed: &Bed, namespace: &str, servers: &[Client]) {
        self.serve_at(bed, self.port, namespace, servers).await;
    }

    /// As [`Self::serve`], by way of something else that listens at `port`.
    pub async fn serve_at(&self, bed: &Bed, port: u16, namespace: &str, servers: &[Client]) {
        let named = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
        register(bed, port, &format!("headroom-{port}"), named, None).await;
        for server in servers {
            self.until_asked(server, namespace).await;
        }
    }

    /// As [`Self::serve`], about the targets whose names match: API servers ask one replica or another.
    pub async fn serve_matching(&self, bed: &Bed, namespace: &str, pattern: &str) {
        let named = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
        register(bed, self.port, &format!("headroom-{}", self.port), named, Some(pattern)).await;
    }

    /// How many sessions ended so.
    pub async fn endings(&self, word: &str) -> u64 {
        let samples = Samples::of(&self.webhook.admin).await.unwrap();
        samples.sum("sluice_headroom_targets_total", &[("ending", word)]).unwrap_or_default() as u64
    }

    /// How many targets it was shown.
    pub async fn asked(&self) -> u64 {
        let Ok(samples) = Samples::of(&self.webhook.admin).await else { return 0 };
        let asked = samples.sum("sluice_webhook_requests_total", &[("endpoint", "headroom")]);
        asked.unwrap_or_default() as u64
    }

    async fn until_asked(&self, server: &Client, namespace: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        let mut pod = objects::pod("probe", &[]);
        pod.metadata.labels = Some([(names::MIGRATION_JOB_LABEL.to_owned(), "none".to_owned())].into());
        let pod = serde_json::to_vec(&pod).unwrap();
        let before = self.asked().await;
        let asked = || async {
            let request = http::Request::post(&path).header("Content-Type", JSON);
            let request =
                request.header("Impersonate-User", CONTROLLER).header("Impersonate-Group", "system:masters");
            // Quotas may refuse it; webhooks come before.
            let _ = server.send(request.body(pod.clone().into()).unwrap()).await;
            (self.asked().await > before).then_some(())
        };
        wait::eventually(SOON, asked, "the API server to ask the webhook").await.unwrap();
    }
}

/// The webhook configuration for head-room alone, for whatever listens at `port`, about pods whose names match a pattern.
async fn register(bed: &Bed, port: u16, name: &str, namespaces: Value, pods: Option<&str>) {
    let options = InstallOptions {
        webhook_client: WebhookClient::Url(format!("https://127.0.0.1:{port}")),
        ..InstallOptions::default()
    };
    let configuration = render(&options).into_iter().find(|object| {
        object["kind"] == "ValidatingWebhookConfiguration"
            && object["metadata"]["name"] == names::VALIDATING_CONFIG
    });
    let hooks = configuration.unwrap()["webhooks"].as_array().unwrap().clone();
    let mut hook = hooks.into_iter().find(|hook| hook["name"] == WebhookEntry::HEADROOM.name).unwrap();
    hook["clientConfig"]["caBundle"] = json!(STANDARD.encode(bed.ca_pem()));
    hook["namespaceSelector"] = namespaces;
    if let Some(pattern) = pods {
        let expression = format!("object.metadata.name.matches('{pattern}')");
        let conditions = hook["matchConditions"].as_array_mut().unwrap();
        conditions.push(json!({ "name": "by-name", "expression": expression }));
    }
    bed.apply_objects([json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name }, "webhooks": [hook],
    })])
    .await
    .unwrap();
}

/// Passes connections on to the first of some ports at which something listens.
pub struct Forwarder {
    pub port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Forwarder {
    pub async fn to(ports: Vec<u16>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let ports = ports.clone();
                tokio::spawn(async move {
                    for port in ports {
                        if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                            return;
                        }
                    }
                });
            }
        });
        Self { port, task }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}
