//! A scrape does not keep the gate from working.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;
use sluice_index::{ArqWire, NamespaceWire, Targeting};
use sluice_runtime::clock::ServerClock;

use super::server::{GATE, wire};
use super::stories::{Story, at};
use super::team::{NAMESPACE, QUOTA};
use crate::{GateConfig, GateMetrics, Moment, QuotaCollector, Regarding, State};

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

fn state() -> State {
    let config = GateConfig::new(GATE, sluice_engine::ChargeRules::for_minor(36));
    State::new(config, Targeting::new(kube::core::Selector::default(), super::own_namespace()))
}

fn collector(state: &Arc<Mutex<State>>) -> QuotaCollector {
    let clock = ServerClock::default();
    clock.observe(Some(jiff::Timestamp::now()));
    QuotaCollector { state: Arc::clone(state), clock: Arc::new(clock), metrics: GateMetrics::default() }
}

fn scrape(state: State) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector(&Arc::new(Mutex::new(state)))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn the_text_of_a_scrape_is_written_outside_of_the_lock() {
    let mut state = state();
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
    state.lead(now);
    let state = Arc::new(Mutex::new(state));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector(&state)));
    let mut free = Free(state, String::new());
    prometheus_client::encoding::text::encode(&mut free, &registry).expect("the lock is free all the time");
    let of = |start: &str| free.1.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(of("kube_application_aware_resourcequota{"), QUOTAS * 4, "hard and used of two resources");
    assert_eq!(of("kube_application_aware_resourcequota_creation_timestamp_seconds{"), QUOTAS);
    assert_eq!(of("sluice_quota_held_pods{"), QUOTAS);
}

#[test]
fn how_long_a_scrape_locked_the_state_is_told_by_the_next_one() {
    let (metrics, mut registry) = (GateMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let collector = QuotaCollector { metrics, ..collector(&Arc::new(Mutex::new(state()))) };
    registry.register_collector(Box::new(collector));
    let locks = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        value(&text, "sluice_gate_lock_hold_seconds_count{by=\"scrape\"}")
    };
    assert_eq!(locks(), None);
    assert_eq!(locks(), Some(1.0), "it does not lead, so it looks once");
}

/// One of two replicas says what both see, so that a sum over both is right.
#[test]
fn the_leader_alone_tells_of_quotas() {
    let mut story = Story::begin();
    story.server.set_hard(1000);
    story.see_all(at(0));
    let state = std::mem::replace(&mut story.state, state());
    let text = scrape(state);
    assert_eq!(value(&text, "sluice_index_quotas"), Some(1.0), "{text}");
    for name in ["kube_application_aware_resourcequota", "sluice_quota", "sluice_held_pods", "sluice_paused"]
    {
        assert!(!text.contains(name), "{name}: {text}");
    }
}

#[test]
fn held_pods_are_counted_by_the_reason_that_their_events_have() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("runs", 800, 0);
    story.see_all(at(0));
    story.run(at(0));
    for (name, milli) in [("big", 500), ("bigger", 600), ("huge", 5000)] {
        story.server.create_pod(name, milli, 0);
    }
    story.see_all(at(0));
    story.run(at(0));
    story.state.check_held();
    let mut told: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for event in story.told.iter().filter(|event| matches!(event.regarding, Regarding::Pod(_))) {
        told.entry(event.reason).or_default().insert(&event.name);
    }
    let counted: BTreeMap<_, _> =
        story.state.held_by_reason().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, BTreeMap::from([("QuotaExceeded", 2), ("ExceedsLimit", 1)]));
    let told: BTreeMap<_, _> = told.iter().map(|(reason, pods)| (*reason, pods.len())).collect();
    assert_eq!(counted, told);
    let text = scrape(std::mem::replace(&mut story.state, state()));
    assert_eq!(value(&text, "sluice_held_pods{reason=\"ExceedsLimit\"}"), Some(1.0), "{text}");
    assert_eq!(value(&text, "sluice_held_pods{reason=\"ReleaseRefused\"}"), Some(0.0), "{text}");
    let series = format!("{{resourcequota=\"{QUOTA}\",namespace=\"{NAMESPACE}\"}}");
    assert_eq!(value(&text, &format!("sluice_quota_held_pods{series}")), Some(3.0), "{text}");
    let oldest = value(&text, &format!("sluice_quota_oldest_wait_seconds{series}"));
    assert!(oldest.is_some_and(|seconds| seconds >= 0.0), "{text}");
    assert_eq!(value(&text, "sluice_paused"), Some(0.0), "{text}");
}

#[test]
fn a_quota_for_which_none_waits_has_no_oldest_pod() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.see_all(at(0));
    story.run(at(0));
    let text = scrape(std::mem::replace(&mut story.state, state()));
    assert!(
        text.contains("sluice_quota_held_pods{") && !text.contains("sluice_quota_oldest_wait_seconds{"),
        "{text}"
    );
}
