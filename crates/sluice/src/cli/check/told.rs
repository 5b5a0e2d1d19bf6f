//! What is found of what Sluice itself tells: conditions of the `AAQ`, of quotas and of policies, and pauses.

use serde_json::Value;
use sluice_api::{names, read_pause};
use sluice_controllers::gating::{Gates, LastWord};

use super::about::{self, About, Check};
use super::seen::{NOT_REACHED, Seen, full_name, gives_way, lists, text, texts, without_paths};

/// So many objects of one kind are named.
const NAMED: usize = 5;

/// A condition of an object.
struct Condition<'v> {
    kind: &'v str,
    status: &'v str,
    reason: &'v str,
    message: &'v str,
}

fn conditions(object: &Value) -> impl Iterator<Item = Condition<'_>> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.map(|it| Condition {
        kind: text(it, "/type"),
        status: text(it, "/status"),
        reason: text(it, "/reason"),
        message: text(it, "/message"),
    })
}

/// What conditions say that are of this type and status.
fn said(objects: &[Value], kind: &str, status: &str) -> Vec<String> {
    let is = |it: &Condition<'_>| it.kind == kind && it.status == status;
    objects
        .iter()
        .flat_map(conditions)
        .filter(is)
        .map(|it| format!("{kind}={status}: {}", it.message))
        .collect()
}

/// The first of them, and how many more there are.
fn listed(all: &[String]) -> String {
    let first = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first}; {more} more"),
    }
}

/// New pods of targeted namespaces are gated: by effect at the API server that answers, as the leader says at the others.
pub fn gating(seen: &Seen) -> Check {
    let about = &about::GATING;
    let aaqs = match seen.items(lists::AAQS, about) {
        Ok(aaqs) => aaqs,
        Err(unknown) => return unknown,
    };
    let by = match &seen.gates.gates {
        Gates::Policy => "by policy",
        Gates::Webhook => "by webhook",
        Gates::Refused(why) if why.contains(NOT_REACHED) => return about.unknown(without_paths(why)),
        Gates::Refused(why) => return about.failed(format!("new pods are refused: {}", without_paths(why))),
        Gates::Nothing => return about.failed("new pods come in without a gate"),
        Gates::Unknown(why) => return about.unknown(without_paths(why)),
    };
    match &seen.gates.last_word {
        LastWord::Policy | LastWord::Webhook => {}
        LastWord::Nothing => return about.failed("pods that nothing has gated are let in"),
        LastWord::Unknown(why) => return about.unknown(without_paths(why)),
    }
    about.without(&said(aaqs, names::GATING, "False"), by)
}

/// There is one `AAQ`, which is in force and says that nothing is wrong.
pub fn configuration(seen: &Seen) -> Check {
    let about = &about::CONFIGURATION;
    let aaqs = match seen.items(lists::AAQS, about) {
        Ok(aaqs) => aaqs,
        Err(unknown) => return unknown,
    };
    let mut faults: Vec<String> = aaqs
        .iter()
        .filter(|aaq| text(aaq, "/status/phase") == "Error")
        .map(|aaq| format!("the phase of {} is Error", full_name(aaq)))
        .collect();
    let counting: Vec<String> = aaqs.iter().filter(|aaq| !gives_way(aaq)).map(full_name).collect();
    if counting.len() > 1 {
        faults.push(format!("there are several AAQs, of which the oldest holds: {}", counting.join(", ")));
    }
    faults.extend(said(aaqs, names::DEGRADED, "True"));
    faults.extend(said(aaqs, names::AVAILABLE, "False"));
    let without_effect = said(aaqs, names::FIELDS_NOT_IN_FORCE, "True");
    match (faults.is_empty(), without_effect.is_empty()) {
        (true, false) => about.warning(listed(&without_effect)),
        _ => about.without(&faults, format!("{} AAQ", aaqs.len())),
    }
}

/// Quotas may be raised for live migrations.
pub fn headroom(seen: &Seen) -> Check {
    let about = &about::HEADROOM;
    let (aaqs, policies) = match (seen.items(lists::AAQS, about), seen.items(lists::POLICIES, about)) {
        (Ok(aaqs), Ok(policies)) => (aaqs, policies),
        (Err(unknown), _) | (_, Err(unknown)) => return unknown,
    };
    let mut faults = said(aaqs, names::HEADROOM, "False");
    let unready = policies.iter().filter_map(|policy| {
        let ready = conditions(policy).find(|it| it.kind == names::READY && it.status == "False")?;
        Some(format!("HeadroomPolicy {}: {}", full_name(policy), ready.message))
    });
    faults.extend(unready);
    if faults.is_empty() {
        about.good(format!("{} policies", policies.len()))
    } else {
        about.failed(listed(&faults))
    }
}

/// Quotas that do not limit all that they name. What a pause suspends is told as a pause.
pub fn quotas(seen: &Seen) -> Check {
    let about = &about::QUOTAS;
    let lists = [seen.items(lists::QUOTAS, about), seen.items(lists::CLUSTER_QUOTAS, about)];
    let (mut told, mut count) = (Vec::new(), 0);
    for list in lists {
        let quotas = match list {
            Ok(quotas) => quotas,
            Err(unknown) => return unknown,
        };
        count += quotas.len();
        for quota in quotas {
            let is_told = |it: &Condition<'_>| match it.kind {
                names::UNCOUNTED_KEYS => it.status == "True",
                names::ENFORCED => it.status == "False" && it.reason != "Paused",
                _ => false,
            };
            let name = full_name(quota);
            told.extend(conditions(quota).filter(is_told).map(|it| format!("{name}: {}", it.message)));
        }
    }
    warned(about, &told, format!("{count}, all enforced"))
}

/// Pauses in force, and annotations that are none.
pub fn pauses(seen: &Seen) -> Check {
    let about = &about::PAUSES;
    let mut told = Vec::new();
    for (kind, list) in [("AAQ", lists::AAQS), ("namespace", lists::NAMESPACES)] {
        let objects = match seen.items(list, about) {
            Ok(objects) => objects,
            Err(unknown) => return unknown,
        };
        for object in objects {
            let name = text(object, "/metadata/name");
            match read_pause(texts(object, "/metadata/annotations").as_ref(), seen.now) {
                Ok(None) => {}
                Ok(Some(pause)) => told.push(format!("{kind} {name} until {}", pause.until)),
                Err(error) => told.push(format!("{kind} {name} is not paused: {error}")),
            }
        }
    }
    warned(about, &told, "none")
}

fn warned(about: &'static About, told: &[String], good: impl Into<String>) -> Check {
    if told.is_empty() { about.good(good) } else { about.warning(listed(told)) }
}
