//! What the sources of blocked migrations take.

use std::collections::HashMap;

use sluice_engine::Uid;
use sluice_engine::headroom::Need;
use sluice_index::Version;
use sluice_runtime::backoff::Retry;
use sluice_window::MigrationRef;

use super::namespace::{RETRY, retry};

/// Failures that are longer ago count for nothing.
const FORGOTTEN_MS: u64 = 600_000;

/// Those of one namespace, as far as they were looked for: a pod like the source is what the target is taken to be.
#[derive(Debug)]
pub(super) struct Sources {
    /// By migration: its version when its source was looked for, and what that takes; `None` if there is no source.
    known: HashMap<Uid, (Version, Option<Need>)>,
    retry: Retry,
}

impl Sources {
    pub(super) fn new(seed: u64) -> Self {
        Self { known: HashMap::new(), retry: retry(RETRY, seed).forgetting_after(FORGOTTEN_MS) }
    }

    /// The migrations whose sources are to be looked for now: new ones, and those that have changed.
    pub(super) fn missing(
        &mut self,
        blocked: Vec<(MigrationRef, Version)>,
        now_ms: u64,
    ) -> Vec<(MigrationRef, Version)> {
        self.known.retain(|uid, _| blocked.iter().any(|(migration, _)| migration.uid == *uid));
        let is_missing = |(migration, version): &(MigrationRef, Version)| {
            self.known.get(&migration.uid).is_none_or(|(known, _)| known != version)
        };
        if self.retry.is_waiting(now_ms) {
            return Vec::new();
        }
        blocked.into_iter().filter(is_missing).collect()
    }

    /// What was found; `None` if looking failed: then nothing is looked for until [`Self::due`].
    pub(super) fn found(
        &mut self,
        (migration, version): (MigrationRef, Version),
        source: Option<Option<Need>>,
        now_ms: u64,
    ) {
        match source {
            Some(need) => _ = self.known.insert(migration.uid, (version, need)),
            None if !self.retry.is_waiting(now_ms) => self.retry.failed(now_ms),
            None => {}
        }
    }

    pub(super) fn due(&self, now_ms: u64) -> Option<u64> {
        self.retry.is_waiting(now_ms).then(|| self.retry.not_before_ms())
    }

    pub(super) fn of(&self, migration: &MigrationRef) -> Option<Need> {
        self.known.get(&migration.uid)?.1.clone()
    }
}
