//! What a managed-tenant-quota that crashed left behind: namespaces that are locked, quotas that are raised
//! (`docs/predecessors.md`, *The lock of MTQ*). Listed, or ended once.
//!
//! Nothing is touched while a managed-tenant-quota is alive, or soon after a lock was created: then it may be about to
//! end it itself. Each step applies to what was read or not at all, and the record of what has to be restored goes last:
//! it is safe to be killed at any point and to run again.

mod apply;
mod plan;
mod print;
mod read;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::retry::classify;

pub use plan::{Alive, Leftover, Leftovers, Step, Verdict};
use plan::{Seen, plan};

/// How often something that fails is tried again.
const TRIES: u32 = 6;
/// The longest time without a sign of life while a lock is too young.
const SIGN_OF_LIFE: SignedDuration = SignedDuration::from_secs(10);
/// How much longer than its age a lock is waited for: clocks of API servers differ.
const MARGIN: SignedDuration = SignedDuration::from_secs(5);

/// Why nothing more is done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API call failed, too often or for good.
    #[error(
        "could not read {what}: {source}; the rights that are needed are those of deploy/mtq-cleanup.yaml"
    )]
    Read {
        /// What was read.
        what: &'static str,
        /// What the API server says.
        #[source]
        source: kube::Error,
    },
    /// What is there may be work in progress.
    #[error(
        "refused to clean up while a managed-tenant-quota is alive ({0}); scale its operator and its controller to 0 and \
         run this again when that time is over"
    )]
    Alive(Alive),
}

/// What became of it, in numbers of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Where everything was ended.
    pub ended: usize,
    /// Where something is left.
    pub left: usize,
}

/// Reads what is left and changes nothing. A lock counts as left behind when it is `lock_age` old.
///
/// # Errors
/// When it cannot be read.
pub async fn list(client: &Client, lock_age: SignedDuration) -> Result<Leftovers, Error> {
    let mut patience = Patience::new(|_| ());
    Ok(plan(&patience.look(client).await?, lock_age))
}

/// Ends what is left and says each step. Locks that are younger than `lock_age` are waited for.
///
/// # Errors
/// When a managed-tenant-quota is alive, or what is left cannot be read.
pub async fn clean(
    client: &Client,
    lock_age: SignedDuration,
    say: impl FnMut(&str),
) -> Result<Outcome, Error> {
    let mut patience = Patience { longest_wait: lock_age.saturating_add(MARGIN), ..Patience::new(say) };
    let mut ended = 0;
    loop {
        let found = plan(&patience.look(client).await?, lock_age);
        if let Some(alive) = found.alive.filter(|_| !found.namespaces.is_empty()) {
            return Err(Error::Alive(alive));
        }
        let (mut left, mut failed, mut young) = (0, false, None);
        for each in &found.namespaces {
            match each.verdict {
                Verdict::Due if end(client, each, &mut patience.say).await => {
                    ended += 1;
                    continue;
                }
                Verdict::Due => failed = true,
                Verdict::Young(time) => young = young.into_iter().chain([time]).min(),
                Verdict::Foreign => {}
            }
            left += 1;
        }
        let Some(pause) = patience.pause(failed, young) else {
            let foreign = found.namespaces.iter().filter(|each| each.verdict == Verdict::Foreign);
            foreign.flat_map(Leftover::lines).for_each(|line| (patience.say)(&line));
            return Ok(Outcome { ended, left });
        };
        tokio::time::sleep(pause).await;
    }
}

/// Does all steps of a namespace in their order; false when one failed.
async fn end(client: &Client, leftover: &Leftover, say: &mut impl FnMut(&str)) -> bool {
    let namespace = &leftover.namespace;
    for step in &leftover.steps {
        match apply::carry_out(client, namespace, step).await {
            Ok(()) => say(&format!("{namespace}: {step}")),
            Err(error) if step.is_dispensable(classify(&error)) => {
                say(&format!("{namespace}: could not {step}: {error}; kube-controller-manager will do it"));
            }
            Err(error) => {
                say(&format!("{namespace}: could not {step}: {error}"));
                return false;
            }
        }
    }
    true
}

/// Tries again, with growing pauses, and waits, but neither for ever.
struct Patience<S> {
    backoff: Backoff,
    longest_wait: SignedDuration,
    say: S,
}

impl<S: FnMut(&str)> Patience<S> {
    fn new(say: S) -> Self {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10), process_seed());
        Self { backoff, longest_wait: SignedDuration::ZERO, say }
    }

    /// How long until it is worth another try, if it is: something failed, or a lock is this much too young.
    fn pause(&mut self, failed: bool, young: Option<SignedDuration>) -> Option<Duration> {
        if let Some(pause) = failed.then(|| self.again()).flatten() {
            return Some(pause);
        }
        let time = young.filter(|_| self.longest_wait.is_positive())?.min(SIGN_OF_LIFE);
        self.longest_wait = self.longest_wait.saturating_sub(time);
        (self.say)(&format!("waiting {time:#}: a lock is too young to count as left behind"));
        Some(time.unsigned_abs())
    }

    /// How long to wait after a failure, if there is to be another try.
    fn again(&mut self) -> Option<Duration> {
        let pause = (self.backoff.failures() < TRIES).then(|| self.backoff.failed())?;
        (self.say)(&format!("trying again ({} of {TRIES})", self.backoff.failures()));
        Some(pause)
    }

    async fn look(&mut self, client: &Client) -> Result<Seen, Error> {
        loop {
            let error = match read::seen(client).await {
                Err(Error::Read { what, source }) if classify(&source).is_transient() => {
                    (self.say)(&format!("could not read {what}: {source}"));
                    Error::Read { what, source }
                }
                result => return result,
            };
            match self.again() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }
}
