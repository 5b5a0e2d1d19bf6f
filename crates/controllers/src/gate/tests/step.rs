//! What may happen in a run of the simulation, and what may go wrong.

use crate::gate::Answer;

#[derive(Clone, Debug)]
pub enum Step {
    Create {
        pod: u8,
        milli_cpu: u64,
        priority: i32,
    },
    Delete {
        pod: u8,
    },
    Finish {
        pod: u8,
    },
    Touch {
        pod: u8,
    },
    /// A client asks for another size, and the API server asks this replica.
    Resize {
        replica: bool,
        pod: u8,
        milli_cpu: u64,
    },
    /// The API server commits one of the resizes that were allowed, or finds that the pod has changed and asks again.
    Commit {
        at: u8,
    },
    Hard {
        hard: u64,
    },
    /// The namespace is paused for so long, or not any more.
    Pause {
        seconds: u8,
    },
    DeleteQuota,
    /// The quota counts other things than before.
    Meaning,
    Scribble {
        used: u64,
    },
    Deliver {
        replica: bool,
        watch: Watch,
        count: u8,
    },
    Answer {
        at: u8,
        fault: Fault,
    },
    /// The watch of pods has ended and they are listed anew.
    Relist {
        replica: bool,
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

#[derive(Clone, Copy, Debug)]
pub enum Watch {
    Pods,
    Quotas,
    Machines,
}

impl Watch {
    pub const ALL: [Self; 3] = [Self::Pods, Self::Quotas, Self::Machines];
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    None,
    /// Done, but the answer is lost.
    AnswerLost,
    /// Not done; the replica gets no answer.
    RequestLost,
    /// Perhaps done later; the replica gets no answer.
    Late,
    Refused,
    Busy,
}

/// What goes wrong in a run besides late, lost and refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Processes crash and leaders change; one that is replaced does not notice for a while, so two act at
    /// once.
    TwoLeaders,
    /// Processes crash and leaders change; one whose lease has expired asks for nothing more, but what it has
    /// asked for may still be done.
    Expiry,
    /// An administrator writes arbitrary usage into the status. Not together with crashes: what a leader has charged and not
    /// released when it crashes is recorded in the status alone, and is lost when that is overwritten.
    ScribbledStatus,
    /// Crashes, and limits that change and quotas that come and go.
    BusyAdmin,
    /// Crashes, and pauses that come and go.
    Pauses,
}

pub fn reply<T>(answer: Option<Answer<T>>, fault: Fault) -> Answer<T> {
    match (answer, fault) {
        (Some(answer), Fault::None) => answer,
        (_, Fault::Refused) => Answer::Refused("not today".to_owned()),
        (_, Fault::Busy) => Answer::Busy(None),
        _ => Answer::Unknown("connection lost".to_owned()),
    }
}
