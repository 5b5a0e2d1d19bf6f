//! Judges updates of pods without gates (see [`admission`](crate::admission)).

use super::State;
use crate::admission::{Asked, Change};
use crate::config::Moment;

impl State {
    /// Judges an update of a pod, and charges it if it takes more.
    pub fn ask(&mut self, change: &Change, now: Moment) -> Asked {
        let judged = self.accounts.judge(&self.cluster, change, now);
        self.carry_out();
        judged.unwrap_or_else(Asked::Judged)
    }
}
