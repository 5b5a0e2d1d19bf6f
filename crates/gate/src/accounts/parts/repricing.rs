//! VMs whose charge is to be found anew.

use std::collections::BTreeSet;

use sluice_engine::Uid;
use sluice_index::{NamespaceId, PlatformKey};

use crate::cluster::machines::Owner;

/// How far the walk has come that has all VMs appraised anew and all pods of the platform looked at, some at a time.
///
/// Places are in the order of the walk. What comes, changes or goes meanwhile is looked at with its own event, so it does
/// not matter whether the walk finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Walk {
    /// VMs that pods name and that were not seen: to the first, or to the one after this.
    Claimed(Option<(NamespaceId, Uid)>),
    /// VMs that were seen.
    Seen(Option<Owner>),
    /// Pods of the platform: whether they are charged depends on the charges of VMs.
    Platform(Option<PlatformKey>),
    #[default]
    Ended,
}

/// VMs that are to be appraised anew: some that are named, and all that the walk has not come to.
#[derive(Debug, Default)]
pub struct Repricing {
    due: BTreeSet<Owner>,
    walk: Walk,
}

impl Repricing {
    /// These are to be appraised anew.
    pub fn appraise_later(&mut self, owners: impl IntoIterator<Item = Owner>) {
        self.due.extend(owners);
    }

    /// The next one that is to be appraised anew.
    pub fn next_due(&mut self) -> Option<Owner> {
        self.due.pop_first()
    }

    /// The walk begins here, or goes on where it is if that comes earlier.
    pub fn walk_from(&mut self, place: Walk) {
        self.walk = std::mem::take(&mut self.walk).min(place);
    }

    /// Where the walk is.
    pub const fn walk(&self) -> &Walk {
        &self.walk
    }

    /// The walk has come here.
    pub fn walk_to(&mut self, place: Walk) {
        self.walk = place;
    }

    /// Whether none is to be appraised anew, and the walk is at its end.
    pub fn are_appraised(&self) -> bool {
        self.due.is_empty() && self.walk == Walk::Ended
    }
}
