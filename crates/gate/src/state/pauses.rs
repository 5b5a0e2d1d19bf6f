//! Pauses as they are ordered, and what is told of them.

use std::sync::Arc;

use super::State;
use crate::action::{GateEvent, Regarding};
use crate::config::Moment;
use crate::messages::reasons;
use crate::parts::pauses::{Paused, Scope};

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

    pub(super) fn announce_pause(&mut self, scope: Scope, paused: &Paused) {
        let (reason, message) = match &paused.said {
            Ok(pause) => (
                reasons::PAUSED,
                format!(
                    "no pod waits for quota until {}: those that wait go in order, at most {} a second; usage is counted \
                     and may exceed the limits",
                    pause.until, pause.rate
                ),
            ),
            Err(error) => (reasons::PAUSE_IGNORED, format!("not paused: {error}")),
        };
        self.announce_about(scope, paused, reason, message);
    }

    pub(super) fn announce_pause_end(&mut self, scope: Scope, paused: &Paused) {
        let message =
            "pods wait for quota again; those that went are counted, and none is evicted".to_owned();
        self.announce_about(scope, paused, reasons::PAUSE_ENDED, message);
    }

    fn announce_about(&mut self, scope: Scope, paused: &Paused, reason: &'static str, message: String) {
        let regarding = match scope {
            Scope::All => Regarding::Configuration,
            Scope::One(_) => Regarding::Namespace,
        };
        let (namespace, name) = (Arc::from(""), Arc::clone(&paused.name));
        let uid = paused.uid.clone();
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }
}
