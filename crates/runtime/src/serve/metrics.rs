//! What the server counts.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why a client was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Refusal {
    /// A connection too many.
    Connections,
    /// A connection was closed for another.
    Displaced,
    /// The handshake failed or took too long.
    Handshake,
    /// No answer in time (503).
    NoAnswer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: Refusal,
}

/// Counts of one server. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct ServeMetrics {
    connections: Gauge,
    panics: Counter,
    refused: Family<Reason, Counter>,
}

impl ServeMetrics {
    /// Registers `serve_connections`, `serve_panics_total` and `serve_refused_total{reason}`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("serve_connections", "Open connections", self.connections.clone());
        registry.register("serve_panics", "Handlers that panicked", self.panics.clone());
        registry.register("serve_refused", "Clients and requests turned away", self.refused.clone());
    }

    /// Connections that are open now.
    pub fn connections(&self) -> i64 {
        self.connections.get()
    }

    /// Handlers that panicked so far.
    pub fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Everything that was turned away so far.
    pub fn refused(&self) -> u64 {
        use Refusal as R;
        let count = |reason| self.refused.get(&Reason { reason }).map_or(0, |counter| counter.get());
        [R::Connections, R::Displaced, R::Handshake, R::NoAnswer].into_iter().map(count).sum()
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    pub(super) fn refuse(&self, reason: Refusal) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    pub(super) fn opened(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }
}

/// Counts a connection for as long as it lives.
pub(super) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
