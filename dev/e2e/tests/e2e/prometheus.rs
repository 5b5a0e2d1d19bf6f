//! A real Prometheus that is told what the ServiceMonitor and the PrometheusRule say.

use std::fmt::Write as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::probe::get;
use sluice_manifests::{InstallOptions, Monitoring, monitoring_objects};
use sluice_testbed::debian::prometheus;
use sluice_testbed::{Bed, Program, ports, wait};

use crate::context::SOON;

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

    /// What an alert has to be true for becomes so many times shorter. Nothing else of the rules changes.
    fn hasten(&mut self, times: u32) {
        for group in self.rules["spec"]["groups"].as_array_mut().unwrap() {
            for rule in group["rules"].as_array_mut().unwrap() {
                if let Some(text) = rule["for"].as_str() {
                    let milliseconds = seconds(text) * 1000 / u64::from(times);
                    rule["for"] = json!(format!("{milliseconds}ms"));
                }
            }
        }
    }

    /// Prometheus' own file, as its operator would make it of the ServiceMonitor.
    async fn configuration(&self, bed: &Bed, targets: &str) -> Value {
        let endpoint = &self.monitor["spec"]["endpoints"][0];
        let credentials = &endpoint["authorization"]["credentials"];
        let token = secret(bed, credentials, "the token of the scraper").await;
        let tls = &endpoint["tlsConfig"];
        let authority = secret(bed, &tls["ca"]["secret"], "the authority").await;
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
                "file_sd_configs": [{ "files": [targets], "refresh_interval": "1s" }],
            }],
        })
    }
}

/// Of a duration such as `5m`.
pub fn seconds(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let each = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => panic!("{text}"),
    };
    number.parse::<u64>().unwrap() * each
}

/// An entry of a Secret in the namespace of the installation, once it is there.
async fn secret(bed: &Bed, selected: &Value, what: &str) -> Vec<u8> {
    let secrets: Api<Secret> = Api::namespaced(bed.admin().unwrap(), names::INSTALL_NAMESPACE);
    let (name, key) = (selected["name"].as_str().unwrap(), selected["key"].as_str().unwrap());
    let filled = || async { Some(secrets.get(name).await.ok()?.data?.get(key)?.0.clone()) };
    wait::eventually(SOON, filled, what).await.unwrap()
}

/// A running server.
pub struct Prometheus {
    pub program: Program,
    address: String,
    targets: PathBuf,
}

impl Prometheus {
    /// With the rules of the installation, but that alerts fire after a time that is so many times shorter.
    pub async fn start(bed: &Bed, hastened: u32) -> Self {
        let mut scraping = Scraping::install(bed).await;
        scraping.hasten(hastened);
        let targets = bed.dir().join("targets.json");
        let configuration = scraping.configuration(bed, &targets.display().to_string()).await;
        let file = bed.dir().join("prometheus.yaml");
        std::fs::write(&file, configuration.to_string()).unwrap();
        let address = format!("127.0.0.1:{}", ports::free().unwrap());
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", bed.dir().join("prometheus").display()),
            format!("--web.listen-address={address}"),
        ];
        let program = bed.program("prometheus", prometheus().unwrap().server, args, []).unwrap();
        Self { program, address, targets }
    }

    /// These are scraped from now on, and no others; returns when each has been.
    pub async fn scrape(&self, targets: &[String]) {
        // The server reads the file when it changes: never a half of it.
        let new = self.targets.with_extension("new");
        std::fs::write(&new, json!([{ "targets": targets }]).to_string()).unwrap();
        std::fs::rename(&new, &self.targets).unwrap();
        for target in targets {
            let up = format!("up{{instance=\"{target}\"}}");
            let is_up = || async { (self.value(&up).await? > 0.5).then_some(()) };
            wait::eventually(SOON, is_up, &format!("{target} to be scraped")).await.unwrap();
        }
    }

    /// What the server answers, if it answers well.
    pub async fn ask(&self, path: &str) -> Option<Value> {
        let (code, text) = get(&self.address, path).await.ok().filter(|(code, _)| *code != 503)?;
        assert!(code < 400, "{path}: {code}: {text}");
        Some(serde_json::from_str::<Value>(&text).ok()?["data"].take())
    }

    /// The series of a query, with their values now.
    pub async fn query(&self, query: &str) -> Option<Vec<Value>> {
        let mut encoded = String::new();
        for byte in query.bytes() {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        let data = self.ask(&format!("/api/v1/query?query={encoded}")).await?;
        data["result"].as_array().cloned().filter(|series| !series.is_empty())
    }

    /// The value of a query with one series.
    pub async fn value(&self, of: &str) -> Option<f64> {
        self.query(of).await?[0]["value"][1].as_str()?.parse().ok()
    }

    /// All rules, with their state.
    pub async fn rules(&self) -> Option<Vec<Value>> {
        let data = self.ask("/api/v1/rules").await?;
        let rules = data["groups"].as_array()?.iter().flat_map(|group| group["rules"].as_array());
        Some(rules.flatten().cloned().collect())
    }
}
