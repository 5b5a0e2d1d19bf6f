//! The container that an `Evaluator` names in `spec.sidecar`: of what it may be made, and by which name it is asked.
//!
//! Its fields are a list of what does no harm, and nothing else of the object reaches the controller's pod. The schema of
//! the kind has no others either; here is looked at what was stored by another version.

use serde_json::{Map, Value, json};

use crate::sidecars::{NOT_KNOWN, RefusedSidecar, items, name_of_container, others, text};

/// Longest name: volume and path of its socket are made of it.
const LONGEST_NAME: usize = 40;
const OF_VARIABLE: [&str; 2] = ["name", "value"];
const OF_RESOURCES: [&str; 2] = ["requests", "limits"];
const AMOUNTS: [&str; 2] = ["cpu", "memory"];

/// The container that the `Evaluator` of this name and with this `spec` has run; `None`: it names none, or is off.
#[must_use]
pub fn sidecar_of_evaluator(name: &str, spec: &Value) -> Option<Value> {
    let sidecar = spec.get("sidecar").filter(|sidecar| !text(sidecar, "image").is_empty())?;
    let is_off = text(spec, "mode") == "Off";
    (!is_off).then(|| container(name, sidecar))
}

/// Of a container that runs, what [`sidecar_of_evaluator`] has made of the `Evaluator`.
#[must_use]
pub fn sidecar_that_runs(container_that_runs: &Value) -> Value {
    container(text(container_that_runs, "name"), container_that_runs)
}

fn container(name: &str, of: &Value) -> Value {
    let mut container = Map::from_iter([("name".to_owned(), Value::from(name))]);
    let mut add = |field: &str, value: Value| drop(container.insert(field.to_owned(), value));
    for field in ["image", "args"] {
        if let Some(value) = of.get(field).filter(|value| !value.is_null()) {
            add(field, value.clone());
        }
    }
    let variables = items(of, "env");
    if !variables.is_empty() {
        add("env", variables.iter().map(|variable| known(variable, &OF_VARIABLE)).collect());
    }
    let resources = of.get("resources").unwrap_or(&Value::Null);
    let of_resources = OF_RESOURCES.iter().filter_map(|field| {
        let amounts = known(resources.get(*field)?, &AMOUNTS);
        amounts.as_object().is_some_and(|it| !it.is_empty()).then(|| ((*field).to_owned(), amounts))
    });
    let of_resources: Map<_, _> = of_resources.collect();
    if !of_resources.is_empty() {
        add("resources", json!(of_resources));
    }
    Value::Object(container)
}

/// These fields of an object, where they say something.
fn known(of: &Value, fields: &[&str]) -> Value {
    let said = |value: &&Value| !value.is_null() && value.as_str() != Some("");
    let kept =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), of.get(*field).filter(said)?.clone())));
    Value::Object(kept.collect())
}

/// All that is refused of the container that an `Evaluator` of this name names. None that is refused runs.
#[must_use]
pub fn refused_of_evaluator(name: &str, spec: &Value) -> Vec<RefusedSidecar> {
    let mut refused = Vec::new();
    let Some(sidecar) = spec.get("sidecar").filter(|sidecar| !text(sidecar, "image").is_empty()) else {
        return refused;
    };
    let mut refuse = |field: String, why: String| refused.push(RefusedSidecar { place: 0, field, why });
    name_of_container(name, &mut |_, why| refuse("metadata.name".to_owned(), why));
    if name.len() > LONGEST_NAME {
        refuse(
            "metadata.name".to_owned(),
            format!("it has more than {LONGEST_NAME} characters: choose another"),
        );
    }
    let mut not_known = |at: String, of: &Value, fields: &[&str]| {
        for field in others(of, fields) {
            refuse(format!("spec.sidecar.{at}.{field}"), NOT_KNOWN.to_owned());
        }
    };
    for (place, variable) in items(sidecar, "env").iter().enumerate() {
        not_known(format!("env[{place}]"), variable, &OF_VARIABLE);
    }
    let resources = sidecar.get("resources").unwrap_or(&Value::Null);
    not_known("resources".to_owned(), resources, &OF_RESOURCES);
    for field in OF_RESOURCES {
        let amounts = resources.get(field).unwrap_or(&Value::Null);
        not_known(format!("resources.{field}"), amounts, &AMOUNTS);
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(sidecar: &Value) -> Value {
        json!({ "sidecar": sidecar })
    }

    #[test]
    fn of_an_evaluators_container_only_known_fields_are_taken() {
        assert_eq!(sidecar_of_evaluator("a", &spec(&json!({ "timeout": "1s" }))), None);
        assert_eq!(sidecar_of_evaluator("a", &json!({ "cel": {} })), None);
        let all = json!({
            "image": "i", "args": ["x"], "resources": {
                "requests": { "memory": "1Mi", "example.com/gpu": "1" }, "limits": null, "claims": [{ "name": "gpu" }],
            },
            "env": [
                { "name": "A", "value": "a" }, { "name": "B", "value": "" },
                { "name": "C", "valueFrom": { "secretKeyRef": { "name": "any", "key": "k" } } },
            ],
            "envFrom": [{ "secretRef": { "name": "any" } }], "timeout": "1s", "name": "other",
            "securityContext": { "privileged": true }, "volumeMounts": [{ "name": "token", "mountPath": "/t" }],
            "ports": [{ "hostPort": 80 }],
        });
        let made = json!({
            "name": "a", "image": "i", "args": ["x"], "resources": { "requests": { "memory": "1Mi" } },
            "env": [{ "name": "A", "value": "a" }, { "name": "B" }, { "name": "C" }],
        });
        assert_eq!(sidecar_of_evaluator("a", &spec(&all)), Some(made.clone()));
        assert_eq!(sidecar_that_runs(&made), made);
        let mut off = spec(&all);
        off["mode"] = "Off".into();
        assert_eq!(sidecar_of_evaluator("a", &off), None, "what is off takes no place of others");
    }

    #[test]
    fn what_is_refused_is_named_by_field() {
        let of = |field: &str, value: Value| json!({ "name": "A", field: value });
        let secret = of("valueFrom", json!({ "secretKeyRef": { "name": "license", "key": "k" } }));
        let long = "a".repeat(LONGEST_NAME + 1);
        for (name, sidecar, field) in [
            ("a", json!({ "image": "i", "env": [of("value", json!("a"))] }), None),
            ("a.b", json!({}), None),
            ("a.b", json!({ "image": "i" }), Some("metadata.name")),
            (&*long, json!({ "image": "i" }), Some("metadata.name")),
            ("sluice-controller", json!({ "image": "i" }), Some("metadata.name")),
            ("aaq-controller", json!({ "image": "i" }), Some("metadata.name")),
            ("refused-0", json!({ "image": "i" }), Some("metadata.name")),
            ("a", json!({ "image": "i", "env": [{}, secret] }), Some("spec.sidecar.env[1].valueFrom")),
            (
                "a",
                json!({ "image": "i", "resources": { "claims": [] } }),
                Some("spec.sidecar.resources.claims"),
            ),
            (
                "a",
                json!({ "image": "i", "resources": { "limits": { "gpu": "1" } } }),
                Some("spec.sidecar.resources.limits.gpu"),
            ),
        ] {
            let refused = refused_of_evaluator(name, &spec(&sidecar));
            let fields: Vec<_> = refused.iter().map(|it| it.field.as_str()).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{name}: {sidecar}");
        }
    }
}
