//! Says why something waits, for the webhook, which asks for a person.

use super::explain::{Told, Topic};
use super::handle::Gate;
use super::metrics::Work;

impl Gate {
    /// What is told in a namespace; `None`: this process does not lead. The state is locked for less than 2 ms.
    #[must_use]
    pub fn tell(&self, namespace: &str, topic: Topic<'_>) -> Option<Told> {
        self.locked(Work::Explain, |state, _| state.tell(namespace, topic))
    }

    /// The present by the clock of the API server, in milliseconds since the epoch.
    #[must_use]
    pub fn unix_ms(&self) -> i64 {
        self.now().unix_ms
    }
}
