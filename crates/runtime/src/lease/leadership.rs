//! Whether a process leads.

/// Whether this process leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// Another candidate leads, or none that is known.
    Following {
        /// The holder last seen.
        leader: Option<String>,
    },
    /// We do.
    Leading {
        /// `leaseTransitions`: grows with each change of the holder.
        term: i32,
        /// The holder before has given the lease back, and said that it had nothing under way.
        is_handed_over: bool,
    },
}

impl Leadership {
    /// We lead, as far as the last message says; before a write ask [`WriteToken::is_held`](super::WriteToken::is_held).
    pub fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }

    /// We lead, and the holder before had nothing under way.
    pub fn is_handed_over(&self) -> bool {
        matches!(self, Self::Leading { is_handed_over: true, .. })
    }
}
