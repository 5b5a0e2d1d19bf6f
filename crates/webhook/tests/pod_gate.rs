//! Pod CREATE: what is patched, what is refused, what is left alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{CDI, GATE, STAMP, TENANT, judge, judge_with, patched, pod_create};
use json_patch::merge;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::vm::Calculator;
use sluice_webhook::endpoints::pod_gate;
use sluice_webhook::{AaqPresence, Settings};

fn gates(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name })).collect()
}

#[rstest]
#[case::no_gates(json!({}), &[GATE])]
#[case::null_gates(json!({"schedulingGates": null}), &[GATE])]
#[case::empty_gates(json!({"schedulingGates": []}), &[GATE])]
#[case::foreign_gate(json!({"schedulingGates": gates(&["testSg"])}), &["testSg", GATE])]
#[case::order_is_kept(json!({"schedulingGates": gates(&["z", "a"])}), &["z", "a", GATE])]
#[case::own_gate_last(json!({"schedulingGates": gates(&["a", GATE])}), &["a", GATE])]
#[case::own_gate_first(json!({"schedulingGates": gates(&[GATE, "a"])}), &[GATE, "a"])]
#[case::other_case(json!({"schedulingGates": gates(&["applicationawarequotagate"])}), &["applicationawarequotagate", GATE])]
#[case::escaped_gate(json!({"schedulingGates": gates(&["a\"\\b"])}), &["a\"\\b", GATE])]
#[case::empty_node_name(json!({"nodeName": ""}), &[GATE])]
fn the_gate_is_appended_once(#[case] spec: Value, #[case] expected: &[&str]) {
    let pod = json!({"metadata": {"name": "a"}, "spec": spec});
    let verdict = judge(pod_gate, &pod_create(TENANT, &pod));
    assert_eq!((verdict.allowed, verdict.code), (true, 202));
    assert_eq!(verdict.message, "Pod has successfully gated");
    let after = patched(&pod, &verdict);
    assert_eq!(after["spec"]["schedulingGates"], gates(expected));
    assert_eq!(after["metadata"]["annotations"][STAMP], TENANT);
    // A second pass, by reinvocation or by a second replica of the configuration, changes nothing.
    let again = judge(pod_gate, &pod_create(TENANT, &after));
    assert_eq!((again.allowed, again.patch.len()), (true, 0));
}

#[rstest]
#[case::no_metadata(json!({"spec": {}}), json!({STAMP: TENANT}))]
#[case::null_metadata(json!({"metadata": null, "spec": {}}), json!({STAMP: TENANT}))]
#[case::no_annotations(json!({"metadata": {}, "spec": {}}), json!({STAMP: TENANT}))]
#[case::null_annotations(json!({"metadata": {"annotations": null}, "spec": {}}), json!({STAMP: TENANT}))]
#[case::others_stay(json!({"metadata": {"annotations": {"a/b~c": "d"}}, "spec": {}}), json!({"a/b~c": "d", STAMP: TENANT}))]
#[case::forged(json!({"metadata": {"annotations": {STAMP: "system:admin"}}, "spec": {}}), json!({STAMP: TENANT}))]
#[case::forged_empty(json!({"metadata": {"annotations": {STAMP: ""}}, "spec": {}}), json!({STAMP: TENANT}))]
fn the_stamp_names_the_requester(#[case] pod: Value, #[case] expected: Value) {
    let verdict = judge(pod_gate, &pod_create(TENANT, &pod));
    assert!(verdict.allowed, "{verdict:?}");
    assert_eq!(patched(&pod, &verdict)["metadata"]["annotations"], expected);
}

#[rstest]
#[case("")]
#[case("CN=Zoë \"z\"\\ , O=a/b~c\u{0}\u{2028}")]
#[case("system:serviceaccount:kube-system:replicaset-controller")]
fn any_username_is_stamped_verbatim(#[case] user: &str) {
    let pod = json!({"metadata": {}, "spec": {}});
    let verdict = judge(pod_gate, &pod_create(user, &pod));
    assert_eq!(patched(&pod, &verdict)["metadata"]["annotations"][STAMP], user);
}

#[test]
fn the_patch_does_not_grow_with_the_pod() {
    let size = |gates: usize| {
        let list: Value = (0..gates).map(|n| json!({ "name": format!("example.com/{n}") })).collect();
        let pod =
            json!({"metadata": {"annotations": {"a": "x".repeat(gates)}}, "spec": {"schedulingGates": list}});
        let verdict = judge(pod_gate, &pod_create(TENANT, &pod));
        assert_eq!(patched(&pod, &verdict)["spec"]["schedulingGates"].as_array().unwrap().len(), gates + 1);
        serde_json::to_vec(&verdict.patch).unwrap().len()
    };
    assert_eq!(size(1), size(10_000));
}

#[rstest]
#[case::fits(0, json!({}), true)]
#[case::fits_to_the_byte(0, json!({STAMP: "forged"}), true)]
#[case::one_byte_over(1, json!({}), false)]
#[case::one_byte_over_forged(1, json!({STAMP: "forged"}), false)]
fn annotations_at_their_limit_stay_legal(#[case] over: usize, #[case] own: Value, #[case] stamped: bool) {
    let filler = 256 * 1024 - 1 - STAMP.len() - TENANT.len() + over;
    let mut annotations = own;
    annotations["k"] = Value::from("x".repeat(filler));
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {}});
    let verdict = judge(pod_gate, &pod_create(TENANT, &pod));
    assert!(verdict.allowed);
    let after = patched(&pod, &verdict);
    let expected = if stamped { Some(TENANT) } else { None };
    assert_eq!(after["metadata"]["annotations"].get(STAMP).and_then(Value::as_str), expected);
    assert_eq!(after["spec"]["schedulingGates"], gates(&[GATE]));
}

#[rstest]
#[case::tenant(TENANT, json!({}), "node-1")]
#[case::tenant_says_mirror(TENANT, json!({"kubernetes.io/config.mirror": "hash"}), "node-1")]
#[case::tenant_says_platform(TENANT, json!({STAMP: CDI}), "node-1")]
#[case::node_without_mirror("system:node:node-1", json!({}), "node-1")]
#[case::other_node("system:node:node-2", json!({"kubernetes.io/config.mirror": "hash"}), "node-1")]
#[case::node_prefix("system:node:", json!({"kubernetes.io/config.mirror": "hash"}), "node-1")]
#[case::controller(common::CONTROLLER, json!({}), "node-1")]
fn a_pod_that_names_its_node_is_refused_with_a_remedy(
    #[case] user: &str,
    #[case] annotations: Value,
    #[case] node: &str,
) {
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"nodeName": node}});
    let verdict = judge(pod_gate, &pod_create(user, &pod));
    assert_eq!((verdict.allowed, verdict.code), (false, 403));
    insta::allow_duplicates!(
        insta::assert_snapshot!(verdict.message, @r#"pod sets spec.nodeName to "node-1", which bypasses the scheduler, so it cannot wait for quota behind the scheduling gate ApplicationAwareQuotaGate: leave spec.nodeName empty and choose the node with spec.nodeSelector or node affinity on the label kubernetes.io/hostname, or create the pod in a namespace whose pods are not gated"#)
    );
    assert!(verdict.patch.is_empty());
}

#[rstest]
#[case::bare(json!({}))]
#[case::forged(json!({STAMP: "alice"}))]
#[case::true_already(json!({STAMP: CDI}))]
fn a_pod_of_the_platform_that_names_its_node_is_stamped_and_not_gated(#[case] annotations: Value) {
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"nodeName": "node-1"}});
    let verdict = judge(pod_gate, &pod_create(CDI, &pod));
    assert_eq!((verdict.allowed, verdict.code), (true, 202));
    let after = patched(&pod, &verdict);
    assert_eq!(after["metadata"]["annotations"][STAMP], CDI);
    assert_eq!(after["spec"], pod["spec"], "nothing else");
    // Where it names no node it waits as any other.
    let pod = json!({"metadata": {}, "spec": {}});
    let after = patched(&pod, &judge(pod_gate, &pod_create(CDI, &pod)));
    assert_eq!(after["spec"]["schedulingGates"], gates(&[GATE]));
    // Whose pods these are is the administrator's choice.
    let mut settings = common::settings();
    settings.platform_accounts.clear();
    let bound = json!({"metadata": {}, "spec": {"nodeName": "node-1"}});
    assert!(!judge_with(pod_gate, &pod_create(CDI, &bound), &settings).allowed);
}

#[test]
fn a_mirror_pod_of_the_node_itself_is_left_alone() {
    let annotations = json!({"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.source": "file"});
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"nodeName": "node-1"}});
    let mut review = pod_create("system:node:node-1", &pod);
    assert!(!judge(pod_gate, &review).allowed, "the name alone is no kubelet");
    review["request"]["userInfo"]["groups"] = json!(["system:nodes", "system:authenticated"]);
    let verdict = judge(pod_gate, &review);
    assert_eq!((verdict.allowed, verdict.code, verdict.patch.len()), (true, 202, 0));
}

#[test]
fn a_probe_is_gated_as_a_pod_is_and_says_by_whom() {
    let probe = json!({"metadata": {"name": "probe"}, "spec": {}});
    let mut review = pod_create(TENANT, &probe);
    review["request"]["kind"]["kind"] = json!("GateProbe");
    review["request"]["namespace"] = json!("");
    let after = patched(&probe, &judge(pod_gate, &review));
    assert_eq!(after["spec"]["schedulingGates"], gates(&[GATE]));
    assert_eq!(after["spec"]["gatedBy"], "webhook");
    assert_eq!(after["metadata"]["annotations"][STAMP], TENANT);
}

#[test]
fn pods_of_the_install_namespace_are_left_alone() {
    let pod = json!({"metadata": {}, "spec": {"nodeName": "node-1"}});
    let mut review = pod_create(TENANT, &pod);
    review["request"]["namespace"] = Value::from("sluice-system");
    let verdict = judge(pod_gate, &review);
    assert_eq!((verdict.allowed, verdict.code, verdict.patch.len()), (true, 202, 0));
}

#[test]
fn a_dry_run_gets_the_same_answer() {
    let mut review = pod_create(TENANT, &json!({"metadata": {}, "spec": {}}));
    let real = judge(pod_gate, &review);
    review["request"]["dryRun"] = Value::from(true);
    assert_eq!(judge(pod_gate, &review), real);
}

#[rstest]
#[case::null(Value::Null, "no object")]
#[case::no_spec(json!({"metadata": {}}), "no spec")]
#[case::string(json!("pod"), "object")]
#[case::gates_are_text(json!({"spec": {"schedulingGates": "x"}}), "object")]
#[case::gate_name_is_number(json!({"spec": {"schedulingGates": [{"name": 1}]}}), "object")]
#[case::annotation_is_number(json!({"metadata": {"annotations": {"a": 1}}, "spec": {}}), "object")]
#[case::node_name_is_list(json!({"spec": {"nodeName": []}}), "object")]
fn what_is_no_pod_is_refused(#[case] pod: Value, #[case] part: &str) {
    let verdict = judge(pod_gate, &pod_create(TENANT, &pod));
    assert_eq!((verdict.allowed, verdict.code), (false, 400));
    assert!(verdict.message.contains(part), "{}", verdict.message);
}

const KUBEVIRT: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

/// The webhook where KubeVirt runs and its VMs are counted so.
fn counting(calculator: Calculator) -> Settings {
    let aaq = AaqPresence::Present { cluster_quotas: false, calculator, gives_way: false };
    Settings { kubevirt_controller: Some(KUBEVIRT.to_owned()), aaq, ..common::settings() }
}

/// The target of a local migration, as KubeVirt makes it, with these changes.
fn target(changes: &Value) -> Value {
    let mut pod = json!({
        "metadata": { "labels": {
            names::MIGRATION_JOB_LABEL: "migration", names::CREATED_BY_LABEL: "machine", "kubevirt.io": "virt-launcher",
        }},
        "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": { "matchLabels": { names::CREATED_BY_LABEL: "machine" } },
                "topologyKey": "kubernetes.io/hostname",
            },
        ]}}},
    });
    merge(&mut pod, changes);
    pod
}

/// A node affinity of one requirement.
fn nodes(key: &str, operator: &str) -> Value {
    let requirement = json!({ "key": key, "operator": operator, "values": ["a"] });
    json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchFields": [] }, { "matchExpressions": [requirement] }],
    }}}}})
}

fn beside(machines: &[&str]) -> Value {
    let term = |uid: &&str| {
        json!({
            "labelSelector": { "matchLabels": { names::CREATED_BY_LABEL: uid } }, "topologyKey": "t",
        })
    };
    let terms: Vec<_> = machines.iter().map(term).collect();
    json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } } })
}

/// One more affinity term, which speaks of pods of other namespaces.
fn across(kind: &str, when: &str, namespaces: Value) -> Value {
    let mut term = json!({ "labelSelector": {}, "topologyKey": "t" });
    merge(&mut term, &namespaces);
    let term = if when == "required" { term } else { json!({ "weight": 1, "podAffinityTerm": term }) };
    let mut terms = vec![term];
    if (kind, when) == ("podAntiAffinity", "required") {
        terms.push(
            beside(&["machine"])["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"]
                [0]
            .clone(),
        );
    }
    json!({ "spec": { "affinity": { kind: { format!("{when}DuringSchedulingIgnoredDuringExecution"): terms } } } })
}

#[rstest]
#[case::as_it_is(json!({}), true)]
#[case::near_some_pods(across("podAffinity", "required", json!({})), true)]
#[case::rather_away_from_some_pods(across("podAntiAffinity", "preferred", json!({ "namespaces": [] })), true)]
#[case::near_pods_of_others(across("podAffinity", "required", json!({ "namespaces": ["b"] })), false)]
#[case::rather_near_pods_of_others(across("podAffinity", "preferred", json!({ "namespaceSelector": {} })), false)]
#[case::away_from_pods_of_others(across("podAntiAffinity", "required", json!({ "namespaceSelector": {} })), false)]
#[case::rather_away_from_pods_of_others(across("podAntiAffinity", "preferred", json!({ "namespaces": ["b"] })), false)]
#[case::beside_its_machine_and_another(beside(&["other", "machine"]), true)]
#[case::beside_as_many_as_are_looked_at(beside(&["machine"; names::MOST_ITEMS]), true)]
#[case::beside_more_than_are_looked_at(beside(&["machine"; names::MOST_ITEMS + 1]), false)]
#[case::of_some_zones(nodes("topology.kubernetes.io/zone", "NotIn"), true)]
#[case::of_some_nodes(nodes("kubernetes.io/hostname", "In"), true)]
#[case::received(nodes("kubernetes.io/hostname", "NotIn"), false)]
#[case::beside_another(beside(&["other"]), false)]
#[case::beside_none(beside(&[]), false)]
#[case::term_without_selector(json!({ "spec": { "affinity": { "podAntiAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "t" }] } } } }), false)]
#[case::no_affinity(json!({ "spec": { "affinity": null } }), false)]
#[case::no_migration(json!({ "metadata": { "labels": { names::MIGRATION_JOB_LABEL: null } } }), false)]
#[case::no_machine(json!({ "metadata": { "labels": { names::CREATED_BY_LABEL: null } } }), false)]
#[case::no_labels(json!({ "metadata": { "labels": null } }), false)]
fn targets_of_local_migrations_of_vms_whose_guests_are_charged_are_stamped_alone(
    #[case] changes: Value,
    #[case] is_let_in: bool,
) {
    let pod = target(&changes);
    let admitted = |user: &str, settings: &Settings| {
        let after = patched(&pod, &judge_with(pod_gate, &pod_create(user, &pod), settings));
        assert_eq!(after["metadata"]["annotations"][STAMP], user);
        after["spec"].get("schedulingGates").is_none()
    };
    for calculator in [Calculator::DedicatedVirtualResources, Calculator::VirtualResources] {
        assert_eq!(admitted(KUBEVIRT, &counting(calculator)), is_let_in, "{calculator:?}");
        for other in [TENANT, "system:serviceaccount:team-a:kubevirt-controller"] {
            assert!(!admitted(other, &counting(calculator)), "{other} is not KubeVirt's controller");
        }
    }
    for by_pods in
        [Calculator::GuestEffectiveResources, Calculator::VmiPodUsage, Calculator::IgnoreVmiCalculator]
    {
        assert!(!admitted(KUBEVIRT, &counting(by_pods)), "{by_pods:?}: a larger target takes more");
    }
    let unknown = Settings { aaq: AaqPresence::Unknown, ..counting(Calculator::default()) };
    assert!(!admitted(KUBEVIRT, &unknown), "not known to be charged");
    let no_kubevirt = Settings { kubevirt_controller: None, ..counting(Calculator::default()) };
    assert!(!admitted(KUBEVIRT, &no_kubevirt), "not known to be KubeVirt's");
}
