//! What is answered.

use serde_json::Value;
use sluice_gate::{Explanation, Subject, Told};

use super::say::{Said, Source};
use crate::cli::printed::Exit;
use crate::cli::world::World;

/// An answer in the making.
#[derive(Debug, Default)]
pub(in crate::cli) struct Answer {
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

    /// What is told in one namespace.
    pub fn take(&mut self, told: Option<Told>) {
        if let Some(Told::Explained { explanations, .. }) = told {
            self.explanations.extend(explanations);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.explanations.is_empty() && self.headroom.is_none()
    }

    /// As it is printed. `why_not` says why the leader was not asked, or did not answer.
    pub fn said(&self, world: &World, why_not: Option<String>) -> Said {
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        for explanation in &self.explanations {
            text.push_str(&explanation.at(world.now).to_string());
        }
        Said {
            source: Source::Recomputed { why_not },
            text,
            summary: self.lines.clone(),
            explanations: self.explanations.iter().map(Explanation::json).collect(),
            headroom: self.headroom.clone(),
            missing: world.missing.iter().chain(&self.missing).cloned().collect(),
            is_known: self.exit(world) != Exit::Unknown,
            assumed: world.assumed.clone(),
            unknown: self.unknown.clone(),
        }
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
