//! The status that an `Evaluator` should have.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_api::{
    EvaluatorShadow, EvaluatorShadowAmount, EvaluatorShadowTotal, EvaluatorStatus, MOST_SIDECARS, names,
    refused_of_evaluator, sidecar_of_evaluator,
};
use sluice_engine::Quantity;
use sluice_evaluators::Failure;
use sluice_gate::{MOST_SHADOWS, RuleFigures, ShadowAmount, ShadowFigures};
use sluice_index::Stated;

use super::{Kind, Object, Place};

/// What there is to say of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'f> {
    pub(super) name: &'f str,
    pub(super) place: Place,
    /// The gate has put the last change of all `Evaluator`s in force.
    pub(super) is_in_force: bool,
    /// `None`: that is not known yet.
    pub(super) figures: Option<&'f RuleFigures>,
    /// Rules that are in force at a time.
    pub(super) most: usize,
    pub(super) sidecar: Sidecar<'f>,
    /// What 99 of 100 answers do not exceed.
    pub(super) p99: Option<&'f str>,
    /// What differed when the sidecar was asked the same twice.
    pub(super) differs: Option<&'f str>,
    pub(super) spec: &'f Value,
    /// The sidecar of its name is not the container that it may name.
    pub(super) has_other_container: bool,
}

/// What is known of the sidecar that an object is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sidecar<'f> {
    /// It is about none, or nothing is known yet.
    Unknown,
    /// It answers.
    Works,
    /// It does not.
    Fails(&'f Failure),
}

/// The merge patch that brings the status up to date; `None` if it is, or cannot be read.
pub(super) fn patch(object: &Object, target: Target<'_>, now: Timestamp) -> Option<Value> {
    let stated = object.stated.as_deref()?;
    let is_asked =
        matches!(object.kind, Kind::Policy(_)) && matches!(target.place, Place::InForce | Place::Shadow);
    if is_asked && target.sidecar == Sidecar::Unknown {
        // Another leader has just begun to look for it: what was said stays until it is known.
        return None;
    }
    if !target.is_in_force && target.place != Place::Shadow {
        // The gate still charges pods by the last generation, and the status says that.
        return None;
    }
    let said = match target.place {
        Place::Off | Place::TooMany | Place::TooManyShadows | Place::NoSidecar => EvaluatorStatus::default(),
        Place::InForce => match target.figures {
            None => EvaluatorStatus { shadow: None, ..stated.status.clone() },
            Some(figures) => EvaluatorStatus {
                matched: Some(number(figures.matched)),
                held: Some(number(figures.held)),
                ..EvaluatorStatus::default()
            },
        },
        Place::Shadow => match target.figures {
            None => EvaluatorStatus { held: None, ..stated.status.clone() },
            Some(figures) => EvaluatorStatus {
                matched: Some(number(figures.matched)),
                shadow: figures.shadow.as_ref().map(shadow),
                ..EvaluatorStatus::default()
            },
        },
    };
    let conditions = conditions(object, target, stated, now)?;
    let is_evaluated = matches!(target.place, Place::InForce | Place::Shadow);
    let p99 = target.p99.map(str::to_owned).or_else(|| stated.status.p99.clone()).filter(|_| is_evaluated);
    let status = EvaluatorStatus { observed_generation: stated.generation, conditions, p99, ..said };
    // How long answers take is no reason to write.
    let without_times = EvaluatorStatus { p99: stated.status.p99.clone(), ..status.clone() };
    if without_times == stated.status {
        return None;
    }
    // What is absent is to go.
    Some(json!({
        "metadata": { "resourceVersion": stated.resource_version },
        "status": {
            "observedGeneration": status.observed_generation,
            "matched": status.matched,
            "held": status.held,
            "p99": status.p99,
            "shadow": status.shadow,
            "conditions": status.conditions,
        },
    }))
}

fn shadow(figures: &ShadowFigures) -> EvaluatorShadow {
    let text = |amount: Quantity| Text(amount.to_string());
    let amount = |amount: &ShadowAmount| EvaluatorShadowAmount {
        namespace: (!amount.namespace.is_empty()).then(|| amount.namespace.to_string()),
        quota: amount.quota.name.to_string(),
        key: amount.key.clone(),
        hard: text(amount.hard),
        used: text(amount.used),
        enforced: text(amount.enforced),
    };
    let total = figures.total.iter();
    EvaluatorShadow {
        held: number(figures.held),
        total: total
            .map(|(key, change)| EvaluatorShadowTotal { key: key.clone(), change: text(*change) })
            .collect(),
        differences: number(figures.differences),
        largest: figures.largest.iter().map(amount).collect(),
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The conditions of others stay.
fn conditions(
    object: &Object,
    target: Target<'_>,
    stated: &Stated<EvaluatorStatus>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let now = Timestamp::from_second(now.as_second()).ok()?;
    let consistent = object.consistent.as_ref().filter(|_| target.place != Place::Off);
    let was_told = stated.status.conditions.iter().any(|known| known.type_ == names::CONSISTENT);
    let is_policy = matches!(object.kind, Kind::Policy(_));
    let of_answers = (is_policy && (target.differs.is_some() || was_told)).then(|| answers(target.differs));
    let told = [
        Some((names::READY, ready(&object.kind, target))),
        consistent.map(agrees).or(of_answers).map(|says| (names::CONSISTENT, says)),
    ];
    let ours = told.into_iter().flatten().map(|(kind, (is, reason, message))| {
        let status = if is { "True" } else { "False" };
        let known = stated.status.conditions.iter().find(|known| known.type_ == kind);
        let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.0);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: stated.generation,
            last_transition_time: Time(since.unwrap_or(now)),
        }
    });
    let is_others = |known: &&Condition| ![names::READY, names::CONSISTENT].contains(&&*known.type_);
    Some(stated.status.conditions.iter().filter(is_others).cloned().chain(ours).collect())
}

/// Whether a condition is true, its reason and its message.
type Says = (bool, &'static str, String);

fn ready(kind: &Kind, target: Target<'_>) -> Says {
    let is_policy = matches!(kind, Kind::Policy(_));
    let unusable = if is_policy { "PolicyUnusable" } else { "RuleUnusable" };
    let name = target.name;
    match (target.place, kind.fault(), target.sidecar) {
        (Place::Off, _, _) => (false, "Off", "spec.mode is Off: pods are charged as without it".to_owned()),
        (Place::NoSidecar, _, _) => (false, "NoSidecar", no_sidecar(name, target.spec)),
        (Place::TooMany, _, _) => {
            let message = format!(
                "not in force: {} older ones are, and no more can be beside the sidecars: delete one, or set its mode \
                 to Off",
                target.most
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::TooManyShadows, _, _) => {
            let message = format!(
                "not evaluated: {MOST_SHADOWS} older ones are in the shadow, and no more can be: delete one, or set its \
                 mode to Off"
            );
            (false, "TooManyEvaluators", message)
        }
        (Place::Shadow, Some(fault), _) => {
            (false, unusable, format!("pods that it selects would be held: {fault}"))
        }
        (Place::InForce, Some(fault), _) => {
            (false, unusable, format!("new pods that it selects are held: {fault}"))
        }
        (_, None, Sidecar::Fails(failure)) => (false, "SidecarFails", format!("the sidecar {failure}")),
        (Place::Shadow, None, _) => {
            let message = "evaluated and charged nowhere: status.shadow says what it would charge".to_owned();
            (false, "Shadow", message)
        }
        (Place::InForce, None, _) if is_policy => {
            let beside = target.has_other_container && sidecar_of_evaluator(name, target.spec).is_some();
            let beside = beside.then_some(
                ", but it is not the one of spec.sidecar.image, for the AAQ or a flag names one of this name: remove one",
            );
            let message =
                format!("the sidecar answers, and is asked as it says{}", beside.unwrap_or_default());
            (true, "InForce", message)
        }
        (Place::InForce, None, _) => (true, "InForce", "its rule is in force".to_owned()),
    }
}

/// Why there is none, and what to do.
fn no_sidecar(name: &str, spec: &Value) -> String {
    if let Some(refused) = refused_of_evaluator(name, spec).first() {
        return format!("not in force: its container may not run: {}: {}", refused.field, refused.why);
    }
    if sidecar_of_evaluator(name, spec).is_some() {
        return format!(
            "not in force yet: pods are charged as without it until its container runs beside the controller that leads: \
             the operator adds it to the Deployment, and the conditions Progressing and Degraded of the AAQ say what \
             keeps it from that; at most {MOST_SIDECARS} run, those of the AAQ first; without an operator add it to the \
             controller's pod, with the flag --evaluator-of-object={name}=DIRECTORY"
        );
    }
    format!(
        "not in force: there is no sidecar {name}: name its image in spec.sidecar, or its container in \
         spec.configuration.sidecarEvaluators of the AAQ, or give the controller --evaluator={name}=DIRECTORY"
    )
}

fn agrees(consistent: &Result<(), Arc<str>>) -> Says {
    match consistent {
        Ok(()) => (true, "ExamplesHold", "the rule says of its examples what they say".to_owned()),
        Err(error) => (false, "ExampleContradicted", error.to_string()),
    }
}

/// Whether the sidecar says the same when it is asked the same.
fn answers(differs: Option<&str>) -> Says {
    match differs {
        None => (true, "AnswersAgree", "it says the same when it is asked the same".to_owned()),
        Some(how) => {
            let message = format!(
                "{how}: what was said first is charged; make it depend on nothing but what it is sent"
            );
            (false, "AnswersDiffer", message)
        }
    }
}

#[cfg(test)]
mod tests;
