//! What was told of migrations, so that the same is not told at each of their attempts.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_engine::Uid;
use tokio::time::Instant;

/// The same is told again after so long: API servers drop events after an hour.
const AGAIN: Duration = Duration::from_secs(1800);
/// Something else is told no sooner: KubeVirt's controller tries at each change of a quota, which tenants can cause.
const SPACING: Duration = Duration::from_secs(5);

/// What was told last of each migration, and when.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<HashMap<Uid, (Instant, Box<str>)>>);

impl Told {
    /// Whether to tell this of the migration now. It is taken to be told then.
    pub(crate) fn is_news(&self, migration: &Uid, text: &str) -> bool {
        let mut told = self.0.lock();
        told.retain(|_, (at, _)| at.elapsed() < AGAIN);
        if told.get(migration).is_some_and(|(at, known)| **known == *text || at.elapsed() < SPACING) {
            return false;
        }
        told.insert(migration.clone(), (Instant::now(), text.into()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_told_each_half_hour_and_something_else_after_some_seconds() {
        let (told, one, other) = (Told::default(), Uid::parse("one"), Uid::parse("other"));
        assert!(told.is_news(&one, "1 is missing") && told.is_news(&other, "1 is missing"));
        assert!(!told.is_news(&one, "2 are missing"));
        tokio::time::advance(SPACING).await;
        assert!(!told.is_news(&one, "1 is missing") && told.is_news(&one, "2 are missing"));
        tokio::time::advance(AGAIN).await;
        assert!(told.is_news(&one, "2 are missing"));
    }
}
