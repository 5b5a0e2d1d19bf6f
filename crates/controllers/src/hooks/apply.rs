//! Sends a patch.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::names;
use sluice_kube_ext::client::with_deadline;

use super::observe::Kind;
use super::plan::HookPatch;

const DEADLINE: Duration = Duration::from_secs(10);

/// Whether the patch was applied. If not, the reason is logged and it is worth planning again.
pub(super) async fn apply(client: &Client, patch: HookPatch) -> bool {
    match patch.kind {
        Kind::Mutating => {
            let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
            send(api, names::MUTATING_CONFIG, patch.operations).await
        }
        Kind::Validating => {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            send(api, names::VALIDATING_CONFIG, patch.operations).await
        }
    }
}

async fn send<K>(api: Api<K>, name: &str, operations: Value) -> bool
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let count = operations.as_array().map_or(0, Vec::len);
    let patch = match serde_json::from_value(operations) {
        Ok(operations) => Patch::Json::<()>(operations),
        Err(error) => {
            tracing::error!(configuration = name, %error, "planned something that is no JSON patch");
            return false;
        }
    };
    match with_deadline(DEADLINE, api.patch(name, &PatchParams::default(), &patch)).await {
        Ok(_) => {
            tracing::info!(configuration = name, operations = count, "webhook configuration updated");
            true
        }
        // A failed test of the version is answered with 422 too: somebody else was faster, and the watch tells.
        Err(error) => {
            tracing::warn!(configuration = name, %error, "webhook configuration not updated; trying again");
            false
        }
    }
}
