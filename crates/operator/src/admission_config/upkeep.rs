//! How far admission objects are kept that an `AAQ` installs.

use crate::presence::{Presence, Removal};

/// What is kept of them. Policies that [stand](sluice_manifests::is_standing) are kept whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Upkeep {
    /// Nothing: it is not known yet whether they are wanted, or they are being removed.
    #[default]
    Nothing,
    /// What is there. It is to go, and the removal has not begun, for which there may be a lasting reason: until then API
    /// servers ask the webhook, and have to reach it.
    Existing,
    /// All of them.
    All,
}

impl Upkeep {
    /// While this is `presence`, and the removal so far.
    pub(super) fn of(presence: &Presence, removal: &Removal) -> Self {
        let has_begun = removal.of == *presence && removal.has_begun;
        match presence {
            Presence::Installed => Self::All,
            Presence::Leaving(_) | Presence::Absent if !has_begun => Self::Existing,
            Presence::Unknown | Presence::Leaving(_) | Presence::Absent => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_go_is_kept_right_until_the_removal_begins() {
        let leaving = Presence::Leaving("one".to_owned());
        let removal = |of: &Presence, has_begun| Removal { of: of.clone(), left: None, has_begun };
        assert_eq!(Upkeep::of(&Presence::Unknown, &Removal::default()), Upkeep::Nothing);
        assert_eq!(Upkeep::of(&Presence::Installed, &removal(&leaving, true)), Upkeep::All);
        for presence in [leaving, Presence::Absent] {
            assert_eq!(Upkeep::of(&presence, &Removal::default()), Upkeep::Existing);
            assert_eq!(Upkeep::of(&presence, &removal(&presence, false)), Upkeep::Existing);
            assert_eq!(Upkeep::of(&presence, &removal(&presence, true)), Upkeep::Nothing);
            let before = removal(&Presence::Leaving("before".to_owned()), true);
            assert_eq!(Upkeep::of(&presence, &before), Upkeep::Existing, "an earlier removal");
        }
    }
}
