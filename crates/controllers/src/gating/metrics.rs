//! How many API servers gate pods, and by what.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::probe::Seen;

/// All values that the label can have: one that is 0 is shown too.
const WORDS: [&str; 5] = ["policy", "webhook", "refused", "nothing", "unknown"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct By {
    by: &'static str,
}

/// Gauges of API servers.
#[derive(Clone, Debug, Default)]
pub struct GatingMetrics {
    gates: Family<By, Gauge>,
    last_words: Family<By, Gauge>,
}

impl GatingMetrics {
    /// Registers `gate_*`.
    pub fn register(&self, registry: &mut Registry) {
        let ours = registry.sub_registry_with_prefix("gate");
        let text = "API servers by what became of a pod when last asked: gated by policy or webhook, \
                    refused, or let in by nothing";
        ours.register("api_servers", text, self.gates.clone());
        let text = "API servers by what refuses pods that are not gated";
        ours.register("last_word_api_servers", text, self.last_words.clone());
    }

    pub(super) fn set<'s>(&self, seen: impl Iterator<Item = &'s Seen> + Clone) {
        let count = |word: &str, of: fn(&Seen) -> &'static str| {
            let number = seen.clone().filter(|seen| of(seen) == word).count();
            i64::try_from(number).unwrap_or(i64::MAX)
        };
        for by in WORDS {
            self.gates.get_or_create(&By { by }).set(count(by, |seen| seen.gates.word()));
            self.last_words.get_or_create(&By { by }).set(count(by, |seen| seen.last_word.word()));
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use sluice_operator::{InstallOptions, Monitoring, monitoring_objects};
    use sluice_headroom::HeadroomMetrics;

    use super::*;
    use crate::gate::GateMetrics;

    /// The alerts that are shipped, of series that a controller serves.
    #[test]
    fn every_series_of_an_alert_is_served() {
        let mut registry = Registry::default();
        GateMetrics::default().register(&mut registry);
        let ours = registry.sub_registry_with_prefix("sluice");
        HeadroomMetrics::default().register(ours);
        let gating = GatingMetrics::default();
        gating.register(ours);
        gating.set([].iter());
        let mut served = String::new();
        encode(&mut served, &registry).unwrap();

        let monitoring = Monitoring { rules: true, ..Monitoring::default() };
        let objects = monitoring_objects(&InstallOptions { monitoring, ..InstallOptions::default() });
        let rules = objects[0].pointer("/spec/groups/0/rules").unwrap().as_array().unwrap();
        assert!(rules.len() >= 5);
        for rule in rules {
            let expression = rule["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let series: Vec<_> = words.filter(|word| word.starts_with("sluice_")).collect();
            assert!(!series.is_empty(), "{expression}");
            for name in series {
                let is_it =
                    |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
                assert!(served.lines().any(is_it), "{name} is not served:\n{served}");
            }
        }
        for word in ["nothing", "refused"] {
            assert!(WORDS.contains(&word), "the alert about pods without a gate names it");
        }
    }
}
