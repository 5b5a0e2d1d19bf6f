//! Admission at 1,000 requests a second: the `sluice webhook` process on one core, a client on another that behaves
//! like an API server (TLS, HTTP/1.1, connections kept).

mod attack;
mod attacked;
mod load;
mod process;
mod reviews;

use std::time::Duration;

use serde_json::json;
use sluice_e2e::metrics::Samples;

use crate::histogram::Histogram;
use crate::report::{Run, extend, figures, quantile, say};
use process::Server;

const RATE_PER_S: u32 = 1_000;
const CONNECTIONS: u32 = 16;
const GOAL_MS: f64 = 2.0;

/// Measures, prints, writes `webhook.json`.
///
/// # Errors
/// When the webhook cannot be started, or answers anything but an admission.
pub fn run(run: &Run) -> anyhow::Result<()> {
    let cores = process::Cores::split()?;
    crate::runtime()?.block_on(measure(run, &cores))
}

async fn measure(run: &Run, cores: &process::Cores) -> anyhow::Result<()> {
    let seconds = run.either(5, 20);
    let server = Server::start(cores).await?;
    let bodies = reviews::all()?;
    say("webhook: warming up for 2 s");
    server.load(&bodies, RATE_PER_S, CONNECTIONS, Duration::from_secs(2)).await?;
    say(&format!("webhook: {RATE_PER_S} requests/s over {CONNECTIONS} connections for {seconds} s"));
    let (before, cpu_before) = (server.histogram().await?, server.cpu()?);
    let mut measured = server.load(&bodies, RATE_PER_S, CONNECTIONS, Duration::from_secs(seconds)).await?;
    let (after, cpu_after) = (server.histogram().await?, server.cpu()?);
    let served = after.since(&before);
    let p99 = served.quantile_ms(0.99);
    let [client_p50, client_p99, client_max] =
        [0.5, 0.99, 1.0].map(|q| quantile(&mut measured.latencies_ms, q));
    let size = |body: &reviews::Body| json!({"endpoint": body.endpoint, "bytes": body.bytes.len()});
    let mut file = json!({
        "rate_per_s": RATE_PER_S,
        "achieved_per_s": measured.rate(),
        "seconds": seconds,
        "requests": served.count(),
        "connections": CONNECTIONS,
        "p50_ms": served.quantile_ms(0.5),
        "p99_ms": p99,
        // What the histogram cannot hold apart is read as the upper bound of its bucket.
        "p99_ms_upper_bound": served.bound_ms(0.99),
        "buckets": served.json(),
        "client_p50_ms": client_p50,
        "client_p99_ms": client_p99,
        "client_max_ms": client_max,
        "cpu_us_per_request": (cpu_after - cpu_before).as_secs_f64() * 1e6 / measured.answered(),
        "bodies": bodies.iter().map(size).collect::<Vec<_>>(),
        "cores": cores.describe(),
        "api_server": "a fake: a version, empty lists, watches without events",
        "measured": "p50_ms and p99_ms: the webhook's own histogram, linear within its bucket; client_*: from sending, or \
                     from the time it was due if its connection was still busy",
        "goal_p99_ms": GOAL_MS,
        "met": p99 <= GOAL_MS,
    });
    figures(&format!("webhook: {RATE_PER_S} requests/s, {}", cores.describe()), &LINES, &file);
    extend(&mut file, attacked::measure(&server, &bodies, seconds).await?);
    run.write("webhook", file)
}

const LINES: [(&str, &str, Option<&str>); 8] = [
    ("requests/s achieved", "achieved_per_s", None),
    ("p50 ms, by the server's histogram", "p50_ms", None),
    ("p99 ms", "p99_ms", Some("goal_p99_ms")),
    ("p99 ms, upper bound of its bucket", "p99_ms_upper_bound", None),
    ("p50 ms, seen by the client over TLS", "client_p50_ms", None),
    ("p99 ms", "client_p99_ms", None),
    ("longest ms", "client_max_ms", None),
    ("µs of CPU per request", "cpu_us_per_request", None),
];

/// The histogram of the server's own latency, all endpoints together.
const LATENCY: &str = "sluice_webhook_request_duration_seconds";

impl Server {
    async fn histogram(&self) -> anyhow::Result<Histogram> {
        Histogram::read(&Samples::of(&self.admin).await?, LATENCY, &[])
    }
}
