//! Why something waits, as the leading controller says it: the answers to QuotaReviews.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use sluice_api::{QuotaReviewSource, QuotaReviewStatus};
use sluice_gate::{Explanation, Gate, Told, Topic, Verdict};
use sluice_runtime::lease::WriteToken;
use sluice_webhook::endpoints::explain::{About, Question, Reply, Tell};

use crate::cli::nearest::{hint, nearest};
use sluice_gate::plain;

/// Answers from the state of the gate, as long as this process leads. `identity` is how its Lease names it.
pub fn tell(gate: Gate, token: WriteToken, identity: &str) -> Tell {
    let leader = leader_name(identity).to_owned();
    Box::new(move |question: &Question| {
        let told = gate.tell(&question.namespace, topic(&question.about));
        // What another leader does meanwhile is not known here.
        let Some(told) = told.filter(|_| token.is_held()) else {
            return Reply::Unknown("this process does not lead");
        };
        let now_ms = gate.unix_ms();
        let time = Timestamp::from_millisecond(now_ms).ok().map(Time);
        reply(question, told, now_ms.div_euclid(1_000), QuotaReviewSource { leader: leader.clone(), time })
    })
}

/// The pod that leads, without what tells its processes apart.
fn leader_name(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(pod, _)| pod)
}

fn topic(about: &About) -> Topic<'_> {
    match about {
        About::Pod(name) => Topic::Pod(name),
        About::Quota(name) => Topic::Quota(name),
        About::ClusterQuota(name) => Topic::ClusterQuota(name),
        About::VirtualMachine(name) => Topic::Machine(name),
    }
}

/// What is told as it is answered `now`, in seconds since the epoch.
fn reply(question: &Question, told: Told, now: i64, source: QuotaReviewSource) -> Reply {
    let (name, namespace) = (question.about.name(), &question.namespace);
    let (explanations, is_crowded) = match told {
        Told::Explained { explanations, is_crowded } => (explanations, is_crowded),
        Told::Crowded => {
            return Reply::TooMuch(format!(
                "namespace {namespace} has more pods than are looked at for a cluster quota: ask sluice why --recompute"
            ));
        }
        Told::Unknown(names) => {
            let near = nearest(name, names.iter().map(|name| &**name));
            let text = format!("{} not found in namespace {namespace}{}", plain(name), hint(&near));
            let status =
                QuotaReviewStatus { text, not_found: true, near, source, ..QuotaReviewStatus::default() };
            return Reply::Answered(Box::new(status));
        }
    };
    let summary = match question.about {
        About::VirtualMachine(_) => machine_summary(name, &explanations),
        _ => Vec::new(),
    };
    let mut text: String = summary.iter().map(|line| format!("{line}\n")).collect();
    for explanation in &explanations {
        text.push_str(&explanation.at(now).to_string());
    }
    if is_crowded {
        text.push_str("  Left out: places and who takes most, for the namespace has many pods.\n");
    }
    Reply::Answered(Box::new(QuotaReviewStatus {
        held: explanations.iter().any(Explanation::is_held),
        // What tenants write may have characters that a terminal would obey.
        text: plain(&text),
        summary: summary.iter().map(|line| plain(line)).collect(),
        explanations: explanations.iter().filter_map(object).collect(),
        not_found: false,
        near: Vec::new(),
        source,
    }))
}

fn object(explanation: &Explanation) -> Option<serde_json::Map<String, Value>> {
    if let Value::Object(fields) = explanation.json() { Some(fields) } else { None }
}

/// Sentences about a VM, by what is explained of its pods. It runs if one of them does.
pub fn machine_summary(name: &str, pods: &[Explanation]) -> Vec<String> {
    if pods.is_empty() {
        return vec![format!("{name} has no pod yet: KubeVirt's controller has not created it.")];
    }
    let pods: Vec<_> =
        pods.iter().filter_map(|it| if let Explanation::Pod(pod) = it { Some(pod) } else { None }).collect();
    let runs = pods.iter().any(|pod| matches!(pod.verdict, Verdict::Released { .. }));
    let state = if runs { "runs" } else { "does not start" };
    let sentences = pods.iter().map(|pod| match pod.verdict.is_held() {
        true => format!("{name} {state}: its pod {} waits.", pod.name),
        false => format!("{name}: its pod {} is not held.", pod.name),
    });
    sentences.collect()
}

#[cfg(test)]
mod tests {
    use sluice_gate::PodExplanation;

    use super::*;

    fn pod(name: &str, verdict: Verdict) -> Explanation {
        Explanation::Pod(PodExplanation {
            namespace: "team".into(),
            name: name.into(),
            verdict,
            since: 0,
            quotas: Vec::new(),
            wait: None,
            has_claims: false,
        })
    }

    fn replied(about: About, told: Told) -> QuotaReviewStatus {
        let source = QuotaReviewSource { leader: "sluice-controller-x2k".to_owned(), time: None };
        match reply(&Question { namespace: "team".to_owned(), about }, told, 61, source) {
            Reply::Answered(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_status_has_the_explanation_for_people_and_for_programs() {
        let explanation = pod("train", Verdict::OtherGates);
        let told = Told::Explained { explanations: vec![explanation.clone()], is_crowded: false };
        let status = replied(About::Pod("train".to_owned()), told);
        assert!(status.held && !status.not_found);
        assert_eq!(status.text, explanation.at(61).to_string());
        assert_eq!(status.explanations.first().cloned().map(Value::Object), Some(explanation.json()));
        assert_eq!(status.source.leader, "sluice-controller-x2k");
        let crowd = Told::Explained { explanations: vec![explanation], is_crowded: true };
        let status = replied(About::Pod("train".to_owned()), crowd);
        assert!(
            status
                .text
                .ends_with("  Left out: places and who takes most, for the namespace has many pods.\n")
        );
    }

    #[test]
    fn a_vm_is_told_with_the_state_of_its_pods() {
        let about = || About::VirtualMachine("db".to_owned());
        let told = |explanations| replied(about(), Told::Explained { explanations, is_crowded: false });
        let held = || pod("virt-launcher-db-2", Verdict::OtherGates);
        let runs = pod("virt-launcher-db-1", Verdict::Released { unreadable: None });
        assert_eq!(told(vec![held()]).summary, ["db does not start: its pod virt-launcher-db-2 waits."]);
        assert_eq!(
            told(vec![runs, held()]).summary,
            ["db: its pod virt-launcher-db-1 is not held.", "db runs: its pod virt-launcher-db-2 waits."]
        );
        let none = told(Vec::new());
        assert!(!none.held && none.text.starts_with("db has no pod yet"), "{}", none.text);
    }

    #[test]
    fn a_name_of_nothing_is_told_with_those_that_are_near() {
        let names = vec!["train".into(), "web".into()];
        let status = replied(About::Pod("trian".to_owned()), Told::Unknown(names));
        assert_eq!((status.not_found, status.held, status.near), (true, false, vec!["train".to_owned()]));
        assert_eq!(status.text, "trian not found in namespace team: is it train?");
    }

    #[test]
    fn a_terminal_obeys_nothing_of_an_answer() {
        let told = Verdict::Unreadable("spec: \u{1b}[2J\u{202e}".into());
        let explanations = vec![pod("train", told)];
        let status =
            replied(About::Pod("train".to_owned()), Told::Explained { explanations, is_crowded: false });
        assert!(!status.text.contains('\u{1b}') && !status.text.contains('\u{202e}'), "{}", status.text);
        let status = replied(About::Pod("\u{1b}[2J".to_owned()), Told::Unknown(Vec::new()));
        assert!(!status.text.contains('\u{1b}'), "{}", status.text);
    }

    #[test]
    fn the_leader_is_named_by_its_pod() {
        assert_eq!(leader_name("sluice-controller-7f9c-x2k_00ff00ff00ff00ff"), "sluice-controller-7f9c-x2k");
        assert_eq!(leader_name("by-hand"), "by-hand");
    }
}
