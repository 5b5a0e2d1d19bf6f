//! One session at a time in each namespace.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Lane, OwnedMutexGuard};

/// A queue for each namespace in which one is needed.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<HashMap<Arc<str>, Weak<Lane<()>>>>);

impl Lanes {
    /// Waits for one's turn in a namespace.
    pub(crate) async fn enter(&self, namespace: &Arc<str>) -> OwnedMutexGuard<()> {
        let lane = {
            let mut lanes = self.0.lock();
            lanes.retain(|_, lane| lane.strong_count() > 0);
            match lanes.get(namespace).and_then(Weak::upgrade) {
                Some(lane) => lane,
                None => {
                    let lane = Arc::new(Lane::new(()));
                    lanes.insert(Arc::clone(namespace), Arc::downgrade(&lane));
                    lane
                }
            }
        };
        lane.lock_owned().await
    }
}
