use serde_json::{Value, json};
use sluice_api::names;

use super::*;

/// What must not be in any bundle.
const MARKER: &str = "do-not-tell";

/// Object by kind, and what is kept of it.
fn vectors() -> Vec<(&'static str, Value, Value)> {
    let kept_metadata = json!({ "name": "x", "namespace": "team", "uid": "u", "labels": { "env": "prod" } });
    let mut metadata = kept_metadata.clone();
    metadata["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": MARKER, "example.com/token": MARKER,
    });
    metadata["managedFields"] = json!([{ "manager": MARKER }]);
    metadata["selfLink"] = json!(MARKER);
    let requests = json!({ "requests": { "cpu": "1" } });
    let container = json!({
        "name": "main", "image": MARKER, "command": [MARKER], "args": [MARKER], "env": [{ "name": "A", "value": MARKER }],
        "envFrom": [{ "secretRef": { "name": MARKER } }], "resources": requests, "workingDir": MARKER,
        "lifecycle": { "preStop": { "exec": { "command": [MARKER] } } },
    });
    let volumes = json!([
        { "name": MARKER, "secret": { "secretName": MARKER } }, { "csi": { "volumeAttributes": { "a": MARKER } } },
    ]);
    let pod_spec = json!({
        "containers": [container], "initContainers": [container], "ephemeralContainers": [container],
        "volumes": volumes, "imagePullSecrets": [{ "name": MARKER }], "serviceAccountName": MARKER,
        "schedulingGates": [{ "name": names::GATE }], "priority": 7, "hostAliases": [{ "hostnames": [MARKER] }],
        "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": MARKER, "namespaces": ["other"],
        }] } },
    });
    let kept_pod_spec = json!({
        "containers": [{ "name": "main", "resources": requests }],
        "initContainers": [{ "name": "main", "resources": requests }],
        "schedulingGates": [{ "name": names::GATE }], "priority": 7,
        "affinity": { "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{ "namespaces": ["other"] }],
        } },
    });
    let pod_status = json!({
        "phase": "Pending", "podIP": MARKER, "qosClass": "Burstable",
        "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "extra": MARKER }],
        "containerStatuses": [{ "name": "main", "lastState": { "terminated": { "message": MARKER, "exitCode": 1 } } }],
    });
    let kept_pod_status = json!({
        "phase": "Pending", "qosClass": "Burstable",
        "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }],
        "containerStatuses": [{ "name": "main", "lastState": { "terminated": { "exitCode": 1 } } }],
    });
    let own = json!({
        "name": names::CONTROLLER, "image": "sluice:1", "args": ["controller"], "env": [{ "name": "A", "value": MARKER }],
    });
    let webhooks = json!([
        { "name": "a", "clientConfig": {
            "caBundle": "public", "service": { "name": "s", "path": format!("/{MARKER}/growth") },
        } },
        { "name": "b", "clientConfig": { "url": format!("https://127.0.0.1:1/{MARKER}/growth") } },
        { "name": "c", "clientConfig": { "url": format!("https://127.0.0.1:1/{MARKER}") } },
        { "name": "d", "clientConfig": { "service": { "path": "/growth" } } },
        { "name": "e", "clientConfig": { "service": { "path": 7 }, "url": "" } },
    ]);
    let kept_webhooks = json!([
        { "name": "a", "clientConfig": { "caBundle": "public", "service": { "name": "s", "path": "/REDACTED/growth" } } },
        { "name": "b", "clientConfig": { "url": "https://127.0.0.1:1/REDACTED/growth" } },
        { "name": "c", "clientConfig": { "url": "https://127.0.0.1:1/REDACTED" } },
        { "name": "d", "clientConfig": { "service": { "path": "/growth" } } },
        { "name": "e", "clientConfig": { "service": { "path": 7 }, "url": "" } },
    ]);
    let whole =
        |spec: Value| json!({ "metadata": metadata, "spec": spec, "status": { "used": { "pods": "1" } } });
    let kept = |spec: Value| json!({ "metadata": kept_metadata, "spec": spec, "status": { "used": { "pods": "1" } } });
    vec![
        (
            "Pod",
            json!({ "metadata": metadata, "spec": pod_spec, "status": pod_status }),
            json!({ "metadata": kept_metadata, "spec": kept_pod_spec, "status": kept_pod_status }),
        ),
        (
            "Deployment",
            json!({ "metadata": metadata, "spec": { "replicas": 2, "template": { "metadata": metadata, "spec": {
                "containers": [own, container], "volumes": [{ "name": "t", "secret": { "secretName": "sluice-ca" } },
                    { "name": "c", "csi": { "volumeAttributes": { "a": MARKER } } }],
                "imagePullSecrets": [{ "name": MARKER }],
            } } } }),
            json!({ "metadata": kept_metadata, "spec": { "replicas": 2, "template": {
                "metadata": { "labels": { "env": "prod" } },
                "spec": {
                    "containers": [
                        { "name": names::CONTROLLER, "image": "sluice:1", "args": ["controller"] },
                        { "name": "main", "image": MARKER, "resources": requests },
                    ],
                    "volumes": [{ "name": "t", "secret": { "secretName": "sluice-ca" } }, { "name": "c" }],
                },
            } } }),
        ),
        (
            "ApplicationAwareResourceQuota",
            whole(
                json!({ "hard": { "pods": "1" }, "scopeSelector": { "matchLabels": { "env": "x", "args": "y" } } }),
            ),
            kept(
                json!({ "hard": { "pods": "1" }, "scopeSelector": { "matchLabels": { "env": "x", "args": "y" } } }),
            ),
        ),
        (
            "AAQ",
            whole(
                json!({ "configuration": { "sidecarEvaluators": [{ "name": "e", "image": "i", "env": [{ "value": MARKER }],
                "args": [MARKER], "command": [MARKER],
                "livenessProbe": { "httpGet": { "httpHeaders": [{ "name": "Authorization", "value": MARKER }] } },
                "lifecycle": { "preStop": { "httpGet": { "path": MARKER } } }, "workingDir": MARKER }] } }),
            ),
            kept(json!({ "configuration": { "sidecarEvaluators": [{ "name": "e", "image": "i" }] } })),
        ),
        (
            "Evaluator",
            whole(
                json!({ "examples": [{ "pod": { "metadata": metadata, "spec": pod_spec }, "charge": { "pods": "1" } }] }),
            ),
            kept(json!({ "examples": [{
                "pod": { "metadata": kept_metadata, "spec": kept_pod_spec }, "charge": { "pods": "1" },
            }] })),
        ),
        (
            "Evaluator",
            whole(json!({ "sidecar": {
                "image": "i", "args": [MARKER], "env": [{ "name": "A", "value": MARKER }], "timeout": "1s",
            } })),
            kept(json!({ "sidecar": { "image": "i", "timeout": "1s" } })),
        ),
        (
            "MutatingWebhookConfiguration",
            json!({ "metadata": metadata, "webhooks": webhooks }),
            json!({ "metadata": kept_metadata, "webhooks": kept_webhooks }),
        ),
        (
            "VirtualMachineInstance",
            json!({ "metadata": metadata, "spec": {
                "domain": { "cpu": { "cores": 2 }, "launchSecurity": { "sev": { "session": MARKER, "policy": {} } },
                    "firmware": { "serial": MARKER }, "devices": { "disks": [{ "serial": MARKER }] } },
                "volumes": [{ "cloudInitNoCloud": { "userData": MARKER } }],
                "accessCredentials": [{ "sshPublicKey": MARKER }],
            }, "status": {
                "phase": "Running", "interfaces": [{ "ipAddress": MARKER }], "guestOSInfo": { "name": MARKER },
            } }),
            json!({ "metadata": kept_metadata, "spec": {
                "domain": { "cpu": { "cores": 2 }, "launchSecurity": { "sev": { "policy": {} } } },
            }, "status": { "phase": "Running" } }),
        ),
        (
            "VirtualMachineInstanceMigration",
            json!({ "metadata": metadata, "spec": { "vmiName": "vm", "sendTo": { "connectURL": MARKER } } }),
            json!({ "metadata": kept_metadata, "spec": { "vmiName": "vm" } }),
        ),
        (
            "KubeVirt",
            json!({ "metadata": metadata, "spec": { "configuration": { "a": 1 }, "imagePullSecrets": [{ "name": MARKER }],
                "customizeComponents": { "patches": [{ "patch": MARKER }] } } }),
            json!({ "metadata": kept_metadata, "spec": { "configuration": { "a": 1 } } }),
        ),
        (
            "CustomResourceDefinition",
            json!({ "metadata": metadata,
                "spec": { "group": "g", "versions": [{ "name": "v1", "schema": { "a": MARKER } }] },
                "status": { "conditions": [{ "type": "Established" }] } }),
            json!({ "metadata": kept_metadata, "spec": { "group": "g", "versions": [{ "name": "v1" }] },
                "status": { "conditions": [{ "type": "Established" }] } }),
        ),
        (
            "Event",
            json!({ "metadata": metadata, "message": "exceeded quota", "involvedObject": { "name": "x" }, "other": MARKER }),
            json!({ "metadata": kept_metadata, "message": "exceeded quota", "involvedObject": { "name": "x" } }),
        ),
        (
            "Namespace",
            json!({ "metadata": metadata, "spec": { "finalizers": [MARKER] }, "status": { "phase": "Active" } }),
            json!({ "metadata": kept_metadata, "status": { "phase": "Active" } }),
        ),
        (
            "Secret",
            json!({ "metadata": metadata, "data": { "a": MARKER }, "stringData": { "a": MARKER } }),
            json!({ "metadata": kept_metadata }),
        ),
        (
            "ServiceAccount",
            json!({ "metadata": metadata, "secrets": [{ "name": MARKER }], "imagePullSecrets": [{ "name": MARKER }] }),
            json!({ "metadata": kept_metadata }),
        ),
        (
            "ConfigMap",
            json!({ "metadata": metadata, "data": { "options.yaml": MARKER, "password": MARKER } }),
            json!({ "metadata": kept_metadata }),
        ),
        ("Unknown", json!({ "metadata": metadata, "spec": MARKER }), json!({ "metadata": kept_metadata })),
    ]
}

#[test]
fn of_each_kind_is_kept_what_explains_a_quota() {
    for (kind, object, expected) in vectors() {
        let kept = reduce(kind, &object);
        assert_eq!(kept, expected, "{kind}: {kept:#}");
        // Images of a Deployment are named; nothing else may hold the marker.
        let text = kept.to_string().replace(&format!("\"image\":\"{MARKER}\""), "");
        assert!(!text.contains(MARKER), "{kind}: {text}");
        assert_eq!(reduce(kind, &kept), kept, "{kind}: what is kept is kept again");
    }
}

#[test]
fn own_annotations_and_the_options_are_kept() {
    let object = json!({
        "metadata": { "name": names::OPERATOR, "annotations": {
            names::PAUSED_ANNOTATION: "2026-01-01T00:00:00Z", names::WRITER_VERSION_ANNOTATION: "1", "other": "x",
        } },
        "data": { "options.yaml": "gating: webhook\n", "a.yaml": "{}", "b": "x" },
        "binaryData": { "options.yaml": "x" },
    });
    let expected = json!({
        "metadata": { "name": names::OPERATOR, "annotations": {
            names::PAUSED_ANNOTATION: "2026-01-01T00:00:00Z", names::WRITER_VERSION_ANNOTATION: "1",
        } },
        "data": { "options.yaml": "gating: webhook\n", "a.yaml": "{}" },
    });
    assert_eq!(reduce("ConfigMap", &object), expected);
}

#[test]
fn an_object_of_any_shape_is_taken() {
    for (kind, ..) in vectors() {
        for object in
            [Value::Null, json!([]), json!("x"), json!({ "metadata": [], "spec": 7, "status": "s" })]
        {
            assert!(reduce(kind, &object).is_object(), "{kind}");
        }
    }
    let wrong =
        json!({ "spec": { "containers": { "name": "main" }, "schedulingGates": "all" }, "webhooks": 1 });
    assert_eq!(
        reduce("Pod", &wrong),
        json!({ "spec": { "containers": { "name": "main" }, "schedulingGates": "all" } })
    );
}

#[test]
fn the_secret_path_is_found_in_webhook_configurations() {
    let of = |configs: Value| {
        let webhooks = configs.as_array().unwrap().iter().map(|config| json!({ "clientConfig": config }));
        secret_segments(&json!({ "webhooks": webhooks.collect::<Vec<_>>() }))
    };
    let configs = json!([
        { "service": { "path": "/secret/growth" } }, { "url": "https://x:1/other/vm-size" }, { "url": "https://x:1" },
        { "service": { "path": "/growth" } }, {}, { "service": {} }, { "url": "/secret/growth" },
    ]);
    assert_eq!(of(configs), ["other", "secret"]);
    assert_eq!(secret_segments(&json!({})), Vec::<String>::new());
}
