//! Follows one object by name, and the Secrets of the installation so.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_api::names;
use sluice_manifests::PartNames;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, WentBack, watch};
use tokio::sync::watch::{Receiver, Sender};
use tokio_util::sync::CancellationToken;

use super::pairs::ca_pair;

/// So long Secrets are waited for before that is said. With the rights of an older manifest one may never be read.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen<K> {
    /// It was not looked for yet.
    Unknown,
    /// It does not exist.
    Absent,
    /// It exists like this.
    Present(K),
}

/// Keeps in `seen` what the API server has under `name`, until `cancel`.
pub(crate) async fn follow_one<K>(api: Api<K>, name: &str, seen: Sender<Seen<K>>, cancel: CancellationToken)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    // If resource versions went back the watches of the Secrets end the process.
    let _ = follow_by(WatchHealth::new(K::kind(&())), api, name, seen, cancel).await;
}

/// As [`follow_one`], with the state of the watch in `health`.
///
/// # Errors
/// As [`watch`].
pub(crate) async fn follow_by<K>(
    health: WatchHealth,
    api: Api<K>,
    name: &str,
    seen: Sender<Seen<K>>,
    cancel: CancellationToken,
) -> Result<(), WentBack>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let mut listed = None;
    let sink = |event: Event<K>| {
        let state = match event {
            Event::Init => {
                listed = None;
                return;
            }
            Event::InitApply(object) => {
                listed = Some(object);
                return;
            }
            Event::InitDone => listed.take().map_or(Seen::Absent, Seen::Present),
            Event::Apply(object) => Seen::Present(object),
            Event::Delete(_) => Seen::Absent,
        };
        seen.send_replace(state);
    };
    let options = WatchOptions::default().fields(format!("metadata.name={name}"));
    watch(api, options, sink, health, cancel).await
}

/// The Secrets with the authority and with the serving certificate: each is watched once, for all that use it. Clones share
/// what is known.
#[derive(Clone, Debug)]
pub struct Secrets {
    ca: Sender<Seen<Secret>>,
    serving: Sender<Seen<Secret>>,
    given: Sender<Seen<Secret>>,
    watches: [WatchHealth; 2],
    /// `None`: it is not watched, and may not be.
    given_watch: Option<WatchHealth>,
    parts: &'static PartNames,
}

impl Secrets {
    /// The two of these names, and if `is_given` the one that cert-manager writes.
    #[must_use]
    pub fn new(parts: &'static PartNames, is_given: bool) -> Self {
        let watches = [parts.authority, parts.serving].map(WatchHealth::new);
        let given_watch = is_given.then(|| WatchHealth::new(names::GIVEN_SECRET));
        let [ca, serving, given] = [(); 3].map(|()| Sender::new(Seen::Unknown));
        Self { ca, serving, given, watches, given_watch, parts }
    }

    /// Watches those in `namespace` until `cancel`.
    ///
    /// # Errors
    /// As [`watch`].
    pub async fn observe(
        self,
        client: Client,
        namespace: String,
        cancel: CancellationToken,
    ) -> Result<(), WentBack> {
        let api: Api<Secret> = Api::namespaced(client, &namespace);
        let [ca, serving] = self.watches;
        let given = async {
            match self.given_watch {
                Some(health) => {
                    follow_by(health, api.clone(), names::GIVEN_SECRET, self.given, cancel.clone()).await
                }
                None => Ok(()),
            }
        };
        tokio::try_join!(
            follow_by(ca, api.clone(), self.parts.authority, self.ca, cancel.clone()),
            follow_by(serving, api.clone(), self.parts.serving, self.serving, cancel.clone()),
            given,
        )
        .map(drop)
    }

    /// Waits until all were read again. What a new leader rests on is not older than its lease: a watch may have been
    /// broken for minutes, and the leader before has made a new authority meanwhile.
    pub(crate) async fn read_again(&self) {
        let watches = || self.watches.iter().chain(&self.given_watch);
        let mut reading = std::pin::pin!(futures::future::join_all(watches().map(WatchHealth::list_again)));
        while tokio::time::timeout(PATIENCE, reading.as_mut()).await.is_err() {
            for watch in watches() {
                if let Err(error) = watch.check() {
                    tracing::warn!(secret = watch.kind(), %error, "nothing is written before this Secret was read");
                }
            }
        }
    }

    /// Hands the Secret with the serving certificate to `load`, now and after each change, until `cancel`. When it is
    /// deleted, what was loaded before stays in use.
    pub async fn load_serving(self, load: impl Fn(&Secret), cancel: CancellationToken) {
        let mut changes = self.serving();
        let loading = async {
            while changes.changed().await.is_ok() {
                if let Seen::Present(secret) = &*changes.borrow_and_update() {
                    load(secret);
                }
            }
        };
        cancel.run_until_cancelled(loading).await;
    }

    /// PEM of the authority's certificate, if it is known and there is one.
    #[must_use]
    pub fn authority(&self) -> Option<String> {
        match &*self.ca.borrow() {
            Seen::Present(secret) => Some(ca_pair(secret).certificate),
            Seen::Absent | Seen::Unknown => None,
        }
    }

    /// The Secret with the authority. What is known already counts as a change.
    pub(crate) fn ca(&self) -> Receiver<Seen<Secret>> {
        fresh(&self.ca)
    }

    /// As [`Self::ca`], the one with the serving certificate.
    pub(crate) fn serving(&self) -> Receiver<Seen<Secret>> {
        fresh(&self.serving)
    }

    /// As [`Self::ca`], the one that cert-manager writes.
    pub(crate) fn given(&self) -> Receiver<Seen<Secret>> {
        fresh(&self.given)
    }
}

fn fresh(of: &Sender<Seen<Secret>>) -> Receiver<Seen<Secret>> {
    let mut changes = of.subscribe();
    changes.mark_changed();
    changes
}
