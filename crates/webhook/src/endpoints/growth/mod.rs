//! Updates that may take more of a quota (`docs/protocols.md`, *Charged at admission*): of pods without gates, which are
//! resized or moved under another scope, and of VMs that get another size.
//!
//! The leading controller decides ([`GrowthLeader`]). The webhook hands it each review as it is and gives its verdict back
//! ([`GrowthRelay`]). Whatever keeps it from deciding is a refusal that clients repeat by themselves: code 429 with a time
//! to wait, as client-go understands it (`k8s.io/client-go/rest/with_retry.go`).

mod relay;

pub use relay::GrowthRelay;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use sluice_index::{PodWire, VmiWire};

use super::AsyncEndpoint;
use crate::http::body::HeldBody;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

const POD: &str = "Pod";
pub(super) const VMI: &str = "VirtualMachineInstance";
/// After so many seconds a client may try again.
const RETRY_AFTER_S: u32 = 1;

/// An update that may take more.
#[derive(Debug)]
pub struct Growth {
    pub update: Update,
    /// Nothing is to be charged.
    pub dry_run: bool,
}

/// What is updated, as it is stored and as it is to be.
#[derive(Debug)]
pub enum Update {
    /// A pod, and its JSON as it is to be.
    Pod(Box<Change<PodWire>>, Box<str>),
    /// A VM that runs.
    Machine(Box<Change<VmiWire>>),
}

/// An object before and after its update.
#[derive(Debug)]
pub struct Change<T> {
    /// As it is stored.
    pub before: T,
    /// As it is to be.
    pub after: T,
}

impl<T> Change<T> {
    pub(super) fn read<'a>(review: &Review<'a>, expected: &str) -> Result<Box<Self>, Verdict>
    where
        T: Deserialize<'a>,
    {
        let (before, after) = (review.read_old_object(expected)?, review.read_object(expected)?);
        Ok(Box::new(Self { before, after }))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthVerdict {
    /// There is room, and it is charged.
    Allowed,
    /// There is no room, in these words.
    Refused(String),
    /// It cannot be decided now, because of this.
    Undecided(String),
}

impl Growth {
    /// What a review asks, or a verdict on what is no update of a pod or of a VM.
    fn read(review: &Review<'_>) -> Result<Self, Verdict> {
        let update = match (&review.operation, &*review.kind) {
            (Operation::Update, POD) => {
                let after = review.object_text().unwrap_or_default();
                Update::Pod(Change::read(review, "a pod")?, after.into())
            }
            (Operation::Update, VMI) => Update::Machine(Change::read(review, "a VirtualMachineInstance")?),
            (operation, kind) => {
                return Err(Verdict::malformed(format!(
                    "expected the update of a pod or of a VirtualMachineInstance: kind \"{kind}\", operation {operation:?}"
                )));
            }
        };
        Ok(Self { update, dry_run: review.dry_run })
    }
}

impl GrowthVerdict {
    /// In words, about an object of this kind.
    fn about(self, kind: &str) -> Verdict {
        let whose = if kind == VMI { "VM" } else { "pod" };
        match self {
            Self::Allowed => Verdict::allow(""),
            Self::Refused(words) => Verdict::deny(words),
            Self::Undecided(why) => Verdict::retry(
                RETRY_AFTER_S,
                format!("could not charge the {whose}'s quotas: {why}; try again"),
            ),
        }
    }
}

/// The endpoint in the process that decides: charges an update, or says why not.
pub struct GrowthLeader(pub Judge);

/// What [`GrowthLeader`] asks.
pub type Judge = Box<dyn Fn(Growth) -> BoxFuture<'static, GrowthVerdict> + Send + Sync>;

impl AsyncEndpoint for GrowthLeader {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        _settings: &Settings,
        _body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        let (growth, kind) = (Growth::read(review), review.kind.clone());
        async move {
            match growth {
                Ok(growth) => self.0(growth).await.about(&kind),
                Err(malformed) => malformed,
            }
        }
        .boxed()
    }
}
