//! A webhook for some namespaces, which reaches the API server through a proxy of its own.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::installation::get;
use sluice_e2e::{Installation, Webhook, objects};
use sluice_operator::{InstallOptions, WebhookClient, render};
use sluice_testbed::proxy::FaultProxy;
use sluice_testbed::{Bed, Identity, ports, wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::scene::Scene;
use crate::world::{World, account};

/// How long an API server may take to learn of a webhook configuration.
const SOON: Duration = Duration::from_secs(60);
/// What a webhook has to know before it can tell a target.
const NEEDED: [&str; 5] = [
    "/kubevirts",
    "/virtualmachineinstancemigrations",
    "/resourcequotas",
    "/migrationwindows",
    "/headroompolicies",
];

/// A webhook and its proxy.
pub struct Gate {
    pub proxy: FaultProxy,
    pub webhook: Arc<Webhook>,
    pub port: u16,
}

impl Gate {
    /// A gate for these scenes, in force.
    pub async fn of(world: &World, scenes: &[&Scene]) -> Self {
        let names: Vec<&str> = scenes.iter().map(|scene| scene.tenant.name()).collect();
        let gate = Self::behind(world, &[]).await;
        let entry = Entry::new(world.bed, gate.port, &names);
        entry.in_force(world.bed, &names, std::slice::from_ref(&gate)).await;
        gate
    }

    /// A webhook that nobody asks yet. It reaches the first API server.
    pub async fn behind(world: &World, args: &[&str]) -> Self {
        let identity = account(world.bed, names::WEBHOOK).await;
        Self::at(world.bed, &world.installation, &identity, args).await
    }

    pub async fn at(bed: &Bed, installation: &Installation<'_>, identity: &Identity, args: &[&str]) -> Self {
        let proxy = FaultProxy::start(bed, identity).await.unwrap();
        let port = ports::free().unwrap();
        let webhook = start(bed, installation, &proxy, port, args).await;
        Self { proxy, webhook, port }
    }

    /// Another process in place of the one that ended.
    pub async fn restart(&mut self, bed: &Bed, installation: &Installation<'_>) {
        self.webhook.program.wait().await;
        self.webhook = start(bed, installation, &self.proxy, self.port, &[]).await;
    }

    /// How many openings ended so.
    pub async fn endings(&self, word: &str) -> u64 {
        let (_, text) = get(&self.webhook.admin, names::PATH_METRICS).await.unwrap();
        let start = format!("sluice_headroom_openings_total{{ending=\"{word}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or_default()
    }

    /// How many targets it was shown.
    async fn asked(&self) -> u64 {
        let Ok((_, text)) = get(&self.webhook.admin, names::PATH_METRICS).await else { return 0 };
        let counts = text.lines().filter(|line| {
            line.starts_with("sluice_webhook_requests_total") && line.contains("endpoint=\"headroom\"")
        });
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

async fn start(
    bed: &Bed,
    installation: &Installation<'_>,
    proxy: &FaultProxy,
    port: u16,
    args: &[&str],
) -> Arc<Webhook> {
    let (cert, key) = bed.serving_certificate(&["127.0.0.1"]).unwrap();
    let file = |name: &str, text: &str| {
        let path = bed.dir().join(format!("webhook-{port}.{name}"));
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) =
        (format!("--tls-cert-file={}", file("crt", &cert)), format!("--tls-key-file={}", file("key", &key)));
    let before = proxy.requests().len();
    let all: Vec<&str> = [cert.as_str(), key.as_str()].into_iter().chain(args.iter().copied()).collect();
    let webhook = installation.webhook_with(proxy.kubeconfig(), port, &all).await.unwrap();
    // What is watched was listed.
    let synced = || async {
        let requests = proxy.requests();
        let watched = |end: &&str| {
            requests.iter().skip(before).any(|request| request.is_watch() && request.path.ends_with(*end))
        };
        NEEDED.iter().all(watched).then_some(())
    };
    wait::eventually(SOON, synced, "the webhook to know the cluster").await.unwrap();
    Arc::new(webhook)
}

/// A webhook configuration for head-room alone.
pub struct Entry {
    name: String,
    prefix: String,
    hook: Value,
}

impl Entry {
    /// Targets of these namespaces are shown to whoever serves at `port`.
    pub fn new(bed: &Bed, port: u16, namespaces: &[&str]) -> Self {
        let options = InstallOptions {
            webhook_client: WebhookClient::Url(format!("https://127.0.0.1:{port}")),
            ..InstallOptions::default()
        };
        let hooks = render(&options).into_iter().find(|object| {
            object["kind"] == "ValidatingWebhookConfiguration"
                && object["metadata"]["name"] == names::VALIDATING_CONFIG
        });
        let hooks = hooks.unwrap()["webhooks"].as_array().unwrap().clone();
        let mut hook = hooks.into_iter().find(|hook| hook["name"] == names::WEBHOOK_HEADROOM).unwrap();
        hook["clientConfig"]["caBundle"] = json!(STANDARD.encode(bed.ca_pem()));
        hook["namespaceSelector"] = json!({ "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
        ] });
        Self { name: format!("headroom-{port}"), prefix: String::new(), hook }
    }

    /// Only for targets of virtual machines whose names begin so.
    pub fn only(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self.hook["matchConditions"] = json!([{
            "name": "machine",
            "expression": format!("object.metadata.generateName.startsWith('virt-launcher-{prefix}')"),
        }]);
        self
    }

    /// Creates it and returns when every API server asks every one of `gates`.
    pub async fn in_force(&self, bed: &Bed, namespaces: &[&str], gates: &[Gate]) {
        self.in_force_at(bed, &[bed.admin().unwrap()], namespaces, gates).await;
    }

    /// As [`Self::in_force`], with a client for each API server.
    pub async fn in_force_at(&self, bed: &Bed, servers: &[Client], namespaces: &[&str], gates: &[Gate]) {
        bed.apply_objects([json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": self.name }, "webhooks": [self.hook],
        })])
        .await
        .unwrap();
        for server in servers {
            self.until_asked(server, namespaces[0], gates).await;
        }
    }

    async fn until_asked(&self, server: &Client, namespace: &str, gates: &[Gate]) {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(server.clone(), namespace);
        let mut pod = objects::pod("probe", &[]);
        pod.metadata.generate_name = Some(format!("virt-launcher-{}", self.prefix));
        pod.metadata.labels = Some([(names::MIGRATION_JOB_LABEL.to_owned(), "none".to_owned())].into());
        let dry = PostParams { dry_run: true, ..Default::default() };
        let asked = || async { join_all(gates.iter().map(Gate::asked)).await };
        let before = asked().await;
        let asked = || async {
            // Quotas may refuse it; webhooks come before.
            let _ = pods.create(&dry, &pod).await;
            let now = asked().await;
            now.iter().zip(&before).all(|(now, before)| now > before).then_some(())
        };
        wait::eventually(SOON, asked, "the API server to ask the webhook").await.unwrap();
    }
}

/// Passes connections on to the first of some ports at which somebody listens.
pub struct Forwarder {
    pub port: u16,
    /// False while answers are held back.
    flowing: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Forwarder {
    pub async fn to(ports: Vec<u16>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let flowing = watch::Sender::new(true);
        let answers = flowing.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (ports, answers) = (ports.clone(), answers.clone());
                tokio::spawn(async move {
                    for port in ports {
                        if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                            let _ = pass_on(client, server, answers).await;
                            return;
                        }
                    }
                });
            }
        });
        Self { port, flowing, task }
    }

    /// Holds back what is answered, or lets it through.
    pub fn let_answers_through(&self, through: bool) {
        self.flowing.send_replace(through);
    }
}

/// Returns when one of them has ended the connection.
async fn pass_on(
    mut client: TcpStream,
    mut server: TcpStream,
    mut answers: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let ask = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let answer = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from_server.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            // An error means that the test is over.
            let _ = answers.wait_for(|flowing| *flowing).await;
            to_client.write_all(&buffer[..count]).await?;
        }
    };
    tokio::select! {
        done = ask => done,
        done = answer => done,
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}
