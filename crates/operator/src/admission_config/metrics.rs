//! How often another client's change of an admission object was put back.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::observe::Kind;

/// Longest name of a field manager that is shown, in characters.
const MANAGER: usize = 64;
/// Who is shown once there are so many managers: a client may call itself something else each time.
const OTHERS: &str = "others";
const MANAGERS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Contest {
    object: String,
    manager: String,
}

/// Counts what is put back, by object and by whose change it was; clones count together.
#[derive(Clone, Debug, Default)]
pub struct AdmissionMetrics {
    contests: Family<Contest, Counter>,
    managers: Arc<Mutex<BTreeSet<String>>>,
}

impl AdmissionMetrics {
    /// Registers `sluice_admission_contests_total`.
    pub fn register(&self, registry: &mut Registry) {
        let text = "Changes of admission objects by other clients that the operator has put back";
        registry.register("sluice_admission_contests", text, self.contests.clone());
    }

    pub(super) fn put_back(&self, kind: Kind, manager: &str) {
        let mut known = self.managers.lock();
        let mut manager: String = manager.chars().take(MANAGER).collect();
        if manager.is_empty() || !known.contains(&manager) && known.len() >= MANAGERS {
            OTHERS.clone_into(&mut manager);
        } else {
            known.insert(manager.clone());
        }
        let object = format!("{}/{}", kind.resource().plural, kind.name());
        self.contests.get_or_create(&Contest { object, manager }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_change_their_name_are_counted_together() {
        let metrics = AdmissionMetrics::default();
        for number in 0..1000 {
            metrics.put_back(Kind::Mutating, &format!("client-{number}"));
        }
        metrics.put_back(Kind::Mutating, &"x".repeat(1000));
        metrics.put_back(Kind::Validating, "client-3");
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), MANAGERS + 2, "{text}");
        let object = Kind::Mutating.name();
        let others = format!(
            "sluice_admission_contests_total{{object=\"mutatingwebhookconfigurations/{object}\",manager=\"others\"}} {}",
            1000 - MANAGERS + 1
        );
        assert!(lines.contains(&others.as_str()), "{text}");
    }
}
