//! In-place resizes, of pods of which a node has reported what is in force.

use serde_json::{Map, Value, json};
use sluice_e2e::random::Random;
use sluice_engine::Quantity;
use sluice_engine::quantity::NANOS_PER_UNIT;

use crate::differential::natives::predict;
use crate::differential::quantities::exact_text;
use crate::differential::team::{Seen, Team, increase};

const RESIZABLE: [&str; 2] = ["cpu", "memory"];

fn nanos(list: &Value, name: &str) -> Option<i128> {
    list[name].as_str().map(|text| Quantity::parse(text).unwrap().nanos())
}

/// Something of the order of an amount: an integer of its smallest part.
fn near(random: &mut Random, nanos: i128, name: &str) -> i128 {
    let part = if name == "cpu" { 1_000_000 } else { NANOS_PER_UNIT };
    let factors = [(1, 2), (2, 3), (1, 1), (1, 1), (3, 2), (2, 1), (5, 1), (25, 1), (100, 1), (400, 1)];
    let (numerator, denominator) = random.pick(&factors);
    (nanos * numerator / denominator / part * part).max(part)
}

/// What a node could report of a container: more, less, or nothing of what its spec asks.
fn status(random: &mut Random, container: &Value) -> Value {
    let list = |random: &mut Random, list: &Value| {
        let mut reported = Map::new();
        for (name, text) in list.as_object().into_iter().flatten() {
            if random.chance(90) {
                let amount = Quantity::parse(text.as_str().unwrap()).unwrap().nanos();
                let amount =
                    if RESIZABLE.contains(&name.as_str()) { near(random, amount, name) } else { amount };
                reported.insert(name.clone(), json!(exact_text(random, amount)));
            }
        }
        if random.chance(5) {
            reported.insert("cpu".to_owned(), json!("77m"));
        }
        Value::Object(reported)
    };
    let own = &container["resources"];
    let mut status = json!({
        "name": container["name"], "image": "none", "imageID": "", "ready": true, "restartCount": 0,
    });
    if random.chance(85) {
        status["resources"] = json!({});
        for field in ["requests", "limits"] {
            if random.chance(92) {
                status["resources"][field] = list(random, &own[field]);
            }
        }
    }
    if random.chance(75) {
        status["allocatedResources"] = list(random, &own["requests"]);
    }
    status
}

/// Writes a status as a kubelet would; returns the pod as it is then.
async fn report(team: &Team<'_>, random: &mut Random, pod: &Value) -> Value {
    let statuses = |random: &mut Random, containers: &Value| -> Vec<Value> {
        containers.as_array().into_iter().flatten().map(|container| status(random, container)).collect()
    };
    let mut written = json!({
        "phase": "Running",
        "containerStatuses": statuses(random, &pod["spec"]["containers"]),
        "initContainerStatuses": statuses(random, &pod["spec"]["initContainers"]),
    });
    let spec = &pod["spec"];
    if spec.get("resources").is_some() {
        // A node reports pod-level resources in the same form.
        let whole = status(random, spec);
        for field in ["resources", "allocatedResources"] {
            written[field] = whole[field].clone();
        }
    }
    if random.chance(45) {
        let reason = random.pick(&["Infeasible", "Infeasible", "Deferred"]);
        written["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
    team.server.record(&team.pods, pod["metadata"]["name"].as_str().unwrap(), written).await
}

/// Changes requests and limits so that the quality of service stays. Returns whether anything was changed.
fn change(random: &mut Random, container: &mut Value) -> bool {
    let mut changed = false;
    for name in RESIZABLE {
        let request = nanos(&container["resources"]["requests"], name).filter(|nanos| *nanos > 0);
        let limit = nanos(&container["resources"]["limits"], name).filter(|nanos| *nanos > 0);
        let Some(old) = request else { continue };
        if random.chance(30) {
            continue;
        }
        let wanted = near(random, old, name);
        container["resources"]["requests"][name] = json!(exact_text(random, wanted));
        if let Some(limit) = limit {
            let bound =
                if limit == old { wanted } else { wanted.max(near(random, limit, name)) + NANOS_PER_UNIT };
            container["resources"]["limits"][name] = json!(exact_text(random, bound));
        }
        changed = true;
    }
    changed
}

/// Resizes a pod that was just created.
pub async fn case(team: &mut Team<'_>, random: &mut Random, created: Value) {
    let old = if random.chance(80) { report(team, random, &created).await } else { created };
    let mut new = old.clone();
    // What the containers ask for has to fit into pod-level resources, so mostly only one of both is changed.
    let pod_level = new["spec"].get("resources").is_some();
    let mut changed = pod_level && change(random, &mut new["spec"]);
    let containers: &[&str] =
        if pod_level && random.chance(85) { &[] } else { &["containers", "initContainers"] };
    for &field in containers {
        let list = new["spec"].get_mut(field).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            if field == "containers" || container["restartPolicy"] == "Always" {
                changed |= change(random, container);
            }
        }
    }
    if !changed {
        return;
    }
    let before = Seen::read(team.server, &old.to_string());
    let after = Seen::read(team.server, &new.to_string());
    let taken = increase(&before.charge, &after.charge);
    let verdict = predict(&team.quotas, &taken, &after.facts, &after.wire);
    let answer =
        team.server.replace(&team.pods, new["metadata"]["name"].as_str().unwrap(), "resize", &new).await;
    if let Err(refusal) = &answer
        && refusal.code == 422
    {
        return team.report.passed_over("resize: not acceptable at all");
    }
    let what = format!(
        "resize in {}\n  spec {}\n  status {}\n  to {}\n  adds {taken:?}",
        team.pods, old["spec"], old["status"], new["spec"]
    );
    if let Ok(stored) = &answer {
        let stored = Seen::read(team.server, stored);
        if stored.charge != after.charge {
            team.broken = true;
            return team
                .report
                .disagreed(&format!("{what}\n  the stored pod is charged {:?}", stored.charge));
        }
    }
    let outcomes = if pod_level {
        [
            "pod-level resize: both allow",
            "pod-level resize: both miss amounts",
            "pod-level resize: both find it exceeds",
        ]
    } else {
        ["resize: both allow", "resize: both miss amounts", "resize: both find it exceeds"]
    };
    team.settle(&what, verdict, &answer, &taken, &after.facts, outcomes).await;
}
