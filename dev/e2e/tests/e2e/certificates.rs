//! Certificates come, go and break; pods are gated all the while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::wire::Wire;
use sluice_e2e::{Running, Setup};
use sluice_manifests::certificates::{CaPair, SERVING, Told, issue_serving};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::SOON;

mod given;
mod lifetimes;
mod rotation;

/// How many webhooks we have.
const HOOKS: usize = VALIDATING + 2;
/// How many of them are in the validating configuration.
const VALIDATING: usize = 11;

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), names::INSTALL_NAMESPACE)
}

fn entry(secret: &Secret, key: &str) -> Vec<u8> {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone()).unwrap_or_default()
}

/// The serving certificate that the authority of the installation would have issued then, as `data` of its Secret.
pub async fn issued(client: &Client, then: Timestamp, subjects: &[String]) -> serde_json::Value {
    let pair = issue_serving(then, &authority(client).await, subjects, SERVING).unwrap();
    let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    json!({ names::TLS_CERT: bytes(&pair.certificate), names::TLS_KEY: bytes(&pair.key) })
}

/// The authority of the installation.
async fn authority(client: &Client) -> CaPair {
    let secret = secrets(client).get(names::CA_SECRET).await.unwrap();
    let text = |key: &str| String::from_utf8(entry(&secret, key)).unwrap();
    CaPair {
        certificate: text(names::TLS_CERT),
        key: text(names::TLS_KEY),
        bundle: text(names::CA_BUNDLE),
        path: text(names::SECRET_PATH),
        path_since: None,
        told: Told::default(),
    }
}

async fn bundle(client: &Client) -> Vec<u8> {
    entry(&secrets(client).get(names::CA_SECRET).await.unwrap(), names::CA_BUNDLE)
}

/// The bundles and paths of all our webhooks.
async fn injected(client: &Client) -> Vec<(Vec<u8>, String)> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating = mutating.get(names::MUTATING_CONFIG).await.unwrap();
    let validating = validating.get(names::VALIDATING_CONFIG).await.unwrap();
    let first = mutating.webhooks.into_iter().flatten().map(|hook| hook.client_config);
    let second = validating.webhooks.into_iter().flatten().map(|hook| hook.client_config);
    let read = |config: WebhookClientConfig| {
        let url: http::Uri = config.url.unwrap_or_default().parse().unwrap();
        let bundle = config.ca_bundle.map(|ByteString(bytes)| bytes).unwrap_or_default();
        (bundle, url.path().to_owned())
    };
    first.chain(second).map(read).collect()
}

/// Waits until each webhook has the bundle and the path that the Secret has now.
async fn until_injected(client: &Client) {
    let probe = || async {
        let secret = secrets(client).get_opt(names::CA_SECRET).await.ok()??;
        let start = format!("/{}/", String::from_utf8(entry(&secret, names::SECRET_PATH)).ok()?);
        let (bundle, injected) = (bundle_if_any(client).await?, injected(client).await);
        let right = |(each, path): &(Vec<u8>, String)| *each == bundle && path.starts_with(&start);
        (injected.len() == HOOKS && injected.iter().all(right)).then_some(())
    };
    wait::eventually(SOON, probe, "the bundle in all webhooks").await.unwrap();
}

async fn bundle_if_any(client: &Client) -> Option<Vec<u8>> {
    let secret = secrets(client).get_opt(names::CA_SECRET).await.ok()??;
    Some(entry(&secret, names::CA_BUNDLE)).filter(|bundle| !bundle.is_empty())
}

/// Waits for another object under the name of one that was deleted.
async fn until_replaced(client: &Client, old: &Secret) -> Secret {
    let replaced = |secret: Option<&Secret>| secret.is_some_and(|secret| secret.uid() != old.uid());
    let what = "a new Secret";
    wait::wait_for(&secrets(client), &old.name_any(), SOON, what, replaced).await.unwrap().unwrap()
}

fn der(secret: &Secret) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    let pem = entry(secret, names::TLS_CERT);
    rustls::pki_types::CertificateDer::from_pem_slice(&pem).unwrap().to_vec()
}

/// A client that creates pods all the time; a failure or a pod without gate is remembered.
struct Stream {
    stop: Arc<AtomicBool>,
    created: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Stream {
    fn start(pods: Api<Pod>) -> Self {
        let (stop, created) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&created));
        let task = tokio::spawn(async move {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            let pod = objects::pod("stream", &[]);
            let mut faults = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match pods.create(&dry, &pod).await {
                    Ok(pod) if is_held(&pod) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(_) => faults.push("a pod without gate".to_owned()),
                    Err(error) => faults.push(error.to_string()),
                }
            }
            faults
        });
        Self { stop, created, task }
    }

    /// Waits for some more pods.
    async fn flow(&self) {
        let goal = self.created.load(Ordering::Relaxed) + 20;
        let probe = || async { (self.created.load(Ordering::Relaxed) >= goal).then_some(()) };
        wait::eventually(SOON, probe, "the stream of pods to flow").await.unwrap();
    }

    async fn faults(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_made_renewed_and_repaired_while_pods_are_gated() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    // Where a policy gates, no pod would meet the webhook.
    let setup = Setup { webhook_alone: true, ..Setup::default() };
    let Running { installation, controller, webhook, .. } = Running::on(&bed, setup).await.unwrap();
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("stream", TARGETED).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace.name);
    let address = installation.webhook_address();

    made(&client, &address).await;
    let stream = Stream::start(pods.clone());
    stream.flow().await;
    a_deleted_serving_certificate_is_renewed(&client, &address).await;
    stream.flow().await;
    a_broken_bundle_is_restored(&bed, &client).await;
    a_foreign_webhook_is_left_alone(&client).await;
    // A bundle that is wrong for a moment refuses pods for that moment; a rotation does not.
    let faults = stream.faults().await;
    let of_rotation: Vec<_> = faults.iter().filter(|fault| !fault.contains("x509")).collect();
    assert!(of_rotation.is_empty(), "{of_rotation:?}");

    let stream = Stream::start(pods.clone());
    stream.flow().await;
    let secret = secrets(&client).get(names::SERVING_SECRET).await.unwrap();
    for _ in 0..3 {
        let old = secrets(&client).get(names::SERVING_SECRET).await.unwrap();
        secrets(&client).delete(names::SERVING_SECRET, &DeleteParams::default()).await.unwrap();
        until_replaced(&client, &old).await;
        stream.flow().await;
    }
    rotation::a_renewed_certificate_brings_a_new_path(&client, &address, &stream).await;
    assert_eq!(stream.faults().await, Vec::<String>::new(), "renewing certificate and path refuses no pod");
    assert_ne!(der(&secrets(&client).get(names::SERVING_SECRET).await.unwrap()), der(&secret));

    a_deleted_authority_is_made_anew(&client, &address).await;
    installation.until_gating().await.unwrap();
    assert!(controller.program.is_running() && webhook.program.is_running(), "without a restart");
}

async fn made(client: &Client, address: &str) {
    let api = secrets(client);
    let serving = api.get(names::SERVING_SECRET).await.unwrap();
    let authority = api.get(names::CA_SECRET).await.unwrap();
    for secret in [&serving, &authority] {
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        for key in [names::TLS_CERT, names::TLS_KEY, names::CA_BUNDLE] {
            assert!(!entry(secret, key).is_empty(), "{}: {key}", secret.name_any());
        }
    }
    let path = entry(&authority, names::SECRET_PATH);
    assert_eq!((path.len(), &path), (32, &entry(&serving, names::SECRET_PATH)));
    until_injected(client).await;
    // The API server calls the Service by these names.
    let wire = Wire::new(address, &bundle(client).await).unwrap();
    for name in ["sluice-webhook.sluice-system.svc", "sluice-webhook.sluice-system.svc.cluster.local"] {
        assert_eq!(wire.certificate(name).await.unwrap(), der(&serving), "{name}");
    }
    assert!(wire.certificate("kubernetes.default.svc").await.is_err(), "and by no other");
}

async fn until_served(client: &Client, address: &str, secret: &Secret) {
    let expected = der(secret);
    let probe = || async {
        let wire = Wire::new(address, &bundle_if_any(client).await?).ok()?;
        (wire.certificate("127.0.0.1").await.ok()? == expected).then_some(())
    };
    wait::eventually(SOON, probe, "the webhook to serve its new certificate").await.unwrap();
}

async fn a_deleted_serving_certificate_is_renewed(client: &Client, address: &str) {
    let api = secrets(client);
    let (old, authority) = (api.get(names::SERVING_SECRET).await.unwrap(), bundle(client).await);
    api.delete(names::SERVING_SECRET, &DeleteParams::default()).await.unwrap();
    let new = until_replaced(client, &old).await;
    assert_ne!(entry(&new, names::TLS_KEY), entry(&old, names::TLS_KEY), "with a key of its own");
    until_served(client, address, &new).await;
    assert_eq!(bundle(client).await, authority, "the authority is the same");
    assert_eq!(entry(&new, names::SECRET_PATH), entry(&old, names::SECRET_PATH), "and so is the path");
    // A certificate that was damaged is as good as none.
    let broken = json!({"data": {names::TLS_CERT: "bm8gY2VydGlmaWNhdGU="}});
    api.patch(names::SERVING_SECRET, &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
    let whole = |secret: Option<&Secret>| {
        secret.is_some_and(|secret| entry(secret, names::TLS_CERT).starts_with(b"-----BEGIN CERTIFICATE"))
    };
    let what = "the certificate to be repaired";
    let repaired = wait::wait_for(&api, names::SERVING_SECRET, SOON, what, whole).await.unwrap().unwrap();
    until_served(client, address, &repaired).await;
}

async fn a_deleted_authority_is_made_anew(client: &Client, address: &str) {
    let api = secrets(client);
    let (old, old_bundle) = (api.get(names::CA_SECRET).await.unwrap(), bundle(client).await);
    api.delete(names::CA_SECRET, &DeleteParams::default()).await.unwrap();
    let new = until_replaced(client, &old).await;
    assert_ne!(der(&new), der(&old));
    assert_ne!(entry(&new, names::SECRET_PATH), entry(&old, names::SECRET_PATH), "who knew the path is out");
    until_injected(client).await;
    assert_ne!(bundle(client).await, old_bundle);
    let signed = || async {
        let serving = api.get(names::SERVING_SECRET).await.ok()?;
        let wire = Wire::new(address, &entry(&new, names::CA_BUNDLE)).ok()?;
        (wire.certificate("127.0.0.1").await.ok()? == der(&serving)).then_some(())
    };
    wait::eventually(SOON, signed, "a serving certificate of the new authority").await.unwrap();
}

async fn a_broken_bundle_is_restored(bed: &Bed, client: &Client) {
    let wrong = ByteString(bed.ca_pem().as_bytes().to_vec());
    let replace = |value: serde_json::Value| {
        let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": value}]);
        Patch::<()>::Json(serde_json::from_value(patch).unwrap())
    };
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let params = PatchParams::default();
    for value in [json!(wrong), json!(null)] {
        mutating.patch(names::MUTATING_CONFIG, &params, &replace(value.clone())).await.unwrap();
        validating.patch(names::VALIDATING_CONFIG, &params, &replace(value)).await.unwrap();
        until_injected(client).await;
    }
}

/// Another product may add a webhook to our configuration: its bundle is left alone.
async fn a_foreign_webhook_is_left_alone(client: &Client) {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let theirs = json!([{"op": "add", "path": "/webhooks/-", "value": {
        "name": "foreign.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/x"}, "failurePolicy": "Ignore",
        "rules": [{
            "apiGroups": ["none.example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["nones"],
        }],
    }}, {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let patch = Patch::<()>::Json(serde_json::from_value(theirs).unwrap());
    api.patch(names::VALIDATING_CONFIG, &PatchParams::default(), &patch).await.unwrap();
    let restored = |object: Option<&ValidatingWebhookConfiguration>| {
        let hooks = object.and_then(|object| object.webhooks.as_ref());
        hooks.is_some_and(|hooks| hooks.len() == VALIDATING + 1 && hooks[0].client_config.ca_bundle.is_some())
    };
    let what = "our own bundle to be restored";
    let seen = wait::wait_for(&api, names::VALIDATING_CONFIG, SOON, what, restored).await.unwrap().unwrap();
    let hooks = seen.webhooks.unwrap();
    assert_eq!(hooks[VALIDATING].name, "foreign.example.com");
    assert!(hooks[VALIDATING].client_config.ca_bundle.is_none());
    let away = json!([{"op": "remove", "path": format!("/webhooks/{VALIDATING}")}]);
    let patch = Patch::<()>::Json(serde_json::from_value(away).unwrap());
    api.patch(names::VALIDATING_CONFIG, &PatchParams::default(), &patch).await.unwrap();
}
