//! Admission at 1,000 requests a second: the `sluice webhook` process on one core, a client on another that behaves
//! like an API server (TLS, HTTP/1.1, connections kept).

mod attack;
mod attacked;
mod load;
mod process;
mod reviews;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sluice_e2e::metrics::Samples;

use crate::histogram::Histogram;
use crate::report::{self, Table, quantile, round, say, verdict};
use process::Server;

const RATE_PER_S: u32 = 1_000;
const CONNECTIONS: u32 = 16;
const GOAL_MS: f64 = 2.0;

/// Measures, prints, writes `webhook.json`.
///
/// # Errors
/// When the webhook cannot be started, or answers anything but an admission.
pub fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let cores = process::Cores::split()?;
    crate::runtime()?.block_on(measure(quick, out, machine, &cores))
}

async fn measure(
    quick: bool,
    out: &Path,
    machine: serde_json::Value,
    cores: &process::Cores,
) -> anyhow::Result<()> {
    let seconds = if quick { 5 } else { 20 };
    let server = Server::start(cores).await?;
    let bodies = reviews::all()?;
    say("webhook: warming up for 2 s");
    server.load(&bodies, RATE_PER_S, CONNECTIONS, Duration::from_secs(2)).await?;
    say(&format!("webhook: {RATE_PER_S} requests/s over {CONNECTIONS} connections for {seconds} s"));
    let (before, cpu_before) = (server.histogram().await?, server.cpu()?);
    let mut measured = server.load(&bodies, RATE_PER_S, CONNECTIONS, Duration::from_secs(seconds)).await?;
    let (after, cpu_after) = (server.histogram().await?, server.cpu()?);
    let served = after.since(&before);
    let cpu_us = (cpu_after - cpu_before).as_secs_f64() * 1e6 / measured.answered();

    // What the histogram cannot hold apart is read as the upper bound of its bucket.
    let (p50, p99, p99_bound) = (served.quantile_ms(0.5), served.quantile_ms(0.99), served.bound_ms(0.99));
    let (client_p50, client_p99) =
        (quantile(&mut measured.latencies_ms, 0.5), quantile(&mut measured.latencies_ms, 0.99));
    let client_max = quantile(&mut measured.latencies_ms, 1.0);
    let met = p99 <= GOAL_MS;
    let title = format!("webhook: {RATE_PER_S} requests/s, {}", cores.describe());
    let mut table = Table::new(&title, &["seen from", "requests", "p50 ms", "p99 ms", "max ms"]);
    table.row([
        "server (histogram)".to_owned(),
        served.count().to_string(),
        format!("{p50:.3}"),
        format!("{p99:.3}"),
        format!("≤ {:.2}", served.bound_ms(1.0)),
    ]);
    table.row([
        "client (over TLS)".to_owned(),
        measured.latencies_ms.len().to_string(),
        format!("{client_p50:.3}"),
        format!("{client_p99:.3}"),
        format!("{client_max:.2}"),
    ]);
    table.print();
    println!("  achieved {:.0} requests/s, {cpu_us:.0} µs of CPU per request", measured.rate());
    println!("  goal: server-side p99 ≤ {GOAL_MS} ms: {}", verdict(met));

    let attacked = attacked::measure(&server, &bodies, seconds).await?;
    let sizes: Vec<_> =
        bodies.iter().map(|body| json!({"endpoint": body.endpoint, "bytes": body.bytes.len()})).collect();
    let file = json!({
        "rate_per_s": RATE_PER_S,
        "achieved_per_s": round(measured.rate(), 1),
        "seconds": seconds,
        "requests": served.count(),
        "connections": CONNECTIONS,
        "p50_ms": round(p50, 4),
        "p99_ms": round(p99, 4),
        "p99_ms_upper_bound": round(p99_bound, 4),
        "buckets": served.json(),
        "client_p50_ms": round(client_p50, 3),
        "client_p99_ms": round(client_p99, 3),
        "client_max_ms": round(client_max, 3),
        "cpu_us_per_request": round(cpu_us, 1),
        "bodies": sizes,
        "cores": cores.describe(),
        "api_server": "a fake: a version, empty lists, watches without events",
        "measured": "p50_ms and p99_ms: the webhook's own histogram, linear within its bucket; client_*: from sending, or from the time it was due if its connection was still busy",
        "under_attack_p99_ms": round(attacked.p99_ms, 3),
        "under_attack_same_peer_p99_ms": round(attacked.same_peer_p99_ms, 3),
        "rss_mib": round(attacked.rss_mib, 1),
        "rss_mib_idle": round(attacked.rss_mib_before, 1),
        "rss_limit_mib": attacked.limit_mib,
        "attack": attacked::describe(),
        "goal_p99_ms": GOAL_MS,
        "met": met,
        "quick": quick,
        "machine": machine,
    });
    report::write(out, "webhook", &file)
}

/// The histogram of the server's own latency, all endpoints together.
const LATENCY: &str = "sluice_webhook_request_duration_seconds";

impl Server {
    async fn histogram(&self) -> anyhow::Result<Histogram> {
        Histogram::read(&Samples::of(&self.admin).await?, LATENCY, &[])
    }
}
