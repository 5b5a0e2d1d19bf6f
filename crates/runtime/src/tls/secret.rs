//! What a server loads from a Secret, followed by a watch.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::CertStore;
use crate::watch::{Event, WatchHealth, WatchOptions, WentBack, watch};

/// Hands one Secret to `load` now and after each change, until `cancel`.
///
/// A Secret that is deleted is logged; what was loaded before stays in use. Needs `list` and `watch` on this one name only.
///
/// # Errors
/// As [`watch`].
pub async fn watch_secret(
    client: Client,
    namespace: &str,
    name: &str,
    load: impl Fn(&Secret) + Send,
    health: WatchHealth,
    cancel: CancellationToken,
) -> Result<(), WentBack> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let options = WatchOptions::default().fields(format!("metadata.name={name}"));
    let wanted = name.to_owned();
    let sink = move |event: Event<Secret>| match event {
        Event::InitApply(secret) | Event::Apply(secret)
            if secret.metadata.name.as_deref() == Some(&wanted) =>
        {
            load(&secret);
        }
        Event::Delete(_) => tracing::warn!(secret = %wanted, "serving certificate deleted; it stays in use"),
        _ => {}
    };
    watch(api, options, sink, health, cancel).await
}

/// The bytes under a key of a Secret.
pub fn secret_entry<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice())
}

impl CertStore {
    /// Loads `tls.crt` and `tls.key` of a Secret of type `kubernetes.io/tls`. What is missing or unusable is logged.
    pub fn load_secret(&self, secret: &Secret) {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let (Some(chain), Some(key)) = (secret_entry(secret, "tls.crt"), secret_entry(secret, "tls.key"))
        else {
            return tracing::warn!(secret = name, "has no tls.crt or no tls.key yet");
        };
        if let Err(error) = self.set_pem(chain, key) {
            tracing::warn!(secret = name, %error, "serving certificate refused; the previous one stays in use");
        }
    }
}
