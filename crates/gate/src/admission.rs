//! What pods without gates are to take more: charged before it is admitted (`docs/protocols.md`, *Charged at
//! admission*).
//!
//! A resize, or an update that moves a pod under another scope, takes more of a quota and passes no gate. So the webhook
//! asks the leader about each, which charges it, records that like a release, and then answers. The charge is one of the
//! pod, the largest that was asked for: the API server asks anew whenever the pod has changed before it could commit
//! (`k8s.io/apiserver/pkg/storage/etcd3/store.go`, `GuaranteedUpdate`), so of many requests about one version one is
//! committed at most. It ends when a later version of the pod is seen.

use std::borrow::Cow;

use sluice_index::{PodFacts, PodWire, VmiRecord, VmiWire};

use super::config::{GateConfig, Moment};
use super::evaluators::Priced;

/// An update of a pod that is being admitted.
#[derive(Clone, Debug)]
pub struct Change {
    /// The pod as it is stored, if the request is to commit.
    pub before: PodFacts,
    /// The pod as it is to be.
    pub after: PodFacts,
    /// What evaluators say of that; `None`: they have not answered, or there are none.
    pub price: Option<Priced>,
    /// What is answered where evaluators are to say it and `price` is none of theirs.
    pub unpriced: Option<Judgement>,
    /// Nothing is going to be changed: nothing is charged.
    pub dry_run: bool,
}

impl Change {
    /// Reads the two pods of a review. It takes time in the number of their containers, so it is done without the lock of
    /// [`State`](super::State).
    #[must_use]
    pub fn read(before: &PodWire, after: &PodWire, dry_run: bool, config: &GateConfig, now: Moment) -> Self {
        let read = |wire| config.read(wire, now);
        Self { before: read(before), after: read(after), price: None, unpriced: None, dry_run }
    }
}

/// An update of a VirtualMachineInstance that is being admitted.
#[derive(Clone, Debug)]
pub struct MachineChange {
    /// The VM as it is stored, if the request is to commit.
    pub before: VmiRecord,
    /// The VM as it is to be.
    pub after: VmiRecord,
    /// Nothing is going to be changed: nothing is charged.
    pub dry_run: bool,
}

impl MachineChange {
    /// Reads the two VMs of a review.
    #[must_use]
    pub fn read(before: &VmiWire, after: &VmiWire, dry_run: bool) -> Self {
        Self { before: VmiRecord::read(before), after: VmiRecord::read(after), dry_run }
    }
}

/// Whether a [`Change`] or a [`MachineChange`] may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The change is charged, or takes nothing more.
    Allowed,
    /// There is no room, in the words of Kubernetes' own quota.
    Refused(String),
    /// The change cannot be decided on now; the same request may be allowed in a moment.
    Undecided(Cow<'static, str>),
}

/// Tells one question from all others.
pub type Ticket = u64;

/// What comes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Judged(Judgement),
    /// The answer comes when the charge is recorded, as [`super::Action::Answer`].
    Recording(Ticket),
}

/// The watch has to come that far first.
pub(super) const UNSEEN: Judgement = Judgement::Undecided(Cow::Borrowed("this version was not seen yet"));

pub(super) const UNEVALUATED: Judgement =
    Judgement::Undecided(Cow::Borrowed("evaluators have not answered what the pod would take"));

pub(super) const CHANGED: Judgement =
    Judgement::Undecided(Cow::Borrowed("the object or a quota has changed meanwhile"));
