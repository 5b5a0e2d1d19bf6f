#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use sluice_gate::Subject;

use super::*;

/// A pod that waits for this much CPU, `1` of which is a licence.
fn database(name: &str, cpu: Option<&str>, gates: Value) -> Value {
    let requests = cpu.map_or_else(|| json!({}), |cpu| json!({ "cpu": cpu }));
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "app": "db" },
        },
        "spec": {
            "schedulingGates": gates,
            "containers": [{ "name": "a", "image": "none", "resources": { "requests": requests } }],
        },
    })
}

/// What is explained of a pod of three that are licensed for each core.
fn explained(pod: &str, has_texts: bool) -> (String, Vec<String>) {
    let aaq = json!({
        "metadata": { "name": "aaq", "uid": "aaq" }, "spec": { "namespaceSelector": {} },
    });
    let rule = json!({
        "metadata": { "name": "licence", "uid": "licence" },
        "spec": { "cel": { "match": "true", "charge": { "example.com/license": "native['requests.cpu'].ceil()" } } },
    });
    let gates = || json!([{ "name": names::GATE }]);
    let pods = [
        database("runs", Some("1500m"), json!([])),
        database("waits", Some("1"), gates()),
        database("without", None, gates()),
    ];
    let mut read = Read {
        aaqs: Some(vec![wire(aaq).unwrap()]),
        namespaces: vec![
            wire(json!({ "metadata": { "name": "team", "uid": "team", "resourceVersion": "1" } })).unwrap(),
        ],
        quotas: vec![
            wire(json!({
                "metadata": { "name": "licences", "namespace": "team", "uid": "q", "resourceVersion": "1" },
                "spec": { "hard": { "example.com/license": "2" } },
            }))
            .unwrap(),
        ],
        pods: pods.iter().map(|pod| wire(pod.clone()).unwrap()).collect(),
        ..Read::default()
    };
    if has_texts {
        read.texts = pods.iter().map(|pod| serde_json::value::to_raw_value(pod).unwrap()).collect();
    }
    let aaqs = read.aaqs.as_deref().unwrap();
    read.evaluated = Evaluated::read(aaqs, &[wire(rule).unwrap()]);
    let gate = fed(Arc::default(), ChargeRules::for_minor(36), &read);
    let state = gate.state();
    let mut state = state.lock();
    state.decide_in_memory(Moment { mono_ms: 60_000, unix_ms: 1_767_225_660_000 });
    let explanation = state.explain(Subject::Pod { namespace: "team", name: pod }).unwrap();
    let json = explanation.json();
    let text = |field: &str| json[field].as_str().unwrap_or_default().to_owned();
    (
        format!("{}: {}", text("reason"), text("message")),
        read.evaluated.assumed(has_texts).into_iter().collect(),
    )
}

#[test]
fn rules_are_evaluated_without_a_leader() {
    let (told, assumed) = explained("waits", true);
    let words = "QuotaExceeded: exceeded quota: licences, requested: example.com/license=1, used: \
                 example.com/license=2, limited: example.com/license=2";
    assert_eq!((&*told, assumed), (words, Vec::new()));
    let (told, _) = explained("without", true);
    assert!(
        told.starts_with("NotEvaluated: held: evaluator licence has no answer about this pod: "),
        "{told}"
    );
    // Where the JSON of pods is not known nothing of that is.
    let (told, assumed) = explained("waits", false);
    assert!(!told.starts_with("QuotaExceeded"), "{told}");
    assert!(matches!(&assumed[..], [note] if note.starts_with("evaluators are not asked")), "{assumed:?}");
}
