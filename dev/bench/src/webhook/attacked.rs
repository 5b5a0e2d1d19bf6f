//! The same while one peer does its best to be the only one that is served.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use sluice_manifests::{InstallOptions, render};

use super::attack::{Attack, IDLE, PEER, UPLOADS};
use super::process::Server;
use super::reviews::Body;
use crate::report::{self, number, quantile, say, verdict};

const RATE_PER_S: u32 = 400;
const CONNECTIONS: u32 = 8;
const SAME_PEER_RATE_PER_S: u32 = 50;
const SAME_PEER_CONNECTIONS: u32 = 2;
const GOAL_MS: f64 = 10.0;

fn describe() -> String {
    format!(
        "{UPLOADS} uploads of 8 MiB that stall at the last byte and {IDLE} silent connections from one address, made \
         anew 2 s after they are closed; {RATE_PER_S} reviews/s from another address, {SAME_PEER_RATE_PER_S}/s from the same"
    )
}

/// What the API server's reviews and those of the attacker's own address take, and what the webhook holds in memory at most.
pub(super) async fn measure(server: &Server, bodies: &[Body], seconds: u64) -> anyhow::Result<Value> {
    let limit_mib = limit_mib().context("the manifest has no limit of memory for the webhook")?;
    let rss_mib_before = server.rss_mib()?;
    say(&format!("webhook: {}", describe()));
    let _attack = Attack::start(&server.target)?;
    // All connections have been tried by then.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let time = Duration::from_secs(seconds);
    let neighbour = server.target.clone().with_peer(PEER);
    let mut rss_mib = server.rss_mib()?;
    let watching = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            rss_mib = server.rss_mib().unwrap_or(f64::NAN).max(rss_mib);
        }
    };
    let loads = async {
        tokio::join!(
            server.load(bodies, RATE_PER_S, CONNECTIONS, time),
            server.load_from(&neighbour, bodies, SAME_PEER_RATE_PER_S, SAME_PEER_CONNECTIONS, time),
        )
    };
    let (begin, cpu_before) = (Instant::now(), server.cpu()?);
    let (measured, same_peer) = tokio::select! {
        loads = loads => loads,
        () = watching => anyhow::bail!("the watch of the memory ended"),
    };
    let (mut measured, mut same_peer) = (measured?, same_peer?);
    let busy = (server.cpu()? - cpu_before).as_secs_f64() / begin.elapsed().as_secs_f64();
    let rows = [("another peer", &mut measured), ("the same peer", &mut same_peer)].map(|(name, load)| {
        let [p50_ms, p99_ms] = [0.5, 0.99].map(|q| quantile(&mut load.latencies_ms, q));
        json!({
            "from": name, "requests": load.latencies_ms.len(), "p50_ms": p50_ms, "p99_ms": p99_ms,
            "first_ms": load.connected_ms,
        })
    });
    let columns = [
        ("reviews from", "from"),
        ("requests", "requests"),
        ("p50 ms", "p50_ms"),
        ("p99 ms", "p99_ms"),
        ("longest until the first answer, ms", "first_ms"),
    ];
    let title = format!("webhook: {UPLOADS} stalled uploads and {IDLE} idle connections of one peer");
    report::rows(&title, &columns, &rows)?;
    println!("  the webhook was busy {:.0} % of the time", busy * 100.0);
    println!("  memory {rss_mib:.0} MiB ({rss_mib_before:.0} before), limit {limit_mib:.0} MiB");
    let [p99_ms, same_peer_p99_ms] = rows.each_ref().map(|row| number(row, "p99_ms"));
    let met = p99_ms <= GOAL_MS && rss_mib < limit_mib;
    println!("  goal: p99 ≤ {GOAL_MS} ms below the limit: {}", verdict(met));
    Ok(json!({
        "under_attack_p99_ms": p99_ms,
        "under_attack_same_peer_p99_ms": same_peer_p99_ms,
        "rss_mib": rss_mib,
        "rss_mib_idle": rss_mib_before,
        "rss_limit_mib": limit_mib,
        "attack": describe(),
    }))
}

/// The limit in the manifest.
fn limit_mib() -> Option<f64> {
    let objects = render(&InstallOptions::default());
    let deployment = objects.iter().find(|object| {
        object["kind"] == "Deployment"
            && object.pointer("/metadata/name").and_then(Value::as_str) == Some(sluice_api::names::WEBHOOK)
    })?;
    let limit = deployment.pointer("/spec/template/spec/containers/0/resources/limits/memory");
    limit.and_then(Value::as_str)?.strip_suffix("Mi")?.parse().ok()
}
