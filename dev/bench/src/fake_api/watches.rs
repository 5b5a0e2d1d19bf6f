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
use super::body::Body;
use super::object::{Event, Kind};

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
        let is_old = |event: &Event| event.version <= version;
        let sent = shared.read(|world| world.events(kind).partition_point(is_old));
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
                Ok(()) = self.news.changed() => false,
                _ = self.bookmarks.tick() => true,
            };
            if is_time && let Some(bookmark) = self.bookmark() {
                return bookmark;
            }
        }
    }

    /// The next events, if there are any.
    fn take(&mut self) -> Option<Bytes> {
        let events: Vec<Event> = self
            .shared
            .read(|world| world.events(self.kind).iter().skip(self.sent).take(BATCH).cloned().collect());
        self.sent += events.len();
        let mut text = String::new();
        for event in &events {
            text.push_str(&format!(r#"{{"type":"{}","object":"#, event.word));
            event.object.print(&self.shared.template, &mut text);
            text.push_str("}\n");
        }
        let told = events.iter().filter(|event| !event.is_caused).count();
        self.shared.delivered.fetch_add(u64::try_from(told).unwrap_or(0), Ordering::Relaxed);
        (!text.is_empty()).then(|| text.into())
    }

    /// Says how far this watch has come; nothing while there are events that it did not send.
    fn bookmark(&self) -> Option<Bytes> {
        let version = self.shared.read(|world| {
            let there = world.events(self.kind).len();
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
