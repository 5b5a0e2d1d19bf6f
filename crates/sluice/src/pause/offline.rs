//! Takes the gates off pods when no process of Sluice does. The policies that gate are in force all the while, so this goes
//! on until no pod waits or the pause ends; `sluice-guard` lets administrators do it in namespaces that are paused.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::Client;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::clock::ServerClock;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::target::Target;
use crate::held_pods::{self, Held};
use crate::progress::{Progress, to_stderr};
use crate::requests::{CONCURRENT, RequestError};

/// So often in a row all pods are gone through and none is released: for about half a minute. API servers learn within
/// moments that a namespace is paused.
const IN_VAIN: u32 = 10;

/// What became of pods.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// So many were released.
    pods: usize,
    /// So many are held still.
    pub(super) left: usize,
    /// Why the last one that was refused was.
    why: Option<String>,
}

impl Display for Released {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "released {} pods", self.pods)?;
        match (self.left, &self.why) {
            (0, _) => f.write_str("; none waits. New pods wait again: run it again for them"),
            (left, None) => write!(f, "; {left} wait still: the pause is over"),
            (left, Some(why)) => write!(
                f,
                "; {left} wait still: {why}. If this says that only a controller may remove the gate, this account may not \
                 update the AAQ, or an older version of Sluice has written its rules: then delete the \
                 ValidatingAdmissionPolicyBinding sluice-guard and the ValidatingWebhookConfiguration aaq-validator, which \
                 the operator writes anew, and run it again"
            ),
        }
    }
}

/// Releases all pods of the namespaces, or of all, that wait or come to wait, so many in a second at most. What was done
/// stands in `released` also after an error.
pub(super) async fn release(
    client: &Client,
    namespaces: Option<&[String]>,
    (until, rate, clock): (Timestamp, u32, &Arc<ServerClock>),
    released: &mut Released,
) -> Result<(), RequestError> {
    let mut pace = interval(Duration::from_secs(1) / rate.max(1));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pace = Box::pin(stream::unfold(pace, ticked));
    let mut paused: BTreeSet<String> = namespaces.into_iter().flatten().cloned().collect();
    let (mut progress, mut in_vain) = (Progress::begin(to_stderr), 0);
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5), process_seed());
    loop {
        let waiting = held(client, namespaces).await?;
        released.left = waiting.len();
        if waiting.is_empty() || clock.reckoned() >= until || in_vain >= IN_VAIN {
            return Ok(());
        }
        for pod in &waiting {
            if paused.insert(pod.namespace.clone()) {
                Target::Namespace(pod.namespace.clone()).pause(client, until, rate).await?;
            }
        }
        released.why = None;
        let (total, before) = (released.pods + waiting.len(), released.pods);
        let mut answers = stream::iter(waiting)
            .zip(pace.as_mut())
            .map(|(pod, ())| held_pods::release(client, pod))
            .buffer_unordered(CONCURRENT);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => released.pods += 1,
                Err(why) => released.why = why.or_else(|| released.why.take()),
            }
            progress.say(|| format!("released {} of {total} pods", released.pods));
        }
        if released.pods > before {
            in_vain = 0;
            backoff.reset();
        } else {
            in_vain += 1;
            sleep(backoff.failed()).await;
        }
    }
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
        let told =
            |left, why: Option<&str>| Released { pods: 2, left, why: why.map(str::to_owned) }.to_string();
        assert_eq!(told(0, None), "released 2 pods; none waits. New pods wait again: run it again for them");
        assert_eq!(told(1, None), "released 2 pods; 1 wait still: the pause is over");
        let refused = told(1, Some("pod a/b: denied"));
        assert!(refused.starts_with("released 2 pods; 1 wait still: pod a/b: denied. If"), "{refused}");
        assert!(refused.contains("sluice-guard") && refused.contains("aaq-validator"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn pods_go_at_the_pace_that_was_asked_for() {
        let mut pace = interval(Duration::from_secs(1) / 50);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begin = tokio::time::Instant::now();
        let pace = Box::pin(stream::unfold(pace, ticked));
        let pods: Vec<_> = stream::iter(0..100).zip(pace).map(|(pod, ())| pod).collect().await;
        assert_eq!((pods.len(), begin.elapsed()), (100, Duration::from_millis(1_980)));
    }
}
