//! Updates of pods without gates that may take more of a quota: resizes, and what moves a pod under another scope
//! (`docs/protocols.md`, *Charged at admission*).
//!
//! The leading controller decides ([`GrowthLeader`]). The webhook hands it each review as it is and gives its verdict back
//! ([`GrowthRelay`]). Whatever keeps it from deciding is a refusal that clients repeat by themselves: code 429 with a time to
//! wait, as client-go understands it (`k8s.io/client-go/rest/with_retry.go`).

mod relay;

pub use relay::GrowthRelay;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_index::PodWire;

use super::AsyncEndpoint;
use crate::http::body::HeldBody;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

/// After so many seconds a client may try again.
const RETRY_AFTER_S: u32 = 1;

/// An update that may take more.
#[derive(Debug)]
pub struct Growth {
    /// The pod as it is stored.
    pub before: PodWire,
    /// The pod as it is to be.
    pub after: PodWire,
    /// Nothing is to be charged.
    pub dry_run: bool,
}

/// What is decided.
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
    /// What a review asks, or a verdict on what is no update of a pod.
    fn read(review: &Review<'_>) -> Result<Self, Verdict> {
        if review.kind != "Pod" || review.operation != Operation::Update {
            return Err(Verdict::malformed(format!(
                "expected the update of a pod: kind \"{}\", operation {:?}",
                review.kind, review.operation
            )));
        }
        Ok(Self {
            before: review.read_old_object("a pod")?,
            after: review.read_object("a pod")?,
            dry_run: review.dry_run,
        })
    }
}

impl From<GrowthVerdict> for Verdict {
    fn from(decided: GrowthVerdict) -> Self {
        match decided {
            GrowthVerdict::Allowed => Self::allow(""),
            GrowthVerdict::Refused(words) => Self::deny(words),
            GrowthVerdict::Undecided(why) => {
                Self::retry(RETRY_AFTER_S, format!("could not charge the pod's quotas: {why}; try again"))
            }
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
        let growth = Growth::read(review);
        async move {
            match growth {
                Ok(growth) => self.0(growth).await.into(),
                Err(malformed) => malformed,
            }
        }
        .boxed()
    }
}
