//! Validation of quotas.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{TENANT, judge, judge_with, review, settings};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::Ungated;
use sluice_engine::vm::Calculator;
use sluice_index::{EvaluatorWire, Targeting, read_selector};
use sluice_webhook::endpoints::{quota_validate, quota_validate_in};
use sluice_webhook::{AaqPresence, SeenEvaluators, Settings, Verdict};

const VALID: &str = "ApplicationAwareResourceQuota request is valid";

fn quota(spec: Value) -> Value {
    json!({"apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "ApplicationAwareResourceQuota",
           "metadata": {"name": "q", "namespace": "team-a"}, "spec": spec})
}

fn create(spec: Value) -> Verdict {
    judge(
        quota_validate,
        &review("ApplicationAwareResourceQuota", "CREATE", TENANT, &quota(spec), &Value::Null),
    )
}

fn update(old: Value, new: Value) -> Verdict {
    judge(quota_validate, &review("ApplicationAwareResourceQuota", "UPDATE", TENANT, &new, &old))
}

#[rstest]
#[case::empty(json!({}))]
#[case::null_hard(json!({"hard": null}))]
#[case::milli_bytes(json!({"hard": {"limits.memory": "1m"}}))]
#[case::two(json!({"hard": {"limits.memory": "1m", "limits.cpu": "1m"}}))]
#[case::number(json!({"hard": {"pods": 3, "cpu": 0.5}}))]
#[case::null_amount(json!({"hard": {"pods": null}}))]
#[case::extended(json!({"hard": {"requests.example.com/license": "4"}}))]
#[case::scopes(json!({"hard": {"pods": "3"}, "scopes": ["BestEffort", "NotTerminating"]}))]
#[case::null_scopes(json!({"hard": {"pods": "3"}, "scopes": null, "scopeSelector": null}))]
#[case::selector(json!({"hard": {"pods": "3"}, "scopeSelector": {"matchExpressions":
    [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}))]
fn valid(#[case] spec: Value) {
    let verdict = create(spec);
    assert_eq!((verdict.allowed, verdict.code, &*verdict.message), (true, 202, VALID));
    assert_eq!(verdict.warnings, Vec::<String>::new());
}

#[test]
fn what_is_invalid_is_refused_by_field() {
    let in_without_values = json!([{"scopeName": "PriorityClass", "operator": "In"}]);
    let said = [
        json!({"hard": {"illegalName": "1m"}}),
        json!({"hard": {"illegalA": "1", "illegalB": "1"}}),
        json!({"hard": {"pods": "-1"}}),
        json!({"hard": {"pods": "500m"}}),
        json!({"hard": {"pods": "many"}}),
        json!({"hard": {"cpu": "1e2147483648"}}),
        json!({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
        json!({"hard": {"pods": "1"}, "scopes": ["Nonsense"]}),
        json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}),
        json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": in_without_values}}),
    ]
    .map(|spec| {
        let verdict = create(spec);
        assert_eq!((verdict.allowed, verdict.code), (false, 403), "{}", verdict.message);
        verdict.message
    });
    insta::assert_snapshot!(said.join("\n"), @r#"
    spec.hard[illegalName]: Invalid value: "illegalName": must be a standard resource for quota
    [spec.hard[illegalA]: Invalid value: "illegalA": must be a standard resource for quota, spec.hard[illegalB]: Invalid value: "illegalB": must be a standard resource for quota]
    spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0
    spec.hard[pods]: Invalid value: "500m": must be an integer
    spec.hard[pods]: Invalid value: "many": parsing quantity: expected a number with an optional suffix, like 500m, 1.5 or 2Gi
    spec.hard[cpu]: Invalid value: "1e2147483648": parsing quantity: the exponent must be between -40 and 40
    spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes
    spec.scopes: Invalid value: ["Nonsense"]: unsupported scope
    spec.scopes: Invalid value: "BestEffort": unsupported scope applied to resource ["cpu"]
    spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
    "#);
}

#[test]
fn a_megabyte_of_digits_is_cut_in_the_message() {
    let verdict = create(json!({"hard": {"cpu": "1".repeat(1 << 20)}}));
    assert!(!verdict.allowed);
    assert!(verdict.message.len() < 1024, "{} bytes", verdict.message.len());
}

#[test]
fn keys_that_nothing_counts_are_warned_about() {
    let said = [
        json!({"cpu/vmi": "8", "requests.instances/vmi": "4", "cpu": "1", "services": "1"}),
        json!({"example.com/license": "4"}),
    ]
    .map(|hard| {
        let spec = json!({"hard": hard});
        let verdict = create(spec.clone());
        assert!(verdict.allowed, "{}", verdict.message);
        assert_eq!(update(quota(json!({})), quota(spec.clone())).warnings, verdict.warnings);
        let again = update(quota(spec.clone()), quota(spec)).warnings;
        assert_eq!(again, Vec::<String>::new(), "a label changes nothing");
        verdict.warnings.join("\n")
    });
    insta::assert_snapshot!(said.join("\n"), @"
    spec.hard: not enforced: cpu/vmi, requests.instances/vmi: only virtual machines take it, where KubeVirt runs and the AAQ's calculator is DedicatedVirtualResources, limit pods by requests.cpu and requests.memory
    spec.hard: not enforced: example.com/license: no pod takes it without an evaluator, an extended resource is limited by the key requests.<its name>
    ");
}

/// An evaluator may charge what no pod takes by Kubernetes' rules.
#[test]
fn a_key_that_an_evaluator_may_charge_is_not_called_not_enforced_and_others_are() {
    let spec = quota(json!({"hard": {"example.com/license": "4", "example.com/other": "1", "cpu/vmi": "8"}}));
    let request = review("ApplicationAwareResourceQuota", "CREATE", TENANT, &spec, &Value::Null);
    let seen = |specs: &[Value]| {
        let of = |spec: &Value| -> EvaluatorWire {
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec })).unwrap()
        };
        specs.iter().map(of).collect::<SeenEvaluators>()
    };
    let rule = json!({ "cel": { "match": "true", "charge": { "example.com/license": "1" } } });
    for (sidecars, evaluators, told) in [
        (&[][..], seen(&[]), vec!["example.com/license", "example.com/other"]),
        (&[][..], seen(&[rule]), vec!["example.com/other"]),
        (&[][..], seen(&[json!({ "sidecar": {} })]), vec![]),
        (&["a"], seen(&[]), vec![]),
    ] {
        let sidecars = sidecars.iter().map(|name: &&str| (*name).to_owned()).collect();
        let settings = Settings { sidecars, evaluators: evaluators.into(), ..settings() };
        let warnings = judge_with(quota_validate, &request, &settings).warnings.join("; ");
        let named =
            ["example.com/license", "example.com/other"].into_iter().filter(|key| warnings.contains(key));
        assert_eq!(named.collect::<Vec<_>>(), told, "{warnings}");
        assert!(warnings.contains("cpu/vmi"), "{warnings}");
    }
}

#[test]
fn a_quota_of_a_namespace_whose_pods_are_not_gated_is_warned_about() {
    let labels = serde_json::from_value(json!({ "matchLabels": { "gated": "yes" } })).unwrap();
    let selector = read_selector("spec.namespaceSelector", labels).unwrap();
    let settings = Settings { targeting: Some(Targeting::new(selector, [].into())), ..settings() };
    let said = |ungated, old: &Value, new: &Value| {
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let request = review("ApplicationAwareResourceQuota", operation, TENANT, new, old);
        let verdict =
            judge_with(|review, settings| quota_validate_in(ungated, review, settings), &request, &settings);
        assert!(verdict.allowed, "{}", verdict.message);
        assert!(verdict.warnings.iter().all(|warning| warning.len() <= 256), "{:?}", verdict.warnings);
        verdict.warnings.join("\n")
    };
    let (one, two) = (quota(json!({ "hard": { "pods": "1" } })), quota(json!({ "hard": { "pods": "2" } })));
    let created = said(Some(Ungated::NotTargeted), &Value::Null, &one);
    insta::assert_snapshot!(created, @"spec.hard: not enforced on pods: the namespace is not targeted: label it so that spec.namespaceSelector of the AAQ (gated=yes) selects it");
    assert_eq!(said(Some(Ungated::NotTargeted), &one, &two), created, "a change is told again");
    assert_eq!(said(Some(Ungated::NotTargeted), &one, &one), "", "a label changes nothing");
    let exempt = said(Some(Ungated::Exempt), &Value::Null, &one);
    assert!(exempt.contains("the namespace is exempt"), "{exempt}");
    let services = quota(json!({ "hard": { "services": "1" } }));
    assert_eq!(said(Some(Ungated::NotTargeted), &Value::Null, &services), "", "these are limited everywhere");
    assert_eq!(said(None, &Value::Null, &one), "");
}

/// The warnings about these keys where KubeVirt runs, if this is known of the `AAQ`.
fn where_vms_run(aaq: AaqPresence, hard: &Value) -> String {
    let object = quota(json!({ "hard": hard }));
    let request = review("ApplicationAwareResourceQuota", "CREATE", TENANT, &object, &Value::Null);
    let settings = Settings { aaq, kubevirt_controller: Some("controller".to_owned()), ..settings() };
    let verdict = judge_with(quota_validate, &request, &settings);
    assert!(verdict.allowed, "{}", verdict.message);
    assert!(verdict.warnings.iter().all(|warning| warning.len() <= 256), "{:?}", verdict.warnings);
    verdict.warnings.join("\n")
}

#[test]
fn which_keys_vms_take_is_said_by_the_calculator_of_the_aaq() {
    let counted_by =
        |calculator| AaqPresence::Present { cluster_quotas: false, calculator, gives_way: false };
    let hard = json!({ "limits.cpu": "8", "requests.cpu/vmi": "8", "requests.storage": "1Gi" });
    let said = [
        counted_by(Calculator::DedicatedVirtualResources),
        counted_by(Calculator::VmiPodUsage),
        counted_by(Calculator::VirtualResources),
    ]
    .map(|aaq| where_vms_run(aaq, &hard));
    assert_eq!(said[0], "", "they are counted, and limits.cpu says nothing wrong beside them");
    insta::assert_snapshot!(said[1..].join("\n"), @"
    spec.hard: not enforced: requests.cpu/vmi: VMs take pods, requests.cpu, requests.memory (calculator VmiPodUsage): limit those, or set vmiCalculatorConfiguration.configName of the AAQ to DedicatedVirtualResources
    spec.hard: not enforced: requests.cpu/vmi: VMs take pods, requests.cpu, requests.memory (calculator VirtualResources): limit those, or set vmiCalculatorConfiguration.configName of the AAQ to DedicatedVirtualResources
    ");
    let without_vms = json!({ "limits.cpu": "8", "requests.storage": "1Gi" });
    insta::assert_snapshot!(where_vms_run(AaqPresence::Absent, &without_vms), @"spec.hard: virtual machines do not take limits.cpu (calculator DedicatedVirtualResources): limit them by requests.instances/vmi, requests.cpu/vmi, requests.memory/vmi");
    let unknown = where_vms_run(AaqPresence::Unknown, &without_vms);
    assert_eq!(unknown, "", "nothing is said of VMs before it is known how they are counted");
}

#[test]
fn keys_of_other_objects_are_limited_and_no_cause_for_a_warning_but_with_scopes_of_pods() {
    let hard = json!({"services": "1", "pods": "1", "requests.storage": "1Gi", "count/secrets": "1"});
    let verdict = create(json!({"hard": hard}));
    assert!(verdict.allowed && verdict.warnings.is_empty(), "{verdict:?}");
    let verdict = create(json!({"hard": {"pods": "1", "count/secrets": "1"}, "scopes": ["Terminating"]}));
    let [warning] = verdict.warnings.as_slice() else { panic!("{verdict:?}") };
    assert!(verdict.allowed && warning.contains("count/secrets: no such object has the scopes"), "{warning}");
    let verdict = create(json!({"hard": {"services": "1"}, "scopes": ["Terminating"]}));
    assert!(!verdict.allowed && verdict.message.contains("unsupported scope applied"), "{verdict:?}");
}

#[test]
fn a_name_without_room_for_that_of_its_managed_quota_is_refused() {
    let named = |length: usize, hard: Value| {
        let object = quota(json!({"hard": hard}));
        let kind = "ApplicationAwareResourceQuota";
        let mut request = review(kind, "CREATE", TENANT, &object, &Value::Null);
        request["request"]["name"] = json!("n".repeat(length));
        judge(quota_validate, &request)
    };
    let most = sluice_api::names::MAX_NAME_OF_MANAGED;
    assert!(named(most, json!({"services": "1"})).allowed);
    assert!(named(most + 1, json!({"pods": "1", "cpu/vmi": "1"})).allowed);
    let refused = named(most + 1, json!({"pods": "1", "services": "1"}));
    assert!(!refused.allowed && refused.message.contains("metadata.name: Invalid value"), "{refused:?}");
    assert!(refused.message.contains("no more than 214 characters with services"), "{refused:?}");
}

#[test]
fn an_update_is_checked_for_what_it_changes() {
    let bad = || quota(json!({"hard": {"illegalName": "1"}}));
    let good = || quota(json!({"hard": {"pods": "1"}}));
    assert_eq!(update(good(), bad()).code, 403);
    assert!(update(bad(), good()).allowed);
    assert!(update(quota(json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]})), good()).allowed);
    assert!(update(bad(), bad()).allowed, "a label can still be changed");
    let mut deleting = quota(json!({"hard": {"illegalOther": "1"}}));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(update(bad(), deleting).allowed, "finalizers can still be removed");
}

#[rstest]
#[case::no_object(Value::Null)]
#[case::text(json!("x"))]
#[case::hard_is_a_list(quota(json!({"hard": []})))]
#[case::amount_is_a_map(quota(json!({"hard": {"pods": {}}})))]
#[case::scopes_is_text(quota(json!({"scopes": "BestEffort"})))]
#[case::spec_is_text(quota(json!("x")))]
fn what_is_no_quota_is_refused(#[case] object: Value) {
    let request = review("ApplicationAwareResourceQuota", "CREATE", TENANT, &object, &Value::Null);
    let verdict = judge(quota_validate, &request);
    assert_eq!((verdict.allowed, verdict.code), (false, 400), "{}", verdict.message);
}
