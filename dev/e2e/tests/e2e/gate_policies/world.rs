//! Clusters and policies of these tests.

use kube::Client;
use serde_json::json;
use sluice_api::names;
use sluice_e2e::call::{JSON, call};
use sluice_e2e::{Running, Setup};
use sluice_manifests::Gating;
use sluice_testbed::Bed;
use tokio::sync::OnceCell;

use crate::context::idle_options;
use crate::team::Team;

const ROOT: &str = "/apis/admissionregistration.k8s.io/v1";

/// A cluster on which Sluice was installed and ran, and no process of it is left.
pub async fn asleep() -> &'static Bed {
    static BED: OnceCell<&'static Bed> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(idle_options()).await.unwrap();
        let running = Running::on(bed, Setup::default()).await.unwrap();
        running.kill_all().await.unwrap();
        bed
    };
    BED.get_or_init(start).await
}

/// A cluster whose pods are gated by policies while no process of Sluice is left, or by the webhook alone.
pub async fn gated_by(gating: Gating) -> &'static Bed {
    static BY_WEBHOOK: OnceCell<Running<'static>> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(idle_options()).await.unwrap();
        Running::on(bed, Setup { webhook_alone: true, ..Setup::default() }).await.unwrap()
    };
    match gating {
        Gating::Policy => asleep().await,
        Gating::Webhook => BY_WEBHOOK.get_or_init(start).await.bed,
    }
}

impl Team {
    /// Where pods are gated by this, and stay so: without a process of Sluice for want of one, else by a quota.
    pub async fn gated_by(gating: Gating, prefix: &str) -> Self {
        let team = Self::on(gated_by(gating).await, prefix).await;
        if gating == Gating::Webhook {
            team.quota("none", &[("pods", "0")]).await;
        }
        team
    }
}

/// Path of a mutating policy, or with `validating` of a validating one.
pub fn policy_path(kind: &str, name: &str) -> String {
    format!("{ROOT}/{kind}/{name}")
}

pub async fn delete(client: &Client, path: &str) {
    let answer = call(client, http::Method::DELETE, path, JSON, &json!({})).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}

/// The mutating policy that gates, gone.
pub async fn delete_gate_policy(client: &Client) {
    delete(client, &policy_path("mutatingadmissionpolicies", names::GATE_POLICY)).await;
    delete(client, &policy_path("mutatingadmissionpolicybindings", names::GATE_POLICY)).await;
}

/// The policy with the last word, gone.
pub async fn delete_last_word(client: &Client) {
    delete(client, &policy_path("validatingadmissionpolicies", names::GATED_POLICY)).await;
    delete(client, &policy_path("validatingadmissionpolicybindings", names::GATED_POLICY)).await;
}
