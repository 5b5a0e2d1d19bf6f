//! `Evaluator`s: rules that say what pods are charged.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use sluice_api::{Evaluator, EvaluatorStatus};

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Evaluator)]
pub struct EvaluatorWire {
    /// Name, uid, version, generation and times; nothing else is filled.
    #[serde(deserialize_with = "crate::meta::bare")]
    pub metadata: ObjectMeta,
    /// The specification as it is written: one that cannot be read has to hold the pods that it is about, not be skipped.
    #[serde(default)]
    pub spec: Value,
    /// The status; `None` if it cannot be read.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<EvaluatorStatus>,
}
