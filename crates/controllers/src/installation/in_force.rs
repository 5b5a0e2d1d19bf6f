//! Which fields are set and have no effect.

use sluice_api::{names, not_in_force, says_nothing};

use super::VERSION;
use super::observe::{OPERANDS, World};
use super::operands::is_newer;
use super::wire::{Order, Spec};
use crate::aaq_conditions::Said;

/// Of the `AAQ` that holds.
pub(super) fn of_aaq(world: &World, order: &Order) -> Said {
    let mut told = nowhere(&order.spec);
    told.extend(of_operands(&order.spec, world));
    said(&told)
}

/// Of the `MTQ` that holds.
pub(super) fn of_mtq(world: &World, order: &Order) -> Said {
    let mut told = nowhere(&order.spec);
    match world.users_aaq() {
        Some(aaq) => {
            // Whatever it says.
            told.retain(|(field, _)| !field.starts_with(CERT_CONFIG));
            let why = format!("that of the AAQ {} holds", aaq.name);
            let certificates = Some(CERT_CONFIG).filter(|_| !says_nothing(&order.spec.cert_config));
            told.extend(
                certificates.into_iter().chain(placed(&order.spec)).map(|field| (field, why.clone())),
            );
        }
        None => told.extend(of_operands(&order.spec, world)),
    }
    said(&told)
}

type Told = (&'static str, String);

const CERT_CONFIG: &str = "certConfig";

/// What has no effect whatever the cluster is like.
fn nowhere(spec: &Spec) -> Vec<Told> {
    not_in_force(&spec.to_json()).into_iter().map(|told| (told.field, told.why)).collect()
}

/// The fields about Deployments that are set.
fn placed(spec: &Spec) -> impl Iterator<Item = &'static str> + use<> {
    let is_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let set = [
        ("imagePullPolicy", is_text(&spec.image_pull_policy)),
        ("infra", !says_nothing(&spec.infra)),
        ("priorityClass", is_text(&spec.priority_class)),
    ];
    set.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field)
}

/// What cannot be brought to the Deployments.
fn of_operands(spec: &Spec, world: &World) -> Vec<Told> {
    let own = world.deployments.get(names::OPERATOR).and_then(Option::as_ref);
    let newer = OPERANDS.iter().filter_map(|name| world.deployments.get(name)?.as_ref());
    let newer = newer.filter(|is| is_newer(is, VERSION)).find_map(|is| is.writer.as_deref());
    let why = match (own, newer) {
        (None, _) => Some(format!(
            "the Deployment {} does not exist, which says what holds without an AAQ",
            names::OPERATOR
        )),
        (Some(_), Some(version)) => {
            Some(format!("an operator of the newer version {version} wrote the Deployments"))
        }
        (Some(_), None) => None,
    };
    if let Some(why) = why {
        return placed(spec).map(|field| (field, why.clone())).collect();
    }
    let classes = world.priority_classes.as_ref();
    let class = spec.priority_class.as_deref().filter(|class| !class.is_empty());
    let missing = class.filter(|class| classes.is_some_and(|classes| !classes.contains(*class)));
    missing
        .map(|_| ("priorityClass", "there is no PriorityClass of this name".to_owned()))
        .into_iter()
        .collect()
}

fn said(told: &[Told]) -> Said {
    let (status, reason, message) = match told {
        [] => ("False", "AllInForce", "every field that is set is in force".to_owned()),
        told => {
            let fields = told.iter().map(|(field, why)| format!("spec.{field}: {why}"));
            ("True", "NotInForce", fields.collect::<Vec<_>>().join("; "))
        }
    };
    Said::new(names::FIELDS_NOT_IN_FORCE, status, reason, message)
}
