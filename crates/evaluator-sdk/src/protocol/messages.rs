//! The seven messages.

use bytes::Bytes;
use prost::Message;

/// What is asked about one pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodUsageRequest {
    /// The pod to evaluate.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<Pod>,
    /// The pods of its namespace, itself included; empty where they are not sent.
    #[prost(message, repeated, tag = "2")]
    pub pods_state: Vec<Pod>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Pod {
    /// A core/v1 Pod as JSON, without `kind` and `apiVersion`.
    #[prost(bytes = "bytes", tag = "1")]
    pub pod_json: Bytes,
}

/// What a pod takes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodUsageResponse {
    /// The amounts.
    #[prost(message, optional, tag = "1")]
    pub resource_list: Option<ResourceList>,
    /// Whether the evaluator is about this pod. Without it the amounts mean nothing.
    #[prost(bool, tag = "2")]
    pub r#match: bool,
    /// What went wrong. application-aware-quota's controller ends where it is missing.
    #[prost(message, optional, tag = "3")]
    pub error: Option<Error>,
}

/// Amounts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceList {
    /// A JSON object from names of quota keys to quantities, or `null`.
    #[prost(bytes = "bytes", tag = "1")]
    pub resource_list_json: Bytes,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Error {
    /// Whether anything did.
    #[prost(bool, tag = "1")]
    pub error: bool,
    /// What, for people.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Asks whether the evaluator is healthy.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {}

/// Whether it is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// It can be asked.
    #[prost(bool, tag = "1")]
    pub healthy: bool,
}
