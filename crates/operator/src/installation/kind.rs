//! The kinds of what the operator makes besides admission objects and Secrets.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ResourceQuota, Service};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ApiResource;

/// A kind of operands, in the order in which they are made: pods find what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `networkpolicies`
    NetworkPolicy,
    /// `prioritylevelconfigurations`
    PriorityLevel,
    /// `flowschemas`
    FlowSchema,
    /// `resourcequotas`
    ResourceQuota,
    /// `services`
    Service,
    /// `poddisruptionbudgets`
    DisruptionBudget,
    /// `deployments`
    Deployment,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::NetworkPolicy,
        Self::PriorityLevel,
        Self::FlowSchema,
        Self::ResourceQuota,
        Self::Service,
        Self::DisruptionBudget,
        Self::Deployment,
    ];

    pub(super) fn named(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.resource().kind == kind)
    }

    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::FlowSchema => ApiResource::erase::<FlowSchema>(&()),
            Self::NetworkPolicy => ApiResource::erase::<NetworkPolicy>(&()),
            Self::DisruptionBudget => ApiResource::erase::<PodDisruptionBudget>(&()),
            Self::PriorityLevel => ApiResource::erase::<PriorityLevelConfiguration>(&()),
            Self::ResourceQuota => ApiResource::erase::<ResourceQuota>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
        }
    }

    /// Whether its objects are in a namespace.
    pub(super) const fn is_namespaced(self) -> bool {
        !matches!(self, Self::FlowSchema | Self::PriorityLevel)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operand {
    pub(super) kind: Kind,
    pub(super) name: String,
}

impl Operand {
    pub(super) fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }
}
