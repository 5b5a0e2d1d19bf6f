//! The `AAQ` keeps what it is given and gets upstream's defaults. Dry runs: one that exists would count for all.

use serde_json::{Value, json};
use sluice_e2e::call::post;

use crate::context::shared;

const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs?dryRun=All";

fn aaq(spec: Value) -> Value {
    json!({"apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "AAQ", "metadata": {"name": "dry-run"}, "spec": spec})
}

#[tokio::test]
async fn an_aaq_with_everything_set_is_accepted_and_kept() {
    let client = shared().await.bed.admin().unwrap();
    let spec = json!({
        "imagePullPolicy": "IfNotPresent",
        "infra": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}],
            }}},
        },
        "workload": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        "certConfig": {
            "ca": {"duration": "48h0m0s", "renewBefore": "24h0m0s"},
            "server": {"duration": "24h0m0s", "renewBefore": "12h0m0s"},
        },
        "priorityClass": "system-cluster-critical",
        "namespaceSelector": {
            "matchLabels": {"team": "a"},
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}],
        },
        "configuration": {
            "allowApplicationAwareClusterResourceQuota": true,
            "vmiCalculatorConfiguration": {"configName": "VmiPodUsage"},
            "sidecarEvaluators": [{
                "name": "label-sidecar",
                "image": "registry.example/label-sidecar:v1",
                "args": ["--config", "double"],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                "volumeMounts": [{"name": "sockets-dir", "mountPath": "/var/run/aaq-sockets"}],
                "restartPolicy": "Always",
                "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true},
            }],
        },
        "tlsSecurityProfile": {
            "type": "Custom",
            "custom": {"ciphers": ["ECDHE-ECDSA-AES128-GCM-SHA256"], "minTLSVersion": "VersionTLS12"},
        },
    });
    let answer = post(&client, AAQS, &aaq(spec.clone())).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    assert_eq!(answer.body["spec"], spec);
}

#[tokio::test]
async fn an_aaq_gets_upstreams_defaults() {
    let client = shared().await.bed.admin().unwrap();
    let default = "DedicatedVirtualResources";
    for (spec, path, value) in [
        (json!({}), "/spec", json!({})),
        (json!({"configuration": {}}), "/spec/configuration", json!({})),
        (
            json!({"configuration": {"vmiCalculatorConfiguration": {}}}),
            "/spec/configuration/vmiCalculatorConfiguration/configName",
            json!(default),
        ),
        (
            json!({"configuration": {"sidecarEvaluators": [{"name": "s", "image": "i", "ports": [{"containerPort": 1}]}]}}),
            "/spec/configuration/sidecarEvaluators/0/ports/0/protocol",
            json!("TCP"),
        ),
        (json!({"namespaceSelector": {}}), "/spec/namespaceSelector", json!({})),
        (
            json!({"tlsSecurityProfile": {"type": "Old", "old": {}}}),
            "/spec/tlsSecurityProfile/old",
            json!({}),
        ),
    ] {
        let answer = post(&client, AAQS, &aaq(spec.clone())).await.unwrap();
        assert_eq!(answer.code, 201, "{spec}: {answer:?}");
        assert_eq!(answer.body.pointer(path), Some(&value), "{spec}: {answer:?}");
    }
}

#[tokio::test]
async fn an_aaq_that_upstream_would_refuse_is_refused_by_field() {
    let client = shared().await.bed.admin().unwrap();
    for (spec, field) in [
        (json!({"imagePullPolicy": "Sometimes"}), "spec.imagePullPolicy"),
        (
            json!({"configuration": {"vmiCalculatorConfiguration": {"configName": "Guess"}}}),
            "spec.configuration.vmiCalculatorConfiguration.configName",
        ),
        (json!({"tlsSecurityProfile": {"type": "New"}}), "spec.tlsSecurityProfile.type"),
        (
            json!({"tlsSecurityProfile": {"type": "Custom", "custom": {"ciphers": []}}}),
            "spec.tlsSecurityProfile.custom.minTLSVersion",
        ),
        (
            json!({"configuration": {"sidecarEvaluators": [{"image": "x"}]}}),
            "spec.configuration.sidecarEvaluators[0].name",
        ),
        (json!({"certConfig": {"ca": {"duration": 5}}}), "spec.certConfig.ca.duration"),
    ] {
        let answer = post(&client, AAQS, &aaq(spec.clone())).await.unwrap();
        assert_eq!(answer.code, 422, "{spec}: {answer:?}");
        assert!(answer.message().contains(field), "{field}: {}", answer.message());
    }
    let mut without = aaq(json!({}));
    without.as_object_mut().unwrap().remove("spec");
    let answer = post(&client, AAQS, &without).await.unwrap();
    assert_eq!(answer.code, 422, "{answer:?}");
    assert!(answer.message().contains("spec: Required value"), "{}", answer.message());
}
