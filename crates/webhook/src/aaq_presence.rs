//! Whether an `AAQ` exists and what it allows, from the events of a watch.

use std::collections::BTreeMap;

use crate::settings::AaqPresence;

/// The `AAQ` objects seen so far, by name, and whether each allows quotas that span namespaces; `AAQ` is cluster-scoped.
#[derive(Debug, Default)]
pub struct AaqSightings {
    known: Option<BTreeMap<String, bool>>,
    listing: BTreeMap<String, bool>,
}

impl AaqSightings {
    /// A list starts; what was known stays valid until it is complete.
    pub fn list_started(&mut self) {
        self.listing.clear();
    }

    /// The list that was started contains this object.
    pub fn listed(&mut self, name: String, cluster_quotas: bool) {
        self.listing.insert(name, cluster_quotas);
    }

    /// The list is complete and replaces what was known.
    pub fn list_finished(&mut self) {
        self.known = Some(std::mem::take(&mut self.listing));
    }

    /// An object was created or changed.
    pub fn seen(&mut self, name: String, cluster_quotas: bool) {
        self.known.get_or_insert_default().insert(name, cluster_quotas);
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
            Some(known) => AaqPresence::Present { cluster_quotas: known.values().any(|allows| *allows) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: AaqPresence = AaqPresence::Present { cluster_quotas: false };

    #[test]
    fn nothing_is_claimed_before_the_first_list_is_complete() {
        let mut aaqs = AaqSightings::default();
        assert_eq!(aaqs.presence(), AaqPresence::Unknown);
        aaqs.list_started();
        aaqs.listed("aaq".into(), false);
        assert_eq!(aaqs.presence(), AaqPresence::Unknown);
        aaqs.gone("aaq");
        assert_eq!(aaqs.presence(), AaqPresence::Unknown);
        aaqs.list_finished();
        assert_eq!(aaqs.presence(), PRESENT);
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mut aaqs = AaqSightings::default();
        aaqs.seen("a".into(), false);
        aaqs.seen("b".into(), false);
        aaqs.list_started();
        assert_eq!(aaqs.presence(), PRESENT, "still what was known");
        aaqs.listed("b".into(), false);
        aaqs.list_finished();
        aaqs.gone("a");
        assert_eq!(aaqs.presence(), PRESENT);
        aaqs.gone("b");
        assert_eq!(aaqs.presence(), AaqPresence::Absent);
        aaqs.list_started();
        aaqs.listed("left over from a list that broke off".into(), false);
        aaqs.list_started();
        aaqs.list_finished();
        assert_eq!(aaqs.presence(), AaqPresence::Absent);
    }

    #[test]
    fn what_an_object_allows_is_known_as_long_as_it_exists() {
        let mut aaqs = AaqSightings::default();
        aaqs.list_started();
        aaqs.listed("a".into(), true);
        aaqs.list_finished();
        assert_eq!(aaqs.presence(), AaqPresence::Present { cluster_quotas: true });
        aaqs.seen("a".into(), false);
        assert_eq!(aaqs.presence(), PRESENT);
        aaqs.seen("b".into(), true);
        assert_eq!(aaqs.presence(), AaqPresence::Present { cluster_quotas: true });
        aaqs.gone("b");
        assert_eq!(aaqs.presence(), PRESENT);
    }
}
