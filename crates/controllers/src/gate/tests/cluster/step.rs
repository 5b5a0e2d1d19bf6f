//! What may happen in a run, and what may go wrong.

use super::super::step::Fault;
use super::server::Kind;

#[derive(Clone, Debug)]
pub enum Step {
    Create {
        namespace: u8,
        pod: u8,
        milli_cpu: u64,
        priority: i32,
    },
    Delete {
        namespace: u8,
        pod: u8,
    },
    Finish {
        namespace: u8,
        pod: u8,
    },
    Touch {
        namespace: u8,
        pod: u8,
    },
    /// The namespace is selected from now on, or no more.
    Label {
        namespace: u8,
        is_member: bool,
    },
    /// Limits of the cluster quota, or of the namespace's own; the quota is created if there is none.
    Hard {
        is_own: bool,
        hard: u64,
    },
    DeleteQuota {
        is_own: bool,
    },
    Meaning {
        is_own: bool,
    },
    Selector,
    /// Cluster quotas are allowed from now on, or not.
    Allow {
        is_allowed: bool,
    },
    /// A stranger deletes the object that records the charges.
    DeleteCharge,
    Deliver {
        replica: bool,
        kind: Kind,
        count: u8,
    },
    /// Does what was asked for; the answer is given later.
    Execute {
        at: u8,
    },
    Answer {
        at: u8,
        fault: Fault,
    },
    /// A watch has ended, and its objects are listed anew.
    Relist {
        replica: bool,
        kind: Kind,
    },
    Crash {
        replica: bool,
    },
    Lead {
        replica: bool,
    },
    Wait {
        ms: u64,
    },
}

/// What goes wrong in a run besides late, lost and refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Processes crash and leaders change; one that is replaced does not notice for a while, so two act at once. Limits only
    /// grow, and no namespace joins: no more is ever released than there is room for.
    TwoLeaders,
    /// All that people do to quotas and namespaces, beside crashes and two leaders.
    BusyAdmin,
}
