//! What a quota keeps room for, and how much room it has kept in vain.

use super::wait_order::{ClassId, Patience};

/// For which class a quota keeps room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) class: ClassId,
    pub(super) since_ms: u64,
}

/// How much room a quota has kept in vain: of all its room one part in [`Account::PARTS`] of the time,
/// of which some is saved.
#[derive(Debug)]
pub(super) struct Account {
    /// Before this moment it keeps none.
    keeps_from_ms: i64,
}

impl Default for Account {
    fn default() -> Self {
        Self { keeps_from_ms: i64::MIN }
    }
}

impl Account {
    const PARTS: i64 = 16;
    /// So many times the patience is saved at most.
    const SAVED: i64 = 16;

    pub(super) fn has_some(&self, now_ms: u64) -> bool {
        self.keeps_from_ms <= signed(now_ms)
    }

    /// Since that moment so much was kept, in thousandths of the room.
    pub(super) fn spend(&mut self, since_ms: u64, kept: i64, patience: Patience) {
        let saved = signed(patience.limit_ms).saturating_mul(Self::SAVED * Self::PARTS);
        let from = self.keeps_from_ms.max(signed(patience.now_ms).saturating_sub(saved));
        let spent = signed(patience.now_ms.saturating_sub(since_ms)).saturating_mul(Self::PARTS);
        self.keeps_from_ms = from.saturating_add(spent.saturating_mul(kept) / 1_000);
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
