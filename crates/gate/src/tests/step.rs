//! What may happen in a run of the simulation, and what may go wrong.

use proptest::prelude::*;

use super::server::Kind;
use crate::Answer;

/// A namespace and a pod of it; processes, namespaces and quotas are numbered too.
pub type PodAt = (u8, u8);

#[derive(Clone, Debug)]
pub enum Step {
    /// A pod of so many thousandths of a CPU and this priority.
    Create(PodAt, u64, i32),
    Delete(PodAt),
    Finish(PodAt),
    Touch(PodAt),
    /// The owner of the pod gives it another label, by which it is charged so many thousandths of a CPU.
    Relabel(PodAt, u64),
    /// The evaluator of this replica follows other rules.
    Policy(u8),
    /// It is about to follow other rules: pods are read for them, and asked about, while it follows those of before.
    Expect(u8),
    /// So many more pods are read for the rules that this replica's evaluator is about to follow.
    ReadBeside(u8, u8),
    /// It follows them.
    Switch(u8),
    /// The evaluator of this replica answers no question about pods of this name from now on, or does again.
    Silence(u8, PodAt, bool),
    /// A client asks for another size, and the API server asks this replica.
    Resize(u8, PodAt, u64),
    /// The API server commits one of the resizes that were allowed, or finds that the pod has changed and asks again.
    Commit(u8),
    /// The namespace is selected from now on, or no more.
    Label(u8, bool),
    /// The limit of a quota; it is created if there is none.
    Hard(u8, u64),
    DeleteQuota(u8),
    /// A namespace is paused for so many seconds, or not any more.
    Pause(u8, u8),
    /// The quota counts other things than before.
    Meaning(u8),
    /// A stranger writes into the status of a quota that so much is used.
    Scribble(u8, u64),
    Selector,
    /// Cluster quotas are allowed from now on, or not.
    Allow(bool),
    /// A stranger deletes an object that records charges.
    DeleteCharge,
    /// The watch shows so many more changes.
    Deliver(u8, Kind, u8),
    /// Does what was asked for; the answer is given later.
    Execute(u8),
    Answer(u8, Fault),
    /// A watch has ended, and its objects are listed anew.
    Relist(u8, Kind),
    Crash(u8),
    Lead(u8),
    /// Milliseconds.
    Wait(u64),
    /// For a second everything is delivered and answered.
    Calm,
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
    /// once. Limits only grow, and no namespace joins: no more is ever released than there is room for.
    TwoLeaders,
    /// Processes crash and leaders change; one whose lease has expired asks for nothing more, but what it has
    /// asked for may still be done.
    Expiry,
    /// An administrator writes arbitrary usage into the status. Not together with crashes: what a leader has charged and not
    /// released when it crashes is recorded in the status alone, and is lost when that is overwritten.
    ScribbledStatus,
    /// All that people do to quotas and namespaces, beside crashes and two leaders.
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

pub fn answers() -> impl Strategy<Value = Step> {
    let fault = prop_oneof![
        8 => Just(Fault::None), 1 => Just(Fault::AnswerLost), 1 => Just(Fault::RequestLost), 1 => Just(Fault::Late),
        1 => Just(Fault::Refused), 1 => Just(Fault::Busy)
    ];
    (any::<u8>(), fault).prop_map(|(at, fault)| Step::Answer(at, fault))
}

/// Watches of these kinds, each as late as it likes.
pub fn deliveries(kinds: &'static [Kind]) -> impl Strategy<Value = Step> {
    // A watch passes over the changes of other kinds too.
    let most = 4 + u8::try_from(kinds.len()).unwrap();
    let delivery = (any::<u8>(), prop::sample::select(kinds), 1..most);
    delivery.prop_map(|(replica, kind, count)| Step::Deliver(replica, kind, count))
}

pub fn crashes() -> impl Strategy<Value = Step> {
    prop_oneof![any::<u8>().prop_map(Step::Crash), any::<u8>().prop_map(Step::Lead)]
}

pub fn waits() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..3000u64).prop_map(Step::Wait),
        // All that is only a matter of time is over then; what is late is late still.
        1 => (20_000..70_000u64).prop_map(Step::Wait),
    ]
}
