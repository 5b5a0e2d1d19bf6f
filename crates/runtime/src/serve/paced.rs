//! A byte stream that gives up on a client that stalls.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::ServeLimits;

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// For its handshake, or for a request.
    Waiting,
    /// The header of a request is there, its body is not.
    Reading,
    /// A request is there as a whole.
    Answering,
}

/// What is known of a connection; shared by its stream, the service above it and the table of all connections.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    phase: AtomicU8,
    proven: AtomicBool,
    /// Milliseconds since the first connection of the process.
    since: AtomicU64,
}

/// Milliseconds that all connections are compared by.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Pace {
    pub(super) fn new() -> Self {
        let since = AtomicU64::new(now_ms());
        Self(Arc::new(Shared { phase: AtomicU8::new(0), proven: AtomicBool::new(false), since }))
    }

    /// A request's header is complete; its work lasts until the guard is dropped.
    pub(super) fn begin(&self) -> Working {
        self.0.phase.store(1, Relaxed);
        Working(self.clone())
    }

    /// The request's body is complete.
    pub(super) fn complete(&self) {
        self.0.phase.store(2, Relaxed);
    }

    /// The client had a successful answer.
    pub(super) fn prove(&self) {
        self.0.proven.store(true, Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.0.phase.load(Relaxed) {
            0 => Phase::Waiting,
            1 => Phase::Reading,
            _ => Phase::Answering,
        }
    }

    fn is_working(&self) -> bool {
        self.phase() != Phase::Waiting
    }

    fn is_proven(&self) -> bool {
        self.0.proven.load(Relaxed)
    }

    /// Phase, whether it is proven, and since when it waits.
    pub(super) fn seen(&self) -> (Phase, bool, u64) {
        (self.phase(), self.is_proven(), self.0.since.load(Relaxed))
    }
}

/// See [`Pace::begin`].
pub(super) struct Working(Pace);

impl Drop for Working {
    fn drop(&mut self) {
        let Self(Pace(shared)) = self;
        shared.since.store(now_ms(), Relaxed);
        shared.phase.store(0, Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Nothing of the next request has arrived.
    Idle,
    /// A header has begun.
    Header,
    /// A request is being worked on; its own limits apply.
    Working,
}

/// Wraps a connection. A read or write that waits past the limit of its phase fails with `TimedOut`.
pub(super) struct Paced<S> {
    inner: S,
    pace: Pace,
    wait: Wait,
    header: Duration,
    idle: Duration,
    working: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    /// A fresh connection owes its first header at once.
    pub(super) fn new(inner: S, pace: Pace, limits: &ServeLimits) -> Self {
        Self {
            inner,
            pace,
            wait: Wait::Header,
            header: limits.header_timeout,
            idle: limits.idle_timeout,
            // What comes on top is for sending the answer.
            working: limits.request_timeout * 2,
            deadline: Box::pin(tokio::time::sleep(limits.header_timeout)),
        }
    }

    fn enter(&mut self, wait: Wait) {
        let limit = match wait {
            Wait::Idle if self.pace.is_proven() => self.idle,
            // Who never had a successful answer is not worth a slot for longer than a header may take.
            Wait::Idle | Wait::Header => self.header,
            Wait::Working => self.working,
        };
        self.wait = wait;
        self.deadline.as_mut().reset(Instant::now() + limit);
    }

    /// Follows what the service above did since the last call.
    fn follow(&mut self) {
        match (self.wait, self.pace.is_working()) {
            (Wait::Idle | Wait::Header, true) => self.enter(Wait::Working),
            (Wait::Working, false) => self.enter(Wait::Idle),
            _ => {}
        }
    }

    fn received(&mut self) {
        if self.wait == Wait::Idle {
            self.enter(Wait::Header);
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
