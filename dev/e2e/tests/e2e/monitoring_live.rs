//! A real Prometheus, told what the ServiceMonitor and the PrometheusRule say, and the dashboards' queries to it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{MERGE, call};
use sluice_e2e::probe::get;
use sluice_e2e::{Running, Setup, scrape};
use sluice_manifests::{InstallOptions, Monitoring, monitoring_objects};
use sluice_testbed::debian::prometheus;
use sluice_testbed::{Bed, Program, ports, wait};

use crate::context::{SOON, idle_bed, kubectl};
use crate::team::Team;

/// Of these there is no series before a migration's target has come.
const LATER: [&str; 1] = ["sluice_headroom_targets_total"];

/// What the server needs of the installed objects.
struct Scraping {
    monitor: Value,
    rules: Value,
}

impl Scraping {
    /// Applies all but the objects of Prometheus' operator, whose kinds are not there.
    async fn install(bed: &Bed) -> Self {
        let monitoring = Monitoring { service_monitor: true, rules: true, ..Monitoring::default() };
        let objects = monitoring_objects(&InstallOptions { monitoring, ..InstallOptions::default() });
        let of_prometheus = |object: &&Value| object["apiVersion"] == "monitoring.coreos.com/v1";
        let named = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap().clone();
        let (monitor, rules) = (named("ServiceMonitor"), named("PrometheusRule"));
        bed.apply_objects(objects.iter().filter(|object| !of_prometheus(object)).cloned()).await.unwrap();
        Self { monitor, rules }
    }

    /// Prometheus' own file, as its operator would make it of the ServiceMonitor.
    async fn configuration(&self, bed: &Bed, client: &Client, targets: &[String]) -> Value {
        let endpoint = &self.monitor["spec"]["endpoints"][0];
        let credentials = &endpoint["authorization"]["credentials"];
        let token = secret(client, credentials, "the token of the scraper").await;
        let tls = &endpoint["tlsConfig"];
        let authority = secret(client, &tls["ca"]["secret"], "the authority").await;
        let file = |name: &str, content: &[u8]| {
            let path = bed.dir().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let rules = file("rules.yaml", self.rules["spec"].to_string().as_bytes());
        json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "sluice",
                "scheme": endpoint["scheme"],
                "metrics_path": endpoint["path"],
                "honor_labels": endpoint["honorLabels"],
                "authorization": { "credentials_file": file("token", &token) },
                "tls_config": { "ca_file": file("authority.pem", &authority), "server_name": tls["serverName"] },
                "static_configs": [{ "targets": targets }],
            }],
        })
    }
}

/// An entry of a Secret in the namespace of the installation, once it is there.
async fn secret(client: &Client, selected: &Value, what: &str) -> Vec<u8> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let (name, key) = (selected["name"].as_str().unwrap(), selected["key"].as_str().unwrap());
    let filled = || async { Some(secrets.get(name).await.ok()?.data?.get(key)?.0.clone()) };
    wait::eventually(SOON, filled, what).await.unwrap()
}

/// A server with this configuration; its address.
fn start(bed: &Bed, configuration: &Value) -> (Program, String) {
    let file = bed.dir().join("prometheus.yaml");
    std::fs::write(&file, configuration.to_string()).unwrap();
    let address = format!("127.0.0.1:{}", ports::free().unwrap());
    let args = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", bed.dir().join("prometheus").display()),
        format!("--web.listen-address={address}"),
    ];
    (bed.program("prometheus", prometheus().unwrap().server, args, []).unwrap(), address)
}

/// What the server answers, if it answers well.
async fn ask(address: &str, path: &str) -> Option<Value> {
    let (code, text) = get(address, path).await.ok().filter(|(code, _)| *code != 503)?;
    assert!(code < 400, "{path}: {code}: {text}");
    Some(serde_json::from_str::<Value>(&text).ok()?["data"].take())
}

/// The series of a query, with their values now.
async fn query(address: &str, query: &str) -> Option<Vec<Value>> {
    let mut encoded = String::new();
    for byte in query.bytes() {
        write!(encoded, "%{byte:02X}").unwrap();
    }
    let data = ask(address, &format!("/api/v1/query?query={encoded}")).await?;
    data["result"].as_array().cloned().filter(|series| !series.is_empty())
}

/// The value of a query with one series.
async fn value(address: &str, of: &str) -> Option<f64> {
    query(address, of).await?[0]["value"][1].as_str()?.parse().ok()
}

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
    let scraping = Scraping::install(&bed).await;
    let admins = [&controller.admin, &second.admin, &webhook.admin, installation.operator_admin()];
    let targets: Vec<String> = admins.iter().map(|admin| scrape::address(admin).unwrap()).collect();
    let (server, address) = start(&bed, &scraping.configuration(&bed, &client, &targets).await);
    let up = || async { (value(&address, "sum(up)").await? >= 4.0).then_some(()) };
    wait::eventually(SOON, up, "all four programs to be scraped").await.unwrap();

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
    let same = || async { ((value(&address, sum).await? - shown).abs() < 1e-9).then_some(()) };
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
        let is = || async { ((value(&address, of).await? - expected).abs() < 1e-9).then_some(()) };
        wait::eventually(SOON, is, &format!("{of} to be {expected}")).await.unwrap();
    }
    let quota = format!("sluice_quota_oldest_wait_seconds{{namespace=\"{}\"}}", team.namespace);
    let waits = || async { (value(&address, &quota).await? >= 1.0).then_some(()) };
    wait::eventually(SOON, waits, "the oldest wait to be told of the quota's namespace").await.unwrap();

    for of in queries().iter().filter(|of| !LATER.iter().any(|later| of.contains(later))) {
        let of = of.replace("$__rate_interval", "10s").replace("$namespace", &team.namespace.name);
        let answered = || async { query(&address, &of).await };
        wait::eventually(SOON, answered, &format!("series of {of}")).await.unwrap();
    }

    let evaluated = || async {
        let data = ask(&address, "/api/v1/rules").await?;
        let rules = data["groups"].as_array()?.iter().flat_map(|group| group["rules"].as_array());
        let rules: Vec<Value> = rules.flatten().cloned().collect();
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
        let data = ask(&address, "/api/v1/alerts").await?;
        let alerts = data["alerts"].as_array()?;
        alerts.iter().any(|alert| alert["labels"]["alertname"] == "SluiceDown").then_some(())
    };
    wait::eventually(SOON + Duration::from_secs(10), pending, "SluiceDown to be pending").await.unwrap();
    assert!(server.is_running());
}
