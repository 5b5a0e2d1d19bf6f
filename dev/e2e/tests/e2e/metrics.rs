//! What monitoring and probes see.

use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::metrics::Samples;
use sluice_e2e::probe::get;
use sluice_e2e::wire::Wire;
use sluice_e2e::{objects, scrape};
use sluice_testbed::proxy::{Action, FaultProxy, Rule};
use sluice_testbed::wait;
use std::sync::Arc;
use tokio::sync::Notify;

use crate::context::{SOON, shared};
use crate::team::Team;

async fn until(admin: &str, what: &str, condition: impl Fn(&Samples) -> bool) -> Samples {
    let probe = || async { Some(Samples::of(admin).await.unwrap()).filter(&condition) };
    wait::eventually(SOON, probe, what).await.unwrap()
}

#[tokio::test]
async fn quotas_are_shown_under_upstreams_names_labels_and_units() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "metrics").await;
    let hard = [("requests.cpu", "2"), ("requests.memory", "4Gi"), ("pods", "10"), ("requests.cpu/vmi", "3")];
    team.quota("compute", &hard).await;
    team.pod("a", &[("cpu", "500m"), ("memory", "1Gi")]).await;
    team.until_released("a").await;
    team.until_used("compute", "requests.cpu", "500m").await;
    let series = "kube_application_aware_resourcequota";
    let ours = [("resourcequota", "compute"), ("namespace", team.namespace.name.as_str())];
    let used = |samples: &Samples| {
        samples.sum(series, &[&ours[..], &[("resource", "requests.cpu"), ("type", "used")]].concat())
    };
    let samples = until(&shared.controller.admin, "the usage in the metrics", |s| used(s) == Some(0.5)).await;
    let gib = 1024.0 * 1024.0 * 1024.0;
    for (resource, unit, hard, used) in [
        ("requests.cpu", "core", 2.0, 0.5),
        ("requests.memory", "bytes", 4.0 * gib, gib),
        ("pods", "count", 10.0, 1.0),
        ("requests.cpu/vmi", "core", 3.0, 0.0),
    ] {
        for (kind, value) in [("hard", hard), ("used", used)] {
            let labels = [&ours[..], &[("resource", resource), ("type", kind), ("unit", unit)]].concat();
            let found = samples.matching(series, &labels);
            assert_eq!(found.len(), 1, "{resource} {kind}");
            assert!((found[0].value - value).abs() < 1e-9, "{resource} {kind}: {:?}", found[0]);
            assert_eq!(found[0].labels.len(), 5, "no further labels: {:?}", found[0]);
        }
    }
    let created = team.quotas.get("compute").await.unwrap().creation_timestamp().unwrap().0.as_second();
    let seconds = samples.sum("kube_application_aware_resourcequota_creation_timestamp_seconds", &ours);
    #[allow(clippy::cast_precision_loss)]
    let expected = created as f64;
    assert_eq!(seconds, Some(expected));
    team.quotas.delete("compute", &kube::api::DeleteParams::default()).await.unwrap();
    until(&shared.controller.admin, "the series of a deleted quota to go", |s| {
        s.sum(series, &ours).is_none()
    })
    .await;
}

#[tokio::test]
async fn held_and_released_pods_are_counted() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "counted").await;
    team.quota("one", &[("pods", "1")]).await;
    team.pod("a", &[]).await;
    team.until_released("a").await;
    let before = Samples::of(&shared.controller.admin).await.unwrap();
    for name in ["b", "c", "d"] {
        team.pod(name, &[]).await;
    }
    let ours = [("resourcequota", "one"), ("namespace", team.namespace.name.as_str())];
    let held = |s: &Samples| s.sum("sluice_quota_held_pods", &ours);
    let samples = until(&shared.controller.admin, "three held pods", |s| held(s) == Some(3.0)).await;
    assert!(samples.sum("sluice_held_pods", &[]).unwrap() >= 3.0, "those of other tests come on top");
    team.pods.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    team.until_used("one", "pods", "1").await;
    until(&shared.controller.admin, "two held pods", |s| held(s) == Some(2.0)).await;
    // These count what the watch has confirmed, a moment later.
    for name in [
        "sluice_releases_total",
        "sluice_gate_wait_seconds_count",
        "sluice_gate_wait_seconds_bucket",
        "sluice_gate_lock_hold_seconds_count",
        "sluice_gate_lock_hold_seconds_bucket",
    ] {
        let was = before.sum(name, &[]).unwrap_or_default();
        let grown = |samples: &Samples| samples.sum(name, &[]).is_some_and(|is| is > was);
        until(&shared.controller.admin, &format!("{name} to grow"), grown).await;
    }
}

#[tokio::test]
async fn the_ledger_never_differs_from_a_recount() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "audited").await;
    team.quota("one", &[("pods", "1")]).await;
    team.pod("a", &[]).await;
    team.until_released("a").await;
    let audited = |s: &Samples| s.sum("sluice_ledger_audits_total", &[]).is_some_and(|count| count > 0.0);
    let samples = until(&shared.controller.admin, "an audit of the ledger", audited).await;
    assert_eq!(samples.sum("sluice_ledger_audit_differences_total", &[]), Some(0.0));
}

#[tokio::test]
async fn writes_to_the_api_server_are_counted_by_kind_and_code() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "writes").await;
    team.quota("one", &[("pods", "1")]).await;
    team.pod("a", &[]).await;
    team.until_released("a").await;
    team.pod("b", &[]).await;
    let done = |samples: &Samples, resource: &str| {
        let written = samples.sum("sluice_api_writes_total", &[("resource", resource), ("code", "ok")]);
        written.is_some_and(|count| count > 0.0)
    };
    let resources = ["pods", "applicationawareresourcequotas"];
    let all = |s: &Samples| resources.iter().all(|resource| done(s, resource));
    let probe = || async { Some(Samples::of(&shared.controller.admin).await.unwrap()).filter(&all) };
    let samples = match wait::eventually(SOON, probe, "writes of each kind").await {
        Ok(samples) => samples,
        Err(error) => {
            let samples = Samples::of(&shared.controller.admin).await.unwrap();
            panic!("{error:#}: {:#?}", samples.matching("sluice_api_writes_total", &[]));
        }
    };
    for sample in samples.matching("sluice_api_writes_total", &[]) {
        assert!(
            ["resource", "verb", "code"].iter().all(|key| sample.labels.contains_key(*key)),
            "{sample:?}"
        );
    }
    assert!(samples.sum("sluice_api_write_duration_seconds_count", &[("resource", "pods")]).unwrap() > 0.0);
}

#[tokio::test]
async fn the_webhook_counts_its_verdicts() {
    let shared = shared().await;
    let team = Team::on(shared.bed, "verdicts").await;
    let endpoint = "quota_validate";
    let labels = [("endpoint", endpoint), ("allowed", "true"), ("code", "202")];
    let count = |s: &Samples| s.sum("sluice_webhook_requests_total", &labels).unwrap_or_default();
    let before = count(&Samples::of(&shared.webhook.admin).await.unwrap());
    team.quota("right", &[("pods", "1")]).await;
    let wrong = objects::quota("q", &[("pods", "-1")]);
    objects::create(&team.client, &team.namespace.name, &wrong).await.unwrap_err();
    let after = Samples::of(&shared.webhook.admin).await.unwrap();
    assert!(count(&after) >= before + 1.0);
    let refused = [("endpoint", endpoint), ("allowed", "false"), ("code", "403")];
    assert!(after.sum("sluice_webhook_requests_total", &refused).unwrap() >= 1.0);
    assert!(
        after.sum("sluice_webhook_request_duration_seconds_count", &[("endpoint", endpoint)]).unwrap() >= 1.0
    );
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_api_server_allows_to_see_them() {
    let shared = shared().await;
    let client = shared.bed.admin().unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let bundle = secrets.get(names::CA_SECRET).await.unwrap().data.unwrap()[names::CA_BUNDLE].0.clone();
    let unbound = scrape::token(&client, names::INSTALL_NAMESPACE, "default").await.unwrap();
    for admin in [&shared.controller.admin, &shared.webhook.admin] {
        let wire = Wire::new(&scrape::address(admin).unwrap(), &bundle).unwrap();
        for name in ["sluice-metrics.sluice-system.svc", "127.0.0.1"] {
            wire.certificate(name).await.unwrap();
        }
        for (token, code) in [
            (None, 401),
            (Some("made-up"), 401),
            (Some("e30.e30.e30"), 401),
            (Some(unbound.as_str()), 403),
            // Remembered, and still no.
            (Some(unbound.as_str()), 403),
        ] {
            let (status, text) = scrape::get(&wire, token).await.unwrap();
            assert_eq!(status, code, "{token:?}: {text}");
            assert!(!text.contains("sluice_"), "{text}");
        }
        // Whom the shipped role is bound to, and nothing without TLS or beside the probes.
        let (status, text) = get(admin, names::PATH_METRICS).await.unwrap();
        assert!(status == 200 && text.contains("sluice_"), "{status}: {text}");
        let plain: http::Uri = format!("http://{admin}{}", names::PATH_METRICS).parse().unwrap();
        assert_eq!(plain_get(plain).await, 404);
    }
    // The role of the shipped manifest is what makes the difference.
    let given = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "another-scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": names::METRICS_READER},
        "subjects": [{"kind": "ServiceAccount", "name": "another-scraper", "namespace": "default"}],
    });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "another-scraper", "namespace": "default"},
    });
    shared.bed.apply_objects([account, given]).await.unwrap();
    let wire = Wire::new(&scrape::address(&shared.controller.admin).unwrap(), &bundle).unwrap();
    let seen = || async {
        // Authorisation follows bindings by a watch, and a refusal holds for a minute: a token of its own each time.
        let fresh = scrape::token(&client, "default", "another-scraper").await.ok()?;
        (scrape::get(&wire, Some(&fresh)).await.ok()?.0 == 200).then_some(())
    };
    wait::eventually(SOON, seen, "the new scraper to be let in").await.unwrap();
}

async fn plain_get(uri: http::Uri) -> u16 {
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    let client: Client<_, http_body_util::Empty<hyper::body::Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    client.get(uri).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn probes_say_what_they_stand_for() {
    let shared = shared().await;
    for (admin, checks) in [
        (&shared.controller.admin, &["pods", "namespaces", "applicationawareresourcequotas", "aaqs"][..]),
        (&shared.webhook.admin, &["certificate"][..]),
    ] {
        let (code, text) = get(admin, names::PATH_HEALTHZ).await.unwrap();
        assert_eq!(code, 200, "{text}");
        let (code, text) = get(admin, names::PATH_READYZ).await.unwrap();
        assert_eq!(code, 200, "{text}");
        for check in checks {
            assert!(text.contains(&format!("[+] {check} ok")), "{check}: {text}");
        }
    }
}

#[tokio::test]
async fn a_controller_is_not_ready_before_it_has_listed_everything() {
    let shared = shared().await;
    let identity = shared.bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await.unwrap();
    let proxy = FaultProxy::start(shared.bed, &identity).await.unwrap();
    let go = Arc::new(Notify::new());
    let hold = Rule::new(Action::HoldUntil(Arc::clone(&go))).method(Method::GET).path("^/api/v1/pods$");
    proxy.add(hold.unwrap());
    // It never leads: the shared one does.
    let late = shared.installation.spawn_controller(proxy.kubeconfig(), &[]).unwrap();
    let probe = || async {
        let (code, text) = get(&late.admin, names::PATH_READYZ).await.ok()?;
        let others = ["namespaces", "applicationawareresourcequotas", "aaqs"];
        others.iter().all(|kind| text.contains(&format!("[+] {kind} ok"))).then_some((code, text))
    };
    let (code, text) = wait::eventually(SOON, probe, "all caches but that of pods").await.unwrap();
    assert_eq!(code, 503, "{text}");
    assert!(text.contains("[-] pods: "), "{text}");
    assert_eq!(get(&late.admin, names::PATH_HEALTHZ).await.unwrap().0, 200, "not ready is not dead");
    let ready = || async {
        go.notify_waiters();
        let (code, _) = get(&late.admin, names::PATH_READYZ).await.ok()?;
        (code == 200).then_some(())
    };
    wait::eventually(SOON, ready, "the controller to be ready after its list").await.unwrap();
}
