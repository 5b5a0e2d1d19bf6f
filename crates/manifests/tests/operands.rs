//! Who makes what: the manifest the operator, and the operator everything else.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test stops at what is not as it must be")]

mod common;

use common::of_kind;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{AskedOfPods, InstallOptions, NoPlace, OfEvaluator, install_objects, operand_objects};

fn named(objects: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    objects
        .iter()
        .map(|object| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"])))
        .collect()
}

#[test]
fn a_manifest_has_rights_and_the_operator_and_the_operator_makes_the_rest() {
    let options = InstallOptions::default();
    let installed = named(&install_objects(&options));
    let beside_rights: Vec<_> = installed.iter().filter(|name| !name.contains("Role")).collect();
    assert_eq!(
        beside_rights,
        [
            "Namespace sluice-system",
            "ServiceAccount sluice-controller",
            "ServiceAccount sluice-webhook",
            "ServiceAccount sluice-operator",
            "NetworkPolicy sluice-operator",
            "ResourceQuota sluice-critical-pods",
            "ConfigMap sluice-operator",
            "Deployment sluice-operator",
            "PodDisruptionBudget sluice-operator",
        ]
    );
    assert_eq!(
        named(&operand_objects(&options, &AskedOfPods::default())),
        [
            "NetworkPolicy sluice-webhook",
            "NetworkPolicy sluice-controller",
            "PriorityLevelConfiguration sluice",
            "FlowSchema sluice",
            "ResourceQuota sluice-headroom-proof",
            "Service sluice-webhook",
            "Service sluice-metrics",
            "Deployment sluice-controller",
            "PodDisruptionBudget sluice-controller",
            "Deployment sluice-webhook",
            "PodDisruptionBudget sluice-webhook",
        ]
    );
}

fn pods(options: &InstallOptions, asked: &AskedOfPods) -> Vec<Value> {
    let objects = operand_objects(options, asked);
    let pods = of_kind(&objects, "Deployment").into_iter().map(|it| it["spec"]["template"]["spec"].clone());
    pods.collect()
}

fn shown(pod: &Value) -> Value {
    json!([
        pod["nodeSelector"],
        pod["tolerations"],
        pod["priorityClassName"],
        pod["containers"][0]["imagePullPolicy"]
    ])
}

#[test]
fn what_is_asked_holds_and_what_is_not_asked_is_that_of_the_options() {
    let options = InstallOptions {
        node_selector: [("pool".to_owned(), "infra".to_owned())].into(),
        ..InstallOptions::default()
    };
    let by_options = json!([{ "pool": "infra" }, null, "system-cluster-critical", "IfNotPresent"]);
    for nothing in [Value::Null, json!({}), json!({ "nodeSelector": {}, "tolerations": [] })] {
        let asked = AskedOfPods { infra: nothing, ..AskedOfPods::default() };
        assert!(pods(&options, &asked).iter().all(|pod| shown(pod) == by_options));
    }
    let asked = AskedOfPods {
        infra: json!({ "tolerations": [{ "key": "infra" }], "unknown": 1 }),
        image_pull_policy: Some("Always".to_owned()),
        priority_class: Some("high".to_owned()),
        ..AskedOfPods::default()
    };
    for pod in pods(&options, &asked) {
        assert_eq!(
            shown(&pod),
            json!([null, [{ "key": "infra" }], "high", "Always"]),
            "infra replaces all of it"
        );
        assert!(
            pod.as_object().expect("a pod").contains_key("nodeSelector"),
            "null takes away what others have set"
        );
        assert!(pod.get("unknown").is_none());
    }
    let term = json!([{ "weight": 1, "podAffinityTerm": { "topologyKey": "zone" } }]);
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let asked = AskedOfPods {
        infra: json!({ "affinity": { "podAntiAffinity": { preferred: term } } }),
        ..AskedOfPods::default()
    };
    for pod in pods(&options, &asked) {
        assert_eq!(pod["affinity"]["podAntiAffinity"][preferred], term);
        assert_eq!(
            pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]["app.kubernetes.io/name"],
            names::APP
        );
    }
}

/// By the same function as those of the `AAQ`: what is forced is forced here.
#[test]
fn containers_of_evaluators_get_nothing_but_a_directory_of_their_own() {
    let of = |container: Value, runs: bool| OfEvaluator { container, runs };
    let mut asked = AskedOfPods {
        image_pull_policy: Some("Always".to_owned()),
        sidecars: json!([{ "name": "label", "image": "label:1" }, { "name": "license", "image": "" }]),
        ..AskedOfPods::default()
    };
    let no_place = asked.find_places(vec![
        of(json!({ "name": "reads", "image": "i" }), false),
        of(json!({ "name": "label", "image": "other:1" }), true),
        of(
            json!({
                "name": "license", "image": "license:1", "args": ["-v"], "env": [{ "name": "A", "value": "a" }],
                "resources": { "requests": { "memory": "16Mi" } },
            }),
            true,
        ),
    ]);
    assert_eq!(no_place, NoPlace::default());
    let [controller, _] = <[Value; 2]>::try_from(pods(&InstallOptions::default(), &asked)).expect("two");
    let own = &controller["containers"][0];
    let args = own["args"].as_array().expect("args").iter().filter_map(Value::as_str);
    let evaluators: Vec<_> = args.filter(|arg| arg.starts_with("--evaluator")).collect();
    let at = "/var/run/aaq-sockets";
    // That of the `AAQ` runs of two with one name, if it may. What may not run is asked all the same: its pods wait.
    let expected = [
        format!("--evaluator=label={at}/0"),
        format!("--evaluator=refused-1={at}/1"),
        format!("--evaluator-of-object=license={at}/evaluator-license"),
        format!("--evaluator-of-object=reads={at}/evaluator-reads"),
    ];
    assert_eq!(evaluators, expected);
    let license = json!({
        "name": "license", "image": "license:1", "imagePullPolicy": "Always", "args": ["-v"],
        "env": [{ "name": "A", "value": "a" }],
        "resources": { "requests": { "memory": "16Mi" }, "limits": { "memory": "16Mi" } },
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "readOnlyRootFilesystem": false,
        },
        "volumeMounts": [{ "name": "evaluator-license", "mountPath": at }],
    });
    assert_eq!(controller["containers"].as_array().map(|all| all[2..].to_vec()), Some(vec![license]));
    let context = &controller["securityContext"];
    assert_eq!((&context["runAsUser"], &context["runAsNonRoot"]), (&json!(65532), &json!(true)));
    assert_eq!(controller["automountServiceAccountToken"], false);
    let mut again = AskedOfPods { of_evaluators: Vec::new(), ..asked.clone() };
    again.find_places(OfEvaluator::all_in(&controller));
    assert_eq!(pods(&InstallOptions::default(), &again)[0], controller, "what runs can be read");
}

#[test]
fn sidecars_run_beside_the_controller_with_a_directory_each_and_no_rights_of_their_own() {
    let asked = AskedOfPods {
        image_pull_policy: Some("Always".to_owned()),
        sidecars: json!([
            {
                "name": "label", "image": "label:1", "args": ["--config", "double"],
                "securityContext": { "runAsNonRoot": false, "readOnlyRootFilesystem": true },
                "resources": { "requests": { "memory": "512Mi" } },
                "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
            },
            { "name": "mounts", "image": "i", "volumeMounts": [{ "name": "token", "mountPath": "/t" }] },
            { "name": "license", "image": "license:1", "imagePullPolicy": "Never",
              "resources": { "limits": { "cpu": "1", "memory": "64Mi" } } },
        ]),
        ..AskedOfPods::default()
    };
    let [controller, webhook] =
        <[Value; 2]>::try_from(pods(&InstallOptions::default(), &asked)).expect("two");
    assert_eq!(webhook["containers"].as_array().map(Vec::len), Some(1));
    let own = &controller["containers"][0];
    let evaluators: Vec<_> = own["args"].as_array().expect("args").iter().filter_map(Value::as_str).collect();
    let evaluators: Vec<_> = evaluators.into_iter().filter(|arg| arg.starts_with("--evaluator")).collect();
    let at = "/var/run/aaq-sockets";
    // What may not run is asked all the same: no pod is counted without it.
    let flags = [format!("label={at}/0"), format!("refused-1={at}/1"), format!("license={at}/2")]
        .map(|it| format!("--evaluator={it}"));
    assert_eq!(evaluators, flags);
    let mounts = json!([
        { "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true },
        { "name": "sockets-0", "mountPath": format!("{at}/0") },
        { "name": "sockets-1", "mountPath": format!("{at}/1") },
        { "name": "sockets-2", "mountPath": format!("{at}/2") },
    ]);
    assert_eq!(own["volumeMounts"], mounts);
    let emptied = json!({ "name": "sockets-2", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } });
    assert_eq!(controller["volumes"][3], emptied);
    let context = |read_only| {
        json!({
            "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "readOnlyRootFilesystem": read_only,
        })
    };
    assert_eq!(
        controller["containers"].as_array().map(|all| &all[1..]),
        Some(
            [
                json!({
                    "name": "label", "image": "label:1", "args": ["--config", "double"],
                    "imagePullPolicy": "Always",
                    "resources": { "requests": { "memory": "512Mi" }, "limits": { "memory": "512Mi" } },
                    "env": [{
                        "name": "POD", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } },
                    }],
                    "securityContext": context(true), "volumeMounts": [{ "name": "sockets-0", "mountPath": at }],
                }),
                json!({
                    "name": "license", "image": "license:1", "imagePullPolicy": "Never",
                    "resources": { "limits": { "cpu": "1", "memory": "64Mi" } },
                    "securityContext": context(false), "volumeMounts": [{ "name": "sockets-2", "mountPath": at }],
                }),
            ]
            .as_slice()
        )
    );
}
