//! What accounts may do: no more than they need.

mod common;

use common::{list, of_kind};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{
    AskedOfPods, InstallOptions, admission_objects, install_objects, operand_objects, rancher_objects, render,
};

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
