//! A byte stream that gives up on a client that stalls.
//!
//! hyper's `header_read_timeout` runs while a connection is idle too, so with it the API server's connections would be
//! closed between two requests, or clients that send their header slowly would be kept for as long as idle ones.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::ServeLimits;
use super::connection_state::ConnectionState;

/// What the client owes.
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
pub(super) struct StallTimeout<S> {
    inner: S,
    state: ConnectionState,
    wait: Wait,
    header: Duration,
    idle: Duration,
    working: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S> StallTimeout<S> {
    /// A fresh connection is an idle one: the API server dials more connections than it then needs, and keeps the others
    /// for later requests.
    pub(super) fn new(inner: S, state: ConnectionState, limits: &ServeLimits) -> Self {
        Self {
            inner,
            state,
            wait: Wait::Idle,
            header: limits.header_timeout,
            idle: limits.idle_timeout,
            // What comes on top is for sending the answer.
            working: limits.request_timeout * 2,
            deadline: Box::pin(tokio::time::sleep(limits.idle_timeout)),
        }
    }

    fn enter(&mut self, wait: Wait) {
        let limit = match wait {
            Wait::Idle => self.idle,
            Wait::Header => self.header,
            Wait::Working => self.working,
        };
        self.wait = wait;
        self.deadline.as_mut().reset(Instant::now() + limit);
    }

    /// Follows what the service above did since the last call.
    fn follow(&mut self) {
        match (self.wait, self.state.is_working()) {
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

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
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
