//! What a real Prometheus has of an installation, and the dashboards' queries to it.

use std::path::Path;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_e2e::call::{MERGE, call};
use sluice_e2e::{Running, Setup, scrape};
use sluice_testbed::wait;

use crate::context::{SOON, idle_bed, kubectl};
use crate::prometheus::Prometheus;
use crate::team::Team;

/// Of these there is no series before a migration's target has come.
const LATER: [&str; 1] = ["sluice_headroom_targets_total"];

/// Every query of the dashboards.
fn queries() -> Vec<String> {
    fn add(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| add(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| add(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring/grafana");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        add(&serde_json::from_str(&text).unwrap(), &mut found);
    }
    assert!(found.len() >= 30, "{}", found.len());
    found
}

/// Another client changes an admission object, and the operator puts it back.
async fn contest(client: &Client) {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sluice-guard?fieldManager=argocd";
    let patch =
        json!({ "spec": { "matchResources": { "namespaceSelector": { "matchLabels": { "a": "b" } } } } });
    let answer = call(client, Method::PATCH, path, MERGE, &patch).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_scrapes_the_installed_objects_and_answers_every_query() {
    let bed = idle_bed().await;
    let Running { installation, controller, webhook, .. } =
        &Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();
    let second = installation.controller().await.unwrap();
    let admins = [&controller.admin, &second.admin, &webhook.admin, installation.operator_admin()];
    let targets: Vec<String> = admins.iter().map(|admin| scrape::address(admin).unwrap()).collect();
    let server = Prometheus::start(&bed, 1).await;
    server.scrape(&targets).await;

    let team = Team::on(&bed, "watched").await;
    team.quota("compute", &[("pods", "3"), ("requests.cpu", "2"), ("requests.memory", "1Gi")]).await;
    for (name, cpu) in [("a", "1"), ("b", "500m"), ("waits", "1"), ("huge", "5")] {
        team.pod(name, &[("cpu", cpu), ("memory", "64Mi")]).await;
    }
    team.until_used("compute", "pods", "2").await;
    contest(&client).await;

    // Both controllers are scraped, and one of them tells.
    let other = Team::on(&bed, "other").await;
    other.quota("compute", &[("pods", "1")]).await;
    other.pod("a", &[]).await;
    other.until_used("compute", "pods", "1").await;
    let shown = kubectl(&bed, &["get", "arq", "-A", "-o", "jsonpath={.items[*].status.used.pods}"]).await;
    let shown: f64 = shown.split_whitespace().map(|used| used.parse::<f64>().unwrap()).sum();
    let sum = "sum(kube_application_aware_resourcequota{type=\"used\", resource=\"pods\"})";
    let same = || async { ((server.value(sum).await? - shown).abs() < 1e-9).then_some(()) };
    wait::eventually(SOON, same, "the sum of what quotas use to be what kubectl shows").await.unwrap();
    assert!((shown - 3.0).abs() < 1e-9, "{shown}");
    for (of, expected) in [
        ("sum(sluice_leader{component=\"controller\"})", 1.0),
        ("sum(sluice_leader{component=\"operator\"})", 1.0),
        ("count(sluice_build_info{component=\"controller\"})", 2.0),
        ("sum(sluice_held_pods)", 2.0),
        ("sluice_held_pods{reason=\"ExceedsLimit\"}", 1.0),
        ("sum(sluice_paused)", 0.0),
        ("sum(sluice_admission_contests_total{manager=\"argocd\"})", 1.0),
        ("count(sluice_certificate_expiry_timestamp_seconds{which=\"serving\"})", 4.0),
        ("count(sluice_certificate_expiry_timestamp_seconds{which=\"authority\"})", 1.0),
        ("count(kube_application_aware_resourcequota_creation_timestamp)", 2.0),
    ] {
        let is = || async { ((server.value(of).await? - expected).abs() < 1e-9).then_some(()) };
        wait::eventually(SOON, is, &format!("{of} to be {expected}")).await.unwrap();
    }
    let quota = format!("sluice_quota_oldest_wait_seconds{{namespace=\"{}\"}}", team.namespace);
    let waits = || async { (server.value(&quota).await? >= 1.0).then_some(()) };
    wait::eventually(SOON, waits, "the oldest wait to be told of the quota's namespace").await.unwrap();

    for of in queries().iter().filter(|of| !LATER.iter().any(|later| of.contains(later))) {
        let of = of.replace("$__rate_interval", "10s").replace("$namespace", &team.namespace.name);
        let answered = || async { server.query(&of).await };
        wait::eventually(SOON, answered, &format!("series of {of}")).await.unwrap();
    }

    let evaluated = || async {
        let rules = server.rules().await?;
        assert_eq!(rules.len(), 14);
        rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
    };
    let rules = wait::eventually(SOON, evaluated, "all rules to be evaluated").await.unwrap();
    let not_quiet: Vec<_> =
        rules.iter().filter(|rule| rule["state"].as_str().is_some_and(|it| it != "inactive")).collect();
    assert!(not_quiet.is_empty(), "an installation that is well: {not_quiet:#?}");

    // The alert about a leader begins: nobody leads once both have gone.
    for controller in [controller, &second] {
        controller.program.kill();
        controller.program.wait().await;
    }
    let pending = || async {
        let data = server.ask("/api/v1/alerts").await?;
        let alerts = data["alerts"].as_array()?;
        alerts.iter().any(|alert| alert["labels"]["alertname"] == "SluiceDown").then_some(())
    };
    wait::eventually(SOON + Duration::from_secs(10), pending, "SluiceDown to be pending").await.unwrap();
    assert!(server.program.is_running());
}
