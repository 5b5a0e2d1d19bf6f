//! What processes of two versions say to each other while an installation is upgraded, or taken back to the version before.
//!
//! These values are frozen. Processes of both versions run at the same time, and objects that one has written are read by
//! the other. A value may be added; one may go only when no version is supported any more that knows it. Who has to change
//! one lets the new version read both for a release, and writes the new one from the next release on.

use serde_json::{Value, json};
use sluice_api::{Endpoint, GateProbe, GateProbeSpec, HeadroomProbe, HeadroomProbeSpec, names};
use sluice_engine::headroom::MARK;
use sluice_manifests::certificates::service_names;
use sluice_manifests::{InstallOptions, admission_policies, mutating, validating};

#[test]
fn names_that_processes_find_each_other_by_stay() {
    for (is, frozen) in [
        // Who leads, and where growth is asked for, and why something waits.
        (names::LEASE, "sluice-controller"),
        (names::LEADER_ADDRESS_ANNOTATION, "quota.sluice.dev/leader-address"),
        (Endpoint::Growth.path(), "/growth"),
        // What the last leader says of what it has asked for. Without it room is kept for that.
        (names::HANDED_OVER_ANNOTATION, "quota.sluice.dev/handed-over"),
        (Endpoint::Explain.path(), "/explain"),
        // Certificates of both ends, and the segment before the paths of the webhook.
        (names::CA_SECRET, "sluice-ca"),
        (names::SERVING_SECRET, "sluice-webhook-cert"),
        (names::TLS_CERT, "tls.crt"),
        (names::TLS_KEY, "tls.key"),
        (names::CA_BUNDLE, "ca.crt"),
        (names::SECRET_PATH, "webhook-path"),
        (names::SECRET_PATH_BEFORE, "webhook-path-before"),
        (names::SECRET_PATH_SINCE, "webhook-path-since"),
        // Accounts, by which policies tell Sluice's processes from others.
        (names::CONTROLLER, "sluice-controller"),
        (names::WEBHOOK, "sluice-webhook"),
        (names::OPERATOR, "sluice-operator"),
        // Which operator has written an object.
        (names::WRITER_VERSION_ANNOTATION, "quota.sluice.dev/writer-version"),
    ] {
        assert_eq!(is, frozen);
    }
    let growth = service_names(names::METRICS_SERVICE, names::INSTALL_NAMESPACE).swap_remove(0);
    let asking = service_names(names::WEBHOOK, names::INSTALL_NAMESPACE).swap_remove(0);
    assert_eq!([growth, asking], ["sluice-metrics.sluice-system.svc", "sluice-webhook.sluice-system.svc"]);
}

#[test]
fn what_pods_and_quotas_carry_stays() {
    for (is, frozen) in [
        (names::GATE, "ApplicationAwareQuotaGate"),
        (names::CREATED_BY_ANNOTATION, "quota.sluice.dev/created-by"),
        (MARK, "count/headroomprobes.quota.sluice.dev"),
        (names::OWN_OPT_OUT, "quota.sluice.dev/skip-headroom"),
        (names::TARGET_LABEL, "application-aware-quota/enable-gating"),
        (names::MANAGED_LABEL, "aaq.kubevirt.io"),
        (names::JOB_QUEUE_CONFIG, "aaqjqc"),
        (names::ARQ_LOCK, "application-aware-resource-quota-lock"),
        (names::ACRQ_LOCK, "application-aware-cluster-resource-quota-lock"),
    ] {
        assert_eq!(is, frozen);
    }
    assert_eq!(names::managed_quota("q"), "q-non-schedulable-resources-managed-rq-x");
    assert_eq!(names::managed_cluster_quota("q"), "q-non-schedulable-resources-managed-crq-x");
}

/// The process that asks is of one version, the policy or webhook that answers of another.
#[test]
fn probes_and_the_words_that_answer_them_stay() {
    for (is, frozen) in [
        (names::PROBE_NAME, "probe"),
        (names::PROOF_QUOTA, "sluice-headroom-proof"),
        (names::PROBE_DENIED, "this mark is known here"),
        (names::CHARGE_DENIED, "guarded by Sluice"),
        (names::GATED_BY_WEBHOOK, "webhook"),
    ] {
        assert_eq!(is, frozen);
    }
    let headroom = HeadroomProbe::new(names::PROBE_NAME, HeadroomProbeSpec { mark: 1_772_500_000_001 });
    let expected = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomProbe",
        "metadata": { "name": "probe" }, "spec": { "mark": 1_772_500_000_001_u64 },
    });
    assert_eq!(json!(headroom), expected);
    let bound = GateProbeSpec { node_name: Some("none".to_owned()), ..GateProbeSpec::default() };
    let expected = json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "GateProbe",
        "metadata": { "name": "probe" }, "spec": { "nodeName": "none" },
    });
    assert_eq!(json!(GateProbe::new(names::PROBE_NAME, bound)), expected);
    let gated = json!({ "schedulingGates": [{ "name": names::GATE }], "gatedBy": "webhook" });
    let read: GateProbeSpec = serde_json::from_value(gated.clone()).expect("a probe that is gated");
    assert_eq!(json!(read), gated);
}

/// An operator finds by these names what another one has written. Under another name the old object would stay in force.
#[test]
fn names_of_admission_objects_stay() {
    let options = InstallOptions::default();
    let policies: Vec<_> = admission_policies(&options).iter().map(|policy| policy.name).collect();
    let frozen = [
        "sluice-headroom-charge",
        "sluice-headroom-lock",
        "sluice-accounts",
        "sluice-vmi-status",
        "sluice-exempt-names",
        "sluice-guard",
        "sluice-stamp",
        "sluice-gate",
        "sluice-gated",
    ];
    for name in frozen {
        assert!(policies.contains(&name), "{name}");
    }
    for policy in admission_policies(&options) {
        for object in [&policy.policy, &policy.binding] {
            assert_eq!(object["metadata"]["name"], policy.name, "policy and binding have one name");
        }
    }
    let name = |object: Value| object["metadata"]["name"].clone();
    assert_eq!(name(mutating(&options)), "gating-mutator");
    assert_eq!(name(validating(&options)), "aaq-validator");
}
