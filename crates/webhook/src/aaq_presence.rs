//! Whether an `AAQ` exists, from the events of a watch.

use std::collections::BTreeSet;

use crate::settings::AaqPresence;

/// The names of the `AAQ` objects seen so far; `AAQ` is cluster-scoped.
#[derive(Debug, Default)]
pub struct AaqSightings {
    known: Option<BTreeSet<String>>,
    listing: BTreeSet<String>,
}

impl AaqSightings {
    /// A list starts; what was known stays valid until it is complete.
    pub fn list_started(&mut self) {
        self.listing.clear();
    }

    /// The list that was started contains this object.
    pub fn listed(&mut self, name: String) {
        self.listing.insert(name);
    }

    /// The list is complete and replaces what was known.
    pub fn list_finished(&mut self) {
        self.known = Some(std::mem::take(&mut self.listing));
    }

    /// An object was created or changed.
    pub fn seen(&mut self, name: String) {
        self.known.get_or_insert_default().insert(name);
    }

    /// An object is gone. One that is only being deleted still exists.
    pub fn gone(&mut self, name: &str) {
        if let Some(known) = &mut self.known {
            known.remove(name);
        }
    }

    /// What verdicts may rely on.
    pub fn presence(&self) -> AaqPresence {
        match &self.known {
            None => AaqPresence::Unknown,
            Some(known) if known.is_empty() => AaqPresence::Absent,
            Some(_) => AaqPresence::Present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_claimed_before_the_first_list_is_complete() {
        let mut aaqs = AaqSightings::default();
        assert_eq!(aaqs.presence(), AaqPresence::Unknown);
        aaqs.list_started();
        aaqs.listed("aaq".into());
        assert_eq!(aaqs.presence(), AaqPresence::Unknown);
        aaqs.gone("aaq");
        assert_eq!(aaqs.presence(), AaqPresence::Unknown);
        aaqs.list_finished();
        assert_eq!(aaqs.presence(), AaqPresence::Present);
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mut aaqs = AaqSightings::default();
        aaqs.seen("a".into());
        aaqs.seen("b".into());
        aaqs.list_started();
        assert_eq!(aaqs.presence(), AaqPresence::Present, "still what was known");
        aaqs.listed("b".into());
        aaqs.list_finished();
        aaqs.gone("a");
        assert_eq!(aaqs.presence(), AaqPresence::Present);
        aaqs.gone("b");
        assert_eq!(aaqs.presence(), AaqPresence::Absent);
        aaqs.list_started();
        aaqs.listed("left over from a list that broke off".into());
        aaqs.list_started();
        aaqs.list_finished();
        assert_eq!(aaqs.presence(), AaqPresence::Absent);
    }
}
