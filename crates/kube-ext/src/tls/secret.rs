//! Certificate and key from a Secret of type `kubernetes.io/tls`, followed by a watch.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::CertStore;
use crate::watch::{Delta, WatchHealth, WatchOptions, watch};

/// Loads `tls.crt` and `tls.key` of one Secret into `store` now and after each change, until `cancel`.
///
/// A Secret that is missing, deleted or unusable is logged; what was loaded before stays in use. Needs `list` and `watch`
/// on this one name only.
pub async fn watch_secret(
    client: Client,
    namespace: &str,
    name: &str,
    store: Arc<CertStore>,
    health: WatchHealth,
    cancel: CancellationToken,
) {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let options = WatchOptions::default().fields(format!("metadata.name={name}"));
    let wanted = name.to_owned();
    let sink = move |delta: Delta<Secret>| match delta {
        Delta::Listed(secret) | Delta::Applied(secret)
            if secret.metadata.name.as_deref() == Some(&wanted) =>
        {
            load(&secret, &wanted, &store);
        }
        Delta::Deleted(_) => tracing::warn!(secret = %wanted, "serving certificate deleted; it stays in use"),
        _ => {}
    };
    watch(api, options, sink, health, cancel).await;
}

fn load(secret: &Secret, name: &str, store: &CertStore) {
    let field =
        |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice());
    let (Some(chain), Some(key)) = (field("tls.crt"), field("tls.key")) else {
        return tracing::warn!(secret = name, "has no tls.crt or no tls.key yet");
    };
    if let Err(error) = store.set_pem(chain, key) {
        tracing::warn!(secret = name, %error, "serving certificate refused; the previous one stays in use");
    }
}
