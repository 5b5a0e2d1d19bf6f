//! Releases beside those of another tenant that do not end: a webhook about its pods accepts connections and says nothing.

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_e2e::objects;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::IDLE_PER_S;
use super::arriving::Arriving;
use super::site::{Plot, Shape, Site};
use crate::report::extend;

/// Pods whose release does not end.
const STUCK: Shape = Shape { namespaces: 1, each: 300 };
/// Of the p99 without them.
const GOAL_RATIO: f64 = 1.2;
const WEBHOOK: &str = "sluice-bench-stuck";

/// Measures pods that come to an idle server beside stuck ones, and compares with `alone`.
///
/// # Errors
/// When the control plane or the controller does not do its part.
pub(super) async fn measure(
    site: &Site,
    plot: &Plot,
    alone: &Arriving,
    pods: usize,
) -> anyhow::Result<Value> {
    let tenant = site.plot(STUCK).await?;
    site.create_quotas(&tenant).await?;
    site.create_pods(&tenant).await?;
    let silent = silent_webhook(site, &tenant).await?;
    let beside = Arriving::measure(site, plot, IDLE_PER_S, pods).await.context("pods beside stuck ones");
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(site.admin.clone());
    hooks.delete(WEBHOOK, &DeleteParams::default()).await.context("removing the silent webhook")?;
    silent.abort();
    site.clear(&tenant).await?;
    let beside = beside?;
    let ratio = beside.p99_ms() / alone.p99_ms();
    let mut row = beside.json("beside stuck", plot.shape);
    extend(&mut row, json!({ "stuck_pods": STUCK.pods(), "alone_p99_ms": alone.p99_ms(), "ratio": ratio }));
    extend(
        &mut row,
        json!({ "goal_ratio": GOAL_RATIO, "met": ratio <= GOAL_RATIO, "raw_patch_per_s": null }),
    );
    Ok(row)
}

/// A webhook about updates of pods of this tenant, each of which it keeps for ten seconds.
async fn silent_webhook(site: &Site, tenant: &Plot) -> anyhow::Result<JoinHandle<()>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listening as a webhook")?;
    let url = format!("https://{}", listener.local_addr()?);
    let hook: ValidatingWebhookConfiguration = objects::from_json(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": WEBHOOK },
        "webhooks": [{
            "name": "stuck.bench.sluice.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": 10, "failurePolicy": "Fail", "clientConfig": { "url": url },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"],
            }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": tenant.namespace(0)? } },
        }],
    }));
    Api::all(site.admin.clone()).create(&PostParams::default(), &hook).await.context("creating a webhook")?;
    Ok(tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            kept.push(connection);
        }
    }))
}
