//! What is said of the installation in the status of each `AAQ` and `MTQ`.
//!
//! Words and meaning are those of application-aware-quota's operator, but that the phase is true: it is `Deployed` only
//! while pods of controller and webhook do their work and nothing lets pods in without a gate or refuses them all.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::{AaqCondition, AaqPhase, AaqStatus, names};

use super::apply::{Target, Write};
use super::observe::World;
use super::state::{Deployments, Gate, Troubles};
use super::wire::Order;
use super::{InstallationSettings, in_force};
use crate::presence::{Presence, Removal};
use sluice_api::aaq_conditions::{Said, merged};

/// The writes that bring every status up to date; none as long as something is not known.
pub(super) fn plan(
    world: &World,
    troubles: &Troubles,
    settings: &InstallationSettings,
    now: Timestamp,
) -> Vec<Write> {
    let (Some(aaqs), Some(mtqs), Some(_)) = (&world.aaqs, &world.mtqs, &world.priority_classes) else {
        return Vec::new();
    };
    let Some(deployments) = Deployments::of(world, troubles) else { return Vec::new() };
    let version = settings.reported_version.as_str();
    let presence = world.presence();
    let write = |target: Target, order: &Order, said: Told| {
        let is = order.status.as_ref()?;
        let wanted = said.on(is, version, now);
        (wanted != *is).then(|| Write {
            target,
            rests_on: order.resource_version.clone(),
            contested: None,
            body: body(&order.resource_version, &wanted),
        })
    };
    let of_aaqs = aaqs.values().filter_map(|order| {
        let told = match world.aaq().filter(|holds| holds.name != order.name) {
            // It is about to go, and nobody has to do anything about it.
            Some(_) if order.gives_way => return None,
            Some(holds) => unwanted(order, "AAQ", &holds.name),
            None if presence.is_to_go() => leaving(&world.removal, &presence),
            None => {
                let told = told(order, &deployments, &gate(order), version);
                told.and(in_force::of_aaq(world, order, settings.version()))
            }
        };
        write(Target::Aaq(order.name.clone()), order, told)
    });
    let of_mtqs = mtqs.values().filter_map(|order| {
        let told = match world.mtq().filter(|holds| holds.name != order.name) {
            Some(holds) => unwanted(order, "MTQ", &holds.name),
            None if presence.is_to_go() => not_installed(order),
            // Who gates pods is no matter of migrations.
            None => {
                let told = told(order, &deployments, &Gate::Holds(String::new()), version);
                told.and(in_force::of_mtq(world, order, settings.version()))
            }
        };
        write(Target::Mtq(order.name.clone()), order, told)
    });
    of_aaqs.chain(of_mtqs).collect()
}

fn body(resource_version: &str, wanted: &AaqStatus) -> Value {
    json!({ "metadata": { "resourceVersion": resource_version }, "status": wanted })
}

/// What is said of one object.
struct Told {
    phase: AaqPhase,
    /// All that runs is of the version that is said to run.
    is_all_new: bool,
    conditions: Vec<Said>,
}

impl Told {
    fn and(mut self, further: Said) -> Self {
        self.conditions.push(further);
        self
    }

    fn on(self, is: &AaqStatus, version: &str, now: Timestamp) -> AaqStatus {
        let old = is.conditions.as_deref().unwrap_or_default();
        let observed = if self.is_all_new { Some(version.to_owned()) } else { is.observed_version.clone() };
        AaqStatus {
            conditions: Some(merged(old, self.conditions, now)),
            observed_version: observed,
            operator_version: Some(version.to_owned()),
            phase: Some(self.phase.as_str().to_owned()),
            target_version: Some(version.to_owned()),
        }
    }
}

/// A second object beside the one that holds.
fn unwanted(order: &Order, kind: &str, holds: &str) -> Told {
    let message =
        format!("the {kind} {holds} is older and holds, and nothing of this one is in force: delete it");
    let said = |kind, status| Said::new(kind, status, "ConfigError", message.clone());
    Told {
        phase: if order.is_deleted { AaqPhase::Deleting } else { AaqPhase::Error },
        is_all_new: false,
        conditions: vec![
            said(names::AVAILABLE, "False"),
            said(names::PROGRESSING, "False"),
            said(names::DEGRADED, "True"),
        ],
    }
}

/// Of an `AAQ` that is being deleted, and with which all that it has installed goes.
fn leaving(removal: &Removal, presence: &Presence) -> Told {
    let is_done = removal.is_done(presence);
    let (phase, progressing, reason) = if is_done {
        (AaqPhase::Deleted, "False", "DeleteCompleted")
    } else {
        (AaqPhase::Deleting, "True", "DeleteStarted")
    };
    let left = removal.left.clone().filter(|_| removal.of == *presence);
    let message = match left {
        _ if is_done => "all that was installed is removed".to_owned(),
        Some(left) => format!("what was installed is being removed: {left}"),
        None => "what was installed is being removed".to_owned(),
    };
    let said = |kind, status| Said::new(kind, status, reason, message.clone());
    Told {
        phase,
        is_all_new: false,
        conditions: vec![
            said(names::AVAILABLE, "False"),
            said(names::PROGRESSING, progressing),
            said(names::DEGRADED, "False"),
        ],
    }
}

/// Of an `MTQ` where no `AAQ` installs.
fn not_installed(order: &Order) -> Told {
    let message = "nothing is installed, for the AAQ installs here (--installation=cr): create one";
    let said = |kind| Said::new(kind, "False", "NotInstalled", message);
    Told {
        phase: if order.is_deleted { AaqPhase::Deleting } else { AaqPhase::Deploying },
        is_all_new: false,
        conditions: vec![said(names::AVAILABLE), said(names::PROGRESSING), said(names::DEGRADED)],
    }
}

/// What the controller says of the gate.
fn gate(order: &Order) -> Gate {
    let conditions = order.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is = |condition: &&AaqCondition| condition.type_ == names::GATING;
    let Some(said) = conditions.into_iter().flatten().find(is) else {
        return Gate::Unknown("the controller has not said yet who gates pods".to_owned());
    };
    let message = said.message.clone().unwrap_or_default();
    match said.status.as_str() {
        "True" => Gate::Holds(message),
        "False" => Gate::Broken(said.reason.clone().unwrap_or_default(), message),
        _ => Gate::Unknown(message),
    }
}

fn told(order: &Order, deployments: &Deployments, gate: &Gate, version: &str) -> Told {
    let observed = order.status.as_ref().and_then(|status| status.observed_version.as_deref());
    let observed = observed.filter(|observed| !observed.is_empty());
    let phase =
        if order.is_deleted { AaqPhase::Deleting } else { deployments.phase(gate, observed, version) };
    let is_first = observed.is_none() && phase != AaqPhase::Deployed;
    Told {
        phase,
        is_all_new: phase == AaqPhase::Deployed && deployments.is_own(),
        conditions: vec![
            deployments.available(gate, is_first),
            deployments.progressing(phase, is_first),
            deployments.degraded(gate, is_first),
        ],
    }
}
