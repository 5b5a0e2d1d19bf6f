//! The evaluators of a run: slow, silent, wrong, forgetful, and different in each replica.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use sluice_engine::{Amount, Charge, Resource};
use sluice_index::Gates;

use super::next_policy::NextPolicy;
use super::server::{CPU, Change, Kind, Server, is_gated, pod_milli, uid};
use super::step::{Fault, Trouble};
use super::world::World;
use crate::{
    Again, AskEvaluators, Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, OtherPodsForm, Outcome,
    Price, Release, Said, Selection, State,
};

/// A replica decides although pods of it have no answer after so long (milliseconds).
const PAUSED_MS: u64 = 30_000;

pub fn config() -> Arc<EvaluatorsConfig> {
    let evaluators = vec![("sizes".into(), Selection::default())];
    Arc::new(EvaluatorsConfig {
        evaluators,
        idle: 0,
        may_fail: 0,
        in_rounds: 0,
        other_pods: None,
        asker: Arc::new(Simulated),
    })
}

/// As [`config`], of one that is sent the other pods of the namespace.
pub fn config_with_others() -> Arc<EvaluatorsConfig> {
    let other_pods = OtherPodsForm { most_bytes: 1 << 20, encode: |pods| pods.concat().into() };
    Arc::new(EvaluatorsConfig { other_pods: Some(other_pods), in_rounds: u16::MAX, ..(*config()).clone() })
}

/// Questions are answered by [`World::evaluated`].
struct Simulated;

impl AskEvaluators for Simulated {
    fn ask(&self, _: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>> {
        unreachable!("no simulation asks by this")
    }

    fn answer(&self, _: EvaluatorQuestion) -> Option<Result<Said, Failed>> {
        None
    }

    fn is_immediate(&self) -> bool {
        false
    }
}

/// The content of a pod: all but its gates and versions.
pub fn content_of(pod: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    let parts = [&pod["metadata"]["labels"], &pod["spec"]["containers"], &pod["status"]];
    parts.map(Value::to_string).hash(&mut hasher);
    hasher.finish() | 1
}

/// What is known of the evaluators of a run.
#[derive(Debug, Default)]
pub struct Evaluators {
    /// The least that was ever answered, by uid and content, in thousandths of a CPU.
    given: BTreeMap<(String, u64), u64>,
    /// Of each replica: when it began to ask, for the last time, and about which pods it was answered, or was told why not.
    pub asked: BTreeMap<usize, (u64, BTreeSet<String>)>,
    /// How often the rules of each replica's evaluator have changed.
    pub policies: BTreeMap<usize, u64>,
    /// The rules that evaluators of replicas are about to follow.
    pub next: BTreeMap<usize, NextPolicy>,
    /// The least and the most that a pod was charged by any process, by uid: what Kubernetes counts is among it.
    charged: BTreeMap<String, (u64, u64)>,
    /// How long the server's log was when processes began to lead.
    led: Vec<usize>,
    /// The replicas whose evaluator answers no question about pods of this name, which is another one in each namespace.
    pub silent: BTreeSet<(usize, String)>,
    /// They are sent the other pods of the namespace.
    pub in_rounds: bool,
    /// How long the server's log was when the namespace was read for a round of a replica's life.
    pub read: BTreeMap<(usize, u32, u64), usize>,
    /// By which round of it the replica was told about a pod last, and by which state.
    shown: BTreeMap<(usize, String), (u64, usize)>,
    /// What replicas have asked to release: in which life, which pod of which namespace, by which round.
    sent: Vec<Asked>,
}

/// A release that was asked for.
#[derive(Debug)]
struct Asked {
    /// The replica and its life.
    by: (usize, u32),
    namespace: Box<str>,
    pod: String,
    round: u64,
}

impl Evaluators {
    /// What is released goes by a state that shows all that was released before by another state.
    pub fn check_shown(
        &mut self,
        (replica, life): (usize, u32),
        release: &Release,
        server: &Server,
        trouble: Trouble,
    ) {
        if trouble == Trouble::TwoLeaders {
            return;
        }
        let pod = release.uid.to_string();
        let Some((round, state)) =
            self.shown.get(&(replica, pod.clone())).copied().filter(|_| self.in_rounds)
        else {
            return;
        };
        let namespace: Box<str> = (*release.namespace).into();
        let is_gone_at = |uid_of: &str, until: usize| {
            let seen = server.log.iter().take(until).rev().filter(|change| change.kind == Kind::Pod);
            let last = seen.map(|change| &change.object).find(|pod| uid(pod) == uid_of);
            last.is_some_and(|pod| !is_gated(pod))
        };
        let by = (replica, life);
        for before in &self.sent {
            let is_of_it = before.by == by && before.namespace == namespace && before.pod != pod;
            // One that is deleted runs no more, whatever the state says.
            let is_there = server.all(Kind::Pod, &namespace).any(|(_, pod)| uid(pod) == before.pod);
            let has_gone = is_there && is_gone_at(&before.pod, server.log.len());
            if is_of_it && before.round != round && has_gone {
                let is_shown = is_gone_at(&before.pod, state);
                assert!(is_shown, "{release:?} goes by a state that does not show {before:?}");
            }
        }
        // A request for it that was refused says nothing any more.
        self.sent.retain(|before| before.by != by || before.pod != pod);
        self.sent.push(Asked { by, namespace, pod, round });
    }

    pub fn silence(&mut self, replica: usize, pod: &str, is_silent: bool) {
        let about = (replica, pod.to_owned());
        if is_silent {
            self.silent.insert(about);
        } else {
            self.silent.remove(&about);
        }
    }

    /// All questions are answered from now on.
    pub fn end_silence(&mut self) {
        self.silent.clear();
    }

    pub fn takes_over(&mut self, logged: usize) {
        self.led.push(logged);
    }

    /// What a leader may not know to be taken: a record has sums alone. Where there is no answer about a pod, what is
    /// recorded of it is found from what others take, and one that ended may have been charged more than was recorded of it.
    /// Two may lead.
    pub fn hidden(&self, server: &Server) -> u64 {
        let Some(since) = self.led.iter().rev().nth(1).copied() else { return 0 };
        let pods = server.log.iter().skip(since).filter(|change| change.kind == Kind::Pod);
        let has_ended = |change: &&Change| change.is_gone || change.object["status"]["phase"] == "Succeeded";
        let ended: BTreeSet<&str> = pods.filter(has_ended).map(|change| uid(&change.object)).collect();
        let charged = ended.iter().filter_map(|pod| self.charged.get(*pod));
        charged.map(|(least, most)| most - least).sum()
    }

    /// The replica knows nothing of what was answered.
    pub fn forget(&mut self, replica: usize, now_ms: u64) {
        self.next.remove(&replica);
        self.asked.insert(replica, (now_ms, BTreeSet::new()));
    }

    /// What the evaluator of a replica says of a pod: another one says something else.
    fn price(&self, replica: usize, pod: &Value) -> u64 {
        self.price_by(self.policies.get(&replica).copied().unwrap_or_default(), replica, pod)
    }

    /// The same by these rules.
    pub fn price_by(&self, policy: u64, replica: usize, pod: &Value) -> u64 {
        let label = pod["metadata"]["labels"]["price"].as_str().map(|text| text.parse().unwrap());
        let other = (content_of(pod) >> 8) + replica as u64 + policy;
        label.unwrap_or_else(|| 2 * pod_milli(pod)) + 150 * (other % 3)
    }

    /// No pod is released before all that run in its namespace are answered by the rules of now.
    pub fn check_sums(&self, replica: usize, state: &State, release: &Release, now_ms: u64) {
        let Some((since_ms, answered)) = self.asked.get(&replica) else { return };
        let (pods, namespaces, _) = state.index();
        let namespace = namespaces.id(&release.namespace).unwrap();
        if now_ms >= since_ms + PAUSED_MS || namespaces.get(namespace).unwrap().quotas().is_empty() {
            return;
        }
        for (_, pod) in pods.iter().filter(|(_, pod)| pod.namespace == namespace && !pod.is_over()) {
            let is_known = pod.gates != Gates::None || answered.contains(&pod.uid.to_string());
            assert!(is_known, "{release:?} goes although there is no answer about {}", pod.name);
        }
    }
}

impl World {
    /// From now on an evaluator says what pods take.
    pub fn evaluate(mut self) -> Self {
        self.server.prices = Some(BTreeMap::new());
        for replica in 0..self.replicas.len() {
            self.change_policy(replica);
        }
        self.deliver_all();
        self
    }

    /// As [`Self::evaluate`], by an evaluator that is sent the other pods of the namespace.
    pub fn evaluate_in_rounds(mut self) -> Self {
        (self.evaluators.in_rounds, self.server.sends_other_pods) = (true, true);
        self.evaluate()
    }

    /// The evaluator of a replica follows other rules, and all is asked anew.
    pub fn change_policy(&mut self, replica: usize) {
        let now = self.moment();
        *self.evaluators.policies.entry(replica).or_default() += 1;
        self.evaluators.forget(replica, self.now_ms);
        self.replicas[replica].unread = None;
        self.replicas[replica].state.follow_evaluators(Some(self.server.evaluators()), now);
        self.replicas[replica].relist(&self.server, Kind::Pod);
    }

    /// How long the server's log was at the earliest when its objects had this version.
    pub fn state_of(&self, version: u64) -> usize {
        let is_of = |change: &Change| {
            let known = change.object["metadata"]["resourceVersion"].as_str();
            known.and_then(|known| known.parse::<u64>().ok()).is_some_and(|known| known >= version)
        };
        self.server.log.iter().position(is_of).map_or(self.server.log.len(), |at| at + 1)
    }

    pub fn evaluated(&mut self, replica: usize, question: &Evaluate, fault: Fault) -> Outcome {
        let Evaluate { pod, hash, serial, .. } = *question;
        let name = question.uid.to_string();
        assert_eq!(question.round.is_some(), self.evaluators.in_rounds);
        if let Some(round) = &question.round {
            let state = self.evaluators.read[&(replica, self.lives[replica], round.number)];
            self.evaluators.shown.insert((replica, name.clone()), (round.number, state));
        }
        if let Some((_, answered)) = self.evaluators.asked.get_mut(&replica) {
            answered.insert(name.clone());
        }
        let is_it = |object: &&Value| uid(object) == name && content_of(object) == hash;
        let pods = self.server.log.iter().rev().filter(|change| change.kind == Kind::Pod);
        let found = pods.map(|change| &change.object).find(is_it);
        let is_silent = self.evaluators.silent.contains(&(replica, question.name.to_string()));
        let answer = match (found, fault) {
            (Some(object), Fault::None) if !is_silent => {
                let (milli_cpu, object) = (self.evaluators.price(replica, object), object.clone());
                Ok(self.priced(&object, milli_cpu))
            }
            _ => Err(silence()),
        };
        Outcome::Evaluated { pod, uid: question.uid.clone(), hash, serial, answer: answer.map(Said::from) }
    }

    /// The evaluator answers that the pod takes so many thousandths of a CPU.
    pub fn priced(&mut self, pod: &Value, milli_cpu: u64) -> Price {
        let name = uid(pod).to_owned();
        let given = self.evaluators.given.entry((name.clone(), content_of(pod))).or_insert(milli_cpu);
        *given = milli_cpu.min(*given);
        let native = pod_milli(pod);
        let (least, most) = self.evaluators.charged.entry(name.clone()).or_insert((native, native));
        (*least, *most) = (milli_cpu.min(*least), milli_cpu.max(*most));
        if let Some(price) = self.server.prices.as_mut().and_then(|prices| prices.get_mut(&name)) {
            // A leader may take the pod for this from now on.
            *price = milli_cpu.min(*price);
        }
        let amount = Amount::from_nanos(i128::from(milli_cpu) * 1_000_000);
        let pairs = [(Resource::from_quota_key(CPU), amount), (Resource::Pods, Amount::ONE)];
        Price::Charge(Arc::new(Charge::from_pairs(pairs)))
    }

    /// A pod that was released takes what was answered about just what it is.
    pub fn price_released(&mut self, release: &Release) {
        let Some(prices) = &mut self.server.prices else { return };
        let name = release.uid.to_string();
        let mut pods = self.server.objects.iter().filter(|(key, _)| key.0 == Kind::Pod);
        let Some((key, pod)) = pods.find(|(_, pod)| uid(pod) == name) else { return };
        if is_gated(pod) || prices.contains_key(&name) {
            return;
        }
        let quotas = self.setting.quotas.iter();
        let has_quota =
            quotas.map(|(kind, namespace, name, _)| (*kind, (*namespace).to_owned(), (*name).to_owned()));
        let namespace = key.1.clone();
        let given = self.evaluators.given.get(&(name.clone(), content_of(pod))).copied();
        let mut about = has_quota;
        let is_charged = about.any(|quota| server_is_about(&self.server.objects, &quota, &namespace));
        assert!(given.is_some() || !is_charged, "{release:?} was released without an answer about it");
        self.server.prices.as_mut().unwrap().insert(name, given.unwrap_or_default());
    }

    /// What the leader takes all pods for when everything is answered.
    pub fn price_as_leader(&mut self) {
        let Some(leader) = self.replicas.iter().position(|replica| replica.leads) else { return };
        if self.server.prices.is_some() {
            let pods = self.server.all(Kind::Pod, "");
            let price = |(_, pod): (_, &Value)| (uid(pod).to_owned(), self.evaluators.price(leader, pod));
            self.server.prices = Some(pods.map(price).collect());
        }
    }
}

pub fn silence() -> Failed {
    Failed { text: "sizes did not answer".into(), by: 0, again: Again::Later }
}

/// Whether a quota is about pods of a namespace, as [`Server::is_about`].
fn server_is_about(
    objects: &BTreeMap<super::server::Key, Value>,
    quota: &super::server::Key,
    namespace: &str,
) -> bool {
    match quota.0 {
        Kind::Quota => quota.1 == namespace,
        _ => objects
            .get(&(Kind::Namespace, String::new(), namespace.to_owned()))
            .is_some_and(|known| known["metadata"]["labels"]["quota"] == "shared"),
    }
}

impl Server {
    /// What replicas ask.
    pub fn evaluators(&self) -> Arc<EvaluatorsConfig> {
        if self.sends_other_pods { config_with_others() } else { config() }
    }

    /// What a pod takes by what is answered, in thousandths of a CPU.
    pub fn size_of(&self, pod: &Value) -> u64 {
        let priced = self.prices.as_ref().and_then(|prices| prices.get(uid(pod)));
        priced.copied().unwrap_or_else(|| pod_milli(pod))
    }
}
