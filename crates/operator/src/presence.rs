//! What the loops of the operator tell each other of an installation that an `AAQ` makes and ends.

/// Whether what the operator makes by the word of an `AAQ` is to be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Not known yet: nothing is made, and nothing removed.
    #[default]
    Unknown,
    Installed,
    /// The `AAQ` with this uid is being deleted, and no other is there. It goes once all of it is removed.
    Leaving(String),
    /// There is no `AAQ`.
    Absent,
}

impl Presence {
    /// Whether it is to be made.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        *self == Self::Installed
    }

    /// Whether it is to be removed.
    #[must_use]
    pub const fn is_to_go(&self) -> bool {
        matches!(self, Self::Leaving(_) | Self::Absent)
    }
}

/// How far a removal is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// For which reason it was begun: what was found for an earlier one says nothing of a later one.
    pub of: Presence,
    /// What is left, for people; `None` if nothing is.
    pub left: Option<String>,
    /// Its first step is carried out. Before that all works on, and is kept right.
    pub has_begun: bool,
}

impl Removal {
    /// Whether nothing is left of what is to go by `presence`.
    #[must_use]
    pub fn is_done(&self, presence: &Presence) -> bool {
        presence.is_to_go() && self.of == *presence && self.left.is_none()
    }
}
