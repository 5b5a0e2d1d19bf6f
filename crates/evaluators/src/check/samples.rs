//! Pods of many kinds, made here.

use serde_json::{Value, json};

use super::Sample;

/// Thirty pods: ten shapes, each waiting, running and ended. Every second shape has the label that
/// application-aware-quota's example is about.
#[must_use]
pub fn generated() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (place, (name, spec)) in shapes().into_iter().enumerate() {
        for phase in ["Pending", "Running", "Succeeded"] {
            let name = format!("{name}-{}", phase.to_lowercase());
            // Ours are always pods.
            samples
                .extend(Sample::new(name.as_str(), pod(&name, place, phase, &spec).to_string().as_bytes()));
        }
    }
    samples
}

/// A pod of about 7 KB, as the API server has of a usual one.
pub(super) fn large() -> Option<Sample> {
    let env: Vec<Value> =
        (0..60).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(76)})).collect();
    let spec = json!({"containers": [
        {"name": "app", "image": "registry.example/app:1", "env": env, "resources": {"requests": {"cpu": "250m"}}},
    ]});
    Sample::new("large", pod("large", 0, "Running", &spec).to_string().as_bytes()).ok()
}

fn pod(name: &str, place: usize, phase: &str, spec: &Value) -> Value {
    let labels = if place.is_multiple_of(2) {
        json!({"app": "sample", "label-app": ""})
    } else {
        json!({"app": "sample"})
    };
    let mut spec = spec.clone();
    let fields = if phase == "Pending" {
        json!({"schedulingGates": [{"name": "ApplicationAwareQuotaGate"}]})
    } else {
        json!({"nodeName": "node-1"})
    };
    if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields) {
        spec.extend(fields);
    }
    json!({
        "metadata": {
            "name": name, "namespace": "sample", "uid": format!("00000000-0000-0000-0000-{place:012}"),
            "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1",
        },
        "spec": spec,
        "status": {"phase": phase, "qosClass": "Burstable"},
    })
}

fn container(name: &str, resources: &Value) -> Value {
    json!({"name": name, "image": "registry.example/app:1", "resources": resources})
}

fn shapes() -> [(&'static str, Value); 10] {
    let small = json!({"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}});
    let app = container("app", &small);
    let mut always = container("proxy", &small);
    if let Value::Object(fields) = &mut always {
        fields.insert("restartPolicy".to_owned(), json!("Always"));
    }
    [
        ("usual", json!({"containers": [app]})),
        ("without-resources", json!({"containers": [container("app", &json!({}))]})),
        (
            "limits-only",
            json!({"containers": [container("app", &json!({"limits": {"cpu": "2", "memory": "1Gi"}}))]}),
        ),
        ("two-containers", json!({"containers": [app, container("other", &small)]})),
        (
            "init",
            json!({"containers": [app], "initContainers": [container("init", &json!({"requests": {"cpu": "4"}}))]}),
        ),
        ("sidecar", json!({"containers": [app], "initContainers": [always]})),
        (
            "extended",
            json!({"containers": [container("app", &json!({
                "requests": {"example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"},
            }))]}),
        ),
        (
            "huge-pages",
            json!({"containers": [container("app", &json!({
                "requests": {"hugepages-2Mi": "64Mi", "memory": "64Mi"},
            "limits": {"hugepages-2Mi": "64Mi", "memory": "64Mi"},
            }))]}),
        ),
        ("overhead", json!({"containers": [app], "overhead": {"cpu": "100m", "memory": "64Mi"}})),
        (
            "pod-resources",
            json!({"containers": [app], "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{generated, large};

    #[test]
    fn there_are_thirty_and_a_large_one() {
        let samples = generated();
        assert_eq!(samples.len(), 30);
        let names: std::collections::BTreeSet<_> = samples.iter().map(|sample| sample.name.clone()).collect();
        assert_eq!(names.len(), 30);
        let size = large().expect("a pod").json.len();
        assert!((6_500..7_500).contains(&size), "{size}");
    }
}
