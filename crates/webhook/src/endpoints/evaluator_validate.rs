//! Evaluator CREATE and UPDATE: its rule is one that can be compiled, and says of each example what the example says; or the
//! policy of its sidecar can be used.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use sluice_api::{EvaluatorSpec, MOST_SIDECARS};
use sluice_evaluators::check_evaluator;

use crate::review::{Metadata, Operation, Review, Verdict, nullable};
use crate::settings::Settings;

const VALID: &str = "Evaluator request is valid";

/// Decides on the creation or the change of an `Evaluator`.
pub fn evaluator_validate(review: &Review<'_>, settings: &Settings) -> Verdict {
    match review.operation {
        Operation::Create | Operation::Update => {
            check(review, settings).err().unwrap_or_else(|| Verdict::allow(VALID))
        }
        _ => Verdict::allow(VALID),
    }
}

fn check(review: &Review<'_>, settings: &Settings) -> Result<(), Verdict> {
    let new = review.read_object::<EvaluatorView>("an Evaluator")?;
    // One that is wrong by today's rules can still be labelled, and switched off.
    if new.metadata.deletion_timestamp.is_some() || new.spec.mode == sluice_api::EvaluatorMode::Off {
        return Ok(());
    }
    if review.operation == Operation::Update {
        let old = review.read_old_object::<AnyEvaluator>("an Evaluator")?;
        if review.read_object::<AnyEvaluator>("an Evaluator")?.spec == old.spec {
            return Ok(());
        }
    }
    let name = new.metadata.name.unwrap_or_default();
    check_evaluator(&name, &new.spec).map_err(|error| Verdict::deny(error.to_string()))?;
    let is_named = new.spec.sidecar.is_some_and(|sidecar| sidecar.image.is_some());
    // What has no place is asked about nothing, and holds nothing. Of one name one runs.
    let named = settings.evaluators.containers().chain(settings.sidecars.iter().map(String::as_str));
    let places: BTreeSet<_> = named.chain([&*name]).collect();
    if is_named && places.len() > MOST_SIDECARS {
        return Err(Verdict::deny(format!(
            "spec.sidecar.image: {MOST_SIDECARS} containers of evaluators run beside the controller, and no more can: \
             delete an Evaluator that has one, or set its mode to Off"
        )));
    }
    Ok(())
}

/// An `Evaluator`, narrowed.
#[derive(Deserialize)]
struct EvaluatorView {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    spec: EvaluatorSpec,
}

/// An `Evaluator` as it was stored, by whatever version.
#[derive(Deserialize)]
struct AnyEvaluator {
    #[serde(default)]
    spec: Value,
}
