//! Who gates pods at each API server: found by effect, never by what is configured. An API server of another version or with
//! an admission plugin turned off lists the policies and applies none.
//!
//! Asked is by dry runs of a [`sluice_api::GateProbe`], for which the rules for pods hold word for word: a right to create
//! pods is not needed.

mod aaqs;
mod metrics;
mod probe;
mod report;
mod status;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use sluice_manifests::Gating;
use sluice_runtime::api_servers::{ApiServer, ByServer, Pace, PerServer, Round, Servers};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

pub use metrics::GatingMetrics;
pub use probe::{Gates, LastWord, Seen, ask};
pub use report::Alarm;

use aaqs::KnownAaqs;
use report::Findings;

/// How often API servers are asked although nothing has happened.
const PACE: Pace =
    Pace { settled: Duration::from_secs(30), retry: (Duration::from_millis(500), Duration::from_secs(10)) };

/// What is known of all API servers.
#[derive(Debug)]
pub struct GatingWatch {
    expected: Gating,
    metrics: GatingMetrics,
    known: PerServer<Seen>,
    /// Those in whose status it is told.
    aaqs: signal::Sender<KnownAaqs>,
}

impl GatingWatch {
    /// Nothing is known yet. `expected` says who should gate.
    #[must_use]
    pub fn new(servers: Arc<Servers>, expected: Gating, metrics: GatingMetrics) -> Arc<Self> {
        let known = PerServer::new(servers, PACE);
        Arc::new(Self { expected, metrics, known, aaqs: signal::Sender::default() })
    }

    /// One line for people who look at this process.
    #[must_use]
    pub fn summary(&self) -> String {
        self.findings().summary()
    }

    fn findings(&self) -> Findings {
        Findings { expected: self.expected, seen: self.known.known().clone() }
    }

    /// Asks every API server: at the start, when they change, and now and then; sooner while something is wrong. `alarm` is
    /// called each time pods come in without a gate or are refused.
    pub async fn run(self: Arc<Self>, alarm: impl Fn(Alarm), cancel: CancellationToken) {
        let mut before = String::new();
        let asked = |_: &ByServer<Seen>| {
            let findings = self.findings();
            self.metrics.set(findings.seen.values());
            let now = findings.summary();
            let alarms = findings.alarms();
            if now != before && alarms.is_empty() {
                tracing::info!(gate = %now, "who gates pods");
            }
            before = now;
            for each in alarms {
                tracing::error!(reason = each.reason, api_server = %each.server, "{}", each.note);
                alarm(each);
            }
            if findings.is_settled() { Round::Settled } else { Round::Unsettled }
        };
        let ask = |server: ApiServer| async move { probe::ask(&server.client).await };
        self.known.keep(ask, |_, seen| seen, asked, cancel).await;
    }
}
