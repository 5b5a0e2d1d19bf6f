//! The Secrets in the namespace of the installation that a process rests on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use sluice_runtime::shutdown::Tasks;
use sluice_runtime::tls::watch_secret;
use sluice_runtime::watch::WatchHealth;
use tokio_util::sync::CancellationToken;

/// What a Secret is for.
type Load = Box<dyn Fn(&Secret) + Send + Sync>;

/// Secrets in the namespace of the installation, each watched once by its name: an account may watch no others.
#[derive(Default)]
pub struct SecretWatches {
    loads: BTreeMap<String, Vec<Load>>,
}

impl SecretWatches {
    /// Hands the Secret of this name to `load`, now and after each change.
    pub fn load(&mut self, name: &str, load: impl Fn(&Secret) + Send + Sync + 'static) {
        self.loads.entry(name.to_owned()).or_default().push(Box::new(load));
    }

    /// Watches until `cancel`.
    pub fn spawn(self, tasks: &mut Tasks, client: &Client, namespace: &str, cancel: &CancellationToken) {
        for (name, loads) in self.loads {
            let (client, namespace, cancel) = (client.clone(), namespace.to_owned(), cancel.clone());
            tasks.spawn("secrets", async move {
                let load = move |secret: &Secret| loads.iter().for_each(|load| load(secret));
                let health = WatchHealth::new("secrets");
                watch_secret(client, &namespace, &name, load, health, cancel).await
            });
        }
    }
}
