//! Rules that every installation keeps, whatever its options. The whole text is compared by `xtask gen --check`.

mod common;

use common::of_kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{
    AdmissionPolicy, AskedOfPods, Gating, InstallOptions, Installation, OptionsFile, PlatformAccounts,
    admission_objects, admission_policies, install_objects, operand_objects, rancher_objects, render,
};

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

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

#[test]
fn no_rule_has_a_wildcard_or_a_verb_that_gives_more_rights() {
    let objects = render(&InstallOptions::default());
    for role in of_kind(&objects, "ClusterRole").into_iter().chain(of_kind(&objects, "Role")) {
        for rule in role["rules"].as_array().expect("rules") {
            for field in ["apiGroups", "resources", "verbs"] {
                assert!(!list(&rule[field]).contains(&"*"), "{rule}");
            }
            let verbs = list(&rule["verbs"]);
            for verb in ["escalate", "bind", "impersonate", "deletecollection"] {
                assert!(!verbs.contains(&verb), "{rule}");
            }
            let resources = list(&rule["resources"]);
            // ResourceQuotas and ClusterResourceQuotas: managed ones only, which `sluice-accounts` enforces. The others are
            // Sluice's own: no other component reads them to decide.
            let managed = ["resourcequotas", names::CLUSTER_RESOURCE_QUOTAS];
            let own = [&managed[..], &[names::AACRQS, names::CLUSTER_QUOTA_CHARGES]].concat();
            // What makes an object go with the operator's role asks for `delete` on that object.
            let is_named = !list(&rule["resourceNames"]).is_empty();
            let is_made = role["metadata"]["name"] == names::OPERATOR;
            let may_delete = (is_named && is_made) || resources.iter().all(|each| own.contains(each));
            assert!(!verbs.contains(&"delete") || may_delete, "{rule}");
            assert!(!(resources.contains(&"pods") && verbs.contains(&"create")), "{rule}");
            if resources.contains(&"secrets") && verbs != ["create"] {
                assert!(!list(&rule["resourceNames"]).is_empty(), "{rule}");
                assert_eq!(role["kind"], "Role");
            }
        }
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

/// Where OwnerReferencesPermissionEnforcement is enabled, an owner may only be given to what one may delete; and
/// `blockOwnerDeletion`, which the operator does not set, would ask for `finalizers` too.
#[test]
fn the_operator_may_make_what_it_writes_go_with_its_role_and_nothing_else() {
    let options = InstallOptions::default();
    let objects = render(&options);
    let of_operator = |kind: &str| {
        let all = of_kind(&objects, kind).into_iter();
        let mut own = all.filter(|role| role["metadata"]["name"] == names::OPERATOR);
        own.next().expect("a role")["rules"].as_array().expect("rules").clone()
    };
    let everywhere = of_operator("ClusterRole");
    let rules = [everywhere.clone(), of_operator("Role")].concat();
    let mut granted: Vec<(String, String)> = Vec::new();
    for rule in rules.iter().filter(|rule| {
        // It makes an AAQ, too, and takes it back: that has no owner.
        list(&rule["verbs"]).contains(&"delete") && list(&rule["resources"]) != [names::AAQS]
    }) {
        let [resource] = &list(&rule["resources"])[..] else { panic!("one resource: {rule}") };
        let names = list(&rule["resourceNames"]);
        assert!(!names.is_empty() && list(&rule["verbs"]).contains(&"patch"), "{rule}");
        granted.extend(names.iter().map(|name| ((*resource).to_owned(), (*name).to_owned())));
    }
    let plural = |kind: &str| match kind.strip_suffix('y') {
        Some(start) => format!("{}ies", start.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    };
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let written = [admission_objects(&options), operand_objects(&options, &AskedOfPods::default())].concat();
    let mut written: Vec<_> = written
        .iter()
        .map(|object| (plural(&text(&object["kind"])), text(&object["metadata"]["name"])))
        .collect();
    granted.sort();
    written.sort();
    assert_eq!(granted, written);
    for (resource, _) in &written {
        let may_create = |rule: &&Value| {
            list(&rule["resources"]).contains(&resource.as_str()) && list(&rule["verbs"]).contains(&"create")
        };
        assert!(rules.iter().any(|rule| may_create(&rule)), "{resource}");
    }
    let reads = everywhere.iter().filter(|rule| list(&rule["resources"]) == ["clusterroles"]);
    let reads: Vec<_> = reads.map(|rule| (list(&rule["verbs"]), list(&rule["resourceNames"]))).collect();
    assert_eq!(reads, [(vec!["get", "list", "watch"], vec![names::OPERATOR])]);
}

#[test]
fn tenants_may_read_their_quotas_ask_and_nothing_more() {
    let objects = render(&InstallOptions::default());
    let mut aggregated = 0;
    for role in of_kind(&objects, "ClusterRole") {
        let labels = role["metadata"]["labels"].as_object().expect("labels");
        if labels.keys().any(|label| label.contains("aggregate-to-")) {
            aggregated += 1;
            for rule in role["rules"].as_array().expect("rules") {
                let asks = list(&rule["resources"]) == [names::QUOTA_REVIEWS];
                let verbs: &[&str] = if asks { &["create"] } else { &["get", "list", "watch"] };
                assert_eq!(list(&rule["verbs"]), verbs);
            }
        }
    }
    assert_eq!(aggregated, 1);
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

#[test]
fn policies_and_bindings_speak_of_the_same_things() {
    let policies = admission_policies(&InstallOptions::default());
    assert_eq!(policies.len(), 11);
    for AdmissionPolicy { name, mutates, policy, binding } in &policies {
        let kind = if *mutates { "MutatingAdmissionPolicy" } else { "ValidatingAdmissionPolicy" };
        assert_eq!((&policy["kind"], &policy["metadata"]["name"]), (&json!(kind), &json!(name)));
        assert_eq!(binding["kind"], format!("{kind}Binding"));
        assert_eq!(
            (&binding["spec"]["policyName"], &binding["metadata"]["name"]),
            (&json!(name), &json!(name))
        );
        assert_eq!(policy["spec"].get("paramKind").is_some(), binding["spec"].get("paramRef").is_some());
        let headroom = name.starts_with("sluice-headroom");
        assert_eq!(policy["spec"]["failurePolicy"], if headroom { "Ignore" } else { "Fail" }, "{name}");
        for validation in policy["spec"]["validations"].as_array().into_iter().flatten() {
            assert_eq!(validation["reason"], "Forbidden");
            let expression = validation["expression"].as_str().expect("an expression");
            assert!(!expression.contains("MARK") && !expression.contains("END"), "{expression}");
        }
    }
}

fn resources(policy: &Value) -> Vec<Value> {
    let rules = policy.pointer("/spec/matchConstraints/resourceRules").and_then(Value::as_array);
    let resources = rules.into_iter().flatten().filter_map(|rule| rule.get("resources")?.as_array());
    resources.flatten().cloned().collect()
}

#[test]
fn the_policies_of_headroom_deny_in_quotas_words_and_the_mark_counts_probes() {
    let objects = render(&InstallOptions::default());
    let policies = admission_policies(&InstallOptions::default());
    let [charge, lock] = [&policies[0].policy, &policies[1].policy];
    for policy in [charge, lock] {
        // What a tenant's controller is told has to make it try again.
        let denials = policy["spec"]["validations"][0]["message"].as_str().expect("a message");
        assert!(denials.starts_with("exceeded quota: "), "{denials}");
    }
    assert_eq!(resources(charge), ["resourcequotas/status"]);
    let crds = of_kind(&objects, "CustomResourceDefinition");
    let probe = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == "HeadroomProbe").expect("a CRD");
    let probes = probe["spec"]["names"]["plural"].clone();
    assert_eq!(resources(lock), [json!("pods"), json!("pods/resize"), probes]);
    let mark = format!("count/{}", probe["metadata"]["name"].as_str().expect("a name"));
    assert_eq!(mark, sluice_engine::headroom::MARK, "the mark counts probes");
    assert!(lock["spec"]["validations"][0]["expression"].to_string().contains(&mark));
}

#[test]
fn new_machines_are_judged_in_every_namespace_whoever_creates_them() {
    let policies = admission_policies(&InstallOptions::default());
    let policy = policies.iter().find(|each| each.name == names::VMI_STATUS_POLICY).expect("a policy");
    let spec = &policy.policy["spec"];
    let rule = &spec["matchConstraints"]["resourceRules"][0];
    assert_eq!((&rule["apiVersions"], &rule["operations"]), (&json!(["*"]), &json!(["CREATE"])));
    assert_eq!(spec["matchConstraints"]["namespaceSelector"], json!({}));
    assert!(spec.get("matchConditions").is_none(), "no creator is exempt");
    for validation in spec["validations"].as_array().expect("validations") {
        let told = validation["message"].as_str().expect("a message");
        let is_label = told.starts_with("metadata.labels[kubevirt.io/migrationJobUID]")
            && told.contains("leave the label off");
        assert!(
            is_label || told.starts_with("status.") && told.contains("create it without status"),
            "{told}"
        );
    }
}

/// The names that are never gated are those that tenants cannot create.
#[test]
fn names_of_exempt_namespaces_are_kept_for_administrators() {
    let exempt_namespaces = ["infra-*", "db"].map(|name| name.parse().expect("a pattern")).to_vec();
    let options = InstallOptions { exempt_namespaces, ..InstallOptions::default() };
    let policies = admission_policies(&options);
    let expression = |name: &str, path: &str| {
        let policy = &policies.iter().find(|each| each.name == name).expect("a policy").policy;
        policy.pointer(path).and_then(Value::as_str).expect("an expression").to_owned()
    };
    let exempt = "(NAME in [\"sluice-system\",\"db\"] || NAME.startsWith('infra-'))";
    let kept = expression(names::EXEMPT_NAMES_POLICY, "/spec/validations/0/expression");
    assert!(
        kept.starts_with(&format!(
            "!{} || (!('openshift.io/requester' in ",
            exempt.replace("NAME", "object.metadata.name")
        )),
        "{kept}"
    );
    let gated = expression(names::GATE_POLICY, "/spec/matchConditions/0/expression");
    assert!(gated.ends_with(&format!("|| !{}", exempt.replace("NAME", "request.namespace"))), "{gated}");
}

/// What gates and what refuses hold for the same pods: those of the namespaces that the webhook gates.
#[test]
fn policies_and_webhook_gate_the_same_namespaces() {
    let chosen: LabelSelector =
        serde_json::from_value(json!({ "matchLabels": { "team": "a" } })).expect("a selector");
    let options = InstallOptions {
        namespace: "elsewhere".to_owned(),
        namespace_selector: chosen.clone(),
        ..InstallOptions::default()
    };
    let following: Vec<_> =
        admission_policies(&options).into_iter().filter(AdmissionPolicy::follows_selector).collect();
    assert_eq!(following.iter().map(|each| each.name).collect::<Vec<_>>(), ["sluice-gate", "sluice-gated"]);
    let objects = render(&options);
    let gater = &of_kind(&objects, "MutatingWebhookConfiguration")[0]["webhooks"][0];
    assert_eq!(gater["namespaceSelector"], json!(chosen));
    for each in &following {
        assert_eq!(each.policy["spec"]["matchConstraints"]["namespaceSelector"], json!(chosen));
        let condition =
            |object: &Value| object["matchConditions"][0]["expression"].as_str().expect("one").to_owned();
        let [policy, gater] = [&each.policy["spec"], gater].map(condition);
        assert!(policy.contains(&gater), "not the own namespace: {policy}");
        assert_eq!(resources(&each.policy), ["pods", "gateprobes"]);
    }
    assert_eq!(following[1].binding["spec"]["matchResources"]["namespaceSelector"], json!(chosen));
}

#[test]
fn where_the_webhook_alone_gates_no_policy_changes_objects() {
    let options = InstallOptions { gating: Gating::Webhook, ..InstallOptions::default() };
    let objects = render(&options);
    assert!(of_kind(&objects, "MutatingAdmissionPolicy").is_empty());
    assert!(of_kind(&objects, "MutatingAdmissionPolicyBinding").is_empty());
    assert_eq!(of_kind(&objects, "ValidatingAdmissionPolicy").len(), 9);
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

#[test]
fn only_the_controller_and_who_is_named_remove_gates() {
    let guard = |options: &InstallOptions| {
        let policies = admission_policies(options);
        let guard = policies.iter().find(|each| each.name == "sluice-guard").expect("a policy");
        guard.policy["spec"]["validations"][0]["expression"].as_str().expect("an expression").to_owned()
    };
    let mut options = InstallOptions::default();
    let account = "system:serviceaccount:sluice-system:sluice-controller";
    // Administrators in paused namespaces, and nobody else, beside them.
    let paused = "namespaceObject.metadata.?annotations[?'quota.sluice.dev/paused'].hasValue()";
    let administers = "authorizer.group('aaq.kubevirt.io').resource('aaqs').check('update').allowed()";
    let ends = |accounts: &str| {
        format!(" || (request.userInfo.username in [{accounts}]) || ({paused} && {administers})")
    };
    assert!(guard(&options).ends_with(&ends(&format!("\"{account}\""))));
    options.further_gate_removers.push("other".to_owned());
    assert!(guard(&options).ends_with(&ends(&format!("\"{account}\",\"other\""))));
    options.installation = Installation::Cr;
    let operator = "system:serviceaccount:sluice-system:sluice-operator";
    assert!(guard(&options).ends_with(&ends(&format!("\"{account}\",\"{operator}\",\"other\""))));
}

#[test]
fn the_operator_writes_events_where_its_objects_are_and_nowhere_else() {
    let about_events = |options: &InstallOptions| {
        let objects = install_objects(options);
        let roles = ["Role", "ClusterRole"].map(|kind| of_kind(&objects, kind)).concat();
        let bound = |role: &Value| {
            let bindings = objects.iter().filter(|binding| {
                binding["roleRef"]["name"] == role["metadata"]["name"]
                    && binding["roleRef"]["kind"] == role["kind"]
                    && binding["metadata"]["namespace"] == role["metadata"]["namespace"]
            });
            bindings
                .flat_map(|binding| binding["subjects"].as_array().expect("subjects"))
                .any(|one| one["name"] == names::OPERATOR)
        };
        let has = |role: &&&Value| {
            let mut rules = role["rules"].as_array().expect("rules").iter();
            rules.any(|rule| list(&rule["resources"]).contains(&"events"))
        };
        let granted = roles.iter().filter(has).filter(|role| bound(role));
        let mut namespaces: Vec<_> =
            granted.map(|role| role["metadata"]["namespace"].as_str().unwrap_or("everywhere")).collect();
        namespaces.sort_unstable();
        namespaces.join(" ")
    };
    let options = InstallOptions::default();
    assert_eq!(about_events(&options), "default sluice-system");
    // A kustomization may replace each namespace, so there is no role in another one.
    assert_eq!(about_events(&InstallOptions { reads_leases_everywhere: true, ..options }), "everywhere");
}

/// What a stolen token of it could order would be what runs in the cluster.
#[test]
fn the_operator_changes_what_is_asked_of_it_nowhere() {
    let all = admission_policies(&InstallOptions::default());
    let accounts = all.iter().find(|policy| policy.name == names::ACCOUNTS_POLICY).expect("a policy");
    let spec = &accounts.policy["spec"];
    let rules = spec["matchConstraints"]["resourceRules"].as_array().expect("rules");
    for resource in [names::AAQS, names::MTQS] {
        let rule = rules.iter().find(|rule| list(&rule["resources"]) == [resource]).expect("a rule");
        assert_eq!((list(&rule["operations"]), &rule["scope"]), (vec!["UPDATE"], &json!("Cluster")));
    }
    let condition = spec["matchConditions"][0]["expression"].as_str().expect("an expression");
    let operator = "request.userInfo.username == 'system:serviceaccount:sluice-system:sluice-operator'";
    assert!(condition.contains(&format!("({operator} && request.resource.resource in [\"aaqs\",\"mtqs\"])")));
    let said: Vec<_> = spec["validations"].as_array().expect("a list").iter().collect();
    let kept = said.iter().filter(|each| {
        let expression = each["expression"].as_str().expect("an expression");
        expression.ends_with("(object.?spec == oldObject.?spec)")
    });
    assert_eq!(kept.count(), 1);
    // It gives and takes finalizers of these.
    let finalizers =
        said.iter().find(|each| each["message"].as_str().expect("a text").contains("finalizers"));
    let expression = finalizers.expect("a validation")["expression"].as_str().expect("an expression");
    assert!(expression.contains("request.resource.resource in [\"aaqs\",\"mtqs\"] || "), "{expression}");
}

#[test]
fn beside_rancher_one_write_as_one_account_is_added_and_nothing_else() {
    let objects = rancher_objects(&InstallOptions::default());
    let [local, cluster] = ["Role", "ClusterRole"].map(|kind| of_kind(&objects, kind)[0]);
    let rules = [local, cluster].map(|role| role["rules"].as_array().expect("rules").as_slice());
    let [[as_whom], [to_do]] = rules else { panic!("one rule each: {rules:?}") };
    assert_eq!(as_whom["verbs"], json!(["impersonate:serviceaccount"]));
    assert_eq!(as_whom["resourceNames"], json!(["resourcequota-controller"]));
    assert_eq!(local["metadata"]["namespace"], "kube-system", "of no account of that name elsewhere");
    assert_eq!(to_do["verbs"], json!(["impersonate-on:serviceaccount:update"]));
    assert_eq!(to_do["resources"], json!(["resourcequotas/status"]));
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        let bound = of_kind(&objects, kind)[0];
        assert_eq!(bound["roleRef"]["name"], local["metadata"]["name"]);
        let subjects = bound["subjects"].as_array().expect("subjects").iter();
        let names: Vec<_> = subjects.map(|subject| subject["name"].as_str().expect("a name")).collect();
        assert_eq!(names, [names::CONTROLLER, names::WEBHOOK, names::OPERATOR]);
    }
}

#[test]
fn reviews_are_never_stored() {
    let options = InstallOptions::default();
    let policies = admission_policies(&options);
    let policy = policies.iter().find(|each| each.name == names::REVIEW_POLICY).expect("a policy");
    assert_eq!(resources(&policy.policy), [names::QUOTA_REVIEWS]);
    let spec = &policy.policy["spec"];
    assert_eq!((&spec["failurePolicy"], spec.get("matchConditions")), (&json!("Fail"), None));
    assert_eq!(spec["validations"][0]["expression"], "request.?dryRun.orValue(false)");
}
