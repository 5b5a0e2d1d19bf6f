//! Takes the gates off pods when no process of Sluice does. The policies that gate are in force all the while, so this goes
//! on until no pod waits or the pause ends; `sluice-guard` lets administrators do it in namespaces that are paused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::Client;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::clock::ServerClock;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use super::target::{Order, Target};
use crate::held_pods::{self, Held};
use crate::progress::{Progress, to_stderr};
use crate::requests::{CONCURRENT, RequestError};

/// For so long it is tried when none is released. API servers learn within moments that a namespace is paused.
const IN_VAIN: Duration = Duration::from_secs(30);
/// So many are refused in the last round at most: it goes past those that are refused for a reason of their own.
const MOST_REFUSED: usize = 100;

/// What became of pods.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// So many were released.
    pods: usize,
    /// So many are held still.
    pub(super) left: usize,
    /// Why the last one that was refused was.
    why: Option<String>,
    /// Namespaces that could not be paused, whose pods are left alone.
    pub(super) unpaused: BTreeMap<String, RequestError>,
}

impl Display for Released {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "released {} pods", self.pods)?;
        match (self.left, &self.why) {
            (0, _) => f.write_str("; none waits. New pods wait again: run it again for them"),
            (left, None) if !self.unpaused.is_empty() => {
                write!(f, "; {left} wait still: not every namespace could be paused")
            }
            (left, None) => write!(f, "; {left} wait still: the pause is over"),
            (left, Some(why)) => write!(
                f,
                "; {left} wait still: {why}. If this says that only a controller may remove the gate, this account may not \
                 update the AAQ, or an older version of Sluice has written its rules: then delete the \
                 ValidatingAdmissionPolicyBinding sluice-guard, which the operator writes anew, and run it again"
            ),
        }
    }
}

/// Releases all pods of the namespaces, or of all, that wait or come to wait, so many in a second at most. What was done
/// stands in `released` also after an error.
pub(super) async fn release(
    client: &Client,
    namespaces: Option<&[String]>,
    (order, clock): (Order, &Arc<ServerClock>),
    released: &mut Released,
) -> Result<(), RequestError> {
    let mut pace = interval(Duration::from_secs(1) / order.rate.max(1));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pace = Box::pin(stream::unfold(pace, ticked));
    let mut paused: BTreeSet<String> = namespaces.into_iter().flatten().cloned().collect();
    let (mut progress, mut last) = (Progress::begin(to_stderr), Instant::now());
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5), process_seed());
    loop {
        let mut waiting = held(client, namespaces).await?;
        released.left = waiting.len();
        for pod in &waiting {
            if paused.insert(pod.namespace.clone())
                && let Err(error) = Target::Namespace(pod.namespace.clone()).pause(client, order).await
                // Its pods go with it.
                && !error.is_not_found()
            {
                released.unpaused.insert(pod.namespace.clone(), error);
            }
        }
        waiting.retain(|pod| !released.unpaused.contains_key(&pod.namespace));
        if waiting.is_empty() || clock.reckoned() >= order.until {
            return Ok(());
        }
        released.why = None;
        let (total, before) = (released.pods + waiting.len(), released.pods);
        // The first refusal ends the round: those behind must not go before those that are refused for a moment.
        let is_last = last.elapsed() >= IN_VAIN;
        let (refused, most) = (AtomicUsize::new(0), if is_last { MOST_REFUSED } else { 1 });
        let goes_on = || clock.reckoned() < order.until && refused.load(Ordering::Relaxed) < most;
        let mut answers = in_turn(waiting, pace.as_mut(), goes_on)
            .map(|pod| held_pods::release(client, pod))
            .buffer_unordered(CONCURRENT);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => released.pods += 1,
                Err(None) => {}
                Err(Some(why)) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    released.why = Some(why);
                }
            }
            progress.say(|| format!("released {} of {total} pods", released.pods));
        }
        if released.pods > before {
            last = Instant::now();
            backoff.reset();
        } else if is_last {
            return Ok(());
        }
        if released.pods == before || released.why.is_some() {
            sleep(backoff.failed()).await;
        }
    }
}

/// Each at its tick, as long as it goes on by then.
fn in_turn<T>(
    all: Vec<T>,
    pace: impl Stream<Item = ()>,
    goes_on: impl Fn() -> bool,
) -> impl Stream<Item = T> {
    stream::iter(all).zip(pace).take_while(move |_| ready(goes_on())).map(|(one, ())| one)
}

async fn ticked(mut pace: Interval) -> Option<((), Interval)> {
    pace.tick().await;
    Some(((), pace))
}

pub(super) async fn held(client: &Client, namespaces: Option<&[String]>) -> Result<Vec<Held>, RequestError> {
    let Some(namespaces) = namespaces else { return held_pods::held(client, None).await };
    let mut all = Vec::new();
    for namespace in namespaces {
        all.extend(held_pods::held(client, Some(namespace)).await?);
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_told_with_the_remedy() {
        let told = |left, why: Option<&str>| {
            Released { pods: 2, left, why: why.map(str::to_owned), ..Released::default() }.to_string()
        };
        assert_eq!(told(0, None), "released 2 pods; none waits. New pods wait again: run it again for them");
        assert_eq!(told(1, None), "released 2 pods; 1 wait still: the pause is over");
        let unpaused =
            BTreeMap::from([("a".to_owned(), RequestError::Rights("patch namespaces".to_owned()))]);
        let some = Released { pods: 2, left: 1, why: None, unpaused }.to_string();
        assert_eq!(some, "released 2 pods; 1 wait still: not every namespace could be paused");
        let refused = told(1, Some("pod a/b: denied"));
        assert!(refused.starts_with("released 2 pods; 1 wait still: pod a/b: denied. If"), "{refused}");
        assert!(refused.contains("sluice-guard"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn pods_go_at_the_pace_that_was_asked_for() {
        let mut pace = interval(Duration::from_secs(1) / 50);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begin = tokio::time::Instant::now();
        let mut pace = Box::pin(stream::unfold(pace, ticked));
        let pods: Vec<_> = in_turn((0..100).collect(), pace.as_mut(), || true).collect().await;
        assert_eq!((pods.len(), begin.elapsed()), (100, Duration::from_millis(1_980)));
        // And none after the end of the pause, though it was in the list before.
        let end = begin + Duration::from_millis(2_990);
        let pods: Vec<i32> =
            in_turn((0..1_000).collect(), pace.as_mut(), || tokio::time::Instant::now() < end)
                .collect()
                .await;
        assert_eq!((pods.len(), begin.elapsed()), (50, Duration::from_secs(3)));
    }
}
