use serde_json::{Value, json};
use sluice_packaging::files;

use crate::{promtool, write};

/// Every query of a value, however deep.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| queries(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

#[test]
fn every_query_of_a_dashboard_is_one() {
    let mut found = Vec::new();
    for (path, text) in files().unwrap() {
        if path.starts_with("monitoring/grafana") {
            let before = found.len();
            queries(&serde_json::from_str(&text).unwrap(), &mut found);
            assert!(found.len() >= before + 10, "{}", path.display());
        }
    }
    let check = |queries: &[String]| {
        let rule = |(number, query): (usize, &String)| {
            let query = query.replace("$__rate_interval", "5m").replace("$namespace", ".*");
            json!({ "record": format!("query_{number}"), "expr": query })
        };
        let rules: Vec<_> = queries.iter().enumerate().map(rule).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("queries.yaml");
        write(&file, &json!({ "groups": [{ "name": "queries", "rules": rules }] }));
        promtool(&["check", "rules"], &file)
    };
    check(&found).unwrap_or_else(|wrong| panic!("{wrong}"));
    let wrong = check(&["sum(a".to_owned()]).unwrap_err();
    assert!(wrong.contains("could not parse expression"), "{wrong}");
}

/// Panels have a place of their own.
#[test]
fn no_two_panels_overlap() {
    for (path, text) in files().unwrap() {
        if !path.starts_with("monitoring/grafana") {
            continue;
        }
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let places: Vec<[u64; 4]> = dashboard["panels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|panel| ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap()))
            .collect();
        for (number, [x, y, w, h]) in places.iter().enumerate() {
            assert!(x + w <= 24, "{}", path.display());
            for [left, top, width, height] in places.iter().take(number) {
                let apart = left + width <= *x || x + w <= *left || top + height <= *y || y + h <= *top;
                assert!(apart, "{}: panel {number}", path.display());
            }
        }
    }
}
