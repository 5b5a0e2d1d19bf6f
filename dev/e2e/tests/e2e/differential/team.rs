//! A namespace with native quotas: what the server makes of pods in it against what the engine says.

use serde_json::{Value, json};
use sluice_e2e::random::Random;
use sluice_engine::ledger::Claim;
use sluice_engine::{Amount, Charge, ScopeFacts};
use sluice_index::PodFacts;
use sluice_index::PodWire;
use sluice_testbed::Bed;

use crate::differential::natives::{Native, Room, Verdict, predict, read_excesses};
use crate::differential::report::Report;
use crate::differential::server::{ApiResult, Refusal, Server};
use crate::differential::{resize, shapes};

/// A pod as the server has it, read as the controller reads it.
pub struct Seen {
    pub wire: PodWire,
    pub charge: Charge,
    pub facts: ScopeFacts,
}

impl Seen {
    pub fn read(server: &Server, json: &str) -> Self {
        let wire: PodWire =
            serde_json::from_str(json).unwrap_or_else(|error| panic!("decoding {json}: {error}"));
        let now = jiff::Timestamp::now().as_second();
        let facts = PodFacts::read(&wire, sluice_api::names::GATE, server.rules, now);
        assert_eq!(facts.unreadable, None, "charging {json}");
        Self { wire, charge: facts.charge, facts: facts.scope_facts }
    }
}

/// A namespace of which only one task makes use.
pub struct Team<'r> {
    pub server: &'r Server,
    pub report: &'r Report,
    pub pods: String,
    quotas_path: String,
    pub quotas: Vec<Native>,
    /// Nothing can be said after a disagreement about what is used.
    pub broken: bool,
}

/// Makes a namespace in which pods can be created; without a controller-manager no other process does.
pub async fn namespace(bed: &Bed, server: &Server, prefix: &str) -> String {
    let path = format!("/api/v1/namespaces/{}", bed.namespace(prefix, &[]).await.unwrap());
    server.set_up(&format!("{path}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    path
}

impl<'r> Team<'r> {
    pub async fn new(bed: &Bed, server: &'r Server, report: &'r Report, index: usize) -> Self {
        let random = &mut Random::of_case(report.seed, 3, index);
        let room = random.pick(&[Room::Ample, Room::Tight, Room::Tight]);
        let count = random.pick(&[1, 1, 2, 3, 4]);
        let quotas: Vec<Native> =
            (0..count).map(|number| Native::generate(random, format!("quota-{number}"), room)).collect();
        let path = namespace(bed, server, "differential").await;
        let quotas_path = format!("{path}/resourcequotas");
        for quota in &quotas {
            quota.create(server, &quotas_path).await;
        }
        Self { server, report, pods: format!("{path}/pods"), quotas_path, quotas, broken: false }
    }

    /// Sends one pod and looks at everything that comes of it. `open` is where pods are not limited.
    pub async fn pod_case(&mut self, open: &str, index: usize) {
        let random = &mut Random::of_case(self.report.seed, 4, index);
        let name = format!("pod-{index}");
        let pod = shapes::pod(random, &name);
        let body = pod.to_string();
        // What the server makes of it before quotas are asked: defaults, overhead, priority.
        let completed = match self.server.create(open, body.clone(), true).await {
            Ok(completed) => Seen::read(self.server, &completed),
            Err(refusal) => {
                let why = if refusal.code == 422 {
                    "pod: not acceptable at all"
                } else {
                    "pod: refused for another reason"
                };
                if refusal.code != 422 {
                    self.report.disagreed(&format!(
                        "a pod is refused where there are no quotas: {body}\n  {refusal}"
                    ));
                }
                return self.report.passed_over(why);
            }
        };
        let verdict = predict(&self.quotas, &completed.charge, &completed.facts, &completed.wire);
        let answer = self.server.create(&self.pods, body.clone(), false).await;
        let charged = answer.as_ref().ok().map(|created| Seen::read(self.server, created).charge);
        let taken = charged.unwrap_or_else(|| completed.charge.clone());
        let what = format!("pod {index} in {}: {body}\n  charge {:?}", self.pods, completed.charge);
        let outcomes = ["pod: both allow", "pod: both miss amounts", "pod: both find it exceeds"];
        self.settle(&what, verdict, &answer, &taken, &completed.facts, outcomes).await;
        if let Ok(created) = answer
            && !self.broken
            && random.chance(45)
        {
            resize::case(self, random, serde_json::from_str(&created).unwrap()).await;
        }
    }

    /// Compares the verdicts, then what is used.
    pub async fn settle(
        &mut self,
        what: &str,
        verdict: Verdict,
        answer: &ApiResult,
        taken: &Charge,
        facts: &ScopeFacts,
        outcomes: [&'static str; 3],
    ) {
        if !agree(&verdict, answer) {
            self.broken = true;
            let theirs = answer.as_ref().map_or_else(Refusal::to_string, |_| "allowed".to_owned());
            let quotas: Vec<_> =
                self.quotas.iter().map(|quota| (&quota.name, &quota.spec, &quota.ledger)).collect();
            return self.report.disagreed(&format!(
                "{what}\n  ours: {verdict:?}\n  theirs: {theirs}\n  quotas: {quotas:?}"
            ));
        }
        if answer.is_ok() {
            for quota in self.quotas.iter_mut().filter(|quota| quota.concerns(facts)) {
                quota.ledger.apply(Claim::Counted, taken);
            }
        }
        let differences = self.differences().await;
        if !differences.is_empty() {
            self.broken = true;
            return self.report.disagreed(&format!("{what}\n  {}", differences.join("\n  ")));
        }
        let [allowed, incomplete, exceeded] = outcomes;
        let governed = self.quotas.iter().any(|quota| quota.concerns(facts));
        self.report.agreed(match verdict {
            Verdict::Allowed if !governed => "no quota governs the pod, nothing is charged",
            Verdict::Allowed => allowed,
            Verdict::Incomplete(_) => incomplete,
            Verdict::Exceeded(_) => exceeded,
        });
    }

    async fn differences(&self) -> Vec<String> {
        let read = |quota: &Native| {
            let name = quota.name.clone();
            async move { self.server.read(&self.quotas_path, &name).await }
        };
        let stored: Vec<Value> = futures::future::join_all(self.quotas.iter().map(read)).await;
        let pairs = self.quotas.iter().zip(&stored);
        pairs.filter_map(|(quota, stored)| quota.difference(&stored["status"]["used"])).collect()
    }
}

fn agree(verdict: &Verdict, answer: &ApiResult) -> bool {
    match (verdict, answer) {
        (Verdict::Allowed, answer) => answer.is_ok(),
        (Verdict::Incomplete(texts), Err(refusal)) => {
            refusal.code == 403
                && texts.iter().any(|text| refusal.message.ends_with(&format!(" is forbidden: {text}")))
        }
        (Verdict::Exceeded(ours), Err(refusal)) => {
            refusal.code == 403
                && read_excesses(&refusal.message).is_some_and(|theirs| ours.contains(&theirs))
        }
        (Verdict::Incomplete(_) | Verdict::Exceeded(_), Ok(_)) => false,
    }
}

/// What a change adds; quotas are never given anything back on a request.
pub fn increase(old: &Charge, new: &Charge) -> Charge {
    Charge::from_pairs(new.iter().filter_map(|(resource, amount)| {
        let more = amount.saturating_sub(old.get(resource).unwrap_or(Amount::ZERO));
        (more > Amount::ZERO).then(|| (resource.clone(), more))
    }))
}
