//! Sends a patch, or creates what is missing.
//!
//! Nothing is made to belong to an object that has gone: the garbage collector would take it at once. Watches are not in
//! step with each other, so the owner is read once more.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;
use sluice_api::names;
use sluice_runtime::client::with_deadline;

use super::observe::Kind;
use super::step::Step;
use crate::owner::Owner;

const DEADLINE: Duration = Duration::from_secs(10);

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mutating => names::MUTATING_CONFIG,
            Self::Validating => names::VALIDATING_CONFIG,
            Self::Policy { name, .. } | Self::Binding { name, .. } => name,
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Policy { mutates: true, .. } => ApiResource::erase::<MutatingAdmissionPolicy>(&()),
            Self::Policy { mutates: false, .. } => ApiResource::erase::<ValidatingAdmissionPolicy>(&()),
            Self::Binding { mutates: true, .. } => ApiResource::erase::<MutatingAdmissionPolicyBinding>(&()),
            Self::Binding { mutates: false, .. } => {
                ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&())
            }
        }
    }
}

/// Whether the step was done. If not, the reason is logged and it is worth planning again. `namespace` is where the
/// installation is.
pub(super) async fn apply(client: &Client, namespace: &str, step: Step) -> bool {
    let (kind, done) = match step {
        Step::Patch { kind, operations } => (kind, send(client, kind, operations).await),
        Step::Create { kind, object } => (kind, create(client, namespace, kind, object).await),
        Step::Own { kind, owner, body } => (kind, own(client, kind, &owner, &body).await),
    };
    let (resource, name) = (kind.resource().plural, kind.name());
    match done {
        Ok(what) => {
            tracing::info!(resource, name, what, "admission configuration put right");
            true
        }
        // A failed test of the version is answered with 422 too: another client was faster, and the watch tells.
        Err(error) => {
            tracing::warn!(resource, name, %error, "admission configuration not put right; trying again");
            false
        }
    }
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// A mistake of ours.
    #[error("planned something that is no such object: {0}")]
    Shape(#[from] serde_json::Error),
    /// What the API server says.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

fn objects(client: &Client, kind: Kind) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind.resource())
}

async fn send(client: &Client, kind: Kind, operations: Value) -> Result<&'static str, StepError> {
    let patch = Patch::Json::<()>(serde_json::from_value(operations)?);
    with_deadline(DEADLINE, objects(client, kind).patch(kind.name(), &PatchParams::default(), &patch))
        .await?;
    Ok("patched")
}

async fn create(
    client: &Client,
    namespace: &str,
    kind: Kind,
    object: Value,
) -> Result<&'static str, StepError> {
    // Watches are not in step with each other: the object may be seen to be gone before the namespace is seen to go.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let home = with_deadline(DEADLINE, namespaces.get_opt(namespace)).await?;
    if home.is_none_or(|home| home.metadata.deletion_timestamp.is_some()) {
        return Ok("left out: the installation is being removed");
    }
    let object: DynamicObject = serde_json::from_value(object)?;
    for owner in object.metadata.owner_references.iter().flatten() {
        if !is_there(client, owner).await? {
            return Ok("left out: its owner has gone");
        }
    }
    match with_deadline(DEADLINE, objects(client, kind).create(&PostParams::default(), &object)).await {
        Ok(_) => Ok("created"),
        // Another client put it back, and the watch tells how it is.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok("exists"),
        Err(error) => Err(error.into()),
    }
}

async fn own(
    client: &Client,
    kind: Kind,
    owner: &OwnerReference,
    body: &Value,
) -> Result<&'static str, StepError> {
    if !is_there(client, owner).await? {
        return Ok("left as it is: its owner has gone");
    }
    let patch = Patch::Strategic(body);
    with_deadline(DEADLINE, objects(client, kind).patch(kind.name(), &PatchParams::default(), &patch))
        .await?;
    Ok("made to go with the installation")
}

/// Whether this ClusterRole exists, and is not being deleted.
async fn is_there(client: &Client, owner: &OwnerReference) -> Result<bool, kube::Error> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = with_deadline(DEADLINE, roles.get_opt(&owner.name)).await?;
    Ok(Owner::of(role.as_ref()) == Owner::Known(owner.clone()))
}
