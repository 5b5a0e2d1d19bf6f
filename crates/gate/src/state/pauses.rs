//! Pauses as they are ordered, and what is told of them.

use super::State;
use crate::accounts::parts::pauses::{Paused, Scope};
use crate::config::Moment;

impl State {
    /// What the `AAQ` that counts says of a pause.
    pub(crate) fn pause_all(&mut self, paused: Option<Paused>, now: Moment) {
        self.accounts.set_pause(&self.cluster, Scope::All, paused, now);
        self.carry_out();
    }

    /// How many namespaces are paused, and when the last pause ends, in seconds since the epoch; 0 if there is none.
    pub(crate) fn paused(&self) -> (usize, i64) {
        self.accounts.paused(&self.cluster)
    }
}
