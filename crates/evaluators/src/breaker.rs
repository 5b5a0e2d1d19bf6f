//! Whether an evaluator is asked at all. Pure: takes the time as an argument.
//!
//! After five questions in a row without any answer, about three pods at least, it is left alone: one pod that it cannot
//! stand opens nothing. Then its HealthCheck and one pod are tried after 1, 2, 4 … 30 seconds. An answer that says "error"
//! is an answer. Namespaces whose pods had no answer are not asked about meanwhile; a pod of another one may be the trial
//! at once, so that one tenant's pods that make the evaluator hang do not hold everybody's.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Questions in a row without an answer.
const RUN: u32 = 5;
/// Different pods among them.
const PODS: usize = 3;
/// The first and the longest time until a trial.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// So many namespaces without an answer are enough to tell: it is the evaluator.
const MOST_NAMESPACES: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    run: u32,
    pods: Vec<Arc<str>>,
    namespaces: Vec<Arc<str>>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    trials: u32,
    due: Instant,
    is_trying: bool,
}

impl Breaker {
    /// A question had no answer. Returns whether the breaker opens by it.
    pub(crate) fn failed(&mut self, uid: &Arc<str>, namespace: &Arc<str>, now: Instant) -> bool {
        self.run = self.run.saturating_add(1);
        if self.pods.len() < PODS && !self.pods.contains(uid) {
            self.pods.push(uid.clone());
        }
        if self.namespaces.len() < MOST_NAMESPACES && !self.namespaces.contains(namespace) {
            self.namespaces.push(namespace.clone());
        }
        let opens = self.open.is_none() && self.run >= RUN && self.pods.len() >= PODS;
        if opens {
            self.open = Some(Open { trials: 0, due: now + WAITS.0, is_trying: false });
        }
        opens
    }

    /// A question had an answer. Returns whether the breaker closes by it.
    pub(crate) fn answered(&mut self) -> bool {
        let was_open = self.open.is_some();
        *self = Self::default();
        was_open
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// When the next trial is due; `None`: it is closed, or a trial runs.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.open.as_ref().filter(|open| !open.is_trying).map(|open| open.due)
    }

    /// Whether pods of this namespace are not asked about.
    pub(crate) fn is_barred(&self, namespace: &str) -> bool {
        self.open.is_some()
            && (self.namespaces.len() >= MOST_NAMESPACES
                || self.namespaces.iter().any(|it| &**it == namespace))
    }

    /// A trial begins.
    pub(crate) fn try_now(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_trying = true;
        }
    }

    /// A trial that was due failed: the next one is due later.
    pub(crate) fn trial_failed(&mut self, now: Instant) {
        if let Some(open) = &mut self.open {
            open.trials = open.trials.saturating_add(1);
            let factor = 1_u32.checked_shl(open.trials).unwrap_or(u32::MAX);
            open.due = now + WAITS.0.saturating_mul(factor).min(WAITS.1);
            open.is_trying = false;
        }
    }

    /// A trial that was not due failed.
    pub(crate) const fn early_trial_failed(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_trying = false;
        }
    }

    /// Another process can be asked: the next trial is due now.
    pub(crate) fn try_soon(&mut self, now: Instant) {
        if let Some(open) = &mut self.open {
            open.due = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Breaker;

    fn fail(breaker: &mut Breaker, pod: u32, namespace: &str) -> bool {
        breaker.failed(&Arc::from(format!("pod-{pod}")), &Arc::from(namespace), Instant::now())
    }

    #[test]
    fn it_opens_after_five_in_a_row_of_three_pods() {
        let mut breaker = Breaker::default();
        assert_eq!(
            [1, 2, 3, 4, 5].map(|pod| fail(&mut breaker, pod, "a")),
            [false, false, false, false, true]
        );
        assert!(breaker.is_open() && !fail(&mut breaker, 6, "a"), "once");
    }

    #[test]
    fn one_or_two_pods_open_nothing() {
        let mut breaker = Breaker::default();
        assert!((0..1000).all(|n| !fail(&mut breaker, n % 2, "a")));
        assert!(fail(&mut breaker, 2, "a"));
    }

    #[test]
    fn an_answer_in_between_keeps_it_closed() {
        let mut breaker = Breaker::default();
        for pod in 0..1000 {
            assert!(!fail(&mut breaker, pod, "a"));
            if pod % 4 == 3 {
                assert!(!breaker.answered());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn trials_come_after_1_2_4_and_at_most_30_seconds() {
        let mut breaker = Breaker::default();
        assert!((0..5).any(|pod| fail(&mut breaker, pod, "a")));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let due = breaker.due().expect("a trial");
            waits.push((due - Instant::now()).as_secs());
            tokio::time::sleep_until(due).await;
            breaker.try_now();
            assert_eq!(breaker.due(), None, "one at a time");
            breaker.trial_failed(Instant::now());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert!(breaker.answered() && !breaker.is_open());
    }

    #[test]
    fn other_namespaces_may_try_until_it_is_clear_that_it_is_the_evaluator() {
        let mut breaker = Breaker::default();
        assert!(!breaker.is_barred("a"));
        assert!((0..5).any(|pod| fail(&mut breaker, pod, "a")));
        assert!(breaker.is_barred("a") && !breaker.is_barred("b"));
        for namespace in ["b", "c", "d", "e", "f", "g", "h"] {
            assert!(!breaker.is_barred(namespace));
            breaker.try_now();
            fail(&mut breaker, 9, namespace);
            breaker.early_trial_failed();
            assert!(breaker.is_barred(namespace) && breaker.due().is_some());
        }
        assert!(breaker.is_barred("any"));
        breaker.try_soon(Instant::now() + Duration::ZERO);
        assert!(breaker.answered() && !breaker.is_barred("a"));
    }
}
