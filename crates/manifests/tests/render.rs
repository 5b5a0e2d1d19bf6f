//! Rules that every installation keeps, whatever its options. The whole text is compared by `xtask gen --check`.

mod common;

use common::{list, of_kind};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{Gating, InstallOptions, OptionsFile, PlatformAccounts, install_objects, render};

#[test]
fn objects_come_after_what_they_need_and_what_refuses_pods_last() {
    let objects = render(&InstallOptions::default());
    let kinds: Vec<_> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds[..13], ["CustomResourceDefinition"; 13]);
    assert_eq!(kinds[13], "Namespace");
    let from = kinds.iter().position(|kind| kind.contains("AdmissionPolicy")).expect("policies");
    let named = |object: &Value| {
        let kind = object["kind"].as_str().expect("a kind").replace("AdmissionPolicy", "");
        format!("{kind} {}", object["metadata"]["name"].as_str().expect("a name"))
    };
    let last: Vec<String> = objects[from..].iter().map(named).collect();
    let expected = [
        "Validating sluice-headroom-charge",
        "ValidatingBinding sluice-headroom-charge",
        "Validating sluice-headroom-lock",
        "ValidatingBinding sluice-headroom-lock",
        "Validating sluice-accounts",
        "ValidatingBinding sluice-accounts",
        "Validating sluice-vmi-status",
        "ValidatingBinding sluice-vmi-status",
        "Validating sluice-exempt-names",
        "ValidatingBinding sluice-exempt-names",
        "Validating sluice-pause",
        "ValidatingBinding sluice-pause",
        "Validating sluice-review",
        "ValidatingBinding sluice-review",
        "Validating sluice-evaluators",
        "ValidatingBinding sluice-evaluators",
        "Validating sluice-guard",
        "ValidatingBinding sluice-guard",
        "Mutating sluice-stamp",
        "MutatingBinding sluice-stamp",
        "Mutating sluice-gate",
        "MutatingBinding sluice-gate",
        "MutatingWebhookConfiguration gating-mutator",
        "ValidatingWebhookConfiguration aaq-validator",
        "Validating sluice-gated",
        "ValidatingBinding sluice-gated",
    ];
    assert_eq!(last, expected);
    for object in &objects {
        let namespace = object["metadata"]["namespace"].as_str();
        // The addresses and the Leases of the API servers are nowhere else.
        let expected: &[&str] = match object["metadata"]["name"].as_str() {
            Some("sluice-api-servers") => &["default", "kube-system"],
            // Those about objects without a namespace.
            Some("sluice-events") => &["default"],
            _ => &["sluice-system"],
        };
        assert!(namespace.is_none_or(|name| expected.contains(&name)), "{object}");
    }
}

/// Who applies a manifest again would replace the selector of the `AAQ` by the default, and open the gate until the operator
/// has put that right.
#[test]
fn no_manifest_has_what_gates_pods() {
    let gating = ["AdmissionPolicy", "AdmissionPolicyBinding", "WebhookConfiguration"];
    for object in install_objects(&InstallOptions::default()) {
        let kind = object["kind"].as_str().expect("a kind");
        assert!(!gating.iter().any(|end| kind.ends_with(end)), "{kind}");
    }
}

#[test]
fn the_pods_are_reached_at_two_ports_and_reach_few() {
    let objects = render(&InstallOptions::default());
    let policies = of_kind(&objects, "NetworkPolicy");
    assert_eq!(policies.len(), 3);
    let ports = |rules: &[Value]| -> Vec<u64> {
        let ports = rules.iter().flat_map(|rule| rule["ports"].as_array().expect("ports"));
        ports.filter_map(|port| port["port"].as_u64()).collect()
    };
    let rules = |spec: &Value, of: &str| spec[of].as_array().expect("rules").clone();
    let [operator, webhook, controller] = [0, 1, 2].map(|at| &policies[at]["spec"]);
    for spec in [operator, webhook, controller] {
        let (ingress, egress) = (rules(spec, "ingress"), rules(spec, "egress"));
        assert_eq!(ports(&ingress[..1]), [8444]);
        let from = &ingress[0]["from"][0]["namespaceSelector"]["matchLabels"];
        assert_eq!(from, &json!({ "metrics": "enabled" }));
        assert_eq!(ports(&egress[..1]), [443, 6443, 8443]);
        assert_eq!(ports(&egress[1..2]), [53, 53, 5353, 5353]);
    }
    let further = |spec: &Value, of: &str| rules(spec, of)[if of == "egress" { 2 } else { 1 }..].to_vec();
    assert_eq!((further(operator, "ingress"), further(operator, "egress")), (vec![], vec![]));
    let reviews = further(webhook, "ingress");
    assert_eq!(ports(&reviews), [8443]);
    assert!(reviews[0].get("from").is_none(), "API servers have no labels");
    let (to_leader, growth) = (further(webhook, "egress"), further(controller, "ingress"));
    assert_eq!((ports(&to_leader), ports(&growth)), (vec![8445], vec![8445]));
    assert_eq!(further(controller, "egress"), Vec::<Value>::new());
    assert_eq!(to_leader[0]["to"][0]["podSelector"], controller["podSelector"]);
    assert_eq!(growth[0]["from"][0]["podSelector"], webhook["podSelector"]);
    let selected: Vec<_> = policies.iter().map(|policy| &policy["spec"]["podSelector"]).collect();
    for deployment in of_kind(&objects, "Deployment") {
        assert!(selected.contains(&&deployment["spec"]["selector"]), "{deployment}");
    }
}

#[test]
fn each_process_has_a_second_replica_and_one_of_them_may_be_evicted() {
    let objects = render(&InstallOptions::default());
    let (deployments, budgets) = (of_kind(&objects, "Deployment"), of_kind(&objects, "PodDisruptionBudget"));
    assert_eq!((deployments.len(), budgets.len()), (3, 3));
    for (deployment, budget) in deployments.iter().zip(&budgets) {
        assert_eq!(deployment["spec"]["replicas"], 2);
        assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
        assert_eq!(budget["spec"]["minAvailable"], 1);
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
        // A standby that is not ready would keep the budget from letting the leader's node be drained.
        let probe = &deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"];
        assert_eq!(probe["httpGet"]["path"], names::PATH_READYZ);
    }
    let quota = of_kind(&objects, "ResourceQuota");
    let critical =
        quota.iter().find(|quota| quota["metadata"]["name"] == "sluice-critical-pods").expect("one");
    assert_eq!(
        critical["spec"]["hard"]["pods"], "18",
        "two and one more while it is rolled, and as many that end"
    );
    for component in [names::CONTROLLER, names::OPERATOR] {
        let role = of_kind(&objects, "Role").into_iter().find(|role| role["metadata"]["name"] == component);
        let rules = role.expect("a Role")["rules"].as_array().expect("rules").clone();
        let lease = rules.iter().find(|rule| {
            list(&rule["resources"]) == ["leases"] && rule["resourceNames"] == json!([component])
        });
        assert!(list(&lease.expect("a lease")["verbs"]).contains(&"update"), "{component} elects a leader");
    }
}

#[test]
fn own_requests_have_a_lane_of_their_own() {
    let objects = render(&InstallOptions::default());
    let (schemas, levels) =
        (of_kind(&objects, "FlowSchema"), of_kind(&objects, "PriorityLevelConfiguration"));
    assert_eq!((schemas.len(), levels.len()), (1, 1));
    let accounts: Vec<_> = schemas[0]["spec"]["rules"][0]["subjects"]
        .as_array()
        .expect("subjects")
        .iter()
        .map(|subject| &subject["serviceAccount"]["name"])
        .collect();
    assert_eq!(accounts, ["sluice-controller", "sluice-webhook", "sluice-operator"]);
    assert_eq!(schemas[0]["spec"]["priorityLevelConfiguration"]["name"], levels[0]["metadata"]["name"]);
}

#[allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test stops at what is not as it must be")]
fn arguments(options: &InstallOptions, name: &str) -> String {
    let objects = render(options);
    let deployments = of_kind(&objects, "Deployment");
    let of_name = deployments.into_iter().find(|object| object["metadata"]["name"] == name);
    let container = &of_name.expect("a Deployment")["spec"]["template"]["spec"]["containers"][0];
    serde_json::to_string(&container["args"]).expect("JSON")
}

/// What the operator reads in its ConfigMap.
#[allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test stops at what is not as it must be")]
fn read_by_operator(options: &InstallOptions) -> InstallOptions {
    let objects = render(options);
    let text =
        of_kind(&objects, "ConfigMap")[0]["data"][names::OPTIONS_KEY].as_str().expect("options").to_owned();
    OptionsFile::parse(&text).expect("a file").over(InstallOptions::default()).expect("options")
}

#[test]
fn processes_are_told_what_differs_from_the_default() {
    let other = InstallOptions {
        gating: Gating::Webhook,
        further_gate_removers: vec!["system:admin".to_owned()],
        exempt_namespaces: ["infra-*", "db"].map(|name| name.parse().expect("a pattern")).to_vec(),
        ..InstallOptions::default()
    };
    assert_eq!(read_by_operator(&other), other);
    assert!(!arguments(&InstallOptions::default(), names::CONTROLLER).contains("gating"));
    let told = arguments(&other, names::CONTROLLER);
    assert!(told.contains("\"--gating=webhook\",\"--exempt-namespaces=infra-*,db\""), "{told}");
    assert!(!arguments(&InstallOptions::default(), names::WEBHOOK).contains("exempt"));
    assert!(arguments(&other, names::WEBHOOK).contains("\"--exempt-namespaces=infra-*,db\""));
}

/// The accounts whose pods may name their node are the same for what gates, what refuses, and what counts.
#[test]
fn policies_webhooks_and_processes_agree_on_the_accounts_of_the_platform() {
    let accounts: PlatformAccounts = "openshift-cnv:cdi-sa,storage:populator".parse().expect("accounts");
    let is_by = "(request.userInfo.username in [\"system:serviceaccount:openshift-cnv:cdi-sa\",\
                 \"system:serviceaccount:storage:populator\"])";
    let options = InstallOptions { platform_accounts: accounts, ..InstallOptions::default() };
    let objects = render(&options);
    let of_name = |kind: &str, name: &str| {
        let found = of_kind(&objects, kind).into_iter().find(|object| object["metadata"]["name"] == name);
        found.expect("an object").clone()
    };
    let gate = of_name("MutatingAdmissionPolicy", names::GATE_POLICY);
    let gater = of_name("MutatingWebhookConfiguration", names::MUTATING_CONFIG)["webhooks"][0].clone();
    let not_bound_by_others = &gate["spec"]["matchConditions"][1];
    assert_eq!(gater["matchConditions"][1], *not_bound_by_others);
    let text = |value: &Value| value.as_str().expect("an expression").to_owned();
    assert!(text(&not_bound_by_others["expression"]).ends_with(&format!("|| {is_by}")));
    let last_word = of_name("ValidatingAdmissionPolicy", names::GATED_POLICY);
    let validations = &last_word["spec"]["validations"];
    assert!(text(&validations[1]["expression"]).contains(&format!("|| {is_by} ||")));
    assert!(text(&validations[3]["expression"]).contains(&format!("&& !{is_by})")), "and it is stamped");
    let validating = of_name("ValidatingWebhookConfiguration", names::VALIDATING_CONFIG);
    let mut webhooks = validating["webhooks"].as_array().expect("webhooks").iter();
    let bound = webhooks.find(|webhook| webhook["name"] == "bound.pod.validator").expect("it");
    assert!(text(&bound["matchConditions"][1]["expression"]).ends_with(&format!("&& !{is_by}")));
    assert_eq!(read_by_operator(&options).platform_accounts, options.platform_accounts);
    for name in [names::CONTROLLER, names::WEBHOOK] {
        let flag = "\"--platform-accounts=openshift-cnv:cdi-sa,storage:populator\"";
        assert!(arguments(&options, name).contains(flag), "{name}");
        assert!(!arguments(&InstallOptions::default(), name).contains("--platform-accounts"), "{name}");
    }
    let none = InstallOptions { platform_accounts: "".parse().expect("none"), ..InstallOptions::default() };
    assert!(arguments(&none, names::WEBHOOK).contains("\"--platform-accounts=\""));
}
