//! For how long a namespace is not read again only to confirm that its targets get no room.
//!
//! KubeVirt's controller creates one target after the other, for the whole cluster, and tries those of a namespace again at
//! each change of its quotas. So what one namespace may take of that time is bounded, like the time for which it is locked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// After reading in vain the namespace is not read for so many times as long.
const REST: u32 = 10;

/// Namespaces that were read in vain, and until when that counts.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<HashMap<Arc<str>, Instant>>);

impl Looks {
    /// The namespace was read, which took so long, and its target got no room all the same.
    pub(crate) fn in_vain(&self, namespace: &Arc<str>, took: Duration) {
        let now = Instant::now();
        let mut rests = self.0.lock();
        rests.retain(|_, until| *until > now);
        rests.insert(Arc::clone(namespace), now + took * REST);
    }

    /// Whether the namespace is not to be read for that now.
    pub(crate) fn are_spared(&self, namespace: &str) -> bool {
        self.0.lock().get(namespace).is_some_and(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_was_read_in_vain_is_not_read_for_ten_times_as_long() {
        let (looks, namespace) = (Looks::default(), Arc::from("a"));
        assert!(!looks.are_spared("a"));
        looks.in_vain(&namespace, Duration::from_millis(30));
        tokio::time::advance(Duration::from_millis(299)).await;
        assert!(looks.are_spared("a") && !looks.are_spared("b"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!looks.are_spared("a"));
        looks.in_vain(&Arc::from("b"), Duration::ZERO);
        assert!(!looks.0.lock().contains_key("a"), "what is over is forgotten");
    }
}
