//! Which fields are set and have no effect.

use sluice_api::{names, not_in_force, says_nothing};

use super::observe::World;
use super::operands::is_left;
use super::wire::{Order, Spec};
use crate::version::Version;
use sluice_api::aaq_conditions::Said;

/// Of the `AAQ` that holds.
pub(super) fn of_aaq(world: &World, order: &Order, version: Version<'_>) -> Said {
    let mut told = nowhere(&order.spec);
    told.extend(of_operands(&order.spec, world, version));
    said(&told)
}

/// Of the `MTQ` that holds.
pub(super) fn of_mtq(world: &World, order: &Order, version: Version<'_>) -> Said {
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
        None => told.extend(of_operands(&order.spec, world, version)),
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
fn of_operands(spec: &Spec, world: &World, version: Version<'_>) -> Vec<Told> {
    let names = world.deployment_names();
    let deployments = names.iter().filter_map(|name| world.deployment(name)?);
    let newer = deployments.filter(|live| is_left(live, version)).find_map(|live| live.writer.as_deref());
    if let Some(newer) = newer {
        let why = format!("an operator of the newer version {newer} wrote the Deployments");
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
