//! One write, sent.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::Value;
use sluice_api::{AAQ, MTQ, names};
use sluice_runtime::client::with_deadline;
use sluice_runtime::request::{objects, send};
use sluice_runtime::retry::classify;

use super::kind::Operand;
use super::left_out::is_refusal;
use crate::pace::Limits;

const DEADLINE: Duration = Duration::from_secs(10);
/// After so long a write is a new case.
const CALM: Duration = Duration::from_secs(60);
/// The same of a status.
const CALM_OF_STATUS: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// What the operator owns of this operand.
    Operand(Operand),
    /// The object that has this uid, an operand that is wanted no more.
    Needless {
        operand: Operand,
        /// Another one of this name may be wanted.
        uid: String,
    },
    /// The status of this `AAQ`.
    Aaq(String),
    /// The status of this `MTQ`.
    Mtq(String),
}

/// For people.
impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operand(operand) | Self::Needless { operand, .. } => {
                write!(f, "{} {}", operand.kind.resource().kind, operand.name)
            }
            Self::Aaq(name) => write!(f, "{}/{name}", names::AAQS),
            Self::Mtq(name) => write!(f, "{}/{name}", names::MTQS),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) target: Target,
    /// What of the object it was planned for, such as its version.
    pub(super) rests_on: String,
    /// What another client does to the operand, if that is why it is written.
    pub(super) contested: Option<String>,
    /// For an operand all that the operator wants to own of it, null where it goes; for a status a merge patch with
    /// `resourceVersion` as its precondition, for the list of conditions is replaced as a whole.
    pub(super) body: Value,
}

impl Write {
    /// A Deployment gets new pods by each write, so other clients are soon answered with pauses. A status follows the pods,
    /// and an object that is deleted and created again, so a few quiet seconds end its series.
    pub(super) const fn limits(&self) -> Limits {
        let (free, first, longest, calm) = match self.target {
            Target::Operand(_) if self.contested.is_some() => (3, 2, 300, CALM),
            Target::Operand(_) | Target::Needless { .. } => (10, 1, 60, CALM),
            Target::Aaq(_) | Target::Mtq(_) => (20, 1, 10, CALM_OF_STATUS),
        };
        Limits { free, first: Duration::from_secs(first), longest: Duration::from_secs(longest), calm }
    }
}

/// Sends it. What others own of the same field of an operand is taken from them.
///
/// # Errors
/// When there is no answer in 10 s, or it is a refusal.
pub(super) async fn apply(client: &Client, namespace: &str, write: &Write) -> kube::Result<()> {
    let merge = PatchParams { field_manager: Some(names::OPERATOR.to_owned()), ..PatchParams::default() };
    let status = Patch::Merge(&write.body);
    let request = match &write.target {
        Target::Operand(operand) => {
            let force = PatchParams::apply(names::OPERATOR).force();
            let (api, body) = (api(client, namespace, operand), Patch::Apply(&write.body));
            return with_deadline(DEADLINE, api.patch(&operand.name, &force, &body)).await.map(drop);
        }
        Target::Needless { operand, uid } => {
            let this = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams::background().preconditions(this);
            let api = api(client, namespace, operand);
            return with_deadline(DEADLINE, api.delete(&operand.name, &params)).await.map(drop);
        }
        Target::Aaq(name) => objects::<AAQ>(None).patch_subresource("status", name, &merge, &status),
        Target::Mtq(name) => objects::<MTQ>(None).patch_subresource("status", name, &merge, &status),
    };
    send(client, request, DEADLINE).await?.check()
}

/// Whether the API server would take it, or why not: a dry run. `None`: it does not say.
pub(super) async fn try_out(client: &Client, namespace: &str, write: &Write) -> Option<Result<(), String>> {
    let Target::Operand(operand) = &write.target else { return None };
    let params = PatchParams::apply(names::OPERATOR).force().dry_run();
    let (api, body) = (api(client, namespace, operand), Patch::Apply(&write.body));
    match with_deadline(DEADLINE, api.patch(&operand.name, &params, &body)).await {
        Ok(_) => Some(Ok(())),
        Err(error) => is_refusal(&classify(&error)).then(|| Err(error.to_string())),
    }
}

fn api(client: &Client, namespace: &str, operand: &Operand) -> Api<DynamicObject> {
    let resource = operand.kind.resource();
    if operand.kind.is_namespaced() {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}
