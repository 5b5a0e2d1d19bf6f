//! Watches of a kind for a page: with the user's rights, through failures, and with what is to be said of them.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use sluice_dashboard::{Interruption, Shared};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, NO_CREDENTIALS, classify};
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch};
use tokio_util::sync::CancellationToken;

use crate::cli::cluster::Connection;

/// A kind that is not installed is looked for again after this time, and a right that is missing too.
pub const AGAIN: Duration = Duration::from_secs(30);
/// How often it is looked whether a watch goes on.
const LOOK: Duration = Duration::from_millis(250);

/// The right to list the kind is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden;

/// Watches a kind, and says on the page when nothing is heard of it.
pub struct Source<'s> {
    pub connection: &'s Connection,
    pub page: &'s Shared,
    /// The name of this watch among those of the page.
    pub what: String,
}

/// How it stands with a kind.
enum Standing {
    Listed,
    Absent,
    Forbidden,
}

impl Source<'_> {
    /// Follows the kind for as long as it may be listed. Of a kind that is not installed there is nothing.
    pub async fn follow<K>(&self, api: Api<K>, mut sink: impl FnMut(Event<K>)) -> Forbidden
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        loop {
            match self.standing(&api).await {
                Standing::Forbidden => return Forbidden,
                Standing::Absent => {
                    sink(Event::Init);
                    sink(Event::InitDone);
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Standing::Listed => {}
            }
            let health = WatchHealth::new(self.what.clone());
            let options = WatchOptions { page_size: 500, ..WatchOptions::default() };
            let watched = watch(api.clone(), options, &mut sink, health.clone(), CancellationToken::new());
            // Resource versions went back, or the kind or the right has gone: from the beginning.
            tokio::select! {
                _ = watched => {}
                () = self.look_after(&health) => {}
            }
        }
    }

    /// Asks for one object until there is an answer.
    async fn standing<K>(&self, api: &Api<K>) -> Standing
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10), process_seed());
        loop {
            let one = ListParams::default().limit(1);
            let error = match with_deadline(self.connection.deadline, api.list_metadata(&one)).await {
                Ok(_) => {
                    self.tell(None);
                    return Standing::Listed;
                }
                Err(error) => error,
            };
            match classify(&error) {
                Failure::Forbidden => {
                    self.tell(None);
                    return Standing::Forbidden;
                }
                Failure::NotFound => {
                    self.tell(None);
                    return Standing::Absent;
                }
                failure => self.tell(Some((failure, error.to_string()))),
            }
            tokio::time::sleep(backoff.failed()).await;
        }
    }

    /// Tells how the watch goes, until it cannot go on by itself.
    async fn look_after(&self, health: &WatchHealth) {
        let mut told = None;
        loop {
            let interruption = health.interruption();
            if interruption != told {
                self.tell(interruption.clone());
                told.clone_from(&interruption);
            }
            if matches!(interruption, Some((Failure::Forbidden | Failure::NotFound, _))) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub fn tell(&self, interruption: Option<(Failure, String)>) {
        let now = self.connection.now();
        self.page.change(|model| {
            let interruption = interruption.map(|(failure, error)| Interruption {
                since: model.interrupted_since(&self.what).unwrap_or(now),
                why: reason(failure, error),
            });
            model.set_interruption(&self.what, interruption);
        });
    }

    /// It is not watched any more.
    pub fn end(&self) {
        self.tell(None);
    }
}

fn reason(failure: Failure, error: String) -> String {
    match failure {
        Failure::Other(401) => {
            "the API server does not accept the credentials of the kubeconfig (401): log in again, then start the command \
             again unless the page goes on"
                .to_owned()
        }
        _ if error == NO_CREDENTIALS => error,
        Failure::Unknown => format!("the API server cannot be reached: {error}"),
        _ => error,
    }
}
