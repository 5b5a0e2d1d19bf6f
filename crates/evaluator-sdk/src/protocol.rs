//! The protocol of application-aware-quota's evaluators: its messages and their frames.
//!
//! Package `evaluate` of `libsidecar/evaluator-server-com/evaluate.proto`, which has been the same in all its releases.
//! The messages are few and never changed, so they are written here and no compiler of `.proto` files is needed.

mod frame;
mod messages;

pub use frame::{FrameError, frame, frame_of, message, message_in};
pub use messages::{
    Error, HealthCheckRequest, HealthCheckResponse, Pod, PodUsageRequest, PodUsageResponse, ResourceList,
};

/// Path of the call that evaluates a pod.
pub const POD_USAGE: &str = "/evaluate.PodUsage/PodUsageFunc";
/// Path of the call that asks whether the evaluator is healthy.
pub const HEALTH_CHECK: &str = "/evaluate.PodUsage/HealthCheck";
/// Media type of requests and answers.
pub const CONTENT_TYPE: &str = "application/grpc";
/// Header or trailer with the outcome of a call, a number; `0` is success.
pub const STATUS: &str = "grpc-status";
/// Header or trailer with the text of an outcome, percent-encoded.
pub const MESSAGE: &str = "grpc-message";
/// [`STATUS`] where a message is larger than the other side takes.
pub const RESOURCE_EXHAUSTED: &str = "8";
