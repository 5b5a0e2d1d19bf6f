//! One write, sent.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::Value;
use sluice_api::{AAQ, MTQ, names};
use sluice_runtime::request::{objects, send};

const DEADLINE: Duration = Duration::from_secs(10);

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// This Deployment of the installation: what the operator owns of it.
    Deployment(&'static str),
    /// The status of this `AAQ`.
    Aaq(String),
    /// The status of this `MTQ`.
    Mtq(String),
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(name) => write!(f, "deployments/{name}"),
            Self::Aaq(name) => write!(f, "{}/{name}", names::AAQS),
            Self::Mtq(name) => write!(f, "{}/{name}", names::MTQS),
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    /// Of what.
    pub(super) target: Target,
    /// The version of the object that it was planned for.
    pub(super) resource_version: String,
    /// For a Deployment all that the operator wants to own of it; for a status a merge patch with `resource_version` as its
    /// precondition, for the list of conditions is replaced as a whole.
    pub(super) body: Value,
}

/// Sends it. What others own of the same field of a Deployment is taken from them.
///
/// # Errors
/// When there is no answer in 10 s, or it is a refusal.
pub(super) async fn apply(client: &Client, namespace: &str, write: &Write) -> kube::Result<()> {
    let merge = PatchParams { field_manager: Some(names::OPERATOR.to_owned()), ..PatchParams::default() };
    let status = Patch::Merge(&write.body);
    let request = match &write.target {
        Target::Deployment(name) => {
            let force = PatchParams::apply(names::OPERATOR).force();
            objects::<Deployment>(Some(namespace)).patch(name, &force, &Patch::Apply(&write.body))
        }
        Target::Aaq(name) => objects::<AAQ>(None).patch_subresource("status", name, &merge, &status),
        Target::Mtq(name) => objects::<MTQ>(None).patch_subresource("status", name, &merge, &status),
    };
    send(client, request, DEADLINE).await?.check()
}
