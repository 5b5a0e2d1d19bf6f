//! Objects whose writes failed. Each has a wait of its own: a namespace that is being deleted refuses mirrors for as long as
//! that takes, and may not delay what is shown of others.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use sluice_api::names;
use sluice_engine::Timers;
use sluice_runtime::backoff::{Backoff, Retry};

/// The wait after the first failure, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// A mirror: name of the quota, and namespace.
pub type MirrorKey = (Arc<str>, Arc<str>);

/// An object that is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Object {
    /// A cluster quota, its status.
    Quota(Arc<str>),
    /// A mirror.
    Mirror(MirrorKey),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(name) => write!(f, "{}/{name}", names::ACRQS),
            Self::Mirror((name, namespace)) => write!(f, "{}/{namespace}/{name}", names::AACRQS),
        }
    }
}

/// Invariant: each object that waits is due at the end of its wait, once.
#[derive(Debug, Default)]
pub(super) struct Retries {
    waits: BTreeMap<Object, Retry>,
    later: Timers<Object>,
    seed: u64,
}

impl Retries {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The write failed: the next wait begins.
    pub(super) fn failed(&mut self, object: Object, now_ms: u64) {
        let seed = self.seed ^ BuildHasherDefault::<DefaultHasher>::default().hash_one(&object);
        let new = || Retry::new(Backoff::new(WAITS.0, WAITS.1, seed));
        let retry = self.waits.entry(object.clone()).or_insert_with(new);
        retry.failed(now_ms);
        self.later.set(object, retry.not_before_ms());
    }

    /// The object is to be looked at again at this moment (milliseconds), though nothing failed.
    pub(super) fn look_again(&mut self, object: Object, at_ms: u64) {
        self.later.set(object, at_ms);
    }

    pub(super) fn is_waiting(&self, object: &Object, now_ms: u64) -> bool {
        self.waits.get(object).is_some_and(|retry| retry.is_waiting(now_ms))
    }

    /// The write was done, or is not needed any more.
    pub(super) fn forget(&mut self, object: &Object) {
        self.waits.remove(object);
        self.later.cancel(object);
    }

    /// The objects whose wait is over.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<Object> {
        std::iter::from_fn(|| self.later.pop_due(now_ms)).collect()
    }

    /// The end of the first wait (milliseconds).
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.later.next()
    }
}
