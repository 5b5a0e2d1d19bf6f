//! What the end of a list says of an object that was seen.

/// The number of a list: what carries another number when the list ends was not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListNumber(u32);

/// How an object was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By the watch: it is in the list that is under way, or was there after the last one.
    Watch,
    /// By the answer to a request. That does not show that the list that is under way holds it: where an object was deleted
    /// before that list was made, its absence from the list is all that tells.
    Answer,
}

impl ListNumber {
    /// The next list begins.
    pub const fn begin(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// An object that is known, and carries this number, was seen while `list` was the last that began. What was not known
    /// carries `list`, however it was seen: it may have been created after the list was made.
    pub fn see(&mut self, list: Self, by: Source) {
        if by == Source::Watch {
            *self = list;
        }
    }
}
