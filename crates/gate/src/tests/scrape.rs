//! A scrape does not keep the gate from working.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;
use sluice_index::{ArqWire, NamespaceWire, Targeting};

use super::server::{GATE, wire};
use super::team::NAMESPACE;
use crate::{GateConfig, Moment, QuotaCollector, State};

const QUOTAS: usize = 300;

/// Takes the text of a scrape, and the gate's lock with each piece of it.
struct Free(Arc<Mutex<State>>, String);

impl fmt::Write for Free {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        drop(self.0.try_lock().ok_or(fmt::Error)?);
        self.1.push_str(text);
        Ok(())
    }
}

#[test]
fn the_text_of_a_scrape_is_written_outside_of_the_lock() {
    let config = GateConfig::new(GATE, sluice_engine::ChargeRules::for_minor(36));
    let mut state =
        State::new(config, Targeting::new(kube::core::Selector::default(), super::own_namespace()));
    let now = Moment { mono_ms: 0, unix_ms: 0 };
    let namespace = json!({"metadata": {"name": NAMESPACE, "uid": "n", "resourceVersion": "1"}});
    state.apply_namespace(&wire::<NamespaceWire>(namespace), now);
    for number in 0..QUOTAS {
        let quota = json!({
            "metadata": {
                "name": format!("q-{number}"), "namespace": NAMESPACE, "uid": format!("u-{number}"),
                "resourceVersion": "2", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"hard": {"pods": "3", "requests.cpu": "2"}},
        });
        state.apply_quota(&wire::<ArqWire>(quota), now);
    }
    let state = Arc::new(Mutex::new(state));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(QuotaCollector(Arc::clone(&state))));
    let mut free = Free(state, String::new());
    prometheus_client::encoding::text::encode(&mut free, &registry).expect("the lock is free all the time");
    let of = |start: &str| free.1.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(of("kube_application_aware_resourcequota{"), QUOTAS * 4, "hard and used of two resources");
    assert_eq!(of("kube_application_aware_resourcequota_creation_timestamp_seconds{"), QUOTAS);
    assert_eq!(of("sluice_quota_held_pods{"), QUOTAS);
}
