//! The admission policy of migration windows alone: the shipped policy on a real API server, no process of ours.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{Answer, JSON, MERGE, STRATEGIC, call, get, post};
use sluice_operator::{InstallOptions, render};
use sluice_testbed::{Bed, BedOptions, Identity, TestNamespace, wait};

use crate::context::SOON;

/// What the policy needs: its kind, itself and its binding.
pub async fn bed() -> Bed {
    let options = BedOptions { kwok: false, scheduler: false, ..BedOptions::default() };
    let bed = Bed::start(options).await.unwrap();
    let wanted =
        ["CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    let objects = render(&InstallOptions::default()).into_iter();
    bed.apply_objects(objects.filter(|object| wanted.iter().any(|kind| object["kind"] == *kind)))
        .await
        .unwrap();
    bed
}

/// A namespace, and who acts in it.
struct Scene {
    namespace: TestNamespace,
    admin: Client,
    tenant: Client,
    kubevirt: Client,
}

fn pod(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}]},
    })
}

fn target() -> Value {
    pod("target", json!({names::MIGRATION_JOB_LABEL: "6a1e"}))
}

impl Scene {
    async fn on(bed: &Bed) -> Self {
        let namespace = bed.namespace("window", &[]).await.unwrap();
        let creator = names::kubevirt_controller_username("kubevirt");
        let groups = ["system:masters", "system:serviceaccounts"];
        let kubevirt: Identity = bed.client_as_user(&creator, &groups).unwrap();
        Self {
            admin: bed.admin().unwrap(),
            tenant: bed.tenant(&namespace).await.unwrap().client().unwrap(),
            kubevirt: kubevirt.client().unwrap(),
            namespace,
        }
    }

    fn path(&self, api: &str, rest: &str) -> String {
        format!("{api}/namespaces/{}/{rest}", self.namespace.name)
    }

    fn pods(&self, rest: &str) -> String {
        self.path("/api/v1", &format!("pods{rest}"))
    }

    fn windows(&self, rest: &str) -> String {
        self.path("/apis/quota.sluice.dev/v1alpha1", &format!("migrationwindows{rest}"))
    }

    async fn open(&self, nonce: &str, seconds: i64) -> Answer {
        let answer = post(&self.admin, &self.windows(""), &window("window", nonce, seconds)).await.unwrap();
        assert_eq!(answer.code, 201, "{answer:?}");
        answer
    }

    async fn close(&self) {
        let path = self.windows("/window");
        let answer = call(&self.admin, Method::DELETE, &path, JSON, &json!({})).await.unwrap();
        assert_eq!(answer.code, 200, "{answer:?}");
    }

    /// The dry run that tells whether a window is in force.
    async fn probe(&self) -> Answer {
        post(&self.admin, &self.windows("?dryRun=All"), &window("probe", "probe", 5)).await.unwrap()
    }

    /// Waits until the probe is denied with this nonce; how many tries that took.
    async fn until_proved(&self, nonce: &str) -> u32 {
        let tries = AtomicU32::new(0);
        let text = format!("(window {nonce})");
        let probe = || async {
            tries.fetch_add(1, Ordering::Relaxed);
            let answer = self.probe().await;
            (answer.code == 403 && answer.message().contains(&text)).then_some(())
        };
        wait::eventually(SOON, probe, "the window to be in force").await.unwrap();
        tries.into_inner()
    }

    /// Waits until the probe is allowed.
    async fn until_open(&self) {
        let probe = || async { (self.probe().await.code == 201).then_some(()) };
        wait::eventually(SOON, probe, "the probe to be allowed").await.unwrap();
    }

    async fn dry_pod(&self, client: &Client, pod: &Value) -> Answer {
        post(client, &self.pods("?dryRun=All"), pod).await.unwrap()
    }
}

/// `seconds` from now, by this machine's clock, which is the API server's.
fn window(name: &str, nonce: &str, seconds: i64) -> Value {
    let until = Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow", "metadata": {"name": name},
        "spec": {
            "holder": "test", "nonce": nonce, "creator": names::kubevirt_controller_username("kubevirt"),
            "until": jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", until).unwrap(),
            "migration": {"name": "mig", "uid": "6a1e", "vmi": "web"},
            "quotas": [{"name": "rq", "uid": "77", "raise": {"requests.memory": "1500Mi", "pods": 3}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_migration_windows() {
    let bed = bed().await;
    let scene = Scene::on(&bed).await;
    warm_up(&scene).await;
    nothing_is_denied_without_a_window(&scene).await;
    a_window_denies_all_pods_but_the_target(&bed, &scene).await;
    a_window_denies_resizes_and_nothing_else(&scene).await;
    a_window_keeps_the_status_of_quotas(&bed, &scene).await;
    a_second_window_is_proved_by_its_own_nonce(&scene).await;
    a_window_ends_by_itself(&scene).await;
    without_the_kind_nothing_is_denied(&bed, &scene).await;
}

/// A policy that is new needs a while to become active, a window does not.
async fn warm_up(scene: &Scene) {
    scene.open("warm", 600).await;
    scene.until_proved("warm").await;
    scene.close().await;
    scene.until_open().await;
}

async fn nothing_is_denied_without_a_window(scene: &Scene) {
    for client in [&scene.tenant, &scene.admin, &scene.kubevirt] {
        for pod in [pod("p", json!({})), target()] {
            let answer = scene.dry_pod(client, &pod).await;
            assert_eq!(answer.code, 201, "{answer:?}");
        }
    }
    // Here for the next steps, which happen while a window is open.
    let answer = post(&scene.tenant, &scene.pods(""), &pod("old", json!({}))).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
}

async fn a_window_denies_all_pods_but_the_target(bed: &Bed, scene: &Scene) {
    scene.open("n-1", 600).await;
    let asked = Instant::now();
    let tries = scene.until_proved("n-1").await;
    println!("a window was in force {:?} after it was created, at try {tries}", asked.elapsed());

    let denied = scene.dry_pod(&scene.tenant, &pod("p", json!({}))).await;
    assert_eq!(denied.code, 403, "{denied:?}");
    for text in ["live migration mig", "try again in a moment", "(window n-1)", names::WINDOW_POLICY] {
        assert!(denied.message().contains(text), "{text} is missing: {}", denied.message());
    }
    // Whoever asks, and whatever the pod says of itself; what counts is who KubeVirt's controller is.
    let forged = scene.dry_pod(&scene.tenant, &target()).await;
    let admins = scene.dry_pod(&scene.admin, &target()).await;
    let source = scene.dry_pod(&scene.kubevirt, &pod("p", json!({"kubevirt.io": "virt-launcher"}))).await;
    let mut later = target();
    later["metadata"]["creationTimestamp"] = json!("2099-01-01T00:00:00Z");
    let forged_time = scene.dry_pod(&scene.tenant, &later).await;
    for answer in [forged, admins, source, forged_time] {
        assert_eq!(answer.code, 403, "{answer:?}");
    }
    let real = post(&scene.tenant, &scene.pods(""), &pod("p", json!({}))).await.unwrap();
    assert_eq!(real.code, 403, "{real:?}");
    let allowed = scene.dry_pod(&scene.kubevirt, &target()).await;
    assert_eq!(allowed.code, 201, "{allowed:?}");
    // What only queues behind other requests is not held back.
    let drain = post(&scene.admin, &scene.windows("?dryRun=All"), &window("drain", "d", 5)).await.unwrap();
    assert_eq!(drain.code, 201, "{drain:?}");
    // The window is one namespace's.
    let other = Scene::on(bed).await;
    assert_eq!(other.dry_pod(&other.tenant, &pod("p", json!({}))).await.code, 201);
    assert_eq!(other.probe().await.code, 201);
}

async fn a_window_denies_resizes_and_nothing_else(scene: &Scene) {
    assert_eq!(scene.probe().await.code, 403, "the window is open");
    let resize =
        json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "11m"}}}]}});
    let path = scene.pods("/old/resize");
    let answer = call(&scene.admin, Method::PATCH, &path, STRATEGIC, &resize).await.unwrap();
    assert!(answer.code == 403 && answer.message().contains("(window n-1)"), "{answer:?}");

    let (core, own) = ("/api/v1", "/apis/quota.sluice.dev/v1alpha1");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let meta = |name: &str| json!({"name": name});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("rq"), "spec": {"hard": {"pods": "9"}}});
    let status = json!({"status": {"hard": {"pods": "10"}}});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("c"), "data": {}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("s")});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("svc"), "spec": {"ports": [{"port": 80}]}});
    let limits =
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta("lr"), "spec": {"limits": []}});
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": meta("e"),
        "involvedObject": {"kind": "Pod", "name": "old", "namespace": scene.namespace.name}, "reason": "R", "message": "m"});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": meta("old"), "target": {"kind": "Node", "name": "n"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta("old")});
    let pod_status = json!({"status": {"message": "m"}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("d"), "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "d"}},
        "template": {"metadata": {"labels": {"a": "d"}}, "spec": pod("x", json!({}))["spec"]}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("j"), "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("sa")});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("pvc"), "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta("l"), "spec": {}});
    let steps: Vec<(Method, String, &str, Value)> = vec![
        (Method::POST, scene.path(core, "configmaps"), JSON, config),
        (Method::PATCH, scene.path(core, "configmaps/c"), MERGE, json!({"data": {"a": "b"}})),
        (Method::DELETE, scene.path(core, "configmaps/c"), JSON, json!({})),
        (Method::POST, scene.path(core, "secrets"), JSON, secret),
        (Method::POST, scene.path(core, "services"), JSON, service),
        (Method::DELETE, scene.path(core, "services/svc"), JSON, json!({})),
        (Method::POST, scene.path(core, "serviceaccounts"), JSON, account),
        (Method::POST, scene.path(core, "persistentvolumeclaims"), JSON, claim),
        (Method::POST, scene.path("/apis/coordination.k8s.io/v1", "leases"), JSON, lease),
        (Method::POST, scene.path(core, "resourcequotas"), JSON, quota),
        (Method::PATCH, scene.path(core, "resourcequotas/rq"), MERGE, label.clone()),
        (Method::PATCH, scene.path(core, "resourcequotas/rq/status"), MERGE, status),
        (Method::DELETE, scene.path(core, "resourcequotas/rq"), JSON, json!({})),
        (Method::POST, scene.path(core, "limitranges"), JSON, limits),
        (Method::POST, scene.path(core, "events"), JSON, event),
        (Method::POST, scene.path("/apis/apps/v1", "deployments"), JSON, deployment),
        (
            Method::PATCH,
            scene.path("/apis/apps/v1", "deployments/d"),
            MERGE,
            json!({"spec": {"replicas": 0}}),
        ),
        (Method::DELETE, scene.path("/apis/apps/v1", "deployments/d"), JSON, json!({})),
        (Method::POST, scene.path("/apis/batch/v1", "jobs?dryRun=All"), JSON, job),
        (Method::PATCH, scene.pods("/old"), MERGE, label.clone()),
        (Method::PATCH, scene.pods("/old/status"), MERGE, pod_status),
        (Method::POST, scene.pods("/old/binding"), JSON, binding),
        (Method::POST, scene.pods("/old/eviction?dryRun=All"), JSON, eviction),
        (Method::DELETE, scene.pods("/old?gracePeriodSeconds=0"), JSON, json!({})),
        (Method::PATCH, scene.path(own, "migrationwindows/window"), MERGE, label),
        (
            Method::PATCH,
            format!("/api/v1/namespaces/{}", scene.namespace),
            MERGE,
            json!({"metadata": {"annotations": {"a": "b"}}}),
        ),
    ];
    for (method, path, content_type, body) in steps {
        let answer = call(&scene.admin, method.clone(), &path, content_type, &body).await.unwrap();
        assert!(answer.is_ok(), "{method} {path}: {answer:?}");
    }
    for path in [scene.pods(""), scene.path(core, "resourcequotas")] {
        assert_eq!(get(&scene.tenant, &path).await.unwrap().code, 200, "{path}");
    }
}

/// kube-controller-manager may write it, but not between raise and admission; whoever may open windows may.
async fn a_window_keeps_the_status_of_quotas(bed: &Bed, scene: &Scene) {
    assert_eq!(scene.probe().await.code, 403, "the window is open");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "kept"}, "spec": {"hard": {"pods": "9"}}});
    let answer = post(&scene.admin, &scene.path("/api/v1", "resourcequotas"), &quota).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    let manager = bed.client_as_user("system:serviceaccount:kube-system:resourcequota-controller", &[]);
    let manager = manager.unwrap().client().unwrap();
    let path = scene.path("/api/v1", "resourcequotas/kept/status");
    let raise = |pods: &'static str| {
        let (client, path) = (&scene.admin, path.clone());
        let status = json!({"status": {"hard": {"pods": pods}, "used": {"pods": "1"}}});
        async move { call(client, Method::PATCH, &path, MERGE, &status).await.unwrap() }
    };
    let raised = raise("10").await;
    assert_eq!(raised.code, 200, "{raised:?}");
    let mut lowered = raised.body.clone();
    lowered["status"]["hard"]["pods"] = json!("9");
    let denied = call(&manager, Method::PUT, &path, JSON, &lowered).await.unwrap();
    assert!(denied.code == 403 && denied.message().contains("until its window is closed"), "{denied:?}");
    // What kube-controller-manager itself has tried meanwhile was denied too.
    let kept = get(&scene.admin, &scene.path("/api/v1", "resourcequotas/kept")).await.unwrap();
    assert_eq!(kept.body["status"]["hard"]["pods"], "10", "{kept:?}");

    // The window of a holder that is gone: its time is over, by the API server's clock, and it is still there.
    scene.close().await;
    scene.open("n-kept", 3).await;
    scene.until_proved("n-kept").await;
    let raised = raise("11").await;
    assert_eq!(raised.code, 200, "{raised:?}");
    let lowered = || async {
        let kept = get(&scene.admin, &scene.path("/api/v1", "resourcequotas/kept")).await.ok()?;
        (kept.body["status"]["hard"]["pods"] == "9").then_some(())
    };
    wait::eventually(SOON, lowered, "kube-controller-manager to put the limit back").await.unwrap();
    let window = get(&scene.admin, &scene.windows("/window")).await.unwrap();
    let until: Timestamp = window.body["spec"]["until"].as_str().unwrap().parse().unwrap();
    assert!(Timestamp::now() >= until, "the window was still open");
    let path = scene.path("/api/v1", "resourcequotas/kept");
    assert!(call(&scene.admin, Method::DELETE, &path, JSON, &json!({})).await.unwrap().is_ok());
}

/// What an API server knows of the first window proves nothing about the second.
async fn a_second_window_is_proved_by_its_own_nonce(scene: &Scene) {
    for round in 2..12 {
        scene.close().await;
        let nonce = format!("n-{round}");
        scene.open(&nonce, 600).await;
        let asked = Instant::now();
        let tries = scene.until_proved(&nonce).await;
        println!("window {nonce} was in force {:?} after it was created, at try {tries}", asked.elapsed());
    }
    scene.close().await;
    scene.until_open().await;
}

/// Without anybody who deletes it. The second that it names is the API server's.
async fn a_window_ends_by_itself(scene: &Scene) {
    let opened = scene.open("n-short", 4).await;
    let until: Timestamp = opened.body["spec"]["until"].as_str().unwrap().parse().unwrap();
    let mut denied = 0;
    let end = Timestamp::now() + jiff::SignedDuration::from_secs(i64::try_from(SOON.as_secs()).unwrap());
    loop {
        let answer = scene.dry_pod(&scene.tenant, &pod("p", json!({}))).await;
        let after = Timestamp::now();
        if answer.code == 201 {
            let created: Timestamp =
                answer.body["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
            // Before the window was known here at all, pods were let in too.
            if denied > 0 || created >= until {
                assert!(created >= until, "let in at {created}, before {until}");
                break;
            }
        } else {
            assert!(answer.code == 403 && answer.message().contains("(window n-short)"), "{answer:?}");
            denied += 1;
        }
        assert!(after < end, "the window of {until} still holds at {after}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It is still there, and only a resize waits for that.
    assert_eq!(get(&scene.admin, &scene.windows("/window")).await.unwrap().code, 200);
    assert_eq!(scene.probe().await.code, 201);
    let created = post(&scene.tenant, &scene.pods(""), &pod("new", json!({}))).await.unwrap();
    assert_eq!(created.code, 201, "{created:?}");
    let resize =
        json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "11m"}}}]}});
    let path = scene.pods("/new/resize");
    let answer = call(&scene.admin, Method::PATCH, &path, STRATEGIC, &resize).await.unwrap();
    assert_eq!(answer.code, 403, "{answer:?}");
    scene.close().await;
    let resized = || async {
        let answer = call(&scene.admin, Method::PATCH, &path, STRATEGIC, &resize).await.ok()?;
        answer.is_ok().then_some(())
    };
    wait::eventually(SOON, resized, "a resize after the window").await.unwrap();
}

/// Somebody deletes the definition: all pods of the cluster must not be refused then.
async fn without_the_kind_nothing_is_denied(bed: &Bed, scene: &Scene) {
    scene.open("n-last", 600).await;
    scene.until_proved("n-last").await;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/migrationwindows.quota.sluice.dev";
    let answer = call(&scene.admin, Method::DELETE, crd, JSON, &json!({})).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let created = || async {
        let answer = scene.dry_pod(&scene.tenant, &pod("p", json!({}))).await;
        (answer.code == 201).then_some(())
    };
    wait::eventually(SOON, created, "pods without the kind of windows").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(bed.admin().unwrap(), &scene.namespace.name);
    assert!(pods.get_opt("new").await.unwrap().is_some());
}
