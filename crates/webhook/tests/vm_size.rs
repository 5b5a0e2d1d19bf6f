//! VMs whose pods are larger than their guest: of which resources it is told, by which calculators, and in which words.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{TENANT, judge_with, review, settings};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::vm::Calculator;
use sluice_webhook::endpoints::vm_size;
use sluice_webhook::{AaqPresence, Settings, Verdict};

const KUBEVIRT: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

fn counting(calculator: Calculator) -> Settings {
    let aaq = AaqPresence::Present { cluster_quotas: false, calculator, gives_way: false };
    Settings { kubevirt_controller: Some(KUBEVIRT.to_owned()), aaq, ..settings() }
}

fn judged(kind: &str, operation: &str, object: &Value, settings: &Settings) -> Verdict {
    let verdict = judge_with(vm_size, &review(kind, operation, TENANT, object, &json!({})), settings);
    assert!(verdict.allowed && verdict.patch.is_empty(), "{verdict:?}");
    assert!(
        verdict.warnings.iter().all(|warning| warning.len() <= 256),
        "the API server may cut it: {verdict:?}"
    );
    verdict
}

/// What is told of a VirtualMachineInstance of this domain.
fn told_of(domain: &Value) -> Vec<String> {
    let vmi = json!({ "metadata": { "name": "a" }, "spec": { "domain": domain } });
    judged("VirtualMachineInstance", "CREATE", &vmi, &counting(Calculator::VirtualResources)).warnings
}

fn larger() -> Value {
    json!({
        "cpu": { "sockets": 2 }, "memory": { "guest": "4Gi" },
        "resources": { "requests": { "cpu": "2500m", "memory": "8Gi" }, "limits": { "memory": "8Gi" } },
    })
}

#[test]
fn a_pod_larger_than_its_guest_is_told_of_with_both_amounts_and_a_remedy() {
    let vm = json!({ "spec": { "template": { "spec": { "domain": larger() } } } });
    for operation in ["CREATE", "UPDATE"] {
        let verdict = judged("VirtualMachine", operation, &vm, &counting(Calculator::default()));
        insta::allow_duplicates!(insta::assert_snapshot!(verdict.warnings.join("\n"), @r"
        spec.template.spec.domain.resources.requests.cpu: the pod takes 2500m of its node, and quotas are charged the 2 of the guest (calculator DedicatedVirtualResources): request no more than the guest has
        spec.template.spec.domain.resources.requests.memory: the pod takes 8Gi of its node, and quotas are charged the 4Gi of the guest (calculator DedicatedVirtualResources): request no more than the guest has
        "));
    }
    insta::assert_snapshot!(told_of(&larger()).join("\n"), @r"
    spec.domain.resources.requests.cpu: the pod takes 2500m of its node, and quotas are charged the 2 of the guest (calculator VirtualResources): request no more than the guest has
    spec.domain.resources.requests.memory: the pod takes 8Gi of its node, and quotas are charged the 4Gi of the guest (calculator VirtualResources): request no more than the guest has
    ");
}

/// The longest that the API server lets in, and the smallest difference.
#[test]
fn amounts_are_told_exactly_and_in_one_warning() {
    let domain = json!({
        "cpu": { "cores": 4096 }, "memory": { "guest": "9007199254740992" },
        "resources": { "requests": { "cpu": "4096000000001n" }, "limits": { "memory": "9007199254740993" } },
    });
    let vm = json!({ "spec": { "template": { "spec": { "domain": domain } } } });
    let verdict = judged("VirtualMachine", "CREATE", &vm, &counting(Calculator::default()));
    insta::assert_snapshot!(verdict.warnings.join("\n"), @r"
    spec.template.spec.domain.resources.requests.cpu: the pod takes 4096000000001n of its node, and quotas are charged the 4096 of the guest (calculator DedicatedVirtualResources): request no more than the guest has
    spec.template.spec.domain.resources.limits.memory: the pod takes 9007199254740993 of its node, and quotas are charged the 8Pi of the guest (calculator DedicatedVirtualResources): request no more than the guest has
    ");
}

#[rstest]
#[case::not_larger(json!({ "cpu": { "sockets": 2 }, "memory": { "guest": "4Gi" },
    "resources": { "requests": { "cpu": "2", "memory": "4096Mi" }, "limits": { "cpu": "4", "memory": "8Gi" } } }), &[])]
#[case::overcommitted(json!({ "cpu": { "sockets": 2, "cores": 2, "threads": 2 }, "memory": { "guest": "4Gi" },
    "resources": { "requests": { "cpu": "7999m", "memory": "1Gi" } } }), &[])]
#[case::nothing_stated(json!({ "cpu": { "sockets": 2 }, "memory": { "guest": "4Gi" } }), &[])]
// These are the size of the guest.
#[case::no_size(json!({ "resources": { "requests": { "cpu": "8", "memory": "8Gi" } } }), &[])]
#[case::no_cpus(json!({ "cpu": { "model": "host-passthrough" }, "memory": { "guest": "1Gi" },
    "resources": { "requests": { "cpu": "8" }, "limits": { "cpu": "8" } } }), &[])]
#[case::only_limits(json!({ "cpu": { "cores": 2 }, "memory": { "guest": "4Gi" },
    "resources": { "limits": { "cpu": "3", "memory": "5Gi" } } }), &["limits.cpu", "limits.memory"])]
#[case::requests_of_0(json!({ "cpu": { "cores": 2 }, "memory": { "guest": "4Gi" },
    "resources": { "requests": { "cpu": "0", "memory": 0 }, "limits": { "cpu": 3, "memory": "5Gi" } } }),
    &["limits.cpu", "limits.memory"])]
#[case::one(json!({ "cpu": { "threads": 2 }, "memory": { "guest": "4Gi" },
    "resources": { "requests": { "cpu": 2, "memory": "4097Mi" } } }), &["requests.memory"])]
#[case::others(json!({ "memory": { "guest": "1Gi" },
    "resources": { "requests": { "example.com/gpu": "8", "memory": "1G" } } }), &[])]
// What is not understood is told when the VM is to be charged.
#[case::no_quantity(json!({ "memory": { "guest": "1Gi" }, "resources": { "requests": { "memory": "many" } } }), &[])]
#[case::too_many(
    json!({ "cpu": { "sockets": 4_294_967_295_u32, "cores": 2 }, "resources": { "requests": { "cpu": "8" } } }),
    &[],
)]
#[case::no_domain(Value::Null, &[])]
#[case::a_list(json!([]), &[])]
fn of_which_resources_it_is_told(#[case] domain: Value, #[case] expected: &[&str]) {
    let told = told_of(&domain);
    let fields: Vec<_> = told.iter().map(|warning| warning.split_once(": ").unwrap().0).collect();
    let expected: Vec<_> = expected.iter().map(|field| format!("spec.domain.resources.{field}")).collect();
    assert_eq!(fields, expected);
}

#[test]
fn it_is_told_where_vms_are_charged_by_their_guest_and_nowhere_else() {
    let vm = json!({ "spec": { "template": { "spec": { "domain": larger() } } } });
    for calculator in Calculator::ALL {
        let by_guest =
            [Calculator::VirtualResources, Calculator::DedicatedVirtualResources].contains(&calculator);
        let verdict = judged("VirtualMachine", "CREATE", &vm, &counting(calculator));
        assert_eq!(verdict.warnings.len(), if by_guest { 2 } else { 0 }, "{calculator:?}");
        assert!(verdict.warnings.iter().all(|warning| warning.contains(calculator.name())));
    }
    let mut unknown = counting(Calculator::default());
    unknown.aaq = AaqPresence::Unknown;
    let without_kubevirt = Settings { kubevirt_controller: None, ..counting(Calculator::default()) };
    for settings in [unknown, without_kubevirt] {
        assert_eq!(judged("VirtualMachine", "CREATE", &vm, &settings).warnings, Vec::<String>::new());
    }
    for odd in [
        json!({}),
        json!({ "spec": null }),
        json!({ "spec": { "template": null } }),
        json!("vm"),
        Value::Null,
    ] {
        assert_eq!(
            judged("VirtualMachine", "CREATE", &odd, &counting(Calculator::default())).warnings.len(),
            0
        );
    }
}
