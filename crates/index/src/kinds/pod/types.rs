//! What is told of a pod: its facts, what holds it back, who owns and who has created it.

use std::sync::Arc;

use sluice_engine::{Charge, PodId, ScopeFacts, Uid};

use crate::kinds::namespace::NamespaceId;
use crate::version::Version;

/// What an object of the watch says of a pod.
#[derive(Clone, Debug)]
pub struct PodFacts {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// `spec.priority`.
    pub priority: i32,
    /// `metadata.creationTimestamp`, in seconds since the epoch.
    pub created: i64,
    /// What it takes. An amount that cannot be read is the largest there is: what runs never counts as nothing.
    pub charge: Charge,
    /// Names the first field that cannot be read.
    pub unreadable: Option<Arc<str>>,
    /// What its scopes depend on.
    pub scope_facts: ScopeFacts,
    /// What holds it back.
    pub gates: Gates,
    /// See [`crate::PodRecord::has_ephemeral_volumes`].
    pub has_ephemeral_volumes: bool,
    /// See [`crate::PodRecord::overdue_at`].
    pub overdue_at: Option<i64>,
    /// Of a pod that a VirtualMachineInstance controls.
    pub ownership: Option<Ownership>,
    /// Of a pod that the platform may have created. Which ones these are is for the reader to say:
    /// [`Self::read`] leaves it out.
    pub platform: Option<PlatformPod>,
}

/// What holds a pod back from being scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gates {
    /// Nothing: the pod takes from its quotas.
    None,
    /// Only our gate: the pod waits for a decision.
    Ours,
    /// Gates of others, with ours or without: not our turn yet.
    Foreign,
}

/// What few pods have, kept apart so that the others take no room for it. It is empty, or there is none, of a pod that has
/// nothing of this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peculiar {
    pub(super) unreadable: Option<Arc<str>>,
    pub(super) ownership: Option<Ownership>,
    pub(super) platform: Option<PlatformPod>,
}

/// Namespace, VirtualMachineInstance, creator and handle of a pod.
pub(super) type OwnerKey = (NamespaceId, Uid, Creator, PodId);

/// Who created a pod, as pods of one owner are ordered by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Creator {
    /// The pod was created before there was a stamp.
    Unknown,
    /// By the stamp of admission.
    Stamped(Arc<str>),
    /// Behind all pods of the owner: of none.
    Last,
}

/// Namespace, VirtualMachineInstance, time of creation, uid and handle of a pod.
pub(super) type UnstampedKey = (NamespaceId, Uid, i64, Uid, PodId);

/// What is kept of a pod that a VirtualMachineInstance controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The uid of the VirtualMachineInstance. A client that may update pods may write any value: a claim, not evidence.
    pub machine: Uid,
    /// Who created the pod, by the stamp of admission; empty if the name is longer than any of a service account. None: it
    /// was created before there was a stamp.
    pub created_by: Option<Arc<str>>,
    /// The uid of the migration whose target it is, by its label: a claim as well.
    pub migration: Option<Box<Uid>>,
    /// What the pod would take if the container of the guest was all it had.
    pub compute: Arc<Charge>,
}

/// What is kept of a pod that a controller of the platform may have created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformPod {
    /// Who created it, by the stamp of admission.
    pub created_by: Arc<str>,
    /// The pod that controls it. A client that may update pods may write any reference: a claim, not evidence.
    pub controller: Option<PodReference>,
}

/// How one pod names another of its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReference {
    pub name: Box<str>,
    pub uid: Uid,
}

/// The place of a pod of the platform in their order: its namespace, the pod that controls it, and its handle.
pub type PlatformKey = (NamespaceId, Option<Uid>, PodId);
