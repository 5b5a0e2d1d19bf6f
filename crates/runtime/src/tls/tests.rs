use super::*;
use crate::watch::WatchHealth;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

mod profiles;

pub(crate) struct Issued {
    pub(crate) cert: String,
    pub(crate) key: String,
    pub(crate) der: CertificateDer<'static>,
}

/// A self-signed P-256 certificate for `localhost` that ends `days` from now.
pub(crate) fn issue(days: i64) -> Issued {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let end = Timestamp::now() + jiff::SignedDuration::from_hours(days * 24);
    let end = end.to_zoned(jiff::tz::TimeZone::UTC);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(i32::from(end.year()), end.month() as u8, end.day() as u8);
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    Issued { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().clone() }
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reached)
        .await
        .unwrap_or_else(|_| panic!("never came true: {what}"));
}

fn serves(store: &CertStore, issued: &Issued) -> bool {
    store.current.load().as_ref().is_some_and(|loaded| loaded.key.cert.first() == Some(&issued.der))
}

#[test]
fn only_a_pair_that_fits_and_lives_is_taken() {
    let (good, other, old) = (issue(30), issue(30), issue(-2));
    let store = CertStore::empty();
    assert_eq!(store.check(), Err("no serving certificate yet".to_owned()));
    assert!(store.set_pem(good.cert.as_bytes(), good.key.as_bytes()).unwrap());
    assert!(
        !store.set_pem(good.cert.as_bytes(), good.key.as_bytes()).unwrap(),
        "the same again is no change"
    );
    let refused =
        |cert: &str, key: &str| store.set_pem(cert.as_bytes(), key.as_bytes()).unwrap_err().to_string();
    assert!(
        refused(&other.cert, &good.key).contains("does not belong"),
        "{}",
        refused(&other.cert, &good.key)
    );
    assert!(refused(&old.cert, &old.key).contains("expired"));
    assert!(refused("garbage", &good.key).contains("holds no certificate"));
    assert!(refused(&good.cert, "garbage").contains("private key"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(refused(broken, &good.key).contains("cannot be parsed"));
    assert!(serves(&store, &good), "a refusal keeps what was there");
    assert_eq!(store.check(), Ok(()));
}

/// The way the kubelet publishes a Secret: a new directory, and a link that is renamed over the old one.
fn publish(mount: &Path, version: &str, issued: &Issued) {
    std::fs::create_dir(mount.join(version)).unwrap();
    std::fs::write(mount.join(version).join("tls.crt"), &issued.cert).unwrap();
    std::fs::write(mount.join(version).join("tls.key"), &issued.key).unwrap();
    std::os::unix::fs::symlink(version, mount.join("..data_tmp")).unwrap();
    std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
}

#[tokio::test]
async fn files_are_read_again_after_a_swap_of_the_mount_and_after_a_plain_write() {
    let mount = tempfile::tempdir().unwrap();
    let (cert, key) = (mount.path().join("tls.crt"), mount.path().join("tls.key"));
    let store = Arc::new(CertStore::empty());
    let cancel = CancellationToken::new();
    let task = tokio::spawn(watch_files(cert.clone(), key.clone(), store.clone(), cancel.clone()));
    let (first, second, third) = (issue(30), issue(30), issue(30));
    publish(mount.path(), "..1", &first);
    std::os::unix::fs::symlink("..data/tls.crt", &cert).unwrap();
    std::os::unix::fs::symlink("..data/tls.key", &key).unwrap();
    eventually("first certificate", || serves(&store, &first)).await;
    publish(mount.path(), "..2", &second);
    eventually("certificate after the swap", || serves(&store, &second)).await;
    std::fs::remove_file(&cert).unwrap();
    std::fs::remove_file(&key).unwrap();
    std::fs::write(&cert, &third.cert).unwrap();
    std::fs::write(&key, &third.key).unwrap();
    eventually("certificate after plain writes", || serves(&store, &third)).await;
    cancel.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_directory_that_does_not_exist_is_named() {
    let store = Arc::new(CertStore::empty());
    let error =
        watch_files("no-such/tls.crt".into(), "no-such/tls.key".into(), store, CancellationToken::new())
            .await
            .unwrap_err();
    assert!(error.to_string().starts_with("cannot watch no-such for changes"), "{error}");
}

#[tokio::test]
async fn a_secret_is_followed() {
    let issued = issue(30);
    let data = serde_json::json!({
        "tls.crt": k8s_openapi::ByteString(issued.cert.clone().into_bytes()),
        "tls.key": k8s_openapi::ByteString(issued.key.clone().into_bytes()),
    });
    let client = kube::Client::new(
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let data = data.clone();
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                assert!(query.contains("fieldSelector=metadata.name%3Dserving"), "{query}");
                if query.contains("watch=true") {
                    return std::future::pending().await;
                }
                let list = serde_json::json!({"metadata": {"resourceVersion": "5"},
                    "items": [{"metadata": {"name": "serving", "resourceVersion": "4"}, "data": data}]});
                let body = kube::client::Body::from(list.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        }),
        "default",
    );
    let store = Arc::new(CertStore::empty());
    let (cancel, health) = (CancellationToken::new(), WatchHealth::new("secrets"));
    let (held, done, synced) = (store.clone(), cancel.clone(), health.clone());
    let task = tokio::spawn(async move {
        let load = move |secret: &k8s_openapi::api::core::v1::Secret| held.load_secret(secret);
        watch_secret(client, "system", "serving", load, synced, done).await
    });
    eventually("certificate from the Secret", || serves(&store, &issued)).await;
    cancel.cancel();
    task.await.unwrap().unwrap();
    assert!(health.is_synced());
}
