//! What the operator applies: controller and webhook, and what belongs to them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{AskedOfPods, InstallOptions, operand_objects};

use super::apply::{Target, Write};
use super::comparison::{is_as_wanted, taken_by, to_apply};
use super::evaluators;
use super::kind::{Kind, Operand};
use super::left_out::LeftOut;
use super::live::Live;
use super::observe::World;
use super::wire::Spec;
use crate::owner::Owner;
use crate::version::Version;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// In this order.
    pub(super) writes: Vec<Write>,
    /// Why nothing is made or put back; `None` if nothing is left out for that reason.
    pub(super) withheld: Option<String>,
    /// What a newer operator has written, and is left as it is.
    pub(super) left: Option<String>,
}

/// The writes that bring the operands to what `options` say and `AAQ`, or without one of a user `MTQ`, ask; none as long as
/// something is not known, and where no `AAQ` installs. The containers of `Evaluator`s that are `left_out` do not run.
pub(super) fn plan(
    world: &World,
    options: &InstallOptions,
    version: Version<'_>,
    left_out: &LeftOut,
) -> Plan {
    if !world.presence().is_installed() {
        return Plan::default();
    }
    let Some((asked, _)) = asked(world, left_out).filter(|_| world.has_listed_operands()) else {
        return Plan { withheld: unlisted(world), ..Plan::default() };
    };
    let wanted: BTreeMap<Operand, Value> =
        operand_objects(options, &asked).into_iter().filter_map(named).collect();
    let left = left(world, wanted.keys(), version);
    let Owner::Known(owner) = &world.owner else {
        let withheld = world.owner.missing().map(|missing| {
            format!(
                "controller and webhook are not kept: {missing}, with which they have to go: \
                 apply the manifest or the chart again"
            )
        });
        return Plan { writes: Vec::new(), withheld, left };
    };
    let owned = |object| belonging(object, owner, version.own);
    let put_right = wanted.iter().filter_map(|(operand, object)| {
        let live = world.operand(operand);
        if live.is_some_and(|live| is_left(live, version)) {
            return None;
        }
        applied(operand, &owned(object), live, world.times_gone(operand))
    });
    let needless = world.operands().filter(|(operand, live)| {
        live.writer.is_some() && !is_left(live, version) && !wanted.contains_key(operand)
    });
    let writes = put_right.chain(needless.map(|(operand, live)| deleted(operand, live))).collect();
    Plan { writes, withheld: None, left }
}

/// Kinds that the API server does not list: without one nothing can be compared.
fn unlisted(world: &World) -> Option<String> {
    let kinds = world
        .unlisted
        .iter()
        .map(|(kind, why)| format!("{} cannot be listed ({why})", kind.resource().plural));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    (!kinds.is_empty()).then(|| {
        format!("controller and webhook are not kept: {kinds}: apply the manifest or the chart again, with its rights")
    })
}

/// The operands of these that a newer operator has written, in a sentence.
fn left<'o>(
    world: &World,
    wanted: impl Iterator<Item = &'o Operand>,
    version: Version<'_>,
) -> Option<String> {
    let newer = wanted.filter_map(|operand| {
        let live = world.operand(operand).filter(|live| is_left(live, version))?;
        let writer = live.writer.as_deref().unwrap_or_default();
        Some(format!("{} {} of {writer}", operand.kind.resource().kind, operand.name))
    });
    version.left(&newer.collect::<Vec<_>>())
}

/// Whether it is left to the newer operator that has written it.
pub(super) fn is_left(live: &Live, version: Version<'_>) -> bool {
    version.leaves(live.writer.as_deref())
}

/// What `AAQ` or `MTQ` ask of the pods, with what there is to tell of containers of `Evaluator`s; `None` as long as
/// something was not looked for.
pub(super) fn asked(world: &World, left_out: &LeftOut) -> Option<(AskedOfPods, Vec<String>)> {
    let (Some(_), Some(_), Some(classes)) = (&world.aaqs, &world.mtqs, &world.priority_classes) else {
        return None;
    };
    let order = world.users_aaq().or_else(|| world.mtq());
    let mut asked = order.map(|order| of_pods(&order.spec, classes)).unwrap_or_default();
    if asked.priority_class.is_none() {
        let class = world.naming.parts().priority_class.filter(|class| classes.contains(*class));
        asked.priority_class = class.map(str::to_owned);
    }
    let told = evaluators::place(world, left_out, &mut asked)?;
    Some((asked, told))
}

/// A class that does not exist would keep pods from being made. application-aware-quota (`pkg/aaq-operator/cr-manager.go`)
/// takes KubeVirt's class where none is named, as is done under its names; otherwise that of the options holds.
fn of_pods(spec: &Spec, classes: &BTreeSet<String>) -> AskedOfPods {
    AskedOfPods {
        infra: spec.infra.clone(),
        image_pull_policy: spec.image_pull_policy.clone().filter(|policy| !policy.is_empty()),
        priority_class: spec.priority_class.clone().filter(|class| classes.contains(class)),
        sidecars: spec.configuration.get("sidecarEvaluators").cloned().unwrap_or_default(),
        of_evaluators: Vec::new(),
    }
}

fn named(object: Value) -> Option<(Operand, Value)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let operand = Operand::new(Kind::named(text("/kind")?)?, text("/metadata/name")?);
    Some((operand, object))
}

/// With the version of its writer, and the object with which it goes.
fn belonging(object: &Value, owner: &OwnerReference, version: &str) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({ (names::WRITER_VERSION_ANNOTATION): version }));
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    object
}

/// `times_gone`: so often it was seen to go.
fn applied(operand: &Operand, object: &Value, live: Option<&Live>, times_gone: u64) -> Option<Write> {
    if live.is_some_and(|live| is_as_wanted(object, live)) {
        return None;
    }
    let contested = match live {
        Some(live) => taken_by(object, live).map(|manager| format!("{manager} changes it")),
        None => (times_gone > 0).then(|| "another client deletes it".to_owned()),
    };
    Some(Write {
        target: Target::Operand(operand.clone()),
        rests_on: live.map_or_else(|| format!("gone {times_gone}"), |live| live.resource_version.clone()),
        contested,
        body: to_apply(object, live.map(|live| &live.content)),
    })
}

/// What is wanted no more, if the operator has made it.
fn deleted(operand: Operand, live: &Live) -> Write {
    let target = Target::Needless { operand, uid: live.uid.clone() };
    Write { target, rests_on: live.resource_version.clone(), contested: None, body: Value::Null }
}
