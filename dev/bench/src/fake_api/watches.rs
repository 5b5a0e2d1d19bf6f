//! Watches: what has changed since a version, and then each change as it happens.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, interval_at};

use super::Shared;
use super::answer::Body;
use super::kind::Kind;
use super::world::{Change, PodEvent, QuotaEvent};

/// An API server sends a bookmark about so often.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// Events that are sent together at most, if so many are there.
const BATCH: usize = 64;

/// One client's watch.
pub(super) struct Watch {
    shared: Arc<Shared>,
    kind: Kind,
    /// How many of the kind's events were sent, or are older than the watch.
    sent: usize,
    news: watch::Receiver<()>,
    bookmarks: Interval,
}

impl Watch {
    /// Tells of what happened after this version.
    pub(super) fn since(shared: &Arc<Shared>, kind: Kind, version: u64) -> Self {
        let sent = shared.read(|world| match kind {
            Kind::Pods => world.pod_events().partition_point(|event| event.facts.version <= version),
            Kind::Quotas => world.quota_events().partition_point(|event| event.version <= version),
            Kind::Namespaces | Kind::Other => 0,
        });
        let bookmarks = interval_at(Instant::now() + BOOKMARKS, BOOKMARKS);
        Self { shared: Arc::clone(shared), kind, sent, news: shared.news.subscribe(), bookmarks }
    }

    /// The body of the answer; it does not end.
    pub(super) fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut watch| async move {
            let events = watch.next().await;
            Some((Ok::<_, Infallible>(Frame::data(events)), watch))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Bytes {
        loop {
            self.news.mark_unchanged();
            if let Some(events) = self.take() {
                return events;
            }
            let is_time = tokio::select! {
                // There is an error only when the server ends, and this watch with it.
                Ok(()) = self.news.changed(), if self.kind.changes() => false,
                _ = self.bookmarks.tick() => true,
            };
            if is_time && let Some(bookmark) = self.bookmark() {
                return bookmark;
            }
        }
    }

    /// The next events, if there are any.
    fn take(&mut self) -> Option<Bytes> {
        let mut text = String::new();
        match self.kind {
            Kind::Pods => {
                let events: Vec<PodEvent> = self
                    .shared
                    .read(|world| world.pod_events().iter().skip(self.sent).take(BATCH).copied().collect());
                self.sent += events.len();
                let caused = events.iter().filter(|event| event.change == Change::Released).count();
                for event in &events {
                    text.push_str(&format!(r#"{{"type":"{}","object":"#, event.change.word()));
                    self.shared.template.write(event.facts, &mut text);
                    text.push_str("}\n");
                }
                let told = u64::try_from(events.len() - caused).unwrap_or(0);
                self.shared.delivered.fetch_add(told, Ordering::Relaxed);
            }
            Kind::Quotas => {
                let events: Vec<QuotaEvent> = self
                    .shared
                    .read(|world| world.quota_events().iter().skip(self.sent).take(BATCH).cloned().collect());
                self.sent += events.len();
                for event in &events {
                    text.push_str(&format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", event.quota));
                }
            }
            Kind::Namespaces | Kind::Other => {}
        }
        (!text.is_empty()).then(|| text.into())
    }

    /// Says how far this watch has come; nothing while there are events that it did not send.
    fn bookmark(&self) -> Option<Bytes> {
        let version = self.shared.read(|world| {
            let there = match self.kind {
                Kind::Pods => world.pod_events().len(),
                Kind::Quotas => world.quota_events().len(),
                Kind::Namespaces | Kind::Other => self.sent,
            };
            (there == self.sent).then(|| world.version())
        })?;
        let (api_version, kind) = self.kind.names();
        let mark = format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\
             \"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n"
        );
        Some(mark.into())
    }
}
