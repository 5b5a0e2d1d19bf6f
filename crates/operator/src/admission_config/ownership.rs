//! The writes that make admission objects belong to their [`Owner`], with the label of an installation and the version of
//! their writer: objects that are taken over from application-aware-quota have none of them, and without the label a removal
//! leaves them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::uninstall::PART_OF;

use super::observe::{Identity, Kind, World};
use super::step::Step;
use crate::owner::Owner;
use crate::version::Version;

/// Makes `object`, which is to be created, belong to `owner`.
pub(super) fn give(object: &mut Value, owner: &OwnerReference, version: Version<'_>) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
        metadata.insert("annotations".to_owned(), json!({ names::WRITER_VERSION_ANNOTATION: version.own }));
    }
}

/// The steps that make every object belong to the owner, if that is known.
pub(super) fn plan(world: &World, version: Version<'_>) -> Vec<Step> {
    let Owner::Known(owner) = &world.owner else { return Vec::new() };
    world.identities().filter_map(|(kind, is)| own(kind, is, owner, version)).collect()
}

/// A strategic merge patch: owners are merged by their uid, so those of others stay, and it needs no version. It applies to
/// the object with this uid alone.
fn own(kind: Kind, is: &Identity, owner: &OwnerReference, version: Version<'_>) -> Option<Step> {
    // What is left goes with the installation all the same, and keeps the name of its writer.
    let writer = is.writer.as_deref().filter(|writer| version.leaves(Some(writer))).unwrap_or(version.own);
    let is_written_by = is.writer.as_deref() == Some(writer);
    if is.is_labelled && is_written_by && is.owners.iter().any(|other| other.uid == owner.uid) {
        return None;
    }
    // The role was made anew. Its old uid counts as an owner that has gone.
    let is_former = |other: &&OwnerReference| other.uid != owner.uid && is_same_object(other, owner);
    let former = is.owners.iter().filter(is_former);
    let former = former.map(|other| json!({ "$patch": "delete", "uid": other.uid }));
    let references: Vec<Value> = [json!(owner)].into_iter().chain(former).collect();
    let body = json!({ "metadata": {
        "uid": is.uid,
        "labels": { PART_OF: names::APP },
        "annotations": { names::WRITER_VERSION_ANNOTATION: writer },
        "ownerReferences": references,
    } });
    Some(Step::Own { kind, owner: owner.clone(), body })
}

/// Whether both have one name, whatever the version of the API.
fn is_same_object(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group =
        |reference: &OwnerReference| reference.api_version.split_once('/').map(|(group, _)| group.to_owned());
    one.kind == other.kind && one.name == other.name && group(one) == group(other)
}
