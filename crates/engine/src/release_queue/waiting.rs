//! Why pods wait, in figures that are kept as pods come and go.

/// The kinds of reasons for which pods wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No decision was made about them yet.
    NotLookedAt,
    /// A quota has too little room.
    Full,
    /// There would be room, but it is kept for a pod that has waited longer.
    RoomKept,
    /// The pods ask for more than a whole quota.
    NeverFits,
}

/// How many pods wait for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    not_looked_at: usize,
    full: usize,
    room_kept: usize,
    never_fits: usize,
}

impl Census {
    pub(super) const fn of(&self, reason: WaitReason) -> usize {
        match reason {
            WaitReason::NotLookedAt => self.not_looked_at,
            WaitReason::Full => self.full,
            WaitReason::RoomKept => self.room_kept,
            WaitReason::NeverFits => self.never_fits,
        }
    }

    const fn slot(&mut self, reason: WaitReason) -> &mut usize {
        match reason {
            WaitReason::NotLookedAt => &mut self.not_looked_at,
            WaitReason::Full => &mut self.full,
            WaitReason::RoomKept => &mut self.room_kept,
            WaitReason::NeverFits => &mut self.never_fits,
        }
    }

    pub(super) const fn add(&mut self, reason: WaitReason, pods: usize) {
        let slot = self.slot(reason);
        *slot = slot.saturating_add(pods);
    }

    pub(super) const fn remove(&mut self, reason: WaitReason, pods: usize) {
        let slot = self.slot(reason);
        *slot = slot.saturating_sub(pods);
    }
}
