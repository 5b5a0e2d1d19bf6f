//! Whether an `AAQ` exists, from the events of a watch.

use sluice_index::{AaqWire, Aaqs, Watched as _};
use sluice_runtime::watch::Event;

use crate::settings::AaqPresence;

/// The `AAQ` objects seen so far.
#[derive(Debug, Default)]
pub struct AaqSightings {
    aaqs: Aaqs,
    is_listed: bool,
}

impl AaqSightings {
    /// Applies an event of the watch. Returns what verdicts may rely on from then on.
    pub fn apply(&mut self, event: &Event<AaqWire>) -> AaqPresence {
        self.aaqs.apply(event);
        self.is_listed |= matches!(event, Event::InitDone);
        match self.aaqs.all() {
            _ if !self.is_listed => AaqPresence::Unknown,
            [] => AaqPresence::Absent,
            _ => AaqPresence::Present,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::*;

    #[test]
    fn nothing_is_claimed_before_the_first_list_is_complete() {
        let aaq = || serde_json::from_str(r#"{"metadata": {"name": "aaq", "uid": "u"}}"#).unwrap();
        let mut aaqs = AaqSightings::default();
        let seen = [
            Event::Init,
            Event::InitApply(aaq()),
            // The list broke off.
            Event::Init,
            Event::InitDone,
            Event::Apply(aaq()),
            Event::Init,
            Event::Delete(aaq()),
        ]
        .map(|event| aaqs.apply(&event));
        let (unknown, absent, present) = (AaqPresence::Unknown, AaqPresence::Absent, AaqPresence::Present);
        assert_eq!(seen, [unknown, unknown, unknown, absent, present, present, absent]);
    }
}
