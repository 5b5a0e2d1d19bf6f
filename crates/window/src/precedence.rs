//! Which targets leave a scarce budget to those that come before them, and for how long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_engine::Uid;
use tokio::time::Instant;

/// How long a target leaves the budget to those that come before it: KubeVirt's controller tries all of them within a second
/// or so, in an order of its own. If those have not come by then, it is for the one that has.
const GIVE_WAY: Duration = Duration::from_secs(3);
/// A migration that gave way so long ago gives way anew.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Since when targets give way, by namespace and migration.
#[derive(Debug, Default)]
pub(crate) struct Precedence(Mutex<HashMap<Arc<str>, HashMap<Uid, Instant>>>);

impl Precedence {
    /// Whether the migration has given way for long enough.
    pub(crate) fn is_over(&self, namespace: &str, migration: &Uid) -> bool {
        let since = self.0.lock().get(namespace).and_then(|all| all.get(migration).copied());
        since.is_some_and(|since| (GIVE_WAY..FORGOTTEN).contains(&since.elapsed()))
    }

    /// The migration left the budget to others.
    pub(crate) fn gave_way(&self, namespace: &Arc<str>, migration: &Uid) {
        let mut namespaces = self.0.lock();
        namespaces.retain(|_, all| {
            all.retain(|_, since| since.elapsed() < FORGOTTEN);
            !all.is_empty()
        });
        let all = namespaces.entry(Arc::clone(namespace)).or_default();
        all.entry(migration.clone()).or_insert_with(Instant::now);
    }

    /// A target was let in, so what is left is looked at anew.
    pub(crate) fn entered(&self, namespace: &str) {
        self.0.lock().remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_gives_way_for_three_seconds_and_anew_after_a_minute() {
        let (precedence, namespace, migration) = (Precedence::default(), Arc::from("a"), Uid::parse("m"));
        assert!(!precedence.is_over("a", &migration));
        precedence.gave_way(&namespace, &migration);
        tokio::time::advance(Duration::from_secs(2)).await;
        // Its further attempts do not make it wait longer.
        precedence.gave_way(&namespace, &migration);
        assert!(!precedence.is_over("a", &migration));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(precedence.is_over("a", &migration) && !precedence.is_over("b", &migration));
        tokio::time::advance(FORGOTTEN).await;
        assert!(!precedence.is_over("a", &migration));
        precedence.gave_way(&namespace, &migration);
        tokio::time::advance(GIVE_WAY).await;
        assert!(precedence.is_over("a", &migration));
        precedence.entered("a");
        assert!(!precedence.is_over("a", &migration));
    }
}
