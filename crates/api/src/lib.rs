//! The custom resources Sluice serves and the names it uses.
//!
//! The CRDs in `deploy/crds/` are generated from the types here (`make gen`).

#![warn(missing_docs)]
#![allow(
    clippy::duplicated_attributes,
    reason = "the derive of a custom resource takes one attribute per printer column, and their types repeat"
)]

mod aacrq;
mod aaq;
pub mod aaq_conditions;
mod acrq;
mod arq;
mod cert_lifetime;
mod cluster_quota;
mod cluster_quota_charge;
mod endpoint;
mod evaluator;
mod evaluator_container;
mod finalizer;
mod gate_probe;
mod headroom_policy;
mod headroom_probe;
mod in_force;
mod job_queue_config;
mod mtq;
pub mod names;
mod one_aaq;
mod pause;
mod quota_review;
mod recorded;
mod rules;
mod schema;
mod sidecars;
mod tls_offer;
mod vmmrq;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use aacrq::{
    ApplicationAwareAppliedClusterResourceQuota, ApplicationAwareAppliedClusterResourceQuotaSpec,
};
pub use aaq::{
    AAQ, AaqCondition, AaqConfiguration, AaqPhase, AaqSpec, AaqStatus, CertConfig, CertLifetime,
    CustomTlsProfile, ImagePullPolicy, NamedTlsProfile, NodePlacement, TlsProfileType, TlsSecurityProfile,
    TlsVersion, VmiCalculator, VmiCalculatorConfiguration,
};
pub use acrq::{ApplicationAwareClusterResourceQuota, ApplicationAwareClusterResourceQuotaSpec};
pub use arq::{
    ApplicationAwareResourceQuota, ApplicationAwareResourceQuotaSpec, ApplicationAwareResourceQuotaStatus,
};
pub use cert_lifetime::{
    AskedLifetime, AskedLifetimes, Lifetime, LifetimeError, go_duration, parse_go_duration,
};
pub use cluster_quota::{ClusterQuotaSelector, ClusterQuotaStatus, NamespaceAmounts, QuotaAmounts};
pub use cluster_quota_charge::{ClusterQuotaCharge, ClusterQuotaChargeSpec, ClusterQuotaChargeStatus};
pub use endpoint::{Condition, Endpoint, FORMER_ENTRIES, Rule, WebhookEntry};
pub use evaluator::{
    Evaluator, EvaluatorAmounts, EvaluatorExample, EvaluatorFloor, EvaluatorMode, EvaluatorOnFailure,
    EvaluatorOtherPods, EvaluatorResources, EvaluatorRule, EvaluatorShadow, EvaluatorShadowAmount,
    EvaluatorShadowTotal, EvaluatorSidecar, EvaluatorSpec, EvaluatorStatus, EvaluatorStrategy,
    EvaluatorVariable,
};
pub use evaluator_container::{refused_of_evaluator, sidecar_of_evaluator, sidecar_that_runs};
pub use finalizer::has_put_finalizer;
pub use gate_probe::{GateProbe, GateProbeSpec, ProbeGate};
pub use headroom_policy::{
    BudgetMode, HeadroomBudget, HeadroomOptOut, HeadroomPolicy, HeadroomPolicySpec, HeadroomPolicyStatus,
};
pub use headroom_probe::{HeadroomProbe, HeadroomProbeSpec};
pub use in_force::{NotInForce, not_in_force, says_nothing};
pub use job_queue_config::{AAQJobQueueConfig, AAQJobQueueConfigSpec, AAQJobQueueConfigStatus};
pub use mtq::{MTQ, MtqSpec};
pub use one_aaq::{holding, is_placeholder};
pub use pause::{DEFAULT_PAUSE_RATE, HIGHEST_PAUSE_RATE, LONGEST_PAUSE, Pause, PauseError, read_pause};
pub use quota_review::{QuotaReview, QuotaReviewSource, QuotaReviewSpec, QuotaReviewStatus};
pub use recorded::{RECORDED_IN, schema_too_old};
pub use sidecars::{
    MOST_SIDECARS, REFUSED_SIDECAR, RefusedSidecar, SIDECAR_SOCKETS, SIDECAR_USER, refused_sidecars,
};
pub use tls_offer::{TlsOffer, TlsProfileError};
pub use vmmrq::{
    OriginalResourceQuota, VirtualMachineMigrationResourceQuota, VirtualMachineMigrationResourceQuotaSpec,
    VirtualMachineMigrationResourceQuotaStatus,
};

/// Every CRD that an installation has, in the order they are applied.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    let crds = [
        AAQ::crd(),
        ApplicationAwareResourceQuota::crd(),
        ApplicationAwareClusterResourceQuota::crd(),
        ApplicationAwareAppliedClusterResourceQuota::crd(),
        AAQJobQueueConfig::crd(),
        ClusterQuotaCharge::crd(),
        MTQ::crd(),
        VirtualMachineMigrationResourceQuota::crd(),
        HeadroomProbe::crd(),
        HeadroomPolicy::crd(),
        GateProbe::crd(),
        Evaluator::crd(),
        QuotaReview::crd(),
    ];
    crds.into_iter().map(schema::finish).collect()
}
