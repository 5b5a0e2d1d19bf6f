//! To which object our admission objects belong: the operator's ClusterRole. The garbage collector removes them with it, so
//! nothing that gates or refuses pods outlives the installation. The namespace would not do: it is deleted last.
//!
//! An object that is there already, made by an older version or by hand, gets the reference too. Other owners stay.

use std::fmt::{self, Display, Formatter};

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use serde_json::{Value, json};
use sluice_api::names;

use super::observe::{Identity, Kind, World};
use super::step::Step;

/// The operator's ClusterRole, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Owner {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// It could not be read, for this reason.
    Unreadable(String),
    /// It does not exist, or is being deleted.
    Absent,
    /// It exists.
    Known(OwnerReference),
}

impl Owner {
    /// As the API server has it. Without `blockOwnerDeletion`, for which another permission would be needed.
    pub(super) fn of(role: Option<&ClusterRole>) -> Self {
        let role = role.filter(|role| role.metadata.deletion_timestamp.is_none());
        role.and_then(|role| role.owner_ref(&())).map_or(Self::Absent, Self::Known)
    }

    /// Why nothing can belong to it; `None` while it is there, and as long as it was not looked for.
    pub(super) fn missing(&self) -> Option<Missing<'_>> {
        match self {
            Self::Unreadable(why) => Some(Missing(Some(why))),
            Self::Absent => Some(Missing(None)),
            Self::Unknown | Self::Known(_) => None,
        }
    }
}

/// Why there is no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing<'a>(Option<&'a str>);

impl Display for Missing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = names::OPERATOR;
        match self.0 {
            Some(why) => write!(f, "the ClusterRole {name} cannot be read ({why})"),
            None => write!(f, "the ClusterRole {name} does not exist"),
        }
    }
}

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
    if is.owners.iter().any(|other| other.uid == owner.uid) {
        return None;
    }
    // The role was made anew. Its old uid counts as an owner that has gone.
    let former = is.owners.iter().filter(|other| is_same_object(other, owner));
    let former = former.map(|other| json!({ "$patch": "delete", "uid": other.uid }));
    let references: Vec<Value> = [json!(owner)].into_iter().chain(former).collect();
    let body = json!({ "metadata": { "uid": is.uid, "ownerReferences": references } });
    Some(Step::Own { kind, owner: owner.clone(), body })
}

/// Whether both have one name, whatever the version of the API.
fn is_same_object(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group =
        |reference: &OwnerReference| reference.api_version.split_once('/').map(|(group, _)| group.to_owned());
    one.kind == other.kind && one.name == other.name && group(one) == group(other)
}
