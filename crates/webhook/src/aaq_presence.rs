//! Whether an `AAQ` exists and what it allows, from the events of a watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::NamespacePattern;
use sluice_index::{AaqWire, Aaqs, Targeting, Watched as _};
use sluice_runtime::watch::Event;

use crate::settings::AaqPresence;

/// The `AAQ` objects seen so far.
#[derive(Debug, Default)]
pub struct AaqSightings {
    aaqs: Aaqs,
    is_listed: bool,
}

impl AaqSightings {
    /// Applies an event of the watch. Returns what verdicts may rely on from then on.
    pub fn apply(&mut self, event: &Event<AaqWire>) -> AaqPresence {
        self.aaqs.apply(event);
        self.is_listed |= matches!(event, Event::InitDone);
        match self.aaqs.holding() {
            _ if !self.is_listed => AaqPresence::Unknown,
            None => AaqPresence::Absent,
            Some(aaq) => AaqPresence::Present {
                cluster_quotas: aaq.cluster_quotas,
                calculator: aaq.calculator,
                gives_way: aaq.gives_way,
            },
        }
    }

    /// Names of the sidecars that it has.
    #[must_use]
    pub fn sidecars(&self) -> BTreeSet<String> {
        self.aaqs.holding().map(|aaq| aaq.sidecars.clone()).unwrap_or_default()
    }

    /// Which namespaces are targeted, but for those that are `exempt`; `None` as long as that is not known.
    pub fn targeting(&self, exempt: &Arc<[NamespacePattern]>) -> Option<Targeting> {
        // The leading controller tells what is wrong with the selector.
        self.is_listed.then(|| Targeting::by(&self.aaqs, exempt).0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test stops at the first thing that is not as it must be"
    )]

    use serde_json::json;
    use sluice_engine::vm::Calculator;

    use super::*;

    #[test]
    fn nothing_is_claimed_before_the_first_list_is_complete() {
        let aaq = || serde_json::from_str(r#"{"metadata": {"name": "aaq", "uid": "u"}}"#).unwrap();
        let mut aaqs = AaqSightings::default();
        let seen = [
            Event::Init,
            Event::InitApply(aaq()),
            // The list broke off.
            Event::Init,
            Event::InitDone,
            Event::Apply(aaq()),
            Event::Init,
            Event::Delete(aaq()),
        ]
        .map(|event| aaqs.apply(&event));
        let (unknown, absent) = (AaqPresence::Unknown, AaqPresence::Absent);
        let calculator = Calculator::DedicatedVirtualResources;
        let present = AaqPresence::Present { cluster_quotas: false, calculator, gives_way: false };
        assert_eq!(seen, [unknown, unknown, unknown, absent, present, present, absent]);
        assert!(AaqSightings::default().targeting(&[].into()).is_none());
        let text = |aaqs: &AaqSightings| aaqs.targeting(&[].into()).unwrap().selector_text().to_owned();
        assert_eq!(text(&aaqs), sluice_api::names::TARGET_LABEL);
    }

    #[test]
    fn what_counts_is_what_the_oldest_allows() {
        let aaq = |name: &str, time: &str, allows: bool, calculator: &str| {
            let metadata = json!({ "name": name, "uid": name, "creationTimestamp": time });
            let configuration = json!({
                "allowApplicationAwareClusterResourceQuota": allows,
                "vmiCalculatorConfiguration": { "configName": calculator },
            });
            serde_json::from_value(
                json!({ "metadata": metadata, "spec": { "configuration": configuration } }),
            )
            .unwrap()
        };
        let mut aaqs = AaqSightings::default();
        let events = [
            Event::InitDone,
            Event::Apply(aaq("young", "2026-02-01T00:00:00Z", false, "VirtualResources")),
            Event::Apply(aaq("old", "2026-01-01T00:00:00Z", true, "VmiPodUsage")),
        ];
        let seen = events.map(|event| aaqs.apply(&event));
        let present = |cluster_quotas, calculator| AaqPresence::Present {
            cluster_quotas,
            calculator,
            gives_way: false,
        };
        assert_eq!(seen[1], present(false, Calculator::VirtualResources));
        assert_eq!(seen[2], present(true, Calculator::VmiPodUsage));
    }
}
