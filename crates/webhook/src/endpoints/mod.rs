//! What the endpoints decide. A pure one is a function from review to verdict; an asynchronous one reads what it needs of
//! the review by a pure function too, and asks others afterwards.

mod aaq_validate;
mod acrq_validate;
mod evaluator_validate;
pub mod explain;
pub mod growth;
pub mod headroom;
mod leader;
mod pod_gate;
mod quota_rules;
mod quota_validate;
pub mod target;
mod vm_size;

use std::sync::Arc;

use futures::future::BoxFuture;
use sluice_api::{Endpoint, names};

pub use aaq_validate::aaq_validate;
pub use acrq_validate::acrq_validate;
pub use evaluator_validate::evaluator_validate;
pub use pod_gate::pod_gate;
pub use quota_validate::{QuotaEndpoint, quota_validate, quota_validate_in};
pub use vm_size::vm_size;

use crate::http::body::HeldBody;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

/// How an endpoint decides.
pub enum Decision {
    /// From the review and the settings alone.
    Pure(fn(&Review<'_>, &Settings) -> Verdict),
    /// After asking others.
    Async(Arc<dyn AsyncEndpoint>),
}

/// An endpoint that asks others before it decides.
pub trait AsyncEndpoint: Send + Sync {
    /// Reads what is needed from the review at once, and decides in the future that is returned. The body's memory is given
    /// back before that is polled, unless it holds a clone of `body`.
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        settings: &Settings,
        body: &HeldBody,
    ) -> BoxFuture<'static, Verdict>;
}

/// The asynchronous endpoints as a process serves them.
pub struct AsyncEndpoints {
    /// That of [`Endpoint::QuotaValidate`].
    pub quotas: Arc<dyn AsyncEndpoint>,
    pub growth: Arc<dyn AsyncEndpoint>,
    pub explain: Arc<dyn AsyncEndpoint>,
    pub target: Arc<dyn AsyncEndpoint>,
    pub headroom: Arc<dyn AsyncEndpoint>,
}

/// Every endpoint with its decision.
pub fn decisions(asking: &AsyncEndpoints) -> impl Iterator<Item = (Endpoint, Decision)> {
    Endpoint::ALL.iter().map(|endpoint| {
        let decision = match endpoint {
            Endpoint::QuotaValidate => Decision::Async(Arc::clone(&asking.quotas)),
            Endpoint::AaqValidate => Decision::Pure(aaq_validate),
            Endpoint::AcrqValidate => Decision::Pure(acrq_validate),
            Endpoint::EvaluatorValidate => Decision::Pure(evaluator_validate),
            Endpoint::PodGate => Decision::Pure(pod_gate),
            Endpoint::Growth => Decision::Async(Arc::clone(&asking.growth)),
            Endpoint::Explain => Decision::Async(Arc::clone(&asking.explain)),
            Endpoint::VmSize => Decision::Pure(vm_size),
            Endpoint::Target => Decision::Async(Arc::clone(&asking.target)),
            Endpoint::Headroom => Decision::Async(Arc::clone(&asking.headroom)),
        };
        (*endpoint, decision)
    })
}

/// Whether a review that comes by the endpoint's path is the endpoint's. Like upstream, the shared
/// path dispatches by `request.kind.kind`; pods arrive there only to be gated, on CREATE.
pub(crate) fn takes(endpoint: Endpoint, review: &Review<'_>) -> bool {
    let kind = review.kind.as_str();
    let creates = review.operation == Operation::Create;
    match endpoint {
        Endpoint::QuotaValidate => kind == "ApplicationAwareResourceQuota",
        Endpoint::AaqValidate => kind == "AAQ",
        Endpoint::AcrqValidate => kind == "ApplicationAwareClusterResourceQuota",
        Endpoint::EvaluatorValidate => kind == names::EVALUATOR,
        Endpoint::PodGate => creates && ["Pod", names::GATE_PROBE].contains(&kind),
        // They answer for what they do not know.
        Endpoint::Growth | Endpoint::Explain | Endpoint::VmSize | Endpoint::Target | Endpoint::Headroom => {
            true
        }
    }
}
