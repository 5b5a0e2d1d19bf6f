//! What a program of Sluice says of itself: its probes and metrics.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use sluice_api::names;
use sluice_testbed::{Program, wait};

use crate::scrape;

/// How long a program may take until it is ready.
const READY: Duration = Duration::from_secs(20);

/// Waits until the program with its probes at `admin` is ready.
pub(crate) async fn ready(admin: &str, program: &Program) -> anyhow::Result<()> {
    let probe = || async {
        if !program.is_running() {
            return Some(false);
        }
        let (status, _) = get(admin, names::PATH_READYZ).await.ok()?;
        (status == 200).then_some(true)
    };
    let up = wait::eventually(READY, probe, &format!("{} to be ready", program.name())).await;
    let up = up.with_context(|| format!("log of {}:\n{}", program.name(), tail(&program.log())))?;
    ensure!(up, "{} ended; its log:\n{}", program.name(), tail(&program.log()));
    Ok(())
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(20)).copied().collect::<Vec<_>>().join("\n")
}

/// Asks a program for its probes over plain HTTP, or for its metrics as monitoring does; status and body. `address` is
/// that of the probes.
///
/// # Errors
/// When there is no answer.
pub async fn get(address: &str, path: &str) -> anyhow::Result<(u16, String)> {
    if path == names::PATH_METRICS
        && let Some(answer) = scrape::of(address).await
    {
        return answer;
    }
    let client: HttpClient<_, Empty<Bytes>> = HttpClient::builder(TokioExecutor::new()).build_http();
    let answer = client.get(format!("http://{address}{path}").parse()?).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
