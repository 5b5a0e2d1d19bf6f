//! AKS adds to the selectors of webhooks, and puts back what is taken away.

use serde_json::{Value, json};

use super::super::observe::World;
use super::{GATED_BINDING, carry_out, entries, planned, seen, selector, world};

fn not_in(key: &str, value: &str) -> Value {
    json!({ "key": key, "operator": "NotIn", "values": [value] })
}

/// As it was seen there: before what the entry has itself, and after it.
fn added() -> [Value; 2] {
    [not_in("kubernetes.azure.com/managedby", "aks"), not_in("control-plane", "true")]
}

/// What the admissions enforcer does whenever something lacks its requirements.
fn enforce(world: &mut World) {
    for configuration in [&mut world.mutating, &mut world.validating] {
        for (index, (_, entry)) in entries(configuration).iter_mut().enumerate() {
            let mut all =
                entry["namespaceSelector"]["matchExpressions"].as_array().cloned().unwrap_or_default();
            for requirement in added() {
                if !all.contains(&requirement) {
                    all.insert(if index % 2 == 0 { 0 } else { all.len() }, requirement);
                }
            }
            entry["namespaceSelector"]["matchExpressions"] = json!(all);
        }
    }
}

fn has_all(entry: &Value) -> bool {
    let list = entry["namespaceSelector"]["matchExpressions"].as_array().expect("a list");
    added().iter().all(|each| list.contains(each))
}

#[test]
fn what_aks_adds_stays_and_is_no_reason_to_write() {
    let mut world = world();
    enforce(&mut world);
    assert_eq!(planned(&world), []);
    // A repair of the same entry keeps it: nobody has to add it again.
    entries(&mut world.mutating)[0].1["failurePolicy"] = json!("Ignore");
    entries(&mut world.validating)[0].1["failurePolicy"] = json!("Ignore");
    let steps = planned(&world);
    assert_eq!(steps.len(), 2);
    carry_out(&mut world, &steps);
    assert!(has_all(&entries(&mut world.mutating)[0].1) && has_all(&entries(&mut world.validating)[0].1));
    enforce(&mut world);
    assert_eq!(planned(&world), []);
}

#[test]
fn a_change_of_the_aaq_goes_through_beside_aks() {
    let mut world = world();
    enforce(&mut world);
    let wanted = json!({ "matchLabels": { "team": "a" } });
    world.selector = Some(Some(selector(wanted.clone())));
    for _ in 0..3 {
        let steps = planned(&world);
        assert!(!steps.is_empty());
        carry_out(&mut world, &steps);
    }
    assert_eq!(planned(&world), []);
    let gater = &entries(&mut world.mutating)[0].1;
    assert!(has_all(gater) && gater["namespaceSelector"]["matchLabels"]["team"] == "a");
    assert_eq!(seen(&mut world, GATED_BINDING)["matchResources"]["namespaceSelector"], wanted);
    enforce(&mut world);
    assert_eq!(planned(&world), []);
}

/// Each would take namespaces out of what gates.
#[test]
fn any_other_requirement_is_removed() {
    for foreign in [
        not_in("control-plane", "false"),
        not_in("kubernetes.azure.com/managedby", "me"),
        json!({ "key": "control-plane", "operator": "Exists" }),
        json!({ "key": "control-plane", "operator": "NotIn", "values": ["true", "false"] }),
        not_in("team", "a"),
    ] {
        for index in [0, 1] {
            let mut world = world();
            enforce(&mut world);
            let configuration = if index == 0 { &mut world.mutating } else { &mut world.validating };
            let list = &mut entries(configuration)[0].1["namespaceSelector"]["matchExpressions"];
            list.as_array_mut().expect("a list").push(foreign.clone());
            let steps = planned(&world);
            assert_eq!(steps.len(), 1, "{foreign}");
            carry_out(&mut world, &steps);
            assert_eq!(planned(&world), []);
            let configuration = if index == 0 { &mut world.mutating } else { &mut world.validating };
            let entry = &entries(configuration)[0].1;
            assert!(has_all(entry) && !entry.to_string().contains(&foreign.to_string()), "{foreign}");
        }
    }
}

/// Webhooks alone are touched there.
#[test]
fn a_policy_with_these_requirements_is_put_back() {
    let mut world = world();
    seen(&mut world, GATED_BINDING)["matchResources"]["namespaceSelector"]["matchExpressions"] =
        json!(added());
    assert_eq!(planned(&world).len(), 1);
}
