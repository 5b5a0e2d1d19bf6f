//! How fast an evaluator answers.

use std::time::{Duration, Instant};

use futures::future::join_all;

use super::samples::large;
use super::session::{Session, TIMEOUT};
use super::{Sample, Speed};
use crate::{Link, OtherPods};

/// Questions at once.
pub(super) const AT_ONCE: [usize; 3] = [1, 4, 16];
/// How long each is measured.
const SPAN: Duration = Duration::from_secs(2);

/// Asks about a pod of 7 KB again and again, `at_once` at a time.
pub(super) async fn measure(session: &mut Session, at_once: usize) -> Option<Speed> {
    let sample = large()?;
    let started = Instant::now();
    let callers = join_all((0..at_once).map(|_| ask_again(&session.link, &sample, started + SPAN))).await;
    let seconds = started.elapsed().as_secs_f64();
    let failed = callers.iter().map(|(_, failed)| failed).sum();
    let mut times: Vec<Duration> = callers.into_iter().flat_map(|(times, _)| times).collect();
    times.sort_unstable();
    let quantile = |hundredths: usize| {
        let place = (times.len() * hundredths / 100).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    if failed > 0 {
        session.is_alive().await;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let per_second = times.len() as f64 / seconds;
    Some(Speed { at_once, per_second, p50_ms: quantile(50), p99_ms: quantile(99), failed })
}

/// The times of all answers until the end, and how many questions had none.
async fn ask_again(link: &Link, sample: &Sample, end: Instant) -> (Vec<Duration>, usize) {
    let others = OtherPods::default();
    let (mut times, mut failed) = (Vec::new(), 0);
    while Instant::now() < end {
        let asked = Instant::now();
        match tokio::time::timeout(TIMEOUT, link.usage(&sample.json, &others)).await {
            Ok(Ok(_)) => times.push(asked.elapsed()),
            Ok(Err(_)) | Err(_) => failed += 1,
        }
        if link.is_closed() {
            break;
        }
    }
    (times, failed)
}
