//! What processes of two versions say to each other while an installation is upgraded, or taken back to the version before.
//!
//! These values are frozen. Processes of both versions run at the same time, and objects that one has written are read by
//! the other. A value may be added; one may go only when no version is supported any more that knows it. Who has to change
//! one lets the new version read both for a release, and writes the new one from the next release on.
//!
//! Values of one crate alone are frozen beside what reads them: the answers about growth in the webhook
//! (`the_answers_of_a_leader_of_another_version_are_read`), the term of a lease that is handed over in the runtime
//! (`a_lease_that_is_given_back_says_whether_something_is_under_way`).

use serde_json::{Value, json};
use sluice_api::{
    Endpoint, GateProbe, GateProbeSpec, HeadroomProbe, HeadroomProbeSpec, QuotaReviewSpec, QuotaReviewStatus,
    names,
};
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
        // Where the operators of both versions read their options.
        (names::OPTIONS_KEY, "options.yaml"),
        (names::OPTIONS_PATH, "/etc/sluice"),
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
        // A pause that began before an upgrade ends when it said.
        (names::PAUSED_ANNOTATION, "quota.sluice.dev/paused"),
        (names::PAUSED_SINCE_ANNOTATION, "quota.sluice.dev/paused-since"),
        (names::PAUSE_RATE_ANNOTATION, "quota.sluice.dev/pause-rate"),
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

/// Who asks, the webhook that hands the question on and the leader that answers may be of three versions.
#[test]
fn why_something_waits_is_asked_and_answered_in_the_same_words() {
    let about = |field: &str| json!({ field: "name" });
    for field in ["pod", "quota", "clusterQuota", "virtualMachine"] {
        let read: QuotaReviewSpec = serde_json::from_value(about(field)).expect("a question");
        assert_eq!(json!(read), about(field));
    }
    let frozen = json!({
        "held": true,
        "text": "it waits",
        "summary": ["it waits"],
        "explanations": [{ "kind": "Pod" }],
        "notFound": true,
        "near": ["train"],
        "source": { "leader": "sluice-controller-0", "time": "2026-01-01T00:00:00Z" },
    });
    let read: QuotaReviewStatus = serde_json::from_value(frozen.clone()).expect("an answer");
    assert_eq!(json!(read), frozen);
    // Of a version that says less, and of one that says more.
    let least = json!({ "held": false, "text": "", "source": { "leader": "" }, "later": 1 });
    let read: QuotaReviewStatus = serde_json::from_value(least).expect("an answer");
    assert_eq!(read, QuotaReviewStatus::default());
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
        "sluice-pause",
        "sluice-review",
        "sluice-evaluators",
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
