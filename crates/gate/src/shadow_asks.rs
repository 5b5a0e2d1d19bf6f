//! Asks the evaluators in the shadow that are not in this process: namespaces take turns, in the background. No pod waits
//! for them, so they are asked at leisure, and again only about what has changed, or later each time where they had no
//! answer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::ready;
use futures::stream::FuturesUnordered;
use sluice_engine::PodId;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::evaluate::{READ_IN, read_namespace};
use super::evaluators::EvaluatorQuestion;
use super::handle::Gate;
use super::metrics::Work;
use super::other_pods::NamespacePods;
use super::shadow::{AskInShadow, MOST_SHADOWS, Opinion, SaidLater, ShadowConfig};

/// So often it is looked which pods are to be asked about.
const PACE: Duration = Duration::from_secs(5);
/// Questions of a namespace at a time.
const AT_A_TIME: usize = 8;
/// Namespaces at a time: each may have its pods in memory.
const NAMESPACES_AT_A_TIME: usize = 4;
/// So long a namespace begins questions in its turn. The rest comes in its next one, when others had theirs.
const TURN: Duration = Duration::from_secs(5);

/// What was sent of a namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its latest version, and how many pods.
    state: (u64, usize),
    /// About whom was asked last.
    last: PodId,
    /// Its turn was over before all were asked about.
    has_more: bool,
}

impl Gate {
    /// Asks the evaluators in the shadow that are asked later, from this call on until `cancel`.
    pub fn ask_shadows(self, cancel: CancellationToken) -> impl Future<Output = ()> {
        let mut configs = self.shadow.subscribe();
        async move {
            let follow = async {
                loop {
                    let (revision, config) = configs.borrow_and_update().clone();
                    let asking = async {
                        match config.filter(|config| config.later != 0) {
                            Some(config) => self.keep_asking(revision, &config).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        changed = configs.changed() => if changed.is_err() {
                            return;
                        },
                        never = asking => match never {},
                    }
                }
            };
            cancel.run_until_cancelled(follow).await;
            // The process goes on with what was said last.
            cancel.cancelled().await;
        }
    }

    async fn keep_asking(&self, revision: u32, config: &Arc<ShadowConfig>) -> Infallible {
        let (mut sent, mut unreachable) = (HashMap::<Arc<str>, Sent>::new(), u16::MAX);
        let (mut waiting, mut under_way) = (VecDeque::<Arc<str>>::new(), FuturesUnordered::new());
        let mut lined_up = HashSet::<Arc<str>>::new();
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while under_way.len() < NAMESPACES_AT_A_TIME
                && let Some(namespace) = waiting.pop_front()
            {
                let is_sent = sent.get(&namespace).copied();
                under_way.push(async move {
                    let now = self.ask_in_namespace(&namespace, is_sent, (revision, config)).await;
                    (namespace, now)
                });
            }
            tokio::select! {
                Some((namespace, now)) = under_way.next() => {
                    if now.has_more {
                        waiting.push_back(Arc::clone(&namespace));
                    } else {
                        lined_up.remove(&namespace);
                    }
                    sent.insert(namespace, now);
                }
                _ = ticks.tick() => {
                    let before = std::mem::replace(&mut unreachable, config.asker.unreachable());
                    let namespaces = self.locked(Work::Settle, |state, _| {
                        state.retry_in_shadow(before & !unreachable);
                        state.shadow_namespaces()
                    });
                    sent.retain(|known, _| namespaces.contains(known));
                    waiting.extend(namespaces.into_iter().filter(|it| lined_up.insert(Arc::clone(it))));
                }
            }
        }
    }

    /// Returns by which state of the namespace was asked.
    pub(crate) async fn ask_in_namespace(
        &self,
        namespace: &Arc<str>,
        sent: Option<Sent>,
        (revision, config): (u32, &Arc<ShadowConfig>),
    ) -> Sent {
        let after = sent.map_or(PodId(0), |sent| sent.last);
        let (state, pods) = self.locked(Work::Settle, |state, now| {
            let seen = state.pods_of_namespace(namespace);
            let again = if sent.is_some_and(|sent| sent.state == seen) { 0 } else { config.in_rounds };
            (seen, state.plan_shadow_asks(namespace, (again, after), now))
        });
        let mut now = Sent { state, last: after, has_more: false };
        if pods.is_empty() {
            return now;
        }
        let unreachable = config.asker.unreachable();
        let see_others = pods.iter().any(|pod| pod.selected & config.in_rounds & !unreachable != 0);
        let beside = match (config.other_pods.filter(|_| see_others), self.reader.get()) {
            (Some(form), Some(reader)) => {
                let reading = read_namespace(reader, &self.view, namespace, state.0, form);
                timeout(READ_IN, reading).await.ok().and_then(Result::ok)
            }
            _ => None,
        };
        // Who is not sent the other pods although it looks at them would say something else.
        let unasked = unreachable | if beside.is_none() { config.in_rounds } else { 0 };
        let (begun, mut left) = (Instant::now(), pods.iter().map(|pod| pod.id).collect::<VecDeque<_>>());
        let in_time = futures::stream::iter(pods).take_while(|_| ready(begun.elapsed() < TURN));
        let asks = in_time.map(|pod| self.ask_in_shadow(pod, unasked, beside.as_ref(), config));
        let mut said = asks.buffer_unordered(AT_A_TIME);
        while let Some((pod, said)) = said.next().await {
            // All that were begun are answered, whatever their order.
            now.last = left.pop_front().unwrap_or(now.last);
            let content = (revision, pod.hash);
            self.locked(Work::Settle, |state, now| state.on_said_later(&pod.pod, content, said, now));
        }
        now.has_more = !left.is_empty();
        // What is said is summed up with what is decided.
        self.news.notify_one();
        now
    }

    async fn ask_in_shadow(
        &self,
        pod: AskInShadow,
        unasked: u16,
        beside: Option<&NamespacePods>,
        config: &Arc<ShadowConfig>,
    ) -> (AskInShadow, Vec<SaidLater>) {
        let mut said: Vec<SaidLater> = none_of(pod.selected & unasked);
        let selected = pod.selected & !unasked;
        if selected == 0 {
            return (pod, said);
        }
        let own = beside.and_then(|pods| pods.own(&pod.pod.uid, pod.hash));
        let text = match own {
            Some(text) => Some(text),
            None => self.text_of(&pod).await,
        };
        let Some(pod_json) = text else {
            said.extend(none_of(selected));
            return (pod, said);
        };
        let question = EvaluatorQuestion {
            uid: pod.pod.uid.clone(),
            namespace: (*pod.pod.namespace).into(),
            hash: pod.hash,
            pod_json,
            other_pods: beside.map(|pods| pods.encoded.clone()).unwrap_or_default(),
            // Those that are enforced do not wait for it.
            is_waiting: false,
            native: Arc::clone(&pod.counted),
            counted: Arc::clone(&pod.counted),
            selected,
        };
        said.extend(config.asker.ask_later(question).await);
        (pod, said)
    }

    async fn text_of(&self, pod: &AskInShadow) -> Option<Bytes> {
        let reader = self.reader.get()?;
        self.read_text(reader, (&pod.pod.namespace, &pod.pod.name), pod.hash).await.ok()
    }
}

/// These have no answer for now.
fn none_of(selected: u16) -> Vec<SaidLater> {
    let places = (0..MOST_SHADOWS).filter(|place| selected >> place & 1 == 1);
    places.map(|place| SaidLater { place, opinion: Opinion::None, is_final: false }).collect()
}
