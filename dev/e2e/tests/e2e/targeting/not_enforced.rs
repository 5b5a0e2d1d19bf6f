//! A quota about pods that are not gated says so: to who makes it, in its status, and in an event.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, names};
use sluice_e2e::objects;
use sluice_testbed::{TestNamespace, wait};

use super::{cluster, create_aaq, label, until_gated};
use crate::context::{SOON, kubectl_tries, manifest};
use crate::team::Team;

/// Reason and message of the condition, if there is one.
fn unenforced(quota: &Value) -> Option<(String, String)> {
    let conditions = quota.pointer("/status/conditions")?.as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == names::ENFORCED)?;
    assert_eq!(condition["status"], "False");
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    Some((text("reason"), text("message")))
}

/// Waits until the quota has the condition with this reason, or none; returns the message.
async fn until_said(team: &Team, name: &str, reason: Option<&str>) -> String {
    let says = || async {
        let quota = serde_json::to_value(team.quotas.get(name).await.ok()?).ok()?;
        // Without a status nothing was written yet.
        quota.pointer("/status/hard")?;
        let said = unenforced(&quota);
        let is_so = said.as_ref().map(|(reason, _)| reason.as_str()) == reason;
        is_so.then(|| said.map(|(_, message)| message).unwrap_or_default())
    };
    wait::eventually(SOON, says, &format!("quota {name} to say {reason:?}")).await.unwrap()
}

async fn events_about(team: &Team, name: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(team.client.clone(), &team.namespace.name);
    let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let about = events.filter(|event| {
        event.reason.as_deref() == Some("NotEnforced")
            && event.regarding.as_ref().and_then(|quota| quota.name.as_deref()) == Some(name)
    });
    about.filter_map(|event| event.note).collect()
}

#[tokio::test]
async fn a_quota_of_a_namespace_that_is_not_targeted_is_told_until_the_namespace_has_the_label() {
    let (bed, _turn) = cluster().await;
    let team = Team::with(bed, "silent", &[]).await;
    let quota: ApplicationAwareResourceQuota = objects::quota("q", &[("pods", "1")]);
    let mut object = serde_json::to_value(&quota).unwrap();
    object["metadata"]["namespace"] = json!(team.namespace.name);
    let file = manifest(bed, "silent.json", &object.to_string());
    // The webhook learns of the namespace by watch.
    let warned = || async {
        let (done, _, stderr) =
            kubectl_tries(bed, &["create", "--dry-run=server", "--filename", &file]).await;
        (done && stderr.contains("the namespace is not targeted")).then_some(())
    };
    wait::eventually(SOON, warned, "a warning about the quota").await.unwrap();
    let (done, stdout, stderr) = kubectl_tries(bed, &["create", "--filename", &file]).await;
    assert!(done && stderr.contains(names::TARGET_LABEL), "the warning names the label: {stdout}{stderr}");
    let message = until_said(&team, "q", Some("NamespaceNotTargeted")).await;
    assert!(message.contains(names::TARGET_LABEL), "{message}");
    let told = || async {
        let told = events_about(&team, "q").await;
        (!told.is_empty()).then_some(told)
    };
    let told = wait::eventually(SOON, told, "an event about the quota").await.unwrap();
    assert_eq!(told, [message]);
    // They are counted, and nothing holds them.
    team.pod("a", &[]).await;
    team.pod("b", &[]).await;
    team.until_used("q", "pods", "2").await;
    label(bed, &team.namespace, json!({ names::TARGET_LABEL: "" })).await;
    until_said(&team, "q", None).await;
    until_gated(bed, &team.namespace.name, true).await;
    label(bed, &team.namespace, json!({ names::TARGET_LABEL: null })).await;
    until_said(&team, "q", Some("NamespaceNotTargeted")).await;
}

#[tokio::test]
async fn a_quota_of_an_exempt_namespace_is_told_another_remedy_and_services_are_limited_anyway() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let team = Team {
        pods: Api::namespaced(client.clone(), "kube-public"),
        quotas: Api::namespaced(client.clone(), "kube-public"),
        namespace: TestNamespace { name: "kube-public".to_owned() },
        client,
    };
    team.quota("exempt", &[("pods", "1")]).await;
    team.quota("services", &[("services", "10")]).await;
    let message = until_said(&team, "exempt", Some("NamespaceExempt")).await;
    assert!(message.contains("ResourceQuota"), "{message}");
    until_said(&team, "services", None).await;
    for name in ["exempt", "services"] {
        team.quotas.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_quota_names_the_namespaces_that_are_not_gated_and_no_mirror_does() {
    let (bed, _turn) = cluster().await;
    let client = bed.admin().unwrap();
    let spec = json!({ "configuration": { "allowApplicationAwareClusterResourceQuota": true } });
    create_aaq(&client, Value::Null).await;
    let aaqs = Api::<sluice_api::AAQ>::all(client.clone());
    let patch = kube::api::Patch::Merge(json!({ "spec": spec }));
    aaqs.patch(names::AAQ_NAME, &kube::api::PatchParams::default(), &patch).await.unwrap();
    let gated = Team::with(bed, "gated", &[("shared", "yes"), (names::TARGET_LABEL, "")]).await;
    let silent = Team::with(bed, "silent", &[("shared", "yes")]).await;
    let quotas = Api::<ApplicationAwareClusterResourceQuota>::all(client.clone());
    let quota = objects::from_json(json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
        "metadata": { "name": "shared" },
        "spec": {
            "quota": { "hard": { "pods": "5" } },
            "selector": { "labels": { "matchLabels": { "shared": "yes" } } },
        },
    }));
    quotas.create(&kube::api::PostParams::default(), &quota).await.unwrap();
    let said = || async {
        let quota = serde_json::to_value(quotas.get("shared").await.ok()?).ok()?;
        unenforced(&quota).map(|(_, message)| message)
    };
    let message = wait::eventually(SOON, said, "the cluster quota to say it").await.unwrap();
    assert!(message.contains(" of 1 of 2 selected namespaces, "), "{message}");
    assert!(
        message.contains(&silent.namespace.name) && !message.contains(&gated.namespace.name),
        "{message}"
    );
    let mirrors = Api::<sluice_api::ApplicationAwareAppliedClusterResourceQuota>::namespaced(
        client.clone(),
        &gated.namespace.name,
    );
    let mirror = || async { serde_json::to_string(&mirrors.get("shared").await.ok()?).ok() };
    let mirror = wait::eventually(SOON, mirror, "the mirror of the cluster quota").await.unwrap();
    assert!(!mirror.contains(&silent.namespace.name), "{mirror}");
    label(bed, &silent.namespace, json!({ names::TARGET_LABEL: "" })).await;
    let silenced = || async {
        let quota = serde_json::to_value(quotas.get("shared").await.ok()?).ok()?;
        unenforced(&quota).is_none().then_some(())
    };
    wait::eventually(SOON, silenced, "the condition to go").await.unwrap();
    quotas.delete("shared", &DeleteParams::default()).await.unwrap();
}
