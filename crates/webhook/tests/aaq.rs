//! The AAQ: one at most, with a selector that the API server takes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use common::{judge_with, review, settings};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::vm::Calculator;
use sluice_webhook::endpoints::aaq_validate;
use sluice_webhook::{AaqPresence, Settings, Verdict};

fn aaq(spec: Value) -> Value {
    json!({"apiVersion": "aaq.kubevirt.io/v1alpha1", "kind": "AAQ", "metadata": {"name": "aaq"}, "spec": spec})
}

const PRESENT: AaqPresence = AaqPresence::Present {
    cluster_quotas: false,
    calculator: Calculator::DedicatedVirtualResources,
    gives_way: false,
};

fn selecting(selector: Value) -> Value {
    aaq(json!({"namespaceSelector": selector}))
}

fn judged(operation: &str, aaq: AaqPresence, object: &Value, old: &Value) -> Verdict {
    judge_with(aaq_validate, &review("AAQ", operation, "admin", object, old), &Settings { aaq, ..settings() })
}

fn create(object: &Value) -> Verdict {
    judged("CREATE", AaqPresence::Absent, object, &Value::Null)
}

/// While it exists, or nothing is known: only a creation asks.
fn update(old: &Value, new: &Value) -> Verdict {
    let present = judged("UPDATE", PRESENT, new, old);
    assert_eq!(present, judged("UPDATE", AaqPresence::Unknown, new, old));
    present
}

#[test]
fn why_there_is_no_second_one() {
    let said = [PRESENT, AaqPresence::Unknown]
        .map(|known| judged("CREATE", known, &aaq(json!({})), &Value::Null).message);
    insta::assert_snapshot!(said.join("\n"), @"
    only a single AAQ CR instance is allowed
    it is not known yet whether an AAQ CR instance exists: try again, and if this stays, look at the webhook's log and at its permission to list aaqs
    ");
}

const OF_OPERATOR: AaqPresence = AaqPresence::Present {
    cluster_quotas: false,
    calculator: Calculator::DedicatedVirtualResources,
    gives_way: true,
};

#[rstest]
#[case(AaqPresence::Absent, true, 202)]
#[case(OF_OPERATOR, true, 202)]
#[case(PRESENT, false, 403)]
#[case(AaqPresence::Unknown, false, 503)]
fn there_is_one_aaq(#[case] aaq: AaqPresence, #[case] allowed: bool, #[case] code: u16) {
    let object = self::aaq(json!({}));
    let verdict = judged("CREATE", aaq, &object, &Value::Null);
    assert_eq!((verdict.allowed, verdict.code), (allowed, code));
    assert!(update(&object, &self::aaq(json!({"priorityClass": "high"}))).allowed);
    assert!(judged("DELETE", aaq, &Value::Null, &object).allowed);
}

#[test]
fn that_of_the_operator_stays_its_own_beside_another() {
    let own = |spec: Value| {
        let mut object = aaq(spec);
        object["metadata"]["labels"] = json!({"quota.sluice.dev/made-by": "operator"});
        object
    };
    let (empty, edited) = (own(json!({})), own(json!({"priorityClass": "high"})));
    let refused = judged("UPDATE", PRESENT, &edited, &empty);
    assert_eq!((refused.allowed, &*refused.message), (false, "only a single AAQ CR instance is allowed"));
    for alone in [OF_OPERATOR, AaqPresence::Unknown] {
        assert!(judged("UPDATE", alone, &edited, &empty).allowed, "{alone:?}: it becomes the user's");
    }
    for (new, old) in [(&edited, &edited), (&empty, &edited), (&empty, &empty)] {
        assert!(judged("UPDATE", PRESENT, new, old).allowed, "{new}");
    }
}

#[rstest]
#[case::absent(json!(null))]
#[case::empty_value(json!({"matchLabels": {"team": ""}}))]
#[case::expressions(json!({"matchLabels": {"a": "b"}, "matchExpressions": [
    {"key": "example.com/team", "operator": "In", "values": ["a", ""]}, {"key": "b", "operator": "DoesNotExist"}]}))]
fn selectors_that_the_api_server_takes(#[case] selector: Value) {
    for verdict in [create(&selecting(selector.clone())), update(&aaq(json!({})), &selecting(selector))] {
        assert_eq!((verdict.allowed, verdict.code), (true, 202), "{}", verdict.message);
        assert_eq!(verdict.warnings, Vec::<String>::new());
    }
}

#[test]
fn what_is_no_selector_is_refused_by_field() {
    let said = [
        json!({"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
        json!({"matchLabels": {"a": "b c"}}),
        json!({"matchExpressions": [{"key": "?", "operator": "In"}]}),
    ]
    .map(|selector| {
        let verdict = create(&selecting(selector.clone()));
        assert_eq!((verdict.allowed, verdict.code), (false, 403));
        assert_eq!(update(&selecting(json!({})), &selecting(selector)), verdict);
        verdict.message
    });
    insta::assert_snapshot!(said.join("\n"), @r#"
    spec.namespaceSelector.matchExpressions[0].operator: Invalid value: "Sometimes": not a valid selector operator, use In, NotIn, Exists or DoesNotExist
    spec.namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', use Exists or DoesNotExist for any value
    spec.namespaceSelector.matchLabels: Invalid value: "b c": must be a label value: empty, or up to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit
    [spec.namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', use Exists or DoesNotExist for any value, spec.namespaceSelector.matchExpressions[0].key: Invalid value: "?": must be a label key: up to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, optionally after a DNS subdomain and '/', like example.com/team]
    "#);
}

#[test]
fn an_update_is_checked_for_what_it_changes() {
    let bad = |more: Value| {
        let mut object =
            selecting(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}));
        object["spec"]["infra"] = more;
        object
    };
    assert!(update(&bad(json!({})), &bad(json!({}))).allowed, "labels and finalizers can still be written");
    assert!(update(&bad(json!({})), &bad(json!({"nodeSelector": {"a": "b"}}))).allowed, "and other fields");
    assert!(update(&bad(json!({})), &selecting(json!({"matchLabels": {"a": "b"}}))).allowed);
    assert!(update(&bad(json!({})), &aaq(json!({}))).allowed);
    assert_eq!(update(&aaq(json!({})), &bad(json!({}))).code, 403);
    let mut deleting = bad(json!({}));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(update(&aaq(json!({})), &deleting).allowed);
}

#[test]
fn who_selects_every_namespace_is_warned_once() {
    for every in [json!({}), json!({"matchLabels": {}, "matchExpressions": []})] {
        let verdict = create(&selecting(every.clone()));
        assert!(verdict.allowed, "{verdict:?}");
        insta::allow_duplicates!(
            insta::assert_snapshot!(verdict.warnings.join("\n"), @"spec.namespaceSelector: {} gates every namespace but those that --exempt-namespaces names, and refuses pods with spec.nodeName there: leave out the namespaces of further storage and network plugins by NotIn on the label kubernetes.io/metadata.name")
        );
        assert!(verdict.warnings[0].len() <= 256, "the API server cuts it");
        let mut other = selecting(every.clone());
        other["spec"]["infra"] = json!({});
        assert_eq!(update(&selecting(every), &other).warnings, Vec::<String>::new());
    }
    let all_but = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    assert_eq!(create(&selecting(all_but)).warnings, Vec::<String>::new());
}

#[test]
fn fields_that_are_not_in_force_are_named() {
    let unset = json!({
        "certConfig": {"ca": {}},
        "configuration": {
            "allowApplicationAwareClusterResourceQuota": false, "sidecarEvaluators": [],
            "vmiCalculatorConfiguration": {"configName": "DedicatedVirtualResources"},
        },
        "infra": {"nodeSelector": {}}, "workload": {},
    });
    assert_eq!(create(&aaq(unset)).warnings, Vec::<String>::new());
    let set = json!({
        "certConfig": {"ca": {"duration": "48h"}, "server": {"duration": "5m", "renewBefore": "5m"}},
        "configuration": {
            "allowApplicationAwareClusterResourceQuota": true, "sidecarEvaluators": [{"name": "a", "image": "i"}],
            "vmiCalculatorConfiguration": {"vmiCalcConfigName": "VmiPodUsage"},
        },
        "imagePullPolicy": "Always",
        "infra": {"nodeSelector": {"a": "b"}},
        "priorityClass": "high",
        "tlsSecurityProfile": {"type": "Old"},
        "workload": {"tolerations": [{"operator": "Exists"}]},
    });
    let warnings = create(&aaq(set.clone())).warnings;
    insta::assert_snapshot!(warnings.join("\n"), @"
    spec.certConfig.server is not in force: the lifetime stays as it is, for renewBefore 5m0s is too long for a duration of 5m0s: the certificate has to live for 2m0s before it is renewed
    spec.tlsSecurityProfile is not in force: TLS 1.2 is the lowest version that is served
    spec.workload is not in force: nothing runs as a workload
    ");
    assert!(warnings.iter().all(|warning| warning.len() <= 256), "{warnings:?}");
    let in_force = json!({
        "certConfig": {"ca": {"duration": "20m", "renewBefore": "5m"}, "server": {"duration": "5m", "renewBefore": "2m"}},
        "tlsSecurityProfile": {"type": "Modern"},
    });
    assert_eq!(create(&aaq(in_force)).warnings, Vec::<String>::new());
    // The longest sentences about what cannot be.
    let long = "é".repeat(300);
    let broken = json!({
        "certConfig": {"ca": {"duration": long}, "server": {"duration": "2540400h10m10s", "renewBefore": "2540400h10m9s"}},
        "tlsSecurityProfile": {"type": "Custom", "custom": {"ciphers": [long], "minTLSVersion": long}},
    });
    let warnings = create(&aaq(broken)).warnings;
    assert_eq!(warnings.len(), 3);
    assert!(warnings.iter().all(|warning| warning.len() <= 256), "{warnings:?}");
    assert_eq!(update(&aaq(set.clone()), &aaq(set)).warnings, Vec::<String>::new(), "not again for a label");
}

#[rstest]
#[case::no_object(Value::Null)]
#[case::text(json!("x"))]
#[case::selector_is_text(selecting(json!("x")))]
#[case::expressions_are_a_map(selecting(json!({"matchExpressions": {}})))]
fn what_is_no_aaq_is_refused(#[case] object: Value) {
    let verdict = create(&object);
    assert_eq!((verdict.allowed, verdict.code), (false, 400), "{}", verdict.message);
}

#[test]
fn sidecars_that_would_have_more_than_a_socket_are_refused_when_they_come() {
    let with = |sidecars: Value| aaq(json!({ "configuration": { "sidecarEvaluators": sidecars } }));
    let good = with(json!([{ "name": "label", "image": "label:1" }]));
    assert!(create(&good).allowed);
    let mounts = json!([{ "name": "token", "mountPath": "/t" }]);
    let bad = with(json!([{ "name": "label", "image": "label:1", "volumeMounts": mounts }]));
    let refused = create(&bad);
    let said = "spec.configuration.sidecarEvaluators[0].volumeMounts: the pod's volumes are the controller's: a directory \
                for the socket is at /var/run/aaq-sockets";
    assert_eq!((refused.allowed, &*refused.message), (false, said));
    assert!(!update(&good, &bad).allowed);
    // What is there already keeps nobody from changing something else.
    let mut other = bad.clone();
    other["spec"]["imagePullPolicy"] = json!("Always");
    let kept = update(&bad, &other);
    let warning = "spec.configuration.sidecarEvaluators is not in force: no pod is released, for \
                   configuration.sidecarEvaluators[0].volumeMounts: the pod's volumes are the controller's: a directory for \
                   the socket is at /var/run/aaq-sockets";
    assert_eq!((kept.allowed, kept.warnings), (true, vec![warning.to_owned()]));
}
