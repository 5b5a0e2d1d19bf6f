//! Takes the gate off all pods.

use std::time::Duration;

use futures::StreamExt as _;
use kube::Client;
use sluice_api::names;
use sluice_runtime::backoff::{Backoff, process_seed};

use super::goes_on::GoesOn;
use super::requests::while_wanted;
use crate::held_pods;
use crate::progress::{Progress, Say};
use crate::requests::{CONCURRENT, RequestError};

/// So often all pods are gone through. Nothing of Sluice gates by then, so what is held still is gated by its creator, or
/// its release is refused.
const PASSES: u32 = 10;

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// So many pods were released by the last call.
    pub(super) pods: usize,
    /// So many are held still.
    pub(super) left: usize,
    /// Why the last one that was refused was.
    pub(super) why: Option<String>,
    /// So often all pods were gone through, by all calls.
    pub(super) passes: u32,
    /// The last time, pods were released.
    pub(super) is_fed: bool,
}

impl Released {
    /// Why pods are held still.
    pub(super) fn reasons(&self) -> String {
        let is_fed = self.is_fed && self.passes >= PASSES;
        let fed = is_fed.then(|| format!("somebody creates pods with the gate {} itself", names::GATE));
        let all: Vec<_> = self.why.iter().cloned().chain(fed).collect();
        if all.is_empty() { "they change all the time".to_owned() } else { all.join("; ") }
    }
}

/// Releases all pods, those included that come meanwhile. Nothing of Sluice creates gates any more, so a list without any is
/// the end. Who creates pods with the gate itself does not keep this from its end: all calls together go through the pods
/// [so often](PASSES). It ends early when it does not go on. What was done stands in `released` also after an error.
pub(super) async fn release(
    client: &Client,
    (say, goes_on): (Say, GoesOn<'_>),
    released: &mut Released,
) -> Result<(), RequestError> {
    released.pods = 0;
    let mut progress = Progress::begin(say);
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5), process_seed());
    loop {
        let waiting = held_pods::held(client, None).await?;
        released.left = waiting.len();
        if waiting.is_empty() || released.passes >= PASSES || !goes_on() {
            return Ok(());
        }
        released.passes += 1;
        released.why = None;
        let (total, before) = (released.pods + waiting.len(), released.pods);
        let requests = while_wanted(waiting, goes_on).map(|pod| held_pods::release(client, pod));
        let mut answers = requests.buffer_unordered(CONCURRENT);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => released.pods += 1,
                Err(why) => released.why = why.or_else(|| released.why.take()),
            }
            progress.say(|| format!("released {} of {total} pods", released.pods));
        }
        released.left = total - released.pods;
        released.is_fed = released.pods > before;
        if released.is_fed {
            backoff.reset();
        } else {
            tokio::time::sleep(backoff.failed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_creates_gates_itself_is_told_beside_what_is_refused() {
        let refused = || Some("pod a/b: refused".to_owned());
        let of = |passes, is_fed, why| Released { pods: 1, left: 1, why, passes, is_fed }.reasons();
        let fed = format!("somebody creates pods with the gate {} itself", names::GATE);
        assert_eq!(of(PASSES, true, None), fed);
        assert_eq!(of(PASSES, true, refused()), format!("pod a/b: refused; {fed}"));
        assert_eq!(of(PASSES, false, refused()), "pod a/b: refused");
        assert_eq!(of(1, true, None), "they change all the time");
    }
}
