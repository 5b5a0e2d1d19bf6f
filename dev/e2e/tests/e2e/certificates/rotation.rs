//! The segment before the webhook's paths comes anew with a renewed certificate, in steps of which none refuses a pod.

use http::Request;
use jiff::SignedDuration;
use sluice_api::Endpoint;
use sluice_manifests::certificates::service_names;

use super::*;

const LONG_AGO: SignedDuration = SignedDuration::from_hours(60);
const A_WHILE_AGO: SignedDuration = SignedDuration::from_mins(10);

fn text(secret: &Secret, key: &str) -> String {
    String::from_utf8(entry(secret, key)).unwrap()
}

async fn patch(client: &Client, name: &str, data: serde_json::Value) {
    let patch = Patch::Merge(json!({ "data": data }));
    secrets(client).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Stores a serving certificate that was issued so long `ago`.
async fn store(client: &Client, ago: SignedDuration, path: &str, before: Option<&str>) {
    let ca = authority(client).await;
    let services = [names::WEBHOOK, names::METRICS_SERVICE];
    let mut subjects = services.map(|name| service_names(name, names::INSTALL_NAMESPACE)).concat();
    subjects.push("127.0.0.1".to_owned());
    let issued = issue_serving(Timestamp::now() - ago, &ca, &subjects, SERVING).unwrap();
    let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    let data = json!({
        names::TLS_CERT: bytes(&issued.certificate),
        names::TLS_KEY: bytes(&issued.key),
        names::CA_BUNDLE: bytes(&issued.bundle),
        names::SECRET_PATH: bytes(path),
        names::SECRET_PATH_BEFORE: before.map(bytes),
    });
    // Annotations about another certificate would ask for a renewal.
    let annotations = issued.told.annotations().collect::<std::collections::BTreeMap<_, _>>();
    let stored = Patch::Merge(json!({ "metadata": { "annotations": annotations }, "data": data }));
    secrets(client).patch(names::SERVING_SECRET, &PatchParams::default(), &stored).await.unwrap();
}

/// Waits until the webhook answers behind `segment`, or does not.
async fn until_answered(client: &Client, address: &str, segment: &str, answered: bool) {
    let probe = || async {
        let wire = Wire::new(address, &bundle_if_any(client).await?).ok()?;
        let path = format!("/{segment}{}", Endpoint::PodGate.path());
        let request = Request::get(path).header("Host", "webhook").body(vec![]).ok()?;
        let (code, _) = wire.send(request).await.ok()?;
        (code == if answered { 405 } else { 404 }).then_some(())
    };
    wait::eventually(SOON, probe, "the webhook to answer behind the segments of its Secret").await.unwrap();
}

async fn until(client: &Client, name: &str, what: &str, reached: impl Fn(&Secret) -> bool) -> Secret {
    let reached = |secret: Option<&Secret>| secret.is_some_and(&reached);
    wait::wait_for(&secrets(client), name, SOON, what, reached).await.unwrap().unwrap()
}

pub(super) async fn a_renewed_certificate_brings_a_new_path(client: &Client, address: &str, stream: &Stream) {
    let old = text(&secrets(client).get(names::CA_SECRET).await.unwrap(), names::SECRET_PATH);

    store(client, LONG_AGO, &old, None).await;
    let renewed = |secret: &Secret| entry(secret, names::SECRET_PATH_BEFORE) == old.as_bytes();
    let secret =
        until(client, names::SERVING_SECRET, "a renewed certificate with another path", renewed).await;
    let new = text(&secret, names::SECRET_PATH);
    assert_ne!(new, old);
    for path in [&old, &new] {
        until_answered(client, address, path, true).await;
    }
    stream.flow().await;
    let authority = secrets(client).get(names::CA_SECRET).await.unwrap();
    assert_eq!(text(&authority, names::SECRET_PATH), old, "what is named settles first");

    store(client, A_WHILE_AGO, &new, Some(&old)).await;
    let named = |secret: &Secret| entry(secret, names::SECRET_PATH) == new.as_bytes();
    until(client, names::CA_SECRET, "the new path to be named", named).await;
    until_injected(client).await;
    stream.flow().await;
    until_answered(client, address, &old, true).await;

    let since = (Timestamp::now() - A_WHILE_AGO).to_string();
    patch(client, names::CA_SECRET, json!({ names::SECRET_PATH_SINCE: ByteString(since.into_bytes()) }))
        .await;
    let forgotten = |secret: &Secret| entry(secret, names::SECRET_PATH_BEFORE).is_empty();
    until(client, names::SERVING_SECRET, "the old path to be forgotten", forgotten).await;
    until_answered(client, address, &old, false).await;
    until_answered(client, address, &new, true).await;
    stream.flow().await;
}
