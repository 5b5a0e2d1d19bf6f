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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sluice_operator::Gating;
use sluice_runtime::api_servers::Servers;
use sluice_runtime::backoff::{Backoff, process_seed};
use tokio::sync::watch as signal;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use metrics::GatingMetrics;
pub use probe::{Gates, LastWord, Seen};
pub use report::Alarm;

use aaqs::KnownAaqs;
use report::Findings;

/// After this long an API server is asked anew although nothing has happened.
const FRESH: Duration = Duration::from_secs(30);
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// What is known of all API servers.
#[derive(Debug)]
pub struct GatingWatch {
    servers: Arc<Servers>,
    expected: Gating,
    metrics: GatingMetrics,
    /// By the name of the API server.
    known: signal::Sender<BTreeMap<Arc<str>, Seen>>,
    /// Those in whose status it is told.
    aaqs: signal::Sender<KnownAaqs>,
}

impl GatingWatch {
    /// Nothing is known yet. `expected` says who should gate.
    #[must_use]
    pub fn new(servers: Arc<Servers>, expected: Gating, metrics: GatingMetrics) -> Arc<Self> {
        let (known, aaqs) = (signal::Sender::default(), signal::Sender::default());
        Arc::new(Self { servers, expected, metrics, known, aaqs })
    }

    /// One line for people who look at this process.
    #[must_use]
    pub fn summary(&self) -> String {
        self.findings().summary()
    }

    fn findings(&self) -> Findings {
        Findings { expected: self.expected, seen: self.known.borrow().clone() }
    }

    /// Asks every API server: at the start, when they change, and now and then; sooner while something is wrong. `alarm` is
    /// called each time pods come in without a gate or are refused.
    pub async fn run(self: Arc<Self>, alarm: impl Fn(Alarm), cancel: CancellationToken) {
        let mut changes = self.servers.changes();
        let mut backoff = Backoff::new(RETRY.0, RETRY.1, process_seed());
        let work = async {
            let mut before = String::new();
            loop {
                changes.mark_unchanged();
                self.ask().await;
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
                let pause = if findings.is_settled() { FRESH } else { backoff.failed() };
                if findings.is_settled() {
                    backoff.reset();
                }
                tokio::select! {
                    () = sleep(pause) => {}
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    async fn ask(&self) {
        let servers = self.servers.each();
        let answers = join_all(servers.iter().map(|server| probe::ask(&server.client))).await;
        self.known.send_replace(servers.into_iter().map(|server| server.name).zip(answers).collect());
    }
}
