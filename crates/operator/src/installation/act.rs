//! Something to do about an `AAQ` or `MTQ` itself, not about its status.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use sluice_api::{AAQ, AaqSpec, MTQ, names};
use sluice_runtime::client::with_deadline;
use sluice_runtime::events::{EventType, Report};

use super::apply::Target;

const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Make the `AAQ` that asks for nothing.
    Make,
    /// Delete that of the operator, if it is as it was seen.
    TakeBack { uid: String, resource_version: String },
    /// Have the `AAQ` that holds say the pause which that of the operator says, if it is as it was seen.
    Pause {
        name: String,
        uid: String,
        resource_version: String,
        /// Those of the pause.
        annotations: BTreeMap<String, String>,
    },
    /// Give an object these finalizers, if it is as it was seen.
    Finalizers {
        /// The object; no operand.
        target: Target,
        resource_version: String,
        /// All that it is to have.
        finalizers: Vec<String>,
    },
}

impl Act {
    /// Of all that is done, this one, whatever the version of the object.
    pub(super) fn about(&self) -> String {
        match self {
            Self::Make => "make".to_owned(),
            Self::TakeBack { .. } => "take back".to_owned(),
            Self::Pause { name, .. } => format!("pause {name}"),
            Self::Finalizers { target, .. } => format!("finalizers {target}"),
        }
    }

    /// The event once it is done, of what nobody would see otherwise.
    pub(super) fn event(&self) -> Option<Report> {
        let Self::Pause { name, uid, annotations, .. } = self else { return None };
        let until = annotations.get(names::PAUSED_ANNOTATION).map(String::as_str).unwrap_or_default();
        Some(Report {
            regarding: ObjectReference {
                api_version: Some(names::API_VERSION.to_owned()),
                kind: Some("AAQ".to_owned()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            },
            related: None,
            type_: EventType::Normal,
            reason: "PauseCarriedOver".to_owned(),
            action: "CarryOver".to_owned(),
            note: format!(
                "the pause until {until} is that of the operator's AAQ, in whose place this one holds"
            ),
        })
    }
}

/// Does it.
///
/// # Errors
/// When there is no answer in 10 s, or it is a refusal.
pub(super) async fn send(client: &Client, act: &Act) -> kube::Result<()> {
    let aaqs: Api<AAQ> = Api::all(client.clone());
    let manager = || Some(names::OPERATOR.to_owned());
    match act {
        Act::Make => {
            let mut aaq = AAQ::new(names::AAQ_NAME, AaqSpec::default());
            let label = (names::MADE_BY_LABEL.to_owned(), names::MADE_BY_OPERATOR.to_owned());
            aaq.metadata.labels = Some([label].into());
            let params = PostParams { field_manager: manager(), ..PostParams::default() };
            with_deadline(DEADLINE, aaqs.create(&params, &aaq)).await.map(drop)
        }
        Act::TakeBack { uid, resource_version } => {
            let as_seen =
                Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
            let params = DeleteParams { preconditions: Some(as_seen), ..DeleteParams::default() };
            with_deadline(DEADLINE, aaqs.delete(names::AAQ_NAME, &params)).await.map(drop)
        }
        Act::Pause { name, resource_version, annotations, .. } => {
            let metadata = json!({ "resourceVersion": resource_version, "annotations": annotations });
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let params = PatchParams { field_manager: manager(), ..PatchParams::default() };
            with_deadline(DEADLINE, aaqs.patch_metadata(name, &params, &patch)).await.map(drop)
        }
        Act::Finalizers { target, resource_version, finalizers } => {
            let metadata = json!({ "resourceVersion": resource_version, "finalizers": finalizers });
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let params = PatchParams { field_manager: manager(), ..PatchParams::default() };
            match target {
                Target::Aaq(name) => {
                    with_deadline(DEADLINE, aaqs.patch_metadata(name, &params, &patch)).await.map(drop)
                }
                Target::Mtq(name) => {
                    let mtqs: Api<MTQ> = Api::all(client.clone());
                    with_deadline(DEADLINE, mtqs.patch_metadata(name, &params, &patch)).await.map(drop)
                }
                // It has none of ours.
                Target::Operand(_) | Target::Needless { .. } => Ok(()),
            }
        }
    }
}
