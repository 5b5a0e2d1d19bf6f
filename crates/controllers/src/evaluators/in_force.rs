//! What charges pods, and what is tried in the shadow.

use std::sync::Arc;

use sluice_evaluators::{RuleEvaluator, SidecarPolicy};

use super::{Kind, Objects, Place};

/// What charges pods.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    pub rules: Vec<Arc<RuleEvaluator>>,
    /// How each sidecar is asked, by its place; `None`: it is not, for its policy is off, in the shadow, gone, or not known
    /// yet.
    pub sidecars: Vec<Option<Arc<SidecarPolicy>>>,
}

/// What is tried in the shadow.
#[derive(Clone, Debug)]
pub enum Shadowed {
    Rule(Arc<RuleEvaluator>),
    /// The sidecar of this name and place, asked so.
    Sidecar(Arc<str>, usize, Arc<SidecarPolicy>),
}

impl Shadowed {
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Rule(rule) => rule.name(),
            Self::Sidecar(name, _, _) => name,
        }
    }

    fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rule(one), Self::Rule(other)) => Arc::ptr_eq(one, other),
            (Self::Sidecar(_, one_place, one), Self::Sidecar(_, place, other)) => {
                one_place == place && one.answers_as(other)
            }
            _ => false,
        }
    }
}

impl InForce {
    /// What charges pods, and what is tried in the shadow. The first `without_object` of the sidecars are asked without an
    /// object of their name too.
    pub(super) fn of(
        objects: &Objects,
        (sidecars, without_object): (&[Arc<str>], usize),
        most_rules: usize,
    ) -> (Self, Vec<Shadowed>) {
        let by_default = objects.are_all_known.then(|| Arc::new(SidecarPolicy::default()));
        let policies = (0..sidecars.len()).map(|place| by_default.clone().filter(|_| place < without_object));
        let mut in_force = Self { rules: Vec::new(), sidecars: policies.collect() };
        let mut shadowed = Vec::new();
        for (name, object, place) in objects.places(sidecars, most_rules) {
            match &object.kind {
                Kind::Rule(rule) => match place {
                    Place::InForce => in_force.rules.push(Arc::clone(rule)),
                    Place::Shadow => shadowed.push(Shadowed::Rule(Arc::clone(rule))),
                    _ => {}
                },
                Kind::Policy(policy) => {
                    let Some(at) = sidecars.iter().position(|sidecar| sidecar == name) else { continue };
                    if let Some(asked) = in_force.sidecars.get_mut(at) {
                        *asked = (place == Place::InForce).then(|| Arc::clone(policy));
                    }
                    if place == Place::Shadow {
                        shadowed.push(Shadowed::Sidecar(Arc::clone(name), at, Arc::clone(policy)));
                    }
                }
            }
        }
        (in_force, shadowed)
    }

    /// Whether all that was answered by the one holds by the other.
    fn answers_as(&self, other: &Self) -> bool {
        let is_same_rule = |(one, other): (&Arc<RuleEvaluator>, &Arc<RuleEvaluator>)| Arc::ptr_eq(one, other);
        let is_same_policy =
            |(one, other): (&Option<Arc<SidecarPolicy>>, &Option<Arc<SidecarPolicy>>)| match (one, other) {
                (Some(one), Some(other)) => one.answers_as(other),
                (None, None) => true,
                _ => false,
            };
        self.rules.len() == other.rules.len()
            && self.rules.iter().zip(&other.rules).all(is_same_rule)
            && self.sidecars.len() == other.sidecars.len()
            && self.sidecars.iter().zip(&other.sidecars).all(is_same_policy)
    }
}

/// What is other than before.
#[derive(Debug, Default)]
pub struct Changed {
    /// What charges pods.
    pub enforced: Option<InForce>,
    pub shadow: Option<Vec<Shadowed>>,
    /// How many changes of the evaluators in force there have been.
    pub number: u64,
}

impl Changed {
    pub(super) fn between(before: (InForce, Vec<Shadowed>), now: (InForce, Vec<Shadowed>)) -> Self {
        let (enforced, shadow) = now;
        let is_same_shadow = before.1.len() == shadow.len()
            && before.1.iter().zip(&shadow).all(|(one, other)| one.is_as(other));
        Self {
            enforced: (!before.0.answers_as(&enforced)).then_some(enforced),
            shadow: (!is_same_shadow).then_some(shadow),
            number: 0,
        }
    }
}
