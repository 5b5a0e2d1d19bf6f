//! What targets lack, told once and not at each attempt.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_engine::Uid;
use sluice_engine::headroom::Shortage;
use tokio::time::Instant;

/// The same is told again after so long: API servers drop events after an hour.
const AGAIN: Duration = Duration::from_secs(1800);
/// Other amounts are told no sooner: KubeVirt's controller tries at each change of a quota, which tenants can cause.
const SPACING: Duration = Duration::from_secs(60);

/// What was told of migrations, and when.
#[derive(Debug, Default)]
pub(crate) struct Lacking(Mutex<HashMap<Uid, (Instant, Vec<Shortage>)>>);

impl Lacking {
    /// Whether to tell now what the target of this migration lacks. It is taken to be told then.
    pub(crate) fn is_news(&self, migration: &Uid, lacking: &[Shortage]) -> bool {
        let mut told = self.0.lock();
        told.retain(|_, (at, _)| at.elapsed() < AGAIN);
        if told.get(migration).is_some_and(|(at, known)| known == lacking || at.elapsed() < SPACING) {
            return false;
        }
        told.insert(migration.clone(), (Instant::now(), lacking.to_vec()));
        true
    }
}

#[cfg(test)]
mod tests {
    use sluice_engine::{Format, Quantity};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_told_each_half_hour_and_other_amounts_after_a_minute() {
        let units = |units| Quantity::from_units(units, Format::DecimalSi);
        let missing = |missing: i64| {
            [Shortage {
                quota: "rq".into(),
                key: "pods".into(),
                need: units(1),
                used: units(3),
                hard: units(3),
                additional: None,
                taken: Quantity::ZERO,
                source: None,
                missing: units(missing),
            }]
        };
        let (lacking, one, other) = (Lacking::default(), Uid::parse("one"), Uid::parse("other"));
        assert!(lacking.is_news(&one, &missing(1)) && lacking.is_news(&other, &missing(1)));
        assert!(!lacking.is_news(&one, &missing(2)));
        tokio::time::advance(SPACING).await;
        assert!(!lacking.is_news(&one, &missing(1)) && lacking.is_news(&one, &missing(2)));
        tokio::time::advance(AGAIN).await;
        assert!(lacking.is_news(&one, &missing(2)));
    }
}
