//! Pods wait for their quota and go when there is room.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_e2e::objects::{self, is_held};
use sluice_testbed::wait;

use crate::context::{SOON, shared, used_of};
use crate::team::Team;

#[tokio::test]
async fn a_pod_that_fits_is_charged_and_released() {
    let team = Team::on(shared().await.bed, "fits").await;
    team.quota("compute", &[("requests.cpu", "2"), ("pods", "5")]).await;
    let created = team.pod("a", &[("cpu", "500m")]).await;
    assert!(is_held(&created), "a new pod is gated");
    team.until_released("a").await;
    team.until_used("compute", "requests.cpu", "500m").await;
    team.until_used("compute", "pods", "1").await;
}

#[tokio::test]
async fn a_pod_that_does_not_fit_waits_and_is_told_why() {
    let team = Team::on(shared().await.bed, "waits").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("a", &[("cpu", "800m")]).await;
    team.until_released("a").await;
    team.pod("b", &[("cpu", "300m")]).await;
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(team.client.clone(), &team.namespace.name);
    let told = || async {
        let events = events.list(&ListParams::default()).await.ok()?;
        events.items.into_iter().find_map(|event| event.note.filter(|note| note.contains("exceeded quota")))
    };
    let note = wait::eventually(SOON, told, "an event about the held pod").await.unwrap();
    assert_eq!(
        note,
        "exceeded quota: compute, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"
    );
    assert_eq!(team.held().await, ["b"]);
    let what = "the number of held pods";
    wait::wait_for(&team.quotas, "compute", SOON, what, |quota| {
        quota.and_then(|quota| quota.status.as_ref()?.held) == Some(1)
    })
    .await
    .unwrap();
    team.pods.delete("a", &DeleteParams::default()).await.unwrap();
    team.until_released("b").await;
    team.until_used("compute", "requests.cpu", "300m").await;
}

#[tokio::test]
async fn a_raised_quota_releases() {
    let team = Team::on(shared().await.bed, "raised").await;
    team.quota("compute", &[("requests.memory", "500Mi")]).await;
    team.pod("a", &[("memory", "600Mi")]).await;
    let raise = json!({"spec": {"hard": {"requests.memory": "600Mi"}}});
    team.quotas.patch("compute", &PatchParams::default(), &Patch::Merge(raise)).await.unwrap();
    team.until_released("a").await;
    team.until_used("compute", "requests.memory", "600Mi").await;
}

#[tokio::test]
async fn a_finished_pod_frees_its_charge() {
    let team = Team::on(shared().await.bed, "finished").await;
    team.quota("compute", &[("requests.cpu", "1"), ("count/pods", "10")]).await;
    team.pod("a", &[("cpu", "1")]).await;
    team.until_released("a").await;
    team.pod("b", &[("cpu", "1")]).await;
    let done = json!({"status": {"phase": "Succeeded"}});
    team.pods.patch_status("a", &PatchParams::default(), &Patch::Merge(done)).await.unwrap();
    team.until_released("b").await;
    team.until_used("compute", "count/pods", "2").await;
}

#[tokio::test]
async fn without_a_quota_pods_go_at_once() {
    let team = Team::on(shared().await.bed, "free").await;
    team.pod("a", &[("cpu", "100")]).await;
    team.until_released("a").await;
}

#[tokio::test]
async fn fifty_pods_share_a_quota_for_ten() {
    let team = Team::on(shared().await.bed, "fifty").await;
    team.quota("compute", &[("pods", "10")]).await;
    for n in 0..50 {
        team.pod(&format!("p{n:02}"), &[]).await;
    }
    team.until_used("compute", "pods", "10").await;
    team.until_released_count(10).await;
    let quota = team.quotas.get("compute").await.unwrap();
    assert_eq!(used_of(Some(&quota), "pods").as_deref(), Some("10"));
}

/// The words that the pod was told.
async fn told(team: &Team, pod: &str, reason: &str) -> String {
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(team.client.clone(), &team.namespace.name);
    let told = || async {
        let events = events.list(&ListParams::default()).await.ok()?.items.into_iter();
        let mut about = events.filter(|event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(pod)
        });
        about.next()?.note
    };
    wait::eventually(SOON, told, &format!("pod {pod} to be told {reason}")).await.unwrap()
}

#[tokio::test]
async fn a_stateful_set_that_can_never_fit_is_told_and_goes_on_when_template_and_pod_are_replaced() {
    let team = Team::on(shared().await.bed, "never").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    let sets: kube::Api<StatefulSet> = kube::Api::namespaced(team.client.clone(), &team.namespace.name);
    let container =
        |cpu: &str| json!([{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}]);
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
                    "containers": container("2"),
                },
            },
        },
    });
    sets.create(&PostParams::default(), &objects::from_json(set)).await.unwrap();
    let words = told(&team, "db-0", "ExceedsLimit").await;
    assert_eq!(
        words,
        "exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1; the pod alone \
         is more than the whole quota and can never be released: raise spec.hard[requests.cpu] of the quota, or change the \
         template of the pod's controller and delete the pod"
    );
    let before = team.pods.get("db-0").await.unwrap();
    let smaller = json!({"spec": {"template": {"spec": {"containers": container("400m")}}}});
    sets.patch("db", &PatchParams::default(), &Patch::Merge(smaller)).await.unwrap();
    wait::wait_for(&sets, "db", SOON, "the controller to see the template", |set| {
        let status = set.and_then(|set| set.status.as_ref());
        status.is_some_and(|status| {
            status.observed_generation >= Some(2) && status.update_revision != status.current_revision
        })
    })
    .await
    .unwrap();
    // It waits for its first pod to be ready, and replaces nothing.
    let after = team.pods.get("db-0").await.unwrap();
    assert!(after.metadata.uid == before.metadata.uid && is_held(&after), "{after:?}");
    team.pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    team.until_used("compute", "requests.cpu", "800m").await;
    assert_eq!(team.held().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_claim_of_an_ephemeral_volume_is_there_while_its_pod_is_held_which_is_told() {
    let team = Team::on(shared().await.bed, "claims").await;
    team.quota("compute", &[("pods", "1"), ("persistentvolumeclaims", "5")]).await;
    team.pod("first", &[]).await;
    team.until_released("first").await;
    let template = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let mut pod = serde_json::to_value(objects::pod("claiming", &[])).unwrap();
    pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    assert!(team.create(&pod).await.is_ok());
    let words = told(&team, "claiming", "QuotaExceeded").await;
    assert!(words.contains("claims of its ephemeral volumes exist already"), "{words}");
    team.until_used("compute", "persistentvolumeclaims", "1").await;
    assert_eq!(team.held().await, ["claiming"]);
    // What is told frees them.
    team.pods.delete("claiming", &DeleteParams::default()).await.unwrap();
    team.until_used("compute", "persistentvolumeclaims", "0").await;
}
