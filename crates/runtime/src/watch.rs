//! List and watch of one kind, handed to a sink object by object; nothing is stored here.
//!
//! The loop is our own and not `kube::runtime::watcher`, because that one (5.0.0) keeps asking with the same resource
//! version when 410 comes as an HTTP status, hides bookmarks (so that staleness cannot be measured), and reconnects
//! without a pause when a server accepts watches and closes them at once.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, process_seed};
use crate::client::with_deadline;

mod absent;
mod health;
mod shown;

use absent::until_installed;
use health::SILENT;
pub use health::WatchHealth;
use shown::Shown;

/// Wrapper for kinds whose objects can be malformed (our own custom resources): one bad object arrives as `Err` with its
/// metadata, and the others still arrive. It decodes about three times slower, so do not use it for pods; give hot kinds
/// a narrow type whose fields are all lenient instead.
pub use kube::core::DeserializeGuard as Lenient;

/// A change of the set of objects. `Init` begins a complete list (one that is still unfinished is void: it failed half-way),
/// `InitDone` ends it: what was not listed since `Init` does not exist any more. `Delete` also comes for an object that no
/// longer matches the selectors.
pub use kube::runtime::watcher::Event;

#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Label selector, evaluated by the server.
    pub labels: Option<String>,
    /// Field selector, evaluated by the server.
    pub fields: Option<String>,
    /// Objects per page of a list; bounds the memory of a relist.
    pub page_size: u32,
    /// The server ends a watch after this time and we resume it. Must be below 295 s.
    pub watch_for: Duration,
    /// Limit for one page of a list, and for the start of a watch.
    pub request_timeout: Duration,
    /// Kinds of an optional product: when the server does not know the kind (404), that is reported as a complete empty
    /// list, before whose end [`WatchHealth::is_served`] says so. It is asked for again once its CustomResourceDefinition
    /// is there, which needs the right to watch that, and every five minutes for kinds that have none. Otherwise the watch
    /// is not synced until the kind exists, and the kind is asked for with backoff.
    pub absent_is_empty: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            page_size: 250,
            watch_for: Duration::from_secs(280),
            request_timeout: Duration::from_secs(60),
            absent_is_empty: false,
        }
    }
}

impl WatchOptions {
    /// Only objects that match this label selector.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that match this field selector.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Without selectors.
    fn watch_params(&self) -> WatchParams {
        WatchParams {
            timeout: u32::try_from(self.watch_for.as_secs().clamp(1, 294)).ok(),
            bookmarks: true,
            send_initial_events: false,
            ..WatchParams::default()
        }
    }
}

/// The next event of a watch; none when the server has ended it. An error that [`needs_list`] when nothing was heard for
/// [`SILENT`]: the connection is dead, or the version that the watch began with is of the future, as after a restore of
/// etcd: then an API server leaves out all that comes before it, bookmarks too.
async fn next<E>(
    events: &mut BoxStream<'_, kube::Result<WatchEvent<E>>>,
    health: &WatchHealth,
    started: Instant,
) -> kube::Result<Option<WatchEvent<E>>> {
    // What was not heard before the watch began says nothing of it.
    let silent = health.staleness().min(started.elapsed());
    match tokio::time::timeout(SILENT.saturating_sub(silent), events.next()).await {
        Ok(event) => event.transpose(),
        Err(_) => Err(expired("the watch went silent")),
    }
}

/// A list has ended with an earlier version than what was known, or has an object as it was before: all that is known by
/// version is of a store that is no more. A restart is the way to forget it all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("resource versions went back from {from} to {to}: etcd was restored")]
pub struct WentBack {
    /// The latest version that was known.
    pub from: u64,
    /// The version of the list, or of an object in it.
    pub to: u64,
}

/// Why a connection did not go on.
enum Interrupted {
    /// The watch ended in an orderly way or the connection broke; resume from the last version.
    Resume(Option<kube::Error>),
    /// The last version is of no use any more; list again.
    Relist(kube::Error),
    /// A list is asked for.
    Wanted,
    /// The store is another one.
    WentBack(WentBack),
}

/// A watch that lived this long was a success, even if it delivered nothing.
const LIVED: Duration = Duration::from_secs(5);

/// Lists and watches until `cancel`, and hands every change to `sink` in order.
///
/// Any failure is retried with a jittered backoff of 100 ms up to 30 s: lost connections, 410, 403, and 404 while the
/// kind's CRD is not installed (see [`WatchOptions::absent_is_empty`] for optional kinds). `sink` runs on this task and must
/// not block. Lists ask for the most recent state, in pages; an object is dropped after `sink` saw it.
///
/// # Errors
/// When resource versions went back. The process is to end then.
pub async fn watch<K>(
    api: Api<K>,
    options: WatchOptions,
    mut sink: impl FnMut(Event<K>),
    health: WatchHealth,
    cancel: CancellationToken,
) -> Result<(), WentBack>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30), process_seed());
    let follow = async {
        let (mut version, mut shown) = (None, Shown::default());
        loop {
            let start = Instant::now();
            let before = health.deliveries();
            let from = version.take();
            let outcome = round(&api, &options, from, &mut sink, &health, (&mut version, &mut shown)).await;
            if health.deliveries() != before || start.elapsed() >= LIVED {
                backoff.reset();
            }
            let wait = backoff.failed();
            let error = match outcome {
                Interrupted::Resume(None) => {
                    health.rest(wait).await;
                    continue;
                }
                Interrupted::Wanted => {
                    version = None;
                    continue;
                }
                Interrupted::WentBack(error) => {
                    tracing::error!(kind = health.kind(), %error, "the process has to end");
                    return error;
                }
                Interrupted::Resume(Some(error)) => error,
                Interrupted::Relist(error) => {
                    version = None;
                    error
                }
            };
            health.failed(&error);
            tracing::warn!(kind = health.kind(), %error, retry_in = ?wait, "watch interrupted");
            health.rest(wait).await;
        }
    };
    tokio::select! {
        error = follow => Err(error),
        error = health.other_store() => {
            tracing::error!(kind = health.kind(), %error, "the process has to end");
            Err(error)
        }
        () = cancel.cancelled() => Ok(()),
    }
}

/// One list (unless `from` says where to resume) and one watch. Leaves the last version seen in `version`.
async fn round<K>(
    api: &Api<K>,
    options: &WatchOptions,
    from: Option<String>,
    sink: &mut impl FnMut(Event<K>),
    health: &WatchHealth,
    (version, shown): (&mut Option<String>, &mut Shown),
) -> Interrupted
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    health.tries();
    *version = match from {
        Some(known) => Some(known),
        None => match list(api, options, sink, health, shown).await {
            Ok(Ok(listed)) => match health.went_back_to(&listed) {
                Some(error) => return Interrupted::WentBack(error),
                None => Some(listed),
            },
            Ok(Err(error)) => return Interrupted::WentBack(error),
            Err(error) if options.absent_is_empty && is_absent(&error) => {
                let installed = tokio::select! {
                    installed = until_installed(api, options, health) => installed,
                    () = health.list_wanted() => return Interrupted::Wanted,
                };
                return installed.map_or_else(Interrupted::Relist, |()| Interrupted::Resume(None));
            }
            Err(error) => return Interrupted::Relist(error),
        },
    };
    let followed = tokio::select! {
        followed = follow(api, options, version, sink, health, shown) => followed,
        () = health.list_wanted() => return Interrupted::Wanted,
    };
    match followed {
        Ok(()) => Interrupted::Resume(None),
        Err(error) if needs_list(&error) => Interrupted::Relist(error),
        Err(error) => Interrupted::Resume(Some(error)),
    }
}

/// 410 in either form: the version is too old. An undecodable object was lost on the way, so only a list can tell.
/// Without a version there is nothing to resume from.
fn needs_list(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 400 | 404 | 410) || status.reason == "Expired",
        kube::Error::SerdeError(_) => true,
        _ => false,
    }
}

async fn list<K>(
    api: &Api<K>,
    options: &WatchOptions,
    sink: &mut impl FnMut(Event<K>),
    health: &WatchHealth,
    shown: &Shown,
) -> kube::Result<Result<String, WentBack>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams {
        label_selector: options.labels.clone(),
        field_selector: options.fields.clone(),
        limit: Some(options.page_size),
        ..ListParams::default()
    };
    let number = health.listing();
    sink(Event::Init);
    loop {
        let page = match with_deadline(options.request_timeout, api.list(&params)).await {
            Ok(page) => page,
            Err(error) => {
                if options.absent_is_empty && is_absent(&error) {
                    if health.is_served() != Some(false) {
                        tracing::info!(kind = health.kind(), "not installed");
                    }
                    health.set_served(false);
                    sink(Event::Init);
                    sink(Event::InitDone);
                    health.listed(number);
                }
                return Err(error);
            }
        };
        for object in page.items {
            if let Some(error) = shown.went_back(object.meta(), page.metadata.resource_version.as_deref()) {
                return Ok(Err(error));
            }
            sink(Event::InitApply(object));
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            let version = version.ok_or_else(no_version)?;
            health.set_served(true);
            sink(Event::InitDone);
            health.at(&version);
            health.listed(number);
            return Ok(Ok(version));
        }
    }
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn no_version() -> kube::Error {
    expired("the server sent no resourceVersion; this kind cannot be watched")
}

/// Only a list can tell how things are.
fn expired(message: &str) -> kube::Error {
    kube::Error::Api(kube::core::Status::failure(message, "Expired").with_code(410).boxed())
}

async fn follow<K>(
    api: &Api<K>,
    options: &WatchOptions,
    version: &mut Option<String>,
    sink: &mut impl FnMut(Event<K>),
    health: &WatchHealth,
    shown: &mut Shown,
) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let params = WatchParams {
        label_selector: options.labels.clone(),
        field_selector: options.fields.clone(),
        ..options.watch_params()
    };
    let from = version.clone().unwrap_or_default();
    let stream = with_deadline(options.request_timeout, api.watch(&params, &from)).await?;
    health.follows();
    let (mut events, started) = (stream.into_stream().boxed(), Instant::now());
    while let Some(event) = next(&mut events, health, started).await? {
        let event = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                keep_version(version, object.meta().resource_version.as_deref())?;
                shown.show(object.meta());
                Event::Apply(object)
            }
            WatchEvent::Deleted(object) => {
                keep_version(version, object.meta().resource_version.as_deref())?;
                Event::Delete(object)
            }
            WatchEvent::Bookmark(mark) => {
                keep_version(version, Some(&mark.metadata.resource_version))?;
                health.at(&mark.metadata.resource_version);
                health.delivered();
                continue;
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status.boxed())),
        };
        health.delivered();
        sink(event);
        health.at(version.as_deref().unwrap_or_default());
    }
    Ok(())
}

fn keep_version(version: &mut Option<String>, seen: Option<&str>) -> kube::Result<()> {
    match seen.filter(|seen| !seen.is_empty()) {
        Some(seen) => {
            *version = Some(seen.to_owned());
            Ok(())
        }
        None => Err(no_version()),
    }
}

#[cfg(test)]
mod tests;
