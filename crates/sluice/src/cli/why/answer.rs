//! What is answered.

use serde_json::Value;
use sluice_gate::{Explanation, Subject};

use crate::cli::printed::Exit;
use crate::cli::world::World;

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Sentences before the explanations.
    pub lines: Vec<String>,
    pub explanations: Vec<Explanation>,
    /// What is to be said of head-room: reason and message.
    pub headroom: Option<Value>,
    /// Something waits beside what is explained.
    pub is_held: bool,
    /// Rights that were missing.
    pub missing: Vec<String>,
    /// Why there is no answer.
    pub unknown: Option<String>,
}

impl Answer {
    pub fn explain(&mut self, world: &World, subject: Subject<'_>) {
        self.explanations.extend(world.look(|state| state.explain(subject)));
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.explanations.is_empty() && self.headroom.is_none()
    }

    /// How the command ends.
    pub fn exit(&self, world: &World) -> Exit {
        if self.unknown.is_some() || !world.knows_pods {
            Exit::Unknown
        } else if self.is_held || self.explanations.iter().any(Explanation::is_held) {
            Exit::Held
        } else {
            Exit::Good
        }
    }
}
