//! What a pod's event costs the gate, and what is planned to be written each second, without a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_e2e::objects::from_json;
use sluice_engine::Quantity;
pub(super) use sluice_gate::cluster_quota_status::MIRRORS;
use sluice_gate::cluster_quota_status::{MirrorNamespaces, Planner, Write};
use sluice_gate::{Action, Answer, Moment, Outcome, Record, RecordedObject, State};
use sluice_index::{AcrqWire, PodWire, Source};

use crate::objects::{self, NOW};
use crate::pod_json::mix;
use crate::report::{median, ms, quantile, say};

const QUOTA: &str = "bench";
/// Pods that come or go in each second of which the writes are counted;
/// odd, so that it makes a difference in one namespace too.
const CHANGES: u64 = 501;

/// What was measured of so many namespaces.
#[derive(Serialize)]
pub(super) struct Many {
    namespaces: u64,
    pub(super) ns_per_event: f64,
    p99_ns_per_event: f64,
    event: &'static str,
    writes_per_s: Value,
    changes_per_s: u64,
    plan_ms_per_s: f64,
    bytes: Bytes,
}

/// Of the largest objects that were written.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Bytes {
    pub(super) quota: usize,
    pub(super) mirror: usize,
}

const EVENT: &str = "a pod of a namespace comes or goes: applied to the gate's state, \
                     with the round of decisions that follows";

impl Many {
    pub(super) fn measure(namespaces: u64, quick: bool) -> anyhow::Result<Self> {
        say(&format!("cluster_quota: {namespaces} namespaces under one quota, no server"));
        let mut world = World::new(namespaces);
        let mut events = world.events(if quick { 2_000 } else { 20_000 });
        let mut seconds = Vec::new();
        let mut time = Vec::new();
        // At first the mirrors are created: what follows is what there is to write of changes.
        let created = namespaces.div_ceil(MIRRORS as u64) + 1;
        let counted = if quick { 5 } else { 20 };
        for second in 0..created + counted {
            for _ in 0..CHANGES {
                world.event();
            }
            let begin = Instant::now();
            let writes = world.second();
            let took = ms(begin.elapsed());
            let count = world.write(writes)?;
            let (statuses, mirrors) = count;
            ensure!(statuses <= 1 && mirrors <= MIRRORS, "{count:?} statuses and mirrors in a second");
            if second >= created {
                seconds.push(count);
                time.push(took);
            }
        }
        #[allow(clippy::cast_precision_loss)]
        let per_s = |of: fn(&(usize, usize)) -> usize| {
            seconds.iter().map(of).sum::<usize>() as f64 / seconds.len() as f64
        };
        Ok(Self {
            namespaces,
            ns_per_event: median(&mut events),
            p99_ns_per_event: quantile(&mut events, 0.99),
            event: EVENT,
            writes_per_s: json!({
                "status": per_s(|(statuses, _)| *statuses), "mirrors": per_s(|(_, mirrors)| *mirrors),
            }),
            changes_per_s: CHANGES,
            plan_ms_per_s: median(&mut time),
            bytes: world.bytes,
        })
    }

    pub(super) fn largest(&self) -> usize {
        self.bytes.quota.max(self.bytes.mirror)
    }
}

/// The gate and what shows cluster quotas, beside an API server that does all they ask for.
struct World {
    state: State,
    planner: Planner,
    namespaces: u64,
    quota: Value,
    /// The pod that each namespace has besides the first one.
    pods: BTreeMap<u64, PodWire>,
    made: u64,
    version: u64,
    now: Moment,
    bytes: Bytes,
}

impl World {
    /// Each namespace has a pod that runs, and what is charged is recorded.
    fn new(namespaces: u64) -> Self {
        let (mut state, now) = (objects::state(), NOW);
        let hard = json!({"pods": "100k", "requests.cpu": "100k", "requests.memory": "1Pi"});
        let quota = json!({
            "metadata": {"name": QUOTA, "uid": QUOTA, "resourceVersion": "1"},
            "spec": {"quota": {"hard": hard}, "selector": {"labels": {"matchLabels": {QUOTA: "true"}}}},
            "status": {"total": {"hard": hard, "used": {}}},
        });
        state.allow_cluster_quotas(true, now);
        for number in 0..namespaces {
            objects::apply_namespace(&mut state, &namespace(number), &json!({QUOTA: "true"}));
        }
        state.apply_cluster_quota(&from_json(quota.clone()), now);
        state.apply_charge(&from_json(charge(1, &json!({"hard": hard, "used": {}, "charges": 1}))), now);
        state.begin_pods();
        for number in 0..namespaces {
            state.apply_pod(&pod(number, "first"), now);
        }
        state.end_pods();
        state.lead(now);
        let mut planner = Planner::new(MirrorNamespaces::Own, 1);
        planner.apply_quota(&from_json(quota.clone()), Source::Watch);
        let (pods, bytes) = (BTreeMap::new(), Bytes::default());
        let mut world = Self { state, planner, namespaces, quota, pods, made: 0, version: 1, now, bytes };
        while world.state.next_due_ms(world.now) == Some(0) {
            let actions = world.state.plan(world.now);
            world.settle(actions);
        }
        world
    }

    /// So many events; how long each took (nanoseconds).
    fn events(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.event()).collect()
    }

    /// In a namespace at random a pod comes, or that which came goes; and the round that follows, which records it.
    fn event(&mut self) -> f64 {
        let number = mix(self.made) % self.namespaces;
        self.made += 1;
        self.now.mono_ms += 60;
        let known = self.pods.remove(&number);
        let coming = if known.is_none() { Some(pod(number, "second")) } else { None };
        let begin = Instant::now();
        if let Some(pod) = &known {
            self.state.delete_pod(pod);
        }
        if let Some(pod) = &coming {
            self.state.apply_pod(pod, self.now);
        }
        let actions = self.state.plan(self.now);
        let took = begin.elapsed().as_secs_f64() * 1e9;
        if let Some(pod) = coming {
            self.pods.insert(number, pod);
        }
        self.settle(actions);
        took
    }

    fn settle(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Action::Record(record) = action {
                self.version += 1;
                let object = RecordedObject::Charge(from_json(recorded(&record, self.version)));
                let outcome = Outcome::Recorded(record.quota, record.uid, Answer::Done(object));
                self.state.on_outcome(outcome, self.now);
            }
        }
    }

    /// What is written after a second, as in the loop that shows cluster quotas.
    fn second(&mut self) -> Vec<Write> {
        for id in self.state.take_changed_clusters() {
            let all = self.planner.needs_all(id);
            let names = self.state.take_changed_namespaces(id, all).unwrap_or_default();
            let names: Vec<Arc<str>> = names.into_iter().collect();
            if let Some(view) = self.state.cluster_view(id, &names) {
                self.planner.show(view, all);
            }
        }
        self.planner.plan(MIRRORS, self.now)
    }

    /// Does the writes: how many statuses and how many mirrors.
    fn write(&mut self, writes: Vec<Write>) -> anyhow::Result<(usize, usize)> {
        let (mut statuses, mut mirrors) = (0, 0);
        for write in writes {
            self.planner.done(&write);
            self.version += 1;
            let version = self.version.to_string();
            match write {
                Write::Status(_, object) => {
                    statuses += 1;
                    self.bytes.quota = self.bytes.quota.max(object.to_string().len());
                    let written = json!({
                        "metadata": {"resourceVersion": version}, "status": object.get("status"),
                    });
                    json_patch::merge(&mut self.quota, &written);
                    self.planner.apply_quota(&from_json::<AcrqWire>(self.quota.clone()), Source::Answer);
                }
                Write::Create((_, namespace), mut object) | Write::Replace((_, namespace), mut object) => {
                    mirrors += 1;
                    self.bytes.mirror = self.bytes.mirror.max(object.to_string().len());
                    let written = json!({"metadata": {"uid": *namespace, "resourceVersion": version}});
                    json_patch::merge(&mut object, &written);
                    self.planner.apply_mirror(&from_json(object), Source::Answer);
                }
                Write::Delete((_, namespace), _) => bail!("the mirror in {namespace} is deleted"),
            }
        }
        Ok((statuses, mirrors))
    }
}

fn namespace(number: u64) -> String {
    format!("namespace-{number:05}")
}

fn pod(number: u64, name: &str) -> PodWire {
    let requests = json!({"cpu": "100m", "memory": "64Mi"});
    objects::pod(&namespace(number), name, &requests, &objects::runs())
}

fn charge(version: u64, status: &Value) -> Value {
    let metadata = json!({"name": QUOTA, "uid": "charge", "resourceVersion": version.to_string()});
    json!({"metadata": metadata, "status": status})
}

fn recorded(record: &Record, version: u64) -> Value {
    let texts = |list: &[(String, Quantity)]| {
        let texts = list.iter().map(|(key, amount)| (key.clone(), json!(amount.to_string())));
        Value::Object(texts.collect())
    };
    let (hard, used) = (texts(&record.target.hard), texts(&record.target.used));
    charge(version, &json!({"hard": hard, "used": used, "charges": record.charges}))
}
