use serde_json::json;

use super::*;

fn right(verb: &'static str, resource: &str, group: &str, namespace: Option<&str>) -> Right {
    Right {
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb,
        namespace: namespace.map(str::to_owned),
    }
}

fn index() -> Index {
    let mut index = Index {
        taken: "2026-01-02T03:04:05Z".to_owned(),
        server: "v1.36.0".to_owned(),
        installation: "sluice-system".to_owned(),
        ..Index::default()
    };
    let file = |path: &str, objects, bytes| File {
        path: path.to_owned(),
        what: "what it is".to_owned(),
        objects,
        bytes,
    };
    index.files = vec![file("check.json", None, 100), file("quotas/quotas.yaml", Some(3), 2_000)];
    index.checks = [("kubernetes", "good"), ("leader", "failed"), ("admission", "unknown")]
        .map(|(name, state)| (name.to_owned(), state.to_owned()))
        .into();
    index
}

#[test]
fn a_whole_bundle_says_so() {
    let index = index();
    assert!(index.is_whole());
    assert_eq!(index.objects(), 3);
    let text = page(&index);
    assert!(
        text.contains("Checks: 1 good, 1 failed (leader), 1 not known (admission): see check.json."),
        "{text}"
    );
    assert!(text.contains("| quotas/quotas.yaml | what it is | 3 | 2000 |"), "{text}");
    assert!(text.contains("Tenants' objects are those of all namespaces."), "{text}");
    assert!(text.ends_with("\n\nEverything else could be read.\n"), "{text}");
    let index = Index { empty: ["b", "a"].map(str::to_owned).into(), ..index };
    assert!(page(&index).contains("\n\nRead, and there are none: a; b.\n"));
    assert_eq!(index.json()["empty"], json!(["a", "b"]));
}

#[test]
fn what_is_missing_for_one_reason_is_one_line_with_the_rules_that_would_allow_it() {
    let mut index = index();
    let list = |resource: &str| Why::Forbidden(right("list", resource, "", Some("team-a")));
    index.miss("pods that wait behind the gate", list("pods"));
    index.miss("ResourceQuotas of Kubernetes", list("resourcequotas"));
    for role in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let get = Why::Forbidden(right("get", "clusterroles", "rbac.authorization.k8s.io", None));
        index.miss(format!("ClusterRole {role}"), get);
    }
    index.miss("log of pod | x\u{1b}[31m", Why::NoAnswer("no answer within 30s\nfrom it".to_owned()));
    index.leave_out("metrics of x", "a token is asked for");
    index.not_there.insert("PodDisruptionBudget sluice-system/x".to_owned());
    assert!(!index.is_whole());
    let text = page(&index);
    for line in [
        "| pods that wait behind the gate | missing right: list pods in namespace team-a |",
        "| ClusterRole a, ClusterRole b, ClusterRole c, ClusterRole d, ClusterRole e, ClusterRole f, 2 more | missing \
         right: get clusterroles.rbac.authorization.k8s.io |",
        "| log of pod \\| x\u{fffd}[31m | no answer within 30s from it |",
        "| metrics of x | a token is asked for |",
        "* PodDisruptionBudget sluice-system/x",
        "# of a ClusterRole\n- apiGroups: [\"rbac.authorization.k8s.io\"]\n  resources: [clusterroles]\n  verbs: [get]\n\
         # of a Role in namespace team-a\n- apiGroups: [\"\"]\n  resources: [pods, resourcequotas]\n  verbs: [list]\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    let value = index.json();
    assert_eq!(value["apiVersion"], "cli.sluice.dev/v1");
    assert_eq!(
        value["files"][1],
        json!({
            "path": "quotas/quotas.yaml", "what": "what it is", "objects": 3, "bytes": 2_000,
        })
    );
    assert_eq!(value["notRead"][2]["what"].as_array().unwrap().len(), 8);
    assert_eq!(value["notRead"][0]["reason"], "Forbidden");
    assert_eq!(
        value["notRead"][0]["rule"],
        json!({
            "apiGroups": [""], "resources": ["pods"], "verbs": ["list"], "namespace": "team-a",
        })
    );
    assert_eq!(
        value["notRead"][3],
        json!({
            "reason": "NoAnswer", "message": "no answer within 30s\nfrom it", "what": ["log of pod | x\u{1b}[31m"],
            "rule": null,
        })
    );
}
