//! The writes that make admission objects belong to their [`Owner`], with the label of an installation: objects that are
//! taken over from application-aware-quota have neither, and without the label a removal leaves them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::uninstall::PART_OF;

use super::observe::{Identity, Kind, World};
use super::step::Step;
use crate::owner::Owner;

/// Makes `object`, which is to be created, belong to `owner`.
pub(super) fn give(object: &mut Value, owner: &OwnerReference) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
}

/// The steps that make every object belong to the owner, if that is known.
pub(super) fn plan(world: &World) -> Vec<Step> {
    let Owner::Known(owner) = &world.owner else { return Vec::new() };
    let configurations = [(Kind::Mutating, &world.mutating), (Kind::Validating, &world.validating)];
    let configurations =
        configurations.into_iter().filter_map(|(kind, is)| Some((kind, &is.as_ref()?.as_ref()?.identity)));
    let fixed = world.fixed.iter().filter_map(|(kind, is)| Some((*kind, &is.as_ref()?.identity)));
    fixed.chain(configurations).filter_map(|(kind, is)| own(kind, is, owner)).collect()
}

/// A strategic merge patch: owners are merged by their uid, so those of others stay, and it needs no version. It applies to
/// the object with this uid alone.
fn own(kind: Kind, is: &Identity, owner: &OwnerReference) -> Option<Step> {
    if is.is_labelled && is.owners.iter().any(|other| other.uid == owner.uid) {
        return None;
    }
    // The role was made anew. Its old uid counts as an owner that has gone.
    let is_former = |other: &&OwnerReference| other.uid != owner.uid && is_same_object(other, owner);
    let former = is.owners.iter().filter(is_former);
    let former = former.map(|other| json!({ "$patch": "delete", "uid": other.uid }));
    let references: Vec<Value> = [json!(owner)].into_iter().chain(former).collect();
    let labels = json!({ PART_OF: names::APP });
    let body = json!({ "metadata": { "uid": is.uid, "labels": labels, "ownerReferences": references } });
    Some(Step::Own { kind, owner: owner.clone(), body })
}

/// Whether both have one name, whatever the version of the API.
fn is_same_object(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group =
        |reference: &OwnerReference| reference.api_version.split_once('/').map(|(group, _)| group.to_owned());
    one.kind == other.kind && one.name == other.name && group(one) == group(other)
}
