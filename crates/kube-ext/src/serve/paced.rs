//! A byte stream that gives up on a client that stalls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::ServeLimits;

/// How many requests of a connection are being worked on; shared by the stream and the service above it.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    running: Arc<AtomicUsize>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { running: Arc::default() }
    }

    /// A request's header is complete; its work lasts until the guard is dropped.
    pub(super) fn begin(&self) -> Working {
        self.running.fetch_add(1, Relaxed);
        Working(self.running.clone())
    }

    fn is_working(&self) -> bool {
        self.running.load(Relaxed) > 0
    }
}

/// See [`Pace::begin`].
pub(super) struct Working(Arc<AtomicUsize>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing of the next request has arrived.
    Idle,
    /// A header has begun.
    Header,
    /// At least one request is being worked on; its own limits apply.
    Working,
}

/// Wraps a connection. A read or write that waits past the limit of its phase fails with `TimedOut`.
pub(super) struct Paced<S> {
    inner: S,
    pace: Pace,
    phase: Phase,
    h2: bool,
    header: Duration,
    idle: Duration,
    working: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    /// A fresh connection owes its first header at once.
    pub(super) fn new(inner: S, pace: Pace, h2: bool, limits: &ServeLimits) -> Self {
        Self {
            inner,
            pace,
            phase: Phase::Header,
            h2,
            header: limits.header_timeout,
            idle: limits.idle_timeout,
            // The body and the answer have one request timeout each; the rest is for sending the answer.
            working: limits.request_timeout * 3,
            deadline: Box::pin(tokio::time::sleep(limits.header_timeout)),
        }
    }

    fn enter(&mut self, phase: Phase) {
        let limit = match phase {
            Phase::Idle => self.idle,
            Phase::Header => self.header,
            Phase::Working => self.working,
        };
        self.phase = phase;
        self.deadline.as_mut().reset(Instant::now() + limit);
    }

    /// Follows what the service above did since the last call.
    fn follow(&mut self) {
        match (self.phase, self.pace.is_working()) {
            (Phase::Idle | Phase::Header, true) => self.enter(Phase::Working),
            (Phase::Working, false) => self.enter(Phase::Idle),
            _ => {}
        }
    }

    fn received(&mut self) {
        match self.phase {
            // HTTP/2 has frames that belong to no request, so its streams are watched one by one above.
            Phase::Idle | Phase::Header if self.h2 => self.enter(Phase::Idle),
            Phase::Idle => self.enter(Phase::Header),
            Phase::Working if self.h2 => self.enter(Phase::Working),
            Phase::Header | Phase::Working => {}
        }
    }

    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.deadline
            .as_mut()
            .poll(cx)
            .map(|()| io::Error::new(io::ErrorKind::TimedOut, "the client stalled"))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.follow();
        let before = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(outcome) => {
                if buf.filled().len() > before {
                    self.received();
                }
                Poll::Ready(outcome)
            }
            Poll::Pending => self.stalled(cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.follow();
        match Pin::new(&mut self.inner).poll_write(cx, buf) {
            Poll::Pending => self.stalled(cx).map(Err),
            done => done,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.follow();
        match Pin::new(&mut self.inner).poll_flush(cx) {
            Poll::Pending => self.stalled(cx).map(Err),
            done => done,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_shutdown(cx) {
            Poll::Pending => self.stalled(cx).map(Err),
            done => done,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.follow();
        match Pin::new(&mut self.inner).poll_write_vectored(cx, bufs) {
            Poll::Pending => self.stalled(cx).map(Err),
            done => done,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
