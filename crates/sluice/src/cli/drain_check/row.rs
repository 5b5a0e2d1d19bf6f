//! What comes of a VM of a node that is drained.

/// What comes of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Row {
    pub namespace: String,
    pub vm: String,
    /// What the ResourceQuotas have for its next pod without head-room.
    pub native: &'static str,
    /// The same of Sluice's own quotas.
    pub sluice: &'static str,
    /// What head-room adds.
    pub headroom: String,
    pub result: &'static str,
    /// A word for programs.
    pub reason: &'static str,
    pub message: String,
}

impl Row {
    /// Whether it can leave the node.
    pub fn is_good(&self) -> bool {
        matches!(self.result, NOW | IN_TURN)
    }
}

pub const NOW: &str = "now";
pub const IN_TURN: &str = "in turn";
pub const STUCK: &str = "STUCK";
pub const NOT_KNOWN: &str = "not known";
pub const NOT_MIGRATABLE: &str = "not migratable";
