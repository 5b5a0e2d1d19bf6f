//! One session at a time in each namespace.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The turns in each namespace in which a session is or waits, in the order in which sessions come.
#[derive(Debug, Default)]
pub(crate) struct SessionTurns(Mutex<HashMap<Arc<str>, Weak<Turn<()>>>>);

impl SessionTurns {
    /// Waits for the turn of a session in its namespace. The turn ends when the result is dropped.
    pub(crate) async fn take(&self, namespace: &Arc<str>) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            match turns.get(namespace).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    let turn = Arc::new(Turn::new(()));
                    turns.insert(Arc::clone(namespace), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}
