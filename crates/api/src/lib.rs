//! The custom resources Sluice serves and the names it uses.
//!
//! The CRDs in `deploy/crds/` are generated from the types here (`make gen`).

mod aaq;
mod job_queue_config;
pub mod names;
mod resource_quota;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use aaq::{
    AAQ, AaqCondition, AaqConfiguration, AaqPhase, AaqSpec, AaqStatus, CertConfig, CertLifetime,
    CustomTlsProfile, ImagePullPolicy, NamedTlsProfile, NodePlacement, TlsProfileType, TlsSecurityProfile,
    TlsVersion, VmiCalculator, VmiCalculatorConfiguration,
};
pub use job_queue_config::{AAQJobQueueConfig, AAQJobQueueConfigSpec, AAQJobQueueConfigStatus};
pub use resource_quota::{
    ApplicationAwareResourceQuota, ApplicationAwareResourceQuotaSpec, ApplicationAwareResourceQuotaStatus,
};

/// Every CRD that an installation has, in the order they are applied.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    [AAQ::crd(), ApplicationAwareResourceQuota::crd(), AAQJobQueueConfig::crd()]
        .into_iter()
        .map(schema::finish)
        .collect()
}
