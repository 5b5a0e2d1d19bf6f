//! The status of the `AAQ`: whether pods are gated, by whom, and how virtual machines are counted.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::{AaqStatus, Pause, PauseError, names};
use sluice_evaluators::{EvaluatorState, summary};
use sluice_index::Stated;

use super::aaqs::InForce;
use super::probe::{Gates, LastWord};
use super::report::Findings;
use sluice_api::aaq_conditions::{Said, merged};

/// What else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts<'f> {
    /// How virtual machines are counted; `None`: it is not known.
    pub(super) machines: Option<&'f InForce>,
    /// Why no head-room is given.
    pub(super) unproven: Option<&'f str>,
    /// The sidecars of this process.
    pub(super) sidecars: &'f [EvaluatorState],
}

/// The merge patch that brings the controller's conditions up to date; `None` if they are, or while nothing is known. All
/// else in the status is the operator's.
pub(super) fn patch(
    aaq: &Stated<AaqStatus>,
    findings: &Findings,
    facts: Facts<'_>,
    pause: &Result<Option<Pause>, PauseError>,
    now: Timestamp,
) -> Option<Value> {
    if findings.seen.is_empty() {
        return None;
    }
    let old = aaq.status.conditions.as_deref().unwrap_or_default();
    let stated = [said(findings)].into_iter().chain(facts.machines.map(said_of_machines));
    let was_told = |kind: &str| old.iter().any(|condition| condition.type_ == kind);
    // Who was never paused has no such condition, and neither has who has no sidecars.
    let paused = (pause != &Ok(None) || was_told(names::PAUSED)).then(|| said_of_pause(pause));
    let has_sidecars = !facts.sidecars.is_empty() || was_told(names::EVALUATORS_ANSWER);
    let sidecars = has_sidecars.then(|| said_of_sidecars(facts.sidecars));
    let further = [said_of_headroom(facts.unproven)].into_iter().chain(paused).chain(sidecars);
    let wanted = merged(old, stated.chain(further), now);
    (wanted != old).then(|| {
        json!({
            "metadata": { "resourceVersion": aaq.resource_version },
            "status": { "conditions": wanted },
        })
    })
}

/// Whether pods are gated, and by whom.
fn said(findings: &Findings) -> Said {
    let alarms = findings.alarms();
    let is_unknown = findings.seen.values().any(|seen| {
        matches!(seen.gates, Gates::Unknown(_)) || matches!(seen.last_word, LastWord::Unknown(_))
    });
    let is_webhook = findings.seen.values().any(|seen| seen.gates == Gates::Webhook);
    let (status, reason) = match alarms.first() {
        Some(alarm) => ("False", alarm.reason),
        None if is_unknown => ("Unknown", "NotKnown"),
        None if is_webhook => ("True", "GatedByWebhook"),
        None => ("True", "GatedByPolicy"),
    };
    let message = match &alarms[..] {
        [] => findings.summary(),
        alarms => alarms.iter().map(|alarm| &*alarm.note).collect::<Vec<_>>().join("; "),
    };
    Said::new(names::GATING, status, reason, message)
}

fn said_of_machines(in_force: &InForce) -> Said {
    let status = if in_force.calculator.counts_machines() { "True" } else { "False" };
    Said::new(names::VIRTUAL_MACHINES, status, in_force.calculator.name(), in_force.message.clone())
}

fn said_of_pause(pause: &Result<Option<Pause>, PauseError>) -> Said {
    let (status, reason, message) = match pause {
        Ok(Some(pause)) => ("True", "Paused", format!("no pod waits for quota until {}", pause.until)),
        Ok(None) => ("False", "NotPaused", "pods wait for quota".to_owned()),
        Err(error) => ("False", "PauseIgnored", error.to_string()),
    };
    Said::new(names::PAUSED, status, reason, message)
}

/// Which sidecars answer the process that leads.
fn said_of_sidecars(sidecars: &[EvaluatorState]) -> Said {
    let is_failing = sidecars.iter().any(|sidecar| sidecar.failure().is_some());
    let (status, reason) = match sidecars {
        [] => ("True", "NoSidecars"),
        _ if is_failing => ("False", "SidecarFails"),
        sidecars if sidecars.iter().all(EvaluatorState::is_ready) => ("True", "SidecarsAnswer"),
        _ => ("Unknown", "NotKnown"),
    };
    let message = if sidecars.is_empty() { "there are none".to_owned() } else { summary(sidecars) };
    Said::new(names::EVALUATORS_ANSWER, status, reason, message)
}

/// Whether live migrations may get head-room in native quotas: it is given where the admission policies are proven at each
/// API server.
fn said_of_headroom(unproven: Option<&str>) -> Said {
    let (status, reason, message) = match unproven {
        None => (
            "True",
            "Proven",
            "the admission policies of head-room are in force at every API server".to_owned(),
        ),
        Some(why) => ("False", "NotProven", format!("no quota is raised for live migrations: {why}")),
    };
    Said::new(names::HEADROOM, status, reason, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use sluice_api::{AAQ, AaqCondition};
    use sluice_engine::vm::Calculator;
    use sluice_evaluators::discovery::Absence;
    use sluice_index::{Aaqs, Watched as _};
    use sluice_manifests::Gating;

    use super::super::probe::Seen;
    use super::*;

    fn findings(gates: &[Gates]) -> Findings {
        let seen = gates.iter().enumerate().map(|(number, gates)| {
            let seen = Seen { gates: gates.clone(), last_word: LastWord::Policy };
            (Arc::from(format!("server-{number}")), seen)
        });
        Findings { expected: Gating::Policy, seen: seen.collect() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// As the watch shows the object.
    fn patch_of(aaq: &AAQ, findings: &Findings, now: Timestamp) -> Option<Value> {
        let mut aaqs = Aaqs::default();
        aaqs.upsert(&serde_json::from_value(serde_json::to_value(aaq).unwrap()).unwrap());
        patch(aaqs.holding().unwrap().stated.as_ref().unwrap(), findings, Facts::default(), &Ok(None), now)
    }

    fn patched(aaq: &AAQ, patch: &Value) -> AAQ {
        let mut value = serde_json::to_value(aaq).unwrap();
        json_patch::merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    fn shown(aaq: &AAQ) -> Vec<[String; 3]> {
        let conditions = aaq.status.clone().unwrap().conditions.unwrap();
        let words = |of: AaqCondition| [of.type_, of.status, of.reason.unwrap_or_default()];
        conditions.into_iter().map(words).collect()
    }

    #[test]
    fn what_is_seen_is_said_once() {
        let aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        assert_eq!(patch_of(&aaq, &findings(&[]), at(1)), None, "nothing is known");
        let good = findings(&[Gates::Policy]);
        let aaq = patched(&aaq, &patch_of(&aaq, &good, at(1)).unwrap());
        assert_eq!(shown(&aaq), [["Gating", "True", "GatedByPolicy"], ["Headroom", "True", "Proven"]]);
        assert_eq!(patch_of(&aaq, &good, at(2)), None);
    }

    #[test]
    fn one_server_that_gates_by_nothing_is_enough_to_say_so_and_the_time_is_of_the_change() {
        let aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        for (gates, status, reason, since) in [
            (vec![Gates::Policy, Gates::Webhook], "True", "GatedByWebhook", 0),
            (vec![Gates::Policy, Gates::Unknown("x".into())], "Unknown", "NotKnown", 9),
            (vec![Gates::Policy, Gates::Nothing], "False", "PodsRefused", 9),
        ] {
            let before = patched(&aaq, &patch_of(&aaq, &findings(&[Gates::Policy]), at(0)).unwrap());
            let after = patched(&before, &patch_of(&before, &findings(&gates), at(9)).unwrap());
            let gating = &after.status.clone().unwrap().conditions.unwrap()[0];
            assert_eq!((&*gating.status, gating.reason.as_deref()), (status, Some(reason)));
            assert_eq!(gating.last_transition_time, Some(Time(at(since))), "{reason}");
        }
    }

    #[test]
    fn a_last_word_that_is_not_known_is_not_good() {
        let mut findings = findings(&[Gates::Policy]);
        let unknown = Seen { gates: Gates::Policy, last_word: LastWord::Unknown("x".into()) };
        findings.seen.insert("other".into(), unknown);
        let aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let aaq = patched(&aaq, &patch_of(&aaq, &findings, at(1)).unwrap());
        assert_eq!(shown(&aaq)[0], ["Gating", "Unknown", "NotKnown"]);
    }

    #[test]
    fn what_others_say_stays() {
        let mut aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let other =
            json!({ "phase": "Deploying", "conditions": [{ "type": "Available", "status": "False" }] });
        aaq.status = Some(serde_json::from_value(other).unwrap());
        let aaq = patched(&aaq, &patch_of(&aaq, &findings(&[Gates::Policy]), at(1)).unwrap());
        assert_eq!(shown(&aaq)[0], ["Available", "False", ""]);
        assert_eq!(shown(&aaq).len(), 3);
        assert_eq!(aaq.status.unwrap().phase.as_deref(), Some("Deploying"));
    }

    #[test]
    fn a_pause_is_said_from_its_beginning_and_so_is_its_end() {
        let mut aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let pause = Pause { until: at(60), rate: 50 };
        let wrong = Err(PauseError::Time(names::PAUSED_ANNOTATION, "2h".to_owned()));
        let mut said = Vec::new();
        for (second, pause) in [(1, Ok(None)), (2, Ok(Some(pause))), (60, Ok(None)), (70, wrong)] {
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&serde_json::from_value(serde_json::to_value(&aaq).unwrap()).unwrap());
            let stated = aaqs.holding().unwrap().stated.clone().unwrap();
            let good = findings(&[Gates::Policy]);
            aaq = patched(&aaq, &patch(&stated, &good, Facts::default(), &pause, at(second)).unwrap());
            said.extend(shown(&aaq).into_iter().filter(|condition| condition[0] == names::PAUSED));
        }
        let expected = [["True", "Paused"], ["False", "NotPaused"], ["False", "PauseIgnored"]]
            .map(|[a, b]| ["Paused", a, b]);
        assert_eq!(said, expected);
    }

    #[test]
    fn which_sidecars_answer_is_said_where_there_are_some() {
        let state = |name: &str, presence| EvaluatorState {
            name: name.into(),
            presence,
            breaker: None,
            differs: None,
        };
        let (works, unknown) = (state("a", Some(Ok(1))), state("b", None));
        let absent = state("b", Some(Err(Absence::NoSocket)));
        let mut aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let mut told = Vec::new();
        for (second, sidecars) in [
            (1, vec![]),
            (2, vec![works.clone(), unknown]),
            (3, vec![works.clone(), absent]),
            (4, vec![works, state("b", Some(Ok(1)))]),
            (5, vec![]),
        ] {
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&serde_json::from_value(serde_json::to_value(&aaq).unwrap()).unwrap());
            let stated = aaqs.holding().unwrap().stated.clone().unwrap();
            let facts = Facts { sidecars: &sidecars, ..Facts::default() };
            aaq = patched(
                &aaq,
                &patch(&stated, &findings(&[Gates::Policy]), facts, &Ok(None), at(second)).unwrap(),
            );
            let conditions = aaq.status.clone().unwrap().conditions.unwrap();
            let of = conditions.iter().find(|it| it.type_ == names::EVALUATORS_ANSWER);
            told.push(of.map(|of| {
                format!("{} {}: {}", of.status, of.reason.clone().unwrap(), of.message.clone().unwrap())
            }));
        }
        let expected = [
            "Unknown NotKnown: a answers; b is looked for",
            "False SidecarFails: a answers; b is not there: its directory holds no socket, see whether its container runs",
            "True SidecarsAnswer: a answers; b answers",
            "True NoSidecars: there are none",
        ];
        let expected: Vec<_> = [None].into_iter().chain(expected.map(|it| Some(it.to_owned()))).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn how_vms_are_counted_is_said_beside_who_gates_and_since_when_they_are() {
        let mut aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let mut told = Vec::new();
        for (second, calculator) in
            [(1, "VmiPodUsage"), (2, "VmiPodUsage"), (3, "VirtualResources"), (4, "IgnoreVmiCalculator")]
        {
            let calculator = Calculator::from_name(calculator).unwrap();
            let in_force = InForce { calculator, message: "words".to_owned() };
            let facts = Facts { machines: Some(&in_force), ..Facts::default() };
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&serde_json::from_value(serde_json::to_value(&aaq).unwrap()).unwrap());
            let stated = aaqs.holding().unwrap().stated.clone().unwrap();
            let Some(patch) = patch(&stated, &findings(&[Gates::Policy]), facts, &Ok(None), at(second))
            else {
                told.push("nothing".to_owned());
                continue;
            };
            aaq = patched(&aaq, &patch);
            let conditions = aaq.status.clone().unwrap().conditions.unwrap();
            let of = &conditions[1];
            let since = of.last_transition_time.as_ref().unwrap().0.as_second();
            let (reason, message) = (of.reason.as_deref().unwrap(), of.message.as_deref().unwrap());
            told.push(format!("{} {} {reason} {message} {since}", of.type_, of.status));
        }
        assert_eq!(
            told,
            [
                "VirtualMachines True VmiPodUsage words 1",
                "nothing",
                "VirtualMachines True VirtualResources words 1",
                "VirtualMachines False IgnoreVmiCalculator words 4",
            ]
        );
        assert_eq!(shown(&aaq)[0], ["Gating", "True", "GatedByPolicy"]);
    }
}
