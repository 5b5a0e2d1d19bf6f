use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_manifests::{InstallOptions, Monitoring, monitoring_objects};

use crate::cases::{CASES, Case, Scene};
use crate::{promtool, write};

/// A file of rules, as the `PrometheusRule` has them.
fn rules() -> Value {
    let monitoring = Monitoring { rules: true, ..Monitoring::default() };
    let objects = monitoring_objects(&InstallOptions { monitoring, ..InstallOptions::default() });
    objects[0]["spec"].clone()
}

/// The rule of this alert.
fn rule(rules: &Value, alert: &str) -> Value {
    let all = rules["groups"][0]["rules"].as_array().unwrap();
    all.iter().find(|rule| rule["alert"] == alert).unwrap_or_else(|| panic!("no alert {alert}")).clone()
}

fn test_of(rules: &Value, case: &Case, scene: &Scene, fires: bool) -> Value {
    let rule = rule(rules, case.alert);
    let mut annotations = rule["annotations"].clone();
    if let Some(said) = case.said {
        annotations["description"] = json!(said);
    }
    let mut labels = json!({ "severity": rule["labels"]["severity"] });
    for (key, value) in case.labels {
        labels[key] = json!(value);
    }
    let expected: Vec<Value> = if fires {
        vec![json!({ "exp_labels": labels, "exp_annotations": annotations })]
    } else {
        Vec::new()
    };
    let series = scene.iter().map(|(series, values)| json!({ "series": series, "values": values }));
    json!({
        "name": format!("{} {}", case.alert, if fires { "fires" } else { "is quiet" }),
        "interval": "1m",
        "input_series": series.collect::<Vec<_>>(),
        "alert_rule_test": [{ "eval_time": case.at, "alertname": case.alert, "exp_alerts": expected }],
    })
}

#[test]
fn each_alert_fires_when_it_has_to_and_is_quiet_otherwise() {
    let rules = rules();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    write(&file, &rules);
    let said = promtool(&["check", "rules"], &file).unwrap();
    assert!(said.contains("SUCCESS: 14 rules found"), "{said}");

    let alerts: BTreeSet<&str> = rules["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|rule| rule["alert"].as_str())
        .collect();
    let tested: BTreeSet<&str> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(tested, alerts);
    let tests: Vec<Value> = CASES
        .iter()
        .flat_map(|case| {
            assert!(!case.fires.is_empty() && !case.quiet.is_empty(), "{}", case.alert);
            let fires = case.fires.iter().map(|scene| test_of(&rules, case, scene, true));
            let quiet = case.quiet.iter().map(|scene| test_of(&rules, case, scene, false));
            fires.chain(quiet).collect::<Vec<_>>()
        })
        .collect();
    let file = folder.path().join("tests.yaml");
    write(&file, &json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests }));
    promtool(&["test", "rules"], &file).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn a_wrong_expectation_is_found() {
    let rules = rules();
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("rules.yaml"), &rules);
    let case = &CASES[0];
    let file = folder.path().join("tests.yaml");
    let wrong = test_of(&rules, case, &case.quiet[0], true);
    write(&file, &json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [wrong] }));
    let said = promtool(&["test", "rules"], &file).unwrap_err();
    assert!(said.contains("FAILED") && said.contains(case.alert), "{said}");
}

#[test]
fn the_alias_of_application_aware_quota_is_recorded() {
    let rules = rules();
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("rules.yaml"), &rules);
    let name = "kube_application_aware_resourcequota_creation_timestamp";
    let labels = "{namespace=\"team\", resourcequota=\"compute\"}";
    let test = json!({
        "interval": "1m",
        "input_series": [{ "series": format!("{name}_seconds{labels}"), "values": "1767322800x5" }],
        "promql_expr_test": [{
            "expr": name,
            "eval_time": "5m",
            "exp_samples": [{ "labels": format!("{name}{labels}"), "value": 1_767_322_800 }],
        }],
    });
    let file = folder.path().join("tests.yaml");
    write(&file, &json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test] }));
    promtool(&["test", "rules"], &file).unwrap_or_else(|wrong| panic!("{wrong}"));
}
