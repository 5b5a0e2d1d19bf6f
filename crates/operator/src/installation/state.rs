//! How the Deployments and the gate are, and what that makes of phase and conditions.

use std::collections::BTreeMap;

use sluice_api::{AaqPhase, names};

use super::kind::Kind;
use super::live::Live;
use super::observe::World;
use super::pods::{ReplicaPod, kept_of};
use sluice_api::aaq_conditions::Said;

/// Whether pods are gated, with a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// At every API server.
    Holds(String),
    /// Not known.
    Unknown(String),
    /// At some API server they come in without a gate or are refused: reason and message.
    Broken(String, String),
}

/// What went wrong when operands were written: a sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Troubles {
    /// CRDs on which no controller leads.
    pub(super) too_old: Vec<String>,
    /// What is missing is not created.
    pub(super) withheld: Vec<String>,
    /// The API server did not take a write.
    pub(super) refused: Vec<String>,
    /// A newer operator has written what is there, and it is left.
    pub(super) left: Vec<String>,
    /// Another client insists on something different.
    pub(super) contested: Vec<String>,
    /// What there is to tell of containers of `Evaluator`s.
    pub(super) evaluators: Vec<String>,
}

/// The Deployments by what is wrong with them, and what is wrong besides: a sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deployments {
    /// No pod does its work.
    down: Vec<String>,
    /// Fewer pods than asked for do their work.
    short: Vec<String>,
    /// Not all pods are of the form that is asked for.
    rolling: Vec<String>,
    /// What keeps new pods from running.
    kept: Vec<String>,
    troubles: Troubles,
}

impl Deployments {
    /// As they are; `None` as long as they were not looked for.
    pub(super) fn of(world: &World, troubles: &Troubles) -> Option<Self> {
        let mut deployments = Self { troubles: troubles.clone(), ..Self::default() };
        for name in world.deployment_names() {
            match world.deployment(name) {
                Some(is) => deployments.look_at(name, is, &world.pods),
                // Why is among the troubles.
                None if world.unlisted.contains_key(&Kind::Deployment) => {
                    deployments.down.push(format!("Deployment {name} cannot be seen"));
                }
                None => return None,
            }
        }
        Some(deployments)
    }

    fn look_at(&mut self, name: &str, is: Option<&Live>, pods: &BTreeMap<String, ReplicaPod>) {
        let Some(is) = is else {
            return self.down.push(format!("Deployment {name} does not exist"));
        };
        let rollout = &is.rollout;
        let (ready, wanted) = (rollout.ready, rollout.wanted);
        if ready == 0 {
            self.down.push(format!("no pod of Deployment {name} is ready (of {wanted})"));
        } else if ready < wanted {
            self.short.push(format!("{ready} of {wanted} pods of Deployment {name} are ready"));
        }
        let is_rolling = !(rollout.is_observed && rollout.total == wanted && rollout.updated == wanted);
        if is_rolling {
            self.rolling.push(format!("pods of Deployment {name} are being replaced"));
        }
        // Of pods that all do their work, what a container does is not the Deployment's matter.
        if is_rolling || ready < wanted {
            let newest = is.newest.as_deref().unwrap_or_default();
            let why = is.not_made.as_deref().into_iter().chain(kept_of(pods, newest, is_rolling));
            self.kept.extend(why.map(|why| format!("Deployment {name}: {why}")));
        }
    }

    fn is_complete(&self) -> bool {
        self.down.is_empty() && self.short.is_empty() && self.rolling.is_empty() && self.is_own()
    }

    /// No part of it is of a newer version than the operator.
    pub(super) fn is_own(&self) -> bool {
        self.troubles.left.is_empty()
    }

    /// The phase of an installation whose version was last `observed`.
    pub(super) fn phase(&self, gate: &Gate, observed: Option<&str>, version: &str) -> AaqPhase {
        let does_its_work = self.down.is_empty() && !matches!(gate, Gate::Broken(..));
        let is_new = self.is_complete() && does_its_work;
        match observed {
            None if is_new && matches!(gate, Gate::Holds(_)) => AaqPhase::Deployed,
            None => AaqPhase::Deploying,
            Some(observed) if observed == version && does_its_work => AaqPhase::Deployed,
            Some(observed) if observed == version => AaqPhase::Deploying,
            Some(_) if is_new => AaqPhase::Deployed,
            Some(_) => AaqPhase::Upgrading,
        }
    }

    /// Whether the installation does its work. `is_first`: it never did so far.
    pub(super) fn available(&self, gate: &Gate, is_first: bool) -> Said {
        let (status, reason, message) = match gate {
            _ if !self.down.is_empty() && is_first => ("False", "DeployStarted", self.down.join("; ")),
            _ if !self.down.is_empty() => ("False", "DeploymentsNotReady", self.down.join("; ")),
            Gate::Broken(reason, message) => ("False", reason.as_str(), message.clone()),
            _ if is_first => ("False", "DeployStarted", self.all_of_it(gate)),
            Gate::Unknown(message) => ("Unknown", "NotKnown", message.clone()),
            Gate::Holds(message) => ("True", "DeployCompleted", message.clone()),
        };
        Said::new(names::AVAILABLE, status, reason, message)
    }

    /// What the first deployment waits for.
    fn all_of_it(&self, gate: &Gate) -> String {
        let gate = match gate {
            Gate::Unknown(message) => Some(message),
            Gate::Holds(_) | Gate::Broken(..) => None,
        };
        self.short.iter().chain(&self.rolling).chain(gate).map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Whether pods are being replaced.
    pub(super) fn progressing(&self, phase: AaqPhase, is_first: bool) -> Said {
        let why = [&self.down[..], &self.short, &self.rolling, &self.kept].concat().join("; ");
        let (status, reason) = match phase {
            AaqPhase::Upgrading => ("True", "UpgradeStarted"),
            _ if is_first => ("True", "DeployStarted"),
            _ if !self.rolling.is_empty() => ("True", "RolloutStarted"),
            _ => ("False", "DeployCompleted"),
        };
        Said::new(names::PROGRESSING, status, reason, why)
    }

    /// Whether something is missing that was there, or wrong.
    pub(super) fn degraded(&self, gate: &Gate, is_first: bool) -> Said {
        let missing = [&self.down[..], &self.short, &self.kept].concat().join("; ");
        let kept = self.kept.join("; ");
        let Troubles { too_old, withheld, refused, left, contested, evaluators } = &self.troubles;
        let (status, reason, message) = match gate {
            _ if !too_old.is_empty() => ("True", names::SCHEMA_TOO_OLD, too_old.join("; ")),
            _ if !withheld.is_empty() => ("True", "ObjectsNotCreated", withheld.join("; ")),
            _ if !refused.is_empty() => ("True", "ObjectsNotWritten", refused.join("; ")),
            _ if !left.is_empty() => ("True", "LeftToNewerVersion", left.join("; ")),
            _ if !contested.is_empty() => ("True", names::OBJECT_CONTESTED, contested.join("; ")),
            _ if !evaluators.is_empty() => ("True", "EvaluatorsDoNotRun", evaluators.join("; ")),
            _ if !kept.is_empty() => ("True", "ContainersDoNotRun", missing),
            _ if !missing.is_empty() && !is_first => ("True", "DeploymentsNotReady", missing),
            Gate::Broken(reason, message) => ("True", reason.as_str(), message.clone()),
            Gate::Unknown(message) if !is_first => ("Unknown", "NotKnown", message.clone()),
            Gate::Holds(_) | Gate::Unknown(_) => ("False", "DeployCompleted", String::new()),
        };
        Said::new(names::DEGRADED, status, reason, message)
    }
}
