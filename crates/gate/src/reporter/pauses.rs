//! Events about pauses.

use std::sync::Arc;

use super::Reporter;
use crate::accounts::parts::pauses::{Paused, Scope};
use crate::action::{GateEvent, Regarding};
use crate::messages::reasons;

impl Reporter {
    pub(super) fn tell_pause(&mut self, scope: Scope, paused: &Paused) {
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
        self.tell_of_pause(scope, paused, reason, message);
    }

    pub(super) fn tell_pause_end(&mut self, scope: Scope, paused: &Paused) {
        let message =
            "pods wait for quota again; those that went are counted, and none is evicted".to_owned();
        self.tell_of_pause(scope, paused, reasons::PAUSE_ENDED, message);
    }

    fn tell_of_pause(&mut self, scope: Scope, paused: &Paused, reason: &'static str, message: String) {
        let regarding = match scope {
            Scope::All => Regarding::Configuration,
            Scope::One(_) => Regarding::Namespace,
        };
        let (namespace, name) = (Arc::from(""), Arc::clone(&paused.name));
        let uid = paused.uid.clone();
        self.events.announce(GateEvent { regarding, namespace, name, uid, reason, message });
    }
}
