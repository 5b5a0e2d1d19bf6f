//! What an evaluator's answer charges: a pure function of its bytes.
//!
//! ```text
//!  bytes ─▶ amounts by name ─▶ one amount per resource ─▶ floor ─┐
//!                                                 other answers ─┴▶ sum ─▶ strategy ─▶ Charge
//! ```
//!
//! An answer is charged whole or refused with the name and the value that are wrong. Upstream's controller
//! (`aaq_socket_evaluator.go` of application-aware-quota) adds negative amounts, checks no name and takes an answer that
//! charges nothing for a pod that is free; here a pod with such an answer is held.

mod read;
mod refusal;
mod text;

use std::collections::BTreeSet;

use crate::charge::{Amount, Charge};
use crate::resource::Resource;

pub use refusal::Refusal;
pub use text::one_line;

/// Largest answer that is looked at, in bytes.
pub const MAX_ANSWER: usize = 256 << 10;
/// Most names in an answer.
pub const MAX_NAMES: usize = 64;

/// How the charge of evaluators and what Kubernetes counts go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// The pod takes what the evaluator says, and nothing else.
    #[default]
    Replace,
    /// The pod takes that and what Kubernetes counts.
    Retain,
}

/// The least that an evaluator may charge a pod that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Floor {
    /// Nothing: it may exempt pods.
    None,
    /// Something. Published releases of libsidecar send an error as a match that charges nothing.
    #[default]
    Positive,
    /// What Kubernetes counts, of each resource.
    Native,
}

/// What an evaluator may charge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Rules {
    /// What becomes of Kubernetes' count.
    pub strategy: Strategy,
    /// The least that it may charge.
    pub floor: Floor,
    /// The only resources that it may charge; `None`: any that pods can take.
    pub keys: Option<BTreeSet<Resource>>,
}

/// The charge of one answer that matches: `json` is its resource list, `native` what Kubernetes counts for the pod.
///
/// Names of one number (`cpu`, `requests.cpu`) are one resource with the larger of the amounts.
///
/// # Errors
/// With what is wrong; nothing of such an answer may be charged.
pub fn charge_of(json: &[u8], rules: &Rules, native: &Charge) -> Result<Charge, Refusal> {
    let charge = Charge::from_pairs(read::amounts(json, rules.keys.as_ref())?);
    check_floor(&charge, rules, native)?;
    Ok(charge)
}

/// Whether the charge of an answer that matches reaches the floor, of a pod of which Kubernetes counts `native`.
///
/// # Errors
/// When it does not.
pub fn check_floor(charge: &Charge, rules: &Rules, native: &Charge) -> Result<(), Refusal> {
    match rules.floor {
        Floor::None => Ok(()),
        Floor::Positive if charge.iter().any(|(_, amount)| *amount > Amount::ZERO) => Ok(()),
        Floor::Positive => Err(Refusal::Nothing),
        // What Kubernetes counts is added to it.
        Floor::Native if rules.strategy == Strategy::Retain => Ok(()),
        Floor::Native => {
            let below = |(resource, least): &&(Resource, Amount)| {
                charge.get(resource).unwrap_or(Amount::ZERO) < *least
            };
            native.iter().find(below).map_or(Ok(()), |(resource, least)| {
                let charged = charge.get(resource).unwrap_or(Amount::ZERO);
                Err(Refusal::BelowNative { name: resource.clone(), charged, native: *least })
            })
        }
    }
}

/// What a pod takes by the charges of all evaluators that match it: their sum, and what Kubernetes counts if one of them
/// retains that. `None` if none matches: the pod takes what Kubernetes counts. The order does not matter.
#[must_use]
pub fn combine<'c>(
    native: &Charge,
    charges: impl IntoIterator<Item = (Strategy, &'c Charge)>,
) -> Option<Charge> {
    let charges: Vec<_> = charges.into_iter().collect();
    let retains = charges.iter().any(|(strategy, _)| *strategy == Strategy::Retain);
    let retained = native.iter().filter(|_| retains);
    let pairs = charges.iter().flat_map(|(_, charge)| charge.iter()).chain(retained).cloned();
    let sum = Charge::from_pairs(pairs);
    (!charges.is_empty()).then_some(sum)
}
