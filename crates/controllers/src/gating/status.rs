//! The status of the `AAQ`: whether pods are gated, by whom, and how virtual machines are counted.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use sluice_api::{AaqCondition, AaqPhase, AaqStatus, names};
use sluice_index::Stated;

use super::aaqs::InForce;
use super::probe::{Gates, LastWord};
use super::report::Findings;
use crate::conditions::machines_status;

/// Of Sluice.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Types of conditions, as application-aware-quota's operator writes them (`operator/pkg/operator/resources`); people wait for
/// the first one.
const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";

/// The merge patch that brings the status up to date; `None` if it is, or while nothing is known. `version`: of Sluice.
pub(super) fn patch(
    aaq: &Stated<AaqStatus>,
    findings: &Findings,
    (machines, unproven): (Option<&InForce>, Option<&str>),
    version: &str,
    now: Timestamp,
) -> Option<Value> {
    if findings.seen.is_empty() {
        return None;
    }
    let old = &aaq.status;
    let stated =
        said(findings).into_iter().chain(machines.map(said_of_machines)).chain([said_of_headroom(unproven)]);
    let wanted = AaqStatus {
        conditions: Some(conditions(old.conditions.as_deref().unwrap_or_default(), stated, now)),
        observed_version: Some(version.to_owned()),
        operator_version: Some(version.to_owned()),
        phase: Some(AaqPhase::Deployed.as_str().to_owned()),
        target_version: Some(version.to_owned()),
    };
    (wanted != *old)
        .then(|| json!({ "metadata": { "resourceVersion": aaq.resource_version }, "status": wanted }))
}

/// One condition.
struct Said {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Whether pods are gated, and by whom.
fn said(findings: &Findings) -> [Said; 3] {
    let alarms = findings.alarms();
    let is_unknown = findings.seen.values().any(|seen| {
        matches!(seen.gates, Gates::Unknown(_)) || matches!(seen.last_word, LastWord::Unknown(_))
    });
    let is_webhook = findings.seen.values().any(|seen| seen.gates == Gates::Webhook);
    let (available, degraded, reason) = match alarms.first() {
        Some(alarm) => ("False", "True", alarm.reason),
        None if is_unknown => ("Unknown", "Unknown", "NotKnown"),
        None if is_webhook => ("True", "False", "GatedByWebhook"),
        None => ("True", "False", "GatedByPolicy"),
    };
    let message = match &alarms[..] {
        [] => findings.summary(),
        alarms => alarms.iter().map(|alarm| &*alarm.note).collect::<Vec<_>>().join("; "),
    };
    [(AVAILABLE, available), (PROGRESSING, "False"), (DEGRADED, degraded)].map(|(kind, status)| Said {
        kind,
        status,
        reason,
        message: message.clone(),
    })
}

fn said_of_machines(in_force: &InForce) -> Said {
    Said {
        kind: names::VIRTUAL_MACHINES,
        status: machines_status(in_force.calculator),
        reason: in_force.calculator.name(),
        message: in_force.message.clone(),
    }
}

/// Whether live migrations may get head-room in native quotas: it is given where the admission policies are proven at each API server.
fn said_of_headroom(unproven: Option<&str>) -> Said {
    let (status, reason, message) = match unproven {
        None => (
            "True",
            "Proven",
            "the admission policies of head-room are in force at every API server".to_owned(),
        ),
        Some(why) => ("False", "NotProven", format!("no quota is raised for live migrations: {why}")),
    };
    Said { kind: names::HEADROOM, status, reason, message }
}

/// Our conditions among those of others, in the order they have.
fn conditions(old: &[AaqCondition], said: impl Iterator<Item = Said>, now: Timestamp) -> Vec<AaqCondition> {
    let mut conditions = old.to_vec();
    for Said { kind, status, reason, message } in said {
        let known = conditions.iter_mut().find(|condition| condition.type_ == kind);
        let since = known.as_ref().filter(|known| known.status == status);
        let since = since.and_then(|known| known.last_transition_time.clone());
        let condition = AaqCondition {
            // It would be a write each time that nothing has changed.
            last_heartbeat_time: None,
            last_transition_time: since.or_else(|| Timestamp::from_second(now.as_second()).ok().map(Time)),
            message: Some(message),
            reason: Some(reason.to_owned()),
            status: status.to_owned(),
            type_: kind.to_owned(),
        };
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_api::AAQ;
    use sluice_engine::vm::Calculator;
    use sluice_index::{Aaqs, Watched as _};
    use sluice_operator::Gating;

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
    fn patch_of(aaq: &AAQ, findings: &Findings, version: &str, now: Timestamp) -> Option<Value> {
        let mut aaqs = Aaqs::default();
        aaqs.upsert(&serde_json::from_value(serde_json::to_value(aaq).unwrap()).unwrap());
        patch(aaqs.oldest().unwrap().stated.as_ref().unwrap(), findings, (None, None), version, now)
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
        assert_eq!(patch_of(&aaq, &findings(&[]), "1", at(1)), None, "nothing is known");
        let good = findings(&[Gates::Policy]);
        let aaq = patched(&aaq, &patch_of(&aaq, &good, "1", at(1)).unwrap());
        assert_eq!(
            shown(&aaq),
            [
                ["Available", "True", "GatedByPolicy"],
                ["Progressing", "False", "GatedByPolicy"],
                ["Degraded", "False", "GatedByPolicy"],
                ["Headroom", "True", "Proven"]
            ]
        );
        assert_eq!(patch_of(&aaq, &good, "1", at(2)), None);
        assert!(patch_of(&aaq, &good, "2", at(2)).is_some(), "another version runs");
    }

    #[test]
    fn one_server_that_gates_by_nothing_is_enough_to_say_so_and_the_time_is_of_the_change() {
        let aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        for (gates, status, reason, since) in [
            (vec![Gates::Policy, Gates::Webhook], "True", "GatedByWebhook", 0),
            (vec![Gates::Policy, Gates::Unknown("x".into())], "Unknown", "NotKnown", 9),
            (vec![Gates::Policy, Gates::Nothing], "False", "PodsRefused", 9),
        ] {
            let before = patched(&aaq, &patch_of(&aaq, &findings(&[Gates::Policy]), "1", at(0)).unwrap());
            let after = patched(&before, &patch_of(&before, &findings(&gates), "1", at(9)).unwrap());
            let available = &after.status.clone().unwrap().conditions.unwrap()[0];
            assert_eq!((&*available.status, available.reason.as_deref()), (status, Some(reason)));
            assert_eq!(available.last_transition_time, Some(Time(at(since))), "{reason}");
        }
    }

    #[test]
    fn a_last_word_that_is_not_known_is_not_good() {
        let mut findings = findings(&[Gates::Policy]);
        let unknown = Seen { gates: Gates::Policy, last_word: LastWord::Unknown("x".into()) };
        findings.seen.insert("other".into(), unknown);
        let aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let aaq = patched(&aaq, &patch_of(&aaq, &findings, "1", at(1)).unwrap());
        assert_eq!(shown(&aaq)[0], ["Available", "Unknown", "NotKnown"]);
        assert_eq!(shown(&aaq)[2], ["Degraded", "Unknown", "NotKnown"]);
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut aaq = AAQ::new("aaq", sluice_api::AaqSpec::default());
        let other = json!({ "conditions": [{ "type": "Other", "status": "True" }] });
        aaq.status = Some(serde_json::from_value(other).unwrap());
        let aaq = patched(&aaq, &patch_of(&aaq, &findings(&[Gates::Policy]), "1", at(1)).unwrap());
        assert_eq!(shown(&aaq)[0], ["Other", "True", ""]);
        assert_eq!(shown(&aaq).len(), 5);
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
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&serde_json::from_value(serde_json::to_value(&aaq).unwrap()).unwrap());
            let stated = aaqs.oldest().unwrap().stated.clone().unwrap();
            let Some(patch) =
                patch(&stated, &findings(&[Gates::Policy]), (Some(&in_force), None), "1", at(second))
            else {
                told.push("nothing".to_owned());
                continue;
            };
            aaq = patched(&aaq, &patch);
            let conditions = aaq.status.clone().unwrap().conditions.unwrap();
            let of = &conditions[3];
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
        assert_eq!(shown(&aaq)[0], ["Available", "True", "GatedByPolicy"]);
    }
}
