//! How many pods are held for which reason, kept as their stages change.

use sluice_engine::WaitReason;

use crate::messages::reasons;
use crate::stage::{Stage, Stuck};

/// Why a pod is held, as one of few kinds.
#[derive(Clone, Copy, Debug)]
pub enum Held {
    /// The pod waits for room.
    Waits(WaitReason),
    /// The pod waits for something else.
    Other(Kind),
}

/// Stages of held pods that do not wait for room.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// It is to go: a quota records its charge, or its gate is being removed.
    Releasing,
    Unreadable,
    InvalidQuota,
    UnknownNamespace,
    Terminating,
    Machine,
    Evaluating,
    Refused,
}

impl Held {
    /// All of them, in the word of the event where one tells of it.
    pub const ALL: [(&'static str, Self); 12] = [
        ("PendingEvaluation", Self::Waits(WaitReason::NotLookedAt)),
        (reasons::EXCEEDED, Self::Waits(WaitReason::Full)),
        (reasons::QUEUED, Self::Waits(WaitReason::RoomKept)),
        (reasons::EXCEEDS_LIMIT, Self::Waits(WaitReason::NeverFits)),
        ("Releasing", Self::Other(Kind::Releasing)),
        (reasons::UNREADABLE, Self::Other(Kind::Unreadable)),
        (reasons::INVALID_QUOTA, Self::Other(Kind::InvalidQuota)),
        ("UnknownNamespace", Self::Other(Kind::UnknownNamespace)),
        ("NamespaceTerminating", Self::Other(Kind::Terminating)),
        (reasons::UNKNOWN_MACHINE, Self::Other(Kind::Machine)),
        (reasons::NOT_EVALUATED, Self::Other(Kind::Evaluating)),
        (reasons::REFUSED, Self::Other(Kind::Refused)),
    ];
}

/// Invariant: of each kind the number of pods that have such a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    releasing: usize,
    unreadable: usize,
    invalid_quota: usize,
    unknown_namespace: usize,
    terminating: usize,
    machine: usize,
    evaluating: usize,
    refused: usize,
}

impl Tally {
    pub(super) const fn of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Releasing => self.releasing,
            Kind::Unreadable => self.unreadable,
            Kind::InvalidQuota => self.invalid_quota,
            Kind::UnknownNamespace => self.unknown_namespace,
            Kind::Terminating => self.terminating,
            Kind::Machine => self.machine,
            Kind::Evaluating => self.evaluating,
            Kind::Refused => self.refused,
        }
    }

    const fn slot(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Releasing => &mut self.releasing,
            Kind::Unreadable => &mut self.unreadable,
            Kind::InvalidQuota => &mut self.invalid_quota,
            Kind::UnknownNamespace => &mut self.unknown_namespace,
            Kind::Terminating => &mut self.terminating,
            Kind::Machine => &mut self.machine,
            Kind::Evaluating => &mut self.evaluating,
            Kind::Refused => &mut self.refused,
        }
    }

    /// A pod has another stage.
    pub(super) fn replace(&mut self, old: &Stage, new: &Stage) {
        if let Some(kind) = kind(old) {
            let slot = self.slot(kind);
            *slot = slot.saturating_sub(1);
        }
        if let Some(kind) = kind(new) {
            *self.slot(kind) += 1;
        }
    }
}

const fn kind(stage: &Stage) -> Option<Kind> {
    match stage {
        Stage::Free { .. } | Stage::Assumed { .. } => Some(Kind::Releasing),
        Stage::Stuck(why) => Some(match why {
            Stuck::Unreadable(_) => Kind::Unreadable,
            Stuck::InvalidQuota(_) => Kind::InvalidQuota,
            Stuck::UnknownNamespace => Kind::UnknownNamespace,
            Stuck::Terminating => Kind::Terminating,
            Stuck::Machine(_) => Kind::Machine,
            Stuck::Evaluating => Kind::Evaluating,
            Stuck::BackingOff => Kind::Refused,
        }),
        Stage::Foreign | Stage::Waiting(_) | Stage::Counted { .. } => None,
    }
}

#[cfg(test)]
impl super::PodStages {
    pub fn check_tally(&self) {
        let mut tally = Tally::default();
        self.stages.iter().for_each(|stage| tally.replace(&Stage::Foreign, stage));
        assert_eq!(tally, self.tally, "stages counted anew differ from what is kept");
        let counted = Held::ALL.iter().filter(|(_, why)| matches!(why, Held::Waits(_)));
        let counted: usize = counted.map(|(_, why)| self.held_for(*why)).sum();
        let waiting = self.stages.iter().filter(|stage| matches!(stage, Stage::Waiting(_))).count();
        assert_eq!(counted, waiting, "pods that wait, counted by reason");
    }
}
