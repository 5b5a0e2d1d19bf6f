//! Pods as the API server sends them, about 8.8 KB of JSON, made one by one from a template.
//!
//! Two containers with environment, probes and mounts, labels, owner, two entries of `managedFields`, five
//! conditions: the shape that the memory figures of other approaches were taken with.

use serde_json::{Value, json};
use sluice_api::names;

/// What differs between pods.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Distinguishes name and uid.
    pub number: u64,
    /// Number of the namespace.
    pub namespace: u64,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// Which of the different shapes (requests) it has.
    pub shape: u64,
    /// How far it has come.
    pub stage: Stage,
}

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits behind our gate.
    Gated,
    /// Its gate was removed, and it does not run yet.
    Released,
    /// It runs.
    Running,
    /// It has succeeded.
    Ended,
}

/// Pods of different requests; the rest share their charge with others.
pub const SHAPES: u64 = 500;

/// The shape of a pod in a cluster of many: those of a namespace differ.
pub const fn shape(number: u64) -> u64 {
    number.wrapping_mul(7) % SHAPES
}

/// The text of a pod with gaps.
#[derive(Debug)]
pub struct Template(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Gap(String),
}

impl Template {
    pub fn new() -> Self {
        let text = pod().to_string().replace("\"@@gates@@\"", "@@gates@@");
        let pieces = text.split("@@").enumerate().map(|(at, piece)| {
            if at % 2 == 0 { Piece::Text(piece.to_owned()) } else { Piece::Gap(piece.to_owned()) }
        });
        Self(pieces.collect())
    }

    /// Appends the JSON of one pod.
    pub fn write(&self, facts: Facts, out: &mut String) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Gap(gap) => out.push_str(&fill(gap, facts)),
            }
        }
    }
}

pub fn namespace_name(number: u64) -> String {
    format!("team-{number:05}-workloads")
}

/// A name as a Deployment's pods have.
pub fn pod_name(number: u64) -> String {
    format!("storefront-backend-{:09x}-{:05x}", mix(number) & 0xf_ffff_ffff, number)
}

pub fn namespace_number(name: &str) -> Option<u64> {
    name.strip_prefix("team-")?.strip_suffix("-workloads")?.parse().ok()
}

pub fn pod_number(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.rsplit('-').next()?, 16).ok()?;
    (pod_name(number) == name).then_some(number)
}

/// A uid in the usual form.
pub fn uid(number: u64) -> String {
    let (a, b) = (mix(number), mix(number ^ 0x5bd1_e995_0000_0000));
    format!(
        "{:08x}-{:04x}-4{:03x}-9{:03x}-{:012x}",
        a >> 32,
        a & 0xffff,
        (a >> 16) & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

fn fill(gap: &str, facts: Facts) -> String {
    match gap {
        "name" => pod_name(facts.number),
        "uid" => uid(facts.number),
        "namespace" => namespace_name(facts.namespace),
        "version" => facts.version.to_string(),
        "cpu" => format!("{}m", 50 + facts.shape % 25 * 10),
        "memory" => format!("{}Mi", 64 + facts.shape / 25 * 8),
        "phase" => match facts.stage {
            Stage::Gated | Stage::Released => "Pending".to_owned(),
            Stage::Running => "Running".to_owned(),
            Stage::Ended => "Succeeded".to_owned(),
        },
        "gates" if facts.stage == Stage::Gated => format!("[{{\"name\":\"{}\"}}]", names::GATE),
        "gates" => "[]".to_owned(),
        _ => String::new(),
    }
}

/// Spreads consecutive numbers (the finaliser of splitmix64).
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn pod() -> Value {
    let requests = json!({"cpu": "@@cpu@@", "memory": "@@memory@@", "ephemeral-storage": "256Mi"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(),
        "spec": {
            "schedulingGates": "@@gates@@",
            "containers": [
                container("server", &requests, &json!({"cpu": "1", "memory": "@@memory@@"})),
                container("proxy", &json!({"cpu": "10m", "memory": "40Mi"}), &json!({"memory": "128Mi"})),
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": "storefront-backend-config", "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]}},
            ],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "storefront", "serviceAccount": "storefront", "nodeName": "worker-0417",
            "securityContext": {"runAsNonRoot": true, "fsGroup": 10001}, "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
                {
                    "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": status(),
    })
}

fn metadata() -> Value {
    let labels = [
        ("app.kubernetes.io/name", "storefront-backend"),
        ("app.kubernetes.io/instance", "storefront"),
        ("app.kubernetes.io/version", "2.14.3"),
        ("app.kubernetes.io/component", "backend"),
        ("app.kubernetes.io/part-of", "shop"),
        ("app.kubernetes.io/managed-by", "Helm"),
        ("pod-template-hash", "7d9c6b5f8"),
        ("topology.example.com/tier", "gold"),
    ];
    let labels: serde_json::Map<_, _> =
        labels.iter().map(|&(key, value)| (key.to_owned(), json!(value))).collect();
    json!({
        "name": "@@name@@", "generateName": "storefront-backend-7d9c6b5f8-", "namespace": "@@namespace@@",
        "uid": "@@uid@@", "resourceVersion": "@@version@@", "creationTimestamp": "2026-03-02T09:41:07Z",
        "labels": labels,
        "annotations": {
            names::CREATED_BY_ANNOTATION: "system:serviceaccount:kube-system:replicaset-controller",
            "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
            "checksum/config": "4f2a9c1d7be86305f1e2d3c4b5a69788f0e1d2c3b4a5968778695a4b3c2d1e0f",
        },
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "storefront-backend-7d9c6b5f8",
            "uid": "3c0f7a52-9b1e-4d0a-8c77-12e5d6f3a9b4", "controller": true, "blockOwnerDeletion": true}],
        "managedFields": [
            {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
             "time": "2026-03-02T09:41:07Z", "fieldsType": "FieldsV1", "fieldsV1": managed_spec()},
            {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-03-02T09:41:19Z",
             "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:conditions": {
                "k:{\"type\":\"ContainersReady\"}": {
                    ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {},
                },
                "k:{\"type\":\"Initialized\"}": {
                    ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {},
                },
                "k:{\"type\":\"Ready\"}": {
                    ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {},
                }},
                "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:startTime": {}}}},
        ],
    })
}

fn managed_spec() -> Value {
    let container = json!({".": {}, "f:env": {".": {}, "k:{\"name\":\"LOG_LEVEL\"}": {".": {}, "f:name": {}, "f:value": {}},
        "k:{\"name\":\"POD_IP\"}": {".": {}, "f:name": {}, "f:valueFrom": {".": {}, "f:fieldRef": {}}}},
        "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": {".": {}, "f:failureThreshold": {}, "f:httpGet": {}},
        "f:name": {}, "f:ports": {}, "f:readinessProbe": {".": {}, "f:httpGet": {}}, "f:resources": {".": {},
        "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
        "f:volumeMounts": {".": {}, "k:{\"mountPath\":\"/etc/storefront\"}": {".": {}, "f:mountPath": {}, "f:name": {}}}});
    json!({"f:metadata": {"f:generateName": {}, "f:labels": {
        ".": {}, "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {},
    },
        "f:ownerReferences": {".": {}, "k:{\"uid\":\"3c0f7a52-9b1e-4d0a-8c77-12e5d6f3a9b4\"}": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"server\"}": container, "k:{\"name\":\"proxy\"}": container},
        "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:volumes": {}}})
}

fn container(name: &str, requests: &Value, limits: &Value) -> Value {
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "initialDelaySeconds": 5, "timeoutSeconds": 2, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    };
    json!({
        "name": name,
        "image": format!(
            "registry.example.com/shop/{name}@sha256:0d17b565c37bcbd895e9d92315a05c1c3c9a29f762b011a10c54a66cd53c9b31"
        ),
        "args": ["--config=/etc/storefront/config.yaml", "--listen=:8080", "--graceful-timeout=25s"],
        "ports": [
            {"name": "http", "containerPort": 8080, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
        ],
        "env": [
            {"name": "LOG_LEVEL", "value": "info"}, {"name": "GOMAXPROCS", "value": "2"},
            {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "storefront-db", "key": "url"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel-collector.observability.svc:4317"},
        ],
        "resources": {"requests": requests, "limits": limits},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/storefront", "readOnly": true}, {"name": "scratch", "mountPath": "/tmp"},
            {
                "name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": true,
            },
        ],
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
    })
}

fn status() -> Value {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-03-02T09:41:19Z",
        })
    };
    let container = |name: &str| {
        json!({
            "name": name, "ready": true, "started": true, "restartCount": 0,
            "image": format!("registry.example.com/shop/{name}:2.14.3"), "lastState": {},
            "imageID": format!(
                "registry.example.com/shop/{name}@sha256:0d17b565c37bcbd895e9d92315a05c1c3c9a29f762b011a10c54a66cd53c9b31"
            ),
            "containerID": "containerd://9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "state": {"running": {"startedAt": "2026-03-02T09:41:12Z"}},
        })
    };
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(condition);
    json!({
        "phase": "@@phase@@", "qosClass": "Burstable", "hostIP": "10.20.4.17", "podIP": "10.244.17.203",
        "podIPs": [{"ip": "10.244.17.203"}], "startTime": "2026-03-02T09:41:08Z",
        "conditions": conditions,
        "containerStatuses": [container("server"), container("proxy")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_json_of_the_promised_size_and_says_what_it_was_told() {
        let (template, mut text) = (Template::new(), String::new());
        let facts = Facts { number: 7, namespace: 3, version: 99, shape: 30, stage: Stage::Gated };
        template.write(facts, &mut text);
        let pod: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(pod["metadata"]["namespace"], "team-00003-workloads");
        assert_eq!(pod["metadata"]["uid"].as_str().unwrap().len(), 36);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
        assert_eq!(pod["spec"]["schedulingGates"][0]["name"], names::GATE);
        assert!((8_300..9_300).contains(&text.len()), "{} bytes", text.len());
        for (stage, phase) in
            [(Stage::Released, "Pending"), (Stage::Running, "Running"), (Stage::Ended, "Succeeded")]
        {
            text.clear();
            template.write(Facts { stage, ..facts }, &mut text);
            let pod: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (&pod["spec"]["schedulingGates"], &pod["status"]["phase"]),
                (&json!([]), &json!(phase))
            );
        }
    }

    #[test]
    fn names_tell_numbers() {
        for number in [0, 7, 149_999, 0x12_3456] {
            assert_eq!(pod_number(&pod_name(number)), Some(number));
            assert_eq!(namespace_number(&namespace_name(number)), Some(number));
        }
        assert_eq!((pod_number("web-00007"), namespace_number("kube-system")), (None, None));
    }
}
