//! Pods that are created all the time in a gated namespace with a quota, and what became of them.
//!
//! One watch says in which order pods are released and go, so the most that ran at a time is the most there ever was.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use sluice_runtime::client::{ClientOptions, connect};
use sluice_testbed::kubevirt::Vm;
use sluice_testbed::{Identity, wait};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::objects::{self, is_held, pod_without_node};
use crate::tenant::SOON;

pub const QUOTA: &str = "traffic";

/// How much is created.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Time between two creations.
    pub every: Duration,
    /// So many may run at a time.
    pub limit: usize,
    /// How long each runs.
    pub life: Duration,
}

/// What became of the pods.
#[derive(Debug, Default)]
pub struct Outcome {
    /// So many were created.
    pub created: usize,
    /// What refused ones were told.
    pub refused: Vec<String>,
    /// Names of those that came in without the gate.
    pub ungated: Vec<String>,
    /// The most that ran at a time.
    pub most: usize,
    /// The longest time in which pods waited and none was released.
    pub pause: Duration,
    /// How often the watch began anew with a list.
    pub lists: usize,
}

impl Outcome {
    /// Nothing was refused, nothing came in without a gate, and the quota was never overrun.
    pub fn assert_right(&self, load: Load) {
        assert!(self.created > 0, "{self:#?}");
        assert_eq!((&self.refused, &self.ungated), (&Vec::new(), &Vec::new()), "of {}", self.created);
        assert!(self.most <= load.limit, "{} ran where {} may: {self:?}", self.most, load.limit);
    }
}

/// Running creations.
pub struct Traffic {
    over: Arc<AtomicBool>,
    creating: JoinHandle<Outcome>,
    watching: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

/// What the watch showed.
#[derive(Debug, Default)]
struct Seen {
    running: BTreeSet<String>,
    waiting: BTreeSet<String>,
    most: usize,
    pause: Duration,
    lists: usize,
    /// Since when pods wait and none was released.
    since: Option<Instant>,
}

impl Seen {
    /// Whether the pod is released, and was not before.
    fn apply(&mut self, pod: &Pod) -> bool {
        let name = pod.name_any();
        if takes_no_more(pod) {
            self.delete(&name);
            return false;
        }
        if is_held(pod) {
            self.waiting.insert(name);
            self.since.get_or_insert_with(Instant::now);
            return false;
        }
        self.waiting.remove(&name);
        let is_new = self.running.insert(name);
        if is_new {
            self.most = self.most.max(self.running.len());
            self.released();
        }
        is_new
    }

    /// All pods at one resource version; returns those that are released and were not before. What has gone goes
    /// first, as it did: who came later may have taken its room.
    fn list(&mut self, pods: &[Pod]) -> Vec<String> {
        self.lists += 1;
        let listed: BTreeSet<String> = pods.iter().map(Pod::name_any).collect();
        let gone: Vec<String> =
            self.waiting.union(&self.running).filter(|name| !listed.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.delete(name));
        pods.iter().filter(|pod| self.apply(pod)).map(Pod::name_any).collect()
    }

    fn delete(&mut self, name: &str) {
        self.waiting.remove(name);
        self.running.remove(name);
        if self.waiting.is_empty() {
            self.released();
        }
    }

    fn released(&mut self) {
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.pause = self.pause.max(waited);
        if !self.waiting.is_empty() {
            self.since = Some(Instant::now());
        }
    }
}

/// A pod without a period of grace that is left counts for no quota (`QuotaV1Pod` in Kubernetes'
/// `pkg/quota/v1/evaluator/core/pods.go`). The API server stores that first and deletes the pod then; on a busy one
/// another pod may be released in between.
fn takes_no_more(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

impl Traffic {
    /// Creates the quota and starts, as this identity, with a client that tries nothing again by itself.
    pub async fn start(who: &Identity, namespace: &str, load: Load) -> Self {
        let kubeconfig = Some(who.kubeconfig().to_owned());
        let client = connect(&ClientOptions { kubeconfig, ..ClientOptions::default() }).await.unwrap();
        let quota = objects::quota(QUOTA, &[("pods", &load.limit.to_string())]);
        let created = || async { objects::create(&client, namespace, &quota).await.ok() };
        wait::eventually(SOON, created, "the quota to be created").await.unwrap();
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let (over, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let watching = tokio::spawn(watch(pods.clone(), Arc::clone(&seen), load.life));
        let creating = tokio::spawn(create(pods, Arc::clone(&over), load.every));
        Self { over, creating, watching, seen }
    }

    /// Ends the creations; returns when all that was created was released and is gone.
    pub async fn end(self) -> Outcome {
        self.over.store(true, Ordering::SeqCst);
        let mut outcome = self.creating.await.unwrap();
        let gone = || async {
            let seen = self.seen.lock().unwrap();
            (seen.waiting.is_empty() && seen.running.is_empty()).then_some(())
        };
        wait::eventually(2 * SOON, gone, "all pods to be released").await.unwrap();
        self.watching.abort();
        let seen = self.seen.lock().unwrap();
        (outcome.most, outcome.pause, outcome.lists) = (seen.most, seen.pause, seen.lists);
        outcome
    }
}

/// Migrates the VM again and again until `over`, and counts. Each has to succeed.
pub async fn migrations(vm: &Vm, count: &AtomicUsize, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// Each at its time, whatever became of those before.
async fn create(pods: Api<Pod>, over: Arc<AtomicBool>, every: Duration) -> Outcome {
    let (mut ticks, mut under_way, mut count) = (interval(every), JoinSet::new(), 0_usize);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut outcome = Outcome::default();
    let take = |outcome: &mut Outcome, (name, answer): (String, kube::Result<Pod>)| match answer {
        Ok(pod) if is_held(&pod) => outcome.created += 1,
        Ok(_) => outcome.ungated.push(name),
        Err(error) => outcome.refused.push(format!("{name}: {error}")),
    };
    while !over.load(Ordering::SeqCst) {
        ticks.tick().await;
        let (pods, name) = (pods.clone(), format!("p-{count}"));
        count += 1;
        under_way.spawn(async move {
            let answer = pods.create(&PostParams::default(), &pod_without_node(&name, &[])).await;
            (name, answer)
        });
        while let Some(done) = under_way.try_join_next() {
            take(&mut outcome, done.unwrap());
        }
    }
    for done in under_way.join_all().await {
        take(&mut outcome, done);
    }
    outcome
}

/// Deletes each pod some time after it was released.
async fn watch(pods: Api<Pod>, seen: Arc<Mutex<Seen>>, life: Duration) {
    let mut events = std::pin::pin!(watcher::watcher(pods.clone(), watcher::Config::default()));
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let mut seen = seen.lock().unwrap();
        let released = match event {
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(pod)) => {
                listed.push(pod);
                Vec::new()
            }
            Ok(Event::InitDone) => seen.list(&std::mem::take(&mut listed)),
            Ok(Event::Apply(pod)) => seen.apply(&pod).then(|| pod.name_any()).into_iter().collect(),
            Ok(Event::Delete(pod)) => {
                seen.delete(&pod.name_any());
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        for name in released {
            tokio::spawn(delete(pods.clone(), name, life));
        }
    }
}

async fn delete(pods: Api<Pod>, name: String, life: Duration) {
    tokio::time::sleep(life).await;
    // An API server that is being restarted does not answer.
    let deleted = || async {
        match pods.delete(&name, &DeleteParams::default().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Some(()),
            answer => answer.ok().map(drop),
        }
    };
    wait::eventually(SOON, deleted, "a pod to be deleted").await.unwrap();
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use sluice_api::names;

    use super::Seen;
    use crate::objects::from_json;

    fn pod(name: &str, held: bool) -> Pod {
        let gates = if held { json!([{ "name": names::GATE }]) } else { json!([]) };
        from_json(
            json!({ "metadata": { "name": name }, "spec": { "containers": [], "schedulingGates": gates } }),
        )
    }

    #[test]
    fn the_most_that_ran_at_a_time_is_remembered() {
        let mut seen = Seen::default();
        for (name, held, is_new) in
            [("a", true, false), ("a", false, true), ("a", false, false), ("b", false, true)]
        {
            assert_eq!(seen.apply(&pod(name, held)), is_new, "{name}");
        }
        seen.delete("a");
        seen.apply(&pod("c", false));
        assert_eq!((seen.most, seen.running.len()), (2, 2));
    }

    #[test]
    fn a_pod_whose_grace_is_over_runs_no_more_before_it_is_gone() {
        let mut seen = Seen::default();
        seen.apply(&pod("a", false));
        let mut ending = pod("a", false);
        ending.metadata.deletion_timestamp = Some(from_json(json!("2026-01-01T00:00:00Z")));
        ending.metadata.deletion_grace_period_seconds = Some(30);
        assert!(!seen.apply(&ending) && seen.running.len() == 1);
        ending.metadata.deletion_grace_period_seconds = Some(0);
        assert!(!seen.apply(&ending) && seen.running.is_empty());
        seen.apply(&pod("b", false));
        assert_eq!(seen.most, 1);
    }

    #[test]
    fn a_list_takes_away_what_has_gone_before_it_counts_what_came() {
        let mut seen = Seen::default();
        seen.apply(&pod("a", false));
        seen.apply(&pod("b", true));
        assert_eq!(seen.list(&[pod("b", false), pod("c", true)]), ["b"]);
        assert_eq!((seen.most, seen.running.len(), seen.waiting.len()), (1, 1, 1));
    }

    #[test]
    fn a_pause_lasts_while_pods_wait_and_none_is_released() {
        let mut seen = Seen::default();
        seen.apply(&pod("a", false));
        assert!(seen.since.is_none(), "nothing waits");
        seen.apply(&pod("b", true));
        seen.apply(&pod("c", true));
        assert!(seen.since.is_some());
        seen.apply(&pod("b", false));
        assert!(seen.since.is_some(), "another one waits");
        seen.delete("c");
        assert!(seen.since.is_none() && !seen.pause.is_zero());
    }
}
