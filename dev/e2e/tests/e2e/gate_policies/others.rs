//! Other admission plugins take the gate from pods: such pods are refused, not let in.

use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_testbed::wait;

use crate::context::{SOON, gates, idle};
use crate::gate_policies::world::asleep;
use crate::pods::{assert_gated, assert_refused, pod, stamp};
use crate::team::Team;

/// A mutating policy of another product for the pods of one namespace.
fn policy(name: &str, namespace: &str, expression: &str) -> [Value; 2] {
    let root = "admissionregistration.k8s.io/v1";
    let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    [
        json!({
            "apiVersion": root, "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
                "matchConstraints": { "namespaceSelector": only, "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }],
            },
        }),
        json!({
            "apiVersion": root, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name },
        }),
    ]
}

/// Whichever of the two runs last, a pod is gated or refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_strips_gates_lets_no_pod_in() {
    let bed = idle().await.bed;
    let team = Team::on(bed, "stripped").await;
    let name = format!("strips-{}", team.namespace);
    let strip = "has(object.spec.schedulingGates) ? \
        [JSONPatch{op: 'remove', path: '/spec/schedulingGates'}] : []";
    let mark = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'seen': 'yes'}}]";
    let expression = format!("{mark} + ({strip})");
    bed.apply_objects(policy(&name, &team.namespace.name, &expression)).await.unwrap();
    let in_force = || async {
        let answer = team.tries(&pod("probe")).await;
        let refused = answer.code == 403 && answer.message().contains(names::GATED_POLICY);
        (refused || answer.body["metadata"]["labels"]["seen"] == "yes").then_some(())
    };
    wait::eventually(SOON, in_force, "the other policy to be in force").await.unwrap();
    let mut refused = 0;
    for n in 0..40 {
        let answer = team.create(&pod(&format!("p{n}"))).await;
        if answer.is_ok() {
            assert_gated(&answer, bed.admin_identity().user());
        } else {
            assert_refused(&answer, &[names::GATED_POLICY]);
            refused += 1;
        }
    }
    // Their order is the API server's.
    println!("{refused} of 40 pods refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_strips_gate_or_stamp_lets_no_pod_in() {
    let bed = asleep().await;
    for (what, patch) in [
        ("gate", json!([{ "op": "remove", "path": "/spec/schedulingGates" }])),
        ("stamp", json!([{ "op": "remove", "path": "/metadata/annotations" }])),
        (
            "creator",
            json!([{ "op": "add", "path": "/metadata/annotations", "value": { names::CREATED_BY_ANNOTATION: "x" } }]),
        ),
    ] {
        let team = Team::on(bed, &format!("webhook-{what}")).await;
        assert!(team.tries(&pod("before")).await.is_ok());
        let rules = vec![rule(&["CREATE"], &["pods"])];
        let mut options = WebhookOptions::new("strips.simulated.test", &team.namespace.name, rules);
        options.mutates = true;
        let stripping =
            SimulatedWebhook::start(bed, options, move |_| Verdict::patch(patch.clone())).await.unwrap();
        for n in 0..5 {
            // Our policy gates again what it has stripped, and then it strips once more.
            let answer = team.create(&pod(&format!("p{n}"))).await;
            // Of a wrong stamp either of the two that see it is named.
            let by = if what == "creator" { "created-by" } else { names::GATED_POLICY };
            assert_refused(&answer, &["ValidatingAdmissionPolicy 'sluice-g", by]);
        }
        assert!(stripping.reviews() >= 5, "{what}");
        stripping.stop().await.unwrap();
        let after = team.tries(&pod("after")).await;
        assert!(gates(&after.body) == [names::GATE] && stamp(&after.body).is_some(), "{what}: {after:?}");
    }
}
