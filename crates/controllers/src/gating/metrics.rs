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
    /// Registers `gate_*`. Each value of the label is shown from now on.
    pub fn register(&self, registry: &mut Registry) {
        self.set(std::iter::empty());
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
    use super::WORDS;

    #[test]
    fn the_words_that_the_alert_about_pods_without_a_gate_names_are_served() {
        for word in ["nothing", "refused"] {
            assert!(WORDS.contains(&word), "{word}");
        }
    }
}
