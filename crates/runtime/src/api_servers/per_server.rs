//! What each API server says, asked for again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{Notify, watch as signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{ApiServer, Servers};
use crate::backoff::{Backoff, process_seed};

/// What is known, by the name of the API server.
pub type ByServer<T> = BTreeMap<Arc<str>, T>;

/// How often API servers are asked while they stay the same.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After this time while all is as it should be.
    pub settled: Duration,
    /// The first wait while something is not, and the longest.
    pub retry: (Duration, Duration),
}

/// How the answers of all API servers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// All is as it should be.
    Settled,
    /// Something is not; the waits grow.
    Unsettled,
    /// Something is not, but something has changed for the better; the waits begin anew.
    Better,
}

/// What each API server said last.
#[derive(Debug)]
pub struct PerServer<T> {
    servers: Arc<Servers>,
    pace: Pace,
    known: signal::Sender<ByServer<T>>,
    doubted: Notify,
}

impl Pace {
    /// The same at all times.
    #[must_use]
    pub const fn every(time: Duration) -> Self {
        Self { settled: time, retry: (time, time) }
    }
}

impl<T> PerServer<T> {
    /// No API server was asked yet.
    #[must_use]
    pub fn new(servers: Arc<Servers>, pace: Pace) -> Self {
        Self { servers, pace, known: signal::Sender::new(ByServer::new()), doubted: Notify::new() }
    }

    /// The API servers that are asked.
    #[must_use]
    pub fn each(&self) -> Vec<ApiServer> {
        self.servers.each()
    }

    /// What is known now. Answers wait while it is looked at.
    #[must_use]
    pub fn known(&self) -> signal::Ref<'_, ByServer<T>> {
        self.known.borrow()
    }

    /// Changes each time that all API servers were asked.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver<ByServer<T>> {
        self.known.subscribe()
    }

    /// This is known of an API server by other means. All are asked at once.
    pub fn doubt(&self, server: &ApiServer, known: T) {
        self.known.send_modify(|all| _ = all.insert(Arc::clone(&server.name), known));
        self.doubted.notify_one();
    }

    /// Asks every API server: at the start, when they change or one is doubted, and at its pace, until `cancel`. `note` says
    /// what is known after an answer. `asked` is called after each round with what was known before.
    pub async fn keep<A, F>(
        &self,
        ask: impl Fn(ApiServer) -> F,
        note: impl Fn(Option<&T>, A) -> T,
        mut asked: impl FnMut(&ByServer<T>) -> Round,
        cancel: CancellationToken,
    ) where
        F: Future<Output = A>,
    {
        let mut changes = self.servers.changes();
        let mut backoff = Backoff::new(self.pace.retry.0, self.pace.retry.1, process_seed());
        let work = async {
            loop {
                changes.mark_unchanged();
                let servers = self.servers.each();
                let answers = join_all(servers.iter().cloned().map(&ask)).await;
                let before = self.take(servers, answers, &note);
                let round = asked(&before);
                if round != Round::Unsettled {
                    backoff.reset();
                }
                let pause = if round == Round::Settled { self.pace.settled } else { backoff.failed() };
                tokio::select! {
                    () = sleep(pause) => {}
                    () = self.doubted.notified() => {}
                    changed = changes.changed() => match changed {
                        Ok(()) => backoff.reset(),
                        Err(_) => return,
                    },
                }
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    /// Takes in the answers. Returns what was known before; API servers that are gone are forgotten.
    fn take<A>(
        &self,
        servers: Vec<ApiServer>,
        answers: Vec<A>,
        note: impl Fn(Option<&T>, A) -> T,
    ) -> ByServer<T> {
        let mut before = ByServer::new();
        self.known.send_modify(|known| {
            before = std::mem::take(known);
            for (server, answer) in servers.into_iter().zip(answers) {
                let now = note(before.get(&server.name), answer);
                known.insert(server.name, now);
            }
        });
        before
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::client::{ClientOptions, client_from};

    const PACE: Pace =
        Pace { settled: Duration::from_secs(60), retry: (Duration::from_secs(2), Duration::from_secs(20)) };

    fn per_server<T>() -> PerServer<T> {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let options = ClientOptions::default();
        let client = client_from(config, &options).unwrap();
        PerServer::new(Arc::new(Servers::new(client, options)), PACE)
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_is_short_while_something_is_wrong_and_grows() {
        let (known, cancel) = (per_server::<()>(), CancellationToken::new());
        let (mut last, mut pauses) = (Instant::now(), Vec::new());
        let mut rounds = [Round::Unsettled, Round::Unsettled, Round::Better, Round::Settled].into_iter();
        let asked = |_: &ByServer<()>| {
            pauses.push(last.elapsed().as_millis());
            last = Instant::now();
            rounds.next().unwrap_or_else(|| {
                cancel.cancel();
                Round::Settled
            })
        };
        known.keep(|_| async {}, |_, ()| (), asked, cancel.clone()).await;
        let expected = [0..=0, 1_000..=2_000, 2_000..=4_000, 1_000..=2_000, 60_000..=60_000];
        assert_eq!(pauses.len(), expected.len());
        for (pause, expected) in pauses.iter().zip(expected) {
            // The timer is a millisecond late.
            assert!(expected.contains(pause) || expected.contains(&(pause - 1)), "{pauses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubt_is_known_and_all_are_asked_at_once() {
        let (known, cancel) = (per_server::<Vec<&str>>(), CancellationToken::new());
        let start = Instant::now();
        let rounds = Mutex::new(Vec::<(u64, Vec<&str>)>::new());
        let note = |old: Option<&Vec<&'static str>>, answer| {
            old.into_iter().flatten().copied().chain([answer]).collect::<Vec<_>>()
        };
        let asked = |before: &ByServer<Vec<&'static str>>| {
            rounds.lock().push((start.elapsed().as_secs(), before.values().flatten().copied().collect()));
            if rounds.lock().len() == 2 {
                cancel.cancel();
            }
            Round::Settled
        };
        let doubting = async {
            known.subscribe().changed().await.unwrap();
            known.doubt(&known.each()[0], vec!["doubted"]);
        };
        tokio::join!(doubting, known.keep(|_| async { "fine" }, note, asked, cancel.clone()));
        assert_eq!(*rounds.lock(), [(0, Vec::new()), (0, vec!["doubted"])]);
        assert_eq!(known.known().values().next().unwrap()[..], ["doubted", "fine"]);
    }
}
