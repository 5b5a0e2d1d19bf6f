//! What Kubernetes charges a pod that is no watch event.

use serde::Deserialize as _;
use serde_json::{Map, Value};
use sluice_engine::{Charge, ChargeRules, pod_charge};

use super::PodWire;
use super::facts::{bounded, input};

/// Why a pod has no charge.
#[derive(Debug, thiserror::Error)]
pub enum NativeChargeError {
    /// It is no pod.
    #[error("it cannot be read as a pod: {0}")]
    NotAPod(#[from] serde_json::Error),
    /// A field is no quantity, or there are too many extended resources.
    #[error("{0}: no quantity that can be counted")]
    Unreadable(String),
}

/// What Kubernetes charges a pod as of `now` (seconds since the epoch). The metadata may be left out.
///
/// # Errors
/// When it is no pod, or a quantity in it cannot be read.
pub fn native_charge(
    pod: &Map<String, Value>,
    rules: ChargeRules,
    now: i64,
) -> Result<Charge, NativeChargeError> {
    let mut pod = pod.clone();
    pod.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let wire = PodWire::deserialize(Value::Object(pod))?;
    let (input, unreadable) = input(&wire);
    let (charge, crowded) = bounded(pod_charge(&input, rules, now));
    match unreadable.or(crowded) {
        None => Ok(charge),
        Some(field) => Err(NativeChargeError::Unreadable(field.to_string())),
    }
}
