//! The serving certificate by cert-manager, of which a fake writes the Secret as cert-manager does
//! (`pkg/controller/certificates/issuing/internal/secret.go`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use sluice_manifests::certificates::{CA, CaPair, SERVING, issue_serving, new_authority};

use super::*;

/// Signs what the operator asks for.
struct FakeCertManager {
    client: Client,
    authority: CaPair,
}

impl FakeCertManager {
    /// With its kind, whose schema is that of any object here.
    async fn on(bed: &Bed) -> Self {
        bed.apply_objects([json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "certificates.cert-manager.io" },
            "spec": {
                "group": "cert-manager.io",
                "scope": "Namespaced",
                "names": { "kind": "Certificate", "plural": "certificates", "listKind": "CertificateList" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        })])
        .await
        .unwrap();
        let authority = new_authority(Timestamp::now(), "", CA).unwrap();
        Self { client: bed.admin().unwrap(), authority }
    }

    /// What the operator asks for, once it does.
    async fn asked(&self) -> Value {
        let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
        let kind = ApiResource::from_gvk_with_plural(&kind, names::CERTIFICATES);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), names::INSTALL_NAMESPACE, &kind);
        let asked = || async { api.get_opt(names::GIVEN_SECRET).await.ok()? };
        wait::eventually(SOON, asked, "a Certificate").await.unwrap().data
    }

    /// Writes a certificate for that; returns its PEM.
    async fn gives(&self) -> Vec<u8> {
        let certificate = self.asked().await;
        let spec = &certificate["spec"];
        assert_eq!(spec["issuerRef"]["name"], "fake");
        let texts = [&spec["dnsNames"], &spec["ipAddresses"]].map(|names| names.as_array().cloned());
        let asked: Vec<String> =
            texts.into_iter().flatten().flatten().map(|name| name.as_str().unwrap().to_owned()).collect();
        let pair = issue_serving(Timestamp::now(), &self.authority, &asked, SERVING).unwrap();
        let entries = [
            (names::TLS_CERT, &pair.certificate),
            (names::TLS_KEY, &pair.key),
            (names::CA_BUNDLE, &self.authority.certificate),
        ];
        let texts: BTreeMap<_, _> = entries.into_iter().collect();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": spec["secretName"],
                "annotations": { "cert-manager.io/certificate-name": names::GIVEN_SECRET },
            },
            "type": "kubernetes.io/tls",
            "stringData": texts,
        });
        let manager = PatchParams::apply("cert-manager-certificates-issuing").force();
        secrets(&self.client).patch(names::GIVEN_SECRET, &manager, &Patch::Apply(&secret)).await.unwrap();
        pair.certificate.into_bytes()
    }
}

/// Waits until all processes are told of this certificate.
async fn until_stored(client: &Client, certificate: &[u8]) {
    let is_stored =
        |secret: Option<&Secret>| secret.is_some_and(|secret| entry(secret, names::TLS_CERT) == certificate);
    let what = "the certificate of cert-manager to be taken over";
    wait::wait_for(&secrets(client), names::SERVING_SECRET, SOON, what, is_stored).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_fake_cert_manager_is_asked_for_taken_over_and_injected() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let fake = FakeCertManager::on(&bed).await;
    let client = bed.admin().unwrap();
    let options = "certManager: {issuerRef: {name: fake, kind: ClusterIssuer}}".to_owned();
    // Where a policy gates, no pod would meet the webhook.
    let setup = Setup { webhook_alone: true, options: Some(options), ..Setup::default() };
    // Nothing gets ready before there is a certificate.
    let (running, first) = tokio::join!(Running::on(&bed, setup), fake.gives());
    let Running { installation, .. } = &running.unwrap();
    until_stored(&client, &first).await;
    until_injected(&client).await;
    assert_eq!(bundle(&client).await, fake.authority.certificate.as_bytes(), "no authority of its own");
    installation.until_gating().await.unwrap();

    let namespace = bed.namespace("given", TARGETED).await.unwrap();
    let stream = Stream::start(Api::namespaced(client.clone(), &namespace.name));
    stream.flow().await;
    let renewed = fake.gives().await;
    assert_ne!(renewed, first);
    until_stored(&client, &renewed).await;
    stream.flow().await;
    assert_eq!(stream.faults().await, Vec::<String>::new());
}
