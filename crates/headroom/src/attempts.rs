//! Which pod of a migration the API server was asked to create last.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_engine::Uid;
use sluice_engine::headroom::Need;
use tokio_util::sync::CancellationToken;

use crate::target::Target;

/// So many pods may use one raise, one after the other: quota admission may refuse a target that it judges together with a
/// pod which came earlier, and KubeVirt's controller tries again within milliseconds.
const MOST_PODS: usize = 2;

/// A migration, and whether the pod attaches volumes.
type Key = (Uid, bool);

/// The attempts under way.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<HashMap<Key, Arc<Attempt>>>);

/// One session, as later attempts for the same migration see it.
#[derive(Debug)]
pub(crate) struct Attempt {
    need: Need,
    state: Mutex<State>,
    failed: CancellationToken,
}

#[derive(Debug)]
struct State {
    pods: Vec<Uid>,
    let_in: bool,
}

impl Attempts {
    /// A pod is asked about. `None`: the pod uses the raise of an earlier attempt of its migration, which still holds.
    /// Otherwise the pod needs a session of its own, and an earlier attempt has failed.
    pub(crate) fn begin(&self, target: &Target) -> Option<Arc<Attempt>> {
        let key = (target.migration.uid.clone(), target.attaches);
        let mut attempts = self.0.lock();
        if let Some(earlier) = attempts.get(&key) {
            if earlier.takes(target) {
                return None;
            }
            earlier.failed.cancel();
        }
        let attempt = Arc::new(Attempt {
            need: target.need.clone(),
            state: Mutex::new(State { pods: vec![target.pod.clone()], let_in: false }),
            failed: CancellationToken::new(),
        });
        attempts.insert(key, Arc::clone(&attempt));
        Some(attempt)
    }

    /// The session of an attempt is over.
    pub(crate) fn end(&self, target: &Target, attempt: &Arc<Attempt>) {
        let key = (target.migration.uid.clone(), target.attaches);
        let mut attempts = self.0.lock();
        if attempts.get(&key).is_some_and(|last| Arc::ptr_eq(last, attempt)) {
            attempts.remove(&key);
        }
    }
}

impl Attempt {
    fn takes(&self, target: &Target) -> bool {
        let mut state = self.state.lock();
        let is_asked_again = state.pods.contains(&target.pod);
        let fits = state.let_in && state.pods.len() < MOST_PODS && self.need == target.need;
        if fits && !is_asked_again {
            state.pods.push(target.pod.clone());
        }
        fits
    }

    /// The API server was told to create the pod.
    pub(crate) fn let_in(&self) {
        self.state.lock().let_in = true;
    }

    /// The raise is about to end.
    pub(crate) fn close(&self) {
        self.state.lock().let_in = false;
    }

    /// Waits until a later attempt shows that this one failed.
    pub(crate) async fn failed(&self) {
        self.failed.cancelled().await;
    }
}
