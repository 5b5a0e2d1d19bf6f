//! What alerts and dashboards ask for is what the processes register.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use std::path::Path;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use sluice_api::names;
use sluice_controllers::gating::GatingMetrics;
use sluice_engine::ChargeRules;
use sluice_gate::{GateConfig, GateMetrics, Moment, QuotaCollector, State};
use sluice_headroom::HeadroomMetrics;
use sluice_headroom::loops::{BlockedCollector, LoopMetrics};
use sluice_index::Targeting;
use sluice_manifests::{InstallOptions, Monitoring, monitoring_objects};
use sluice_operator::admission_config::AdmissionMetrics;
use sluice_runtime::about::About;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::tls::Validity;
use sluice_webhook::WebhookMetrics;

/// The metrics of all three processes.
struct Known {
    served: String,
    /// Also families of which there is no series yet.
    registered: String,
}

impl Known {
    fn new() -> Self {
        let mut registry = Registry::default();
        GateMetrics::default().register(&mut registry);
        LoopMetrics::default().register(&mut registry);
        AdmissionMetrics::default().register(&mut registry);
        let _ = WebhookMetrics::register(&mut registry);
        let ours = registry.sub_registry_with_prefix("sluice");
        HeadroomMetrics::default().register(ours);
        GatingMetrics::default().register(ours);
        ApiWrites::default().register(ours);
        let targeting = Targeting::new(kube::core::Selector::default(), Arc::from([]));
        let mut gate = State::new(GateConfig::new(names::GATE, ChargeRules::for_minor(36)), targeting);
        gate.lead(Moment { mono_ms: 0, unix_ms: 0 });
        registry.register_collector(Box::new(QuotaCollector {
            state: Arc::new(gate.into()),
            clock: Arc::default(),
            metrics: GateMetrics::default(),
        }));
        registry.register_collector(Box::new(BlockedCollector(Arc::default())));
        let now = jiff::Timestamp::UNIX_EPOCH;
        let about = About::new("controller", "1")
            .certificate("serving", move || Some(Validity { from: now, until: now }));
        registry.register_collector(Box::new(about));
        let mut served = String::new();
        encode(&mut served, &registry).unwrap();
        Self { served, registered: format!("{registry:?}") }
    }

    /// Whether it is the name of a series, or of a family that has a prefix and the rest of the name.
    fn has(&self, name: &str) -> bool {
        let ends = ["_total", "_bucket", "_sum", "_count"];
        let family = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let is_typed = self.served.lines().any(|line| {
            let words: Vec<_> = line.split(' ').collect();
            words.first() == Some(&"#") && words.get(1) == Some(&"TYPE") && words.get(2) == Some(&family)
        });
        let is_named = |name: &str| self.registered.contains(&format!("name: {name:?}"));
        let is_split = family.match_indices('_').any(|(at, _)| {
            let (prefix, rest) = family.split_at(at);
            let rest = rest.trim_start_matches('_');
            self.registered.contains(&format!("Prefix({prefix:?})"))
                && (is_named(rest) || rest.strip_suffix("_seconds").is_some_and(is_named))
        });
        is_typed || is_named(family) || family.strip_suffix("_seconds").is_some_and(is_named) || is_split
    }
}

/// Names of series in queries, however deep they are.
fn names_in(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(query) = fields.get("expr").and_then(Value::as_str) {
                let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let is_series = |word: &&str| word.starts_with("sluice_") || word.starts_with("kube_");
                let series: Vec<_> = words.filter(is_series).map(str::to_owned).collect();
                assert!(!series.is_empty(), "{query}");
                found.extend(series);
            }
            fields.values().for_each(|field| names_in(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| names_in(item, found)),
        _ => {}
    }
}

#[test]
fn every_series_of_alerts_and_dashboards_is_registered() {
    let known = Known::new();
    for name in ["sluice_made_up", "sluice_headroom_made_up", "sluice_target", "sluice_headroom_target_total"]
    {
        assert!(!known.has(name), "{name}");
    }
    let monitoring = Monitoring { rules: true, ..Monitoring::default() };
    let mut found = Vec::new();
    for object in monitoring_objects(&InstallOptions { monitoring, ..InstallOptions::default() }) {
        names_in(&object, &mut found);
    }
    assert!(found.len() >= 10);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring/grafana");
    for name in ["quotas", "operations"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let before = found.len();
        names_in(&serde_json::from_str(&text).unwrap(), &mut found);
        assert!(found.len() > before, "{name}");
    }
    for name in &found {
        // Without a lease there is none.
        assert!(name == "sluice_leader" || known.has(name), "{name} is not registered");
    }
}
