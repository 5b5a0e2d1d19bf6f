//! The stream of a watch, passed on event by event.

use anyhow::anyhow;
use bytes::{Bytes, BytesMut};
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::watch;

use super::WatchOrder;
use super::body::Body;

/// How a rule ends a watch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Cut,
    Expired,
}

/// The event with which an API server tells that a resource version is too old.
const EXPIRED: &[u8] = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
\"status\":\"Failure\",\"message\":\"too old resource version (fault proxy)\",\"reason\":\"Expired\",\"code\":410}}\n";

/// What may hold back the events of a watch.
pub(super) struct Hold {
    /// The path of this watch's request.
    pub(super) path: String,
    /// The end of the paths that are held.
    pub(super) held: watch::Receiver<Option<&'static str>>,
}

impl Hold {
    async fn over(&mut self) {
        // The sender lives as long as the proxy; without it nothing holds events back.
        let _ = self.held.wait_for(|end| !end.is_some_and(|end| self.path.ends_with(end))).await;
    }
}

/// A watch on its way through the proxy.
pub(super) struct WatchBody {
    upstream: kube::client::Body,
    orders: watch::Receiver<(u64, WatchOrder)>,
    hold: Hold,
    /// Events that may pass before the rule's ending.
    ending: Option<(usize, Ending)>,
    buffer: BytesMut,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended,
}

impl WatchBody {
    pub(super) fn new(
        upstream: kube::client::Body,
        mut orders: watch::Receiver<(u64, WatchOrder)>,
        hold: Hold,
        ending: Option<(usize, Ending)>,
    ) -> Self {
        // Orders given before this watch began are not meant for it.
        orders.borrow_and_update();
        let (buffer, state) = (BytesMut::new(), State::Running);
        Self { upstream, orders, hold, ending, buffer, state }
    }

    pub(super) fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut watch| async move {
            let next = watch.next().await?;
            Some((next.map(Frame::data), watch))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<anyhow::Result<Bytes>> {
        if self.state == State::Ended {
            return None;
        }
        match self.ending.as_mut() {
            Some((0, ending)) => {
                let ending = *ending;
                return self.end(ending).await;
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        tokio::select! {
            biased;
            Ok(()) = self.orders.changed() => {
                let order = self.orders.borrow_and_update().1;
                let ending = match order { WatchOrder::Cut => Ending::Cut, WatchOrder::Expire => Ending::Expired };
                self.end(ending).await
            }
            line = line(&mut self.upstream, &mut self.buffer, &mut self.hold) => {
                if !matches!(line, Some(Ok(_))) {
                    self.state = State::Ended;
                }
                line
            }
        }
    }

    async fn end(&mut self, ending: Ending) -> Option<anyhow::Result<Bytes>> {
        self.state = State::Ended;
        // While the body is pending, the server sends what it has buffered: the events that
        // were let through must arrive before the connection breaks.
        tokio::task::yield_now().await;
        Some(match ending {
            Ending::Cut => Err(anyhow!("the watch is cut by rule")),
            Ending::Expired => Ok(Bytes::from_static(EXPIRED)),
        })
    }
}

/// The next whole line; safe to abandon, for what was read stays in the buffer.
async fn line(
    upstream: &mut kube::client::Body,
    buffer: &mut BytesMut,
    hold: &mut Hold,
) -> Option<anyhow::Result<Bytes>> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            hold.over().await;
            return Some(Ok(buffer.split_to(end + 1).freeze()));
        }
        match upstream.frame().await? {
            Ok(frame) => {
                if let Some(data) = frame.data_ref() {
                    buffer.extend_from_slice(data);
                }
            }
            Err(error) => return Some(Err(anyhow!("reading the watch: {error}"))),
        }
    }
}
