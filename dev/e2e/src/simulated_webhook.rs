//! A webhook beside Sluice's: it answers late, refuses or, if it is mutating, changes, as a plain function says.
//!
//! The server runs in the test's process, over TLS with a certificate of the bed's authority. The API server calls it for
//! the given namespaces only, so that tests of one bed do not disturb each other.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sluice_testbed::{Bed, Identity, wait};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::call;

/// How long the API server may take to follow a webhook configuration.
const FOLLOWED: Duration = Duration::from_secs(60);
/// How long the API server waits for an answer: the most that it permits is 30 s, this is its default.
const TIMEOUT_SECONDS: u8 = 10;
const REVIEW: &str = "/review";
const PROBE: &str = "/probe";

/// The `request` of an AdmissionReview.
#[derive(Clone, Copy, Debug)]
pub struct Review<'r>(pub &'r Value);

impl<'r> Review<'r> {
    /// A text of the request; empty without one.
    #[must_use]
    pub fn text(self, pointer: &str) -> &'r str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// `CREATE`, `UPDATE` or `DELETE`.
    #[must_use]
    pub fn operation(self) -> &'r str {
        self.text("/operation")
    }

    /// Who asks.
    #[must_use]
    pub fn user(self) -> &'r str {
        self.text("/userInfo/username")
    }

    /// Whether who asks is in this group.
    #[must_use]
    pub fn is_in_group(self, group: &str) -> bool {
        let groups = self.0.pointer("/userInfo/groups").and_then(Value::as_array);
        groups.is_some_and(|groups| groups.iter().any(|one| one == group))
    }

    /// A label of `object` or `oldObject`; empty without one.
    #[must_use]
    pub fn label(self, object: &str, name: &str) -> &'r str {
        let labels = self.0.get(object).and_then(|object| object.pointer("/metadata/labels"));
        labels.and_then(|labels| labels.get(name)).and_then(Value::as_str).unwrap_or_default()
    }
}

/// What the webhook answers, and when.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    delay: Duration,
    denial: Option<(u16, String)>,
    patch: Option<Value>,
}

impl Verdict {
    /// The request may pass.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// The request is refused with this HTTP status.
    #[must_use]
    pub fn deny(code: u16, message: &str) -> Self {
        Self { denial: Some((code, message.to_owned())), ..Self::default() }
    }

    /// The request may pass, changed by this JSON patch.
    #[must_use]
    pub fn patch(operations: Value) -> Self {
        Self { patch: Some(operations), ..Self::default() }
    }

    /// The same answer, so much later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The message of a denial.
    #[must_use]
    pub fn denial(&self) -> Option<&str> {
        self.denial.as_ref().map(|(_, message)| message.as_str())
    }

    fn answer(&self, uid: &str) -> Value {
        let mut response = json!({ "uid": uid, "allowed": self.denial.is_none() });
        if let (Some((code, message)), Some(fields)) = (&self.denial, response.as_object_mut()) {
            let reason = if *code == 400 { "BadRequest" } else { "Forbidden" };
            let status = json!({ "status": "Failure", "message": message, "reason": reason, "code": code });
            fields.insert("status".to_owned(), status);
        }
        if let (Some(patch), Some(fields)) = (&self.patch, response.as_object_mut()) {
            fields.insert("patchType".to_owned(), json!("JSONPatch"));
            fields.insert("patch".to_owned(), json!(ByteString(patch.to_string().into_bytes())));
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
    }
}

/// What the API server asks the webhook about.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Name of the webhook in the API server's messages: three parts at least.
    pub name: String,
    /// The only namespaces whose requests are reviewed.
    pub namespaces: Vec<String>,
    /// See [`rule`].
    pub rules: Vec<Value>,
    /// `Fail` or `Ignore`: what happens to a request when the webhook does not answer.
    pub failure_policy: &'static str,
    /// `Equivalent` or `Exact`.
    pub match_policy: &'static str,
    /// It may change requests.
    pub mutates: bool,
}

impl WebhookOptions {
    /// A webhook on these requests of one namespace; without its answer they fail.
    #[must_use]
    pub fn new(name: &str, namespace: &str, rules: Vec<Value>) -> Self {
        Self {
            name: name.to_owned(),
            namespaces: vec![namespace.to_owned()],
            rules,
            failure_policy: "Fail",
            match_policy: "Equivalent",
            mutates: false,
        }
    }

    fn resource(&self) -> ApiResource {
        if self.mutates {
            ApiResource::erase::<MutatingWebhookConfiguration>(&())
        } else {
            ApiResource::erase::<ValidatingWebhookConfiguration>(&())
        }
    }

    fn configuration(&self, object: &str, url: &str, ca_pem: &str) -> Value {
        let ca = ByteString(ca_pem.as_bytes().to_vec());
        let names =
            json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": self.namespaces });
        let webhook = |name: &str, path: &str, rules: &[Value], failure: &str| {
            json!({
                "name": name, "rules": rules,
                "clientConfig": { "url": format!("{url}{path}"), "caBundle": ca },
                "namespaceSelector": { "matchExpressions": [names] },
                "matchPolicy": self.match_policy, "failurePolicy": failure,
                "timeoutSeconds": TIMEOUT_SECONDS, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            })
        };
        let mut judges = webhook(&self.name, REVIEW, &self.rules, self.failure_policy);
        if let Some(judges) = judges.as_object_mut().filter(|_| self.mutates) {
            // It has the last of all mutating words.
            judges.insert("reinvocationPolicy".to_owned(), json!("IfNeeded"));
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": self.resource().kind,
            "metadata": { "name": object },
            "webhooks": [
                judges,
                // In force exactly when the other one is; a dry run of a ConfigMap tells.
                webhook("probe.simulated.test", PROBE, &[rule(&["CREATE"], &["configmaps"])], "Ignore"),
            ],
        })
    }
}

/// A rule of a webhook for resources of the core group, for example `resourcequotas/status`.
#[must_use]
pub fn rule(operations: &[&str], resources: &[&str]) -> Value {
    json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": resources })
}

type Behaviour = dyn Fn(Review<'_>) -> Verdict + Send + Sync;

/// What the server's connections share.
struct Server {
    behaviour: Box<Behaviour>,
    reviewed: Mutex<Vec<String>>,
    denied: AtomicUsize,
    probes: AtomicUsize,
}

/// A running webhook. Its configuration is removed when it is dropped.
pub struct SimulatedWebhook {
    admin: Identity,
    client: Client,
    options: WebhookOptions,
    configuration: Option<String>,
    server: Arc<Server>,
    serving: JoinHandle<()>,
}

impl SimulatedWebhook {
    /// Starts the server and registers it; returns when the API server asks it.
    ///
    /// # Errors
    /// When the API server refuses the configuration or does not follow it.
    pub async fn start(
        bed: &Bed,
        options: WebhookOptions,
        behaviour: impl Fn(Review<'_>) -> Verdict + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let server = Arc::new(Server {
            behaviour: Box::new(behaviour),
            reviewed: Mutex::default(),
            denied: AtomicUsize::new(0),
            probes: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let serving = tokio::spawn(accept(listener, acceptor(bed)?, Arc::clone(&server)));
        let object = format!("simulated-{:016x}", sluice_testbed::ports::random());
        let configuration = serde_json::from_value(options.configuration(&object, &url, bed.ca_pem()))?;
        let client = bed.admin()?;
        let configurations: Api<DynamicObject> = Api::all_with(client.clone(), &options.resource());
        let created = configurations.create(&PostParams::default(), &configuration).await;
        created.with_context(|| format!("registering webhook {}", options.name))?;
        let admin = bed.admin_identity().clone();
        let webhook = Self { admin, client, options, configuration: Some(object), server, serving };
        let asked = || async { webhook.is_asked().await.then_some(()) };
        wait::eventually(FOLLOWED, asked, "the API server to ask the simulated webhook").await?;
        Ok(webhook)
    }

    /// Whether the API server asks the webhook about requests of all its namespaces.
    async fn is_asked(&self) -> bool {
        for namespace in &self.options.namespaces {
            let before = self.server.probes.load(Ordering::SeqCst);
            let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "probe-of-the-simulated-webhook" },
            });
            let sent = call::post(&self.client, &path, &map).await;
            if sent.is_err() || self.server.probes.load(Ordering::SeqCst) == before {
                return false;
            }
        }
        true
    }

    /// How many requests were reviewed.
    #[must_use]
    pub fn reviews(&self) -> usize {
        self.server.reviewed().len()
    }

    /// How many of them were denied.
    #[must_use]
    pub fn denials(&self) -> usize {
        self.server.denied.load(Ordering::SeqCst)
    }

    /// Returns when a request about the object of this name has reached the webhook, answered or not.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn until_review_of(&self, object: &str, deadline: Duration) -> anyhow::Result<()> {
        let reached = || async { self.server.reviewed().iter().any(|name| name == object).then_some(()) };
        let what = format!("webhook {} to be asked about {object}", self.options.name);
        wait::eventually(deadline, reached, &what).await
    }

    /// Removes the webhook; returns when the API server asks it no longer.
    ///
    /// # Errors
    /// When the API server refuses, or goes on asking.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(name) = self.configuration.take() {
            let resource = self.options.resource();
            let configurations: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            configurations.delete(&name, &DeleteParams::default()).await.context("removing a webhook")?;
        }
        let ignored = || async { (!self.is_asked().await).then_some(()) };
        wait::eventually(FOLLOWED, ignored, "the API server to forget the simulated webhook").await
    }
}

impl Drop for SimulatedWebhook {
    fn drop(&mut self) {
        if let Some(name) = self.configuration.take() {
            let (admin, resource) = (self.admin.clone(), self.options.resource());
            // A runtime of its own: the one of the test may be ending.
            let removed = std::thread::spawn(move || remove(&admin, &resource, &name));
            let _ = removed.join();
        }
        self.serving.abort();
    }
}

fn remove(admin: &Identity, resource: &ApiResource, name: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let configurations: Api<DynamicObject> = Api::all_with(admin.client()?, resource);
        let removal = DeleteParams::default();
        tokio::time::timeout(Duration::from_secs(5), configurations.delete(name, &removal)).await??;
        Ok(())
    })
}

/// TLS with a certificate of the bed's authority, for loopback.
pub(crate) fn acceptor(bed: &Bed) -> anyhow::Result<TlsAcceptor> {
    let (certificate, key) = bed.serving_certificate(&["127.0.0.1"])?;
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: Arc<Server>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&server)));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, server: Arc<Server>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    // An error is the API server going away.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Server {
    fn reviewed(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.reviewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let is_probe = request.uri().path() == PROBE;
        let body = match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => Bytes::new(),
        };
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let request = review.get("request").unwrap_or(&Value::Null);
        let verdict = if is_probe {
            self.probes.fetch_add(1, Ordering::SeqCst);
            Verdict::allow()
        } else {
            self.judge(Review(request)).await
        };
        let answer = verdict.answer(Review(request).text("/uid"));
        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        response
    }

    async fn judge(&self, review: Review<'_>) -> Verdict {
        let verdict = (self.behaviour)(review);
        self.reviewed().push(review.text("/name").to_owned());
        if verdict.denial.is_some() {
            self.denied.fetch_add(1, Ordering::SeqCst);
        }
        tokio::time::sleep(verdict.delay).await;
        verdict
    }
}
