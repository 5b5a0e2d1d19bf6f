//! Every form of a selector, set on the `AAQ`: whose pods are gated then. On a cluster of its own: of what gates, the
//! controller writes only so much in a minute.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON_PATCH, Response, call, get};
use sluice_e2e::objects::{TARGETED, apply_aaq};
use sluice_e2e::{Running, Setup};
use sluice_testbed::wait;

use crate::context::{SOON, gates, idle_bed};
use crate::pods::pod;
use crate::team::Team;

const AAQS: &str = "/apis/aaq.kubevirt.io/v1alpha1/aaqs";

/// Namespaces of the table, by the letter that stands for them.
const NAMESPACES: [(char, &[(&str, &str)]); 6] = [
    ('a', &[("team", "a"), ("stage", "prod")]),
    ('t', &[("team", "a")]),
    ('b', &[("team", "b")]),
    ('e', &[("team", "")]),
    ('d', TARGETED),
    ('n', &[]),
];

fn expression(operator: &str, values: &[&str]) -> Value {
    match values {
        [] => json!({ "key": "team", "operator": operator }),
        values => json!({ "key": "team", "operator": operator, "values": values }),
    }
}

fn one(operator: &str, values: &[&str]) -> Value {
    json!({ "matchExpressions": [expression(operator, values)] })
}

/// A selector (`null`: absent), and the namespaces whose pods are gated. No two neighbours select the same, or a selector
/// that never arrives could pass for its predecessor.
fn table() -> Vec<(Value, &'static str)> {
    let mixed = json!({
        "matchLabels": { "stage": "prod" },
        "matchExpressions": [expression("NotIn", &["b", ""]), expression("Exists", &[])],
    });
    vec![
        (json!({ "matchLabels": { "team": "a" } }), "at"),
        (json!({ "matchLabels": { "team": "" } }), "e"),
        (json!({ "matchLabels": { "team": "a", "stage": "prod" } }), "a"),
        (one("In", &["b", ""]), "be"),
        (one("NotIn", &["a"]), "bedn"),
        (one("Exists", &[]), "atbe"),
        (one("DoesNotExist", &[]), "dn"),
        (mixed, "a"),
        (json!({}), "atbedn"),
        (Value::Null, "d"),
    ]
}

/// Waits until pods of exactly these namespaces are gated.
async fn until_gated(teams: &[(char, Team)], expected: &str, selector: &Value) {
    let as_expected = || async {
        let mut gated = String::new();
        for (letter, team) in teams {
            let answer = team.tries(&pod("probe")).await;
            // Refused ones are gated soon, or not any more.
            answer.is_ok().then_some(())?;
            if gates(&answer.body).contains(&names::GATE) {
                gated.push(*letter);
            }
        }
        (gated == expected).then_some(())
    };
    let what = format!("{selector} to gate pods of {expected:?} alone");
    wait::eventually(SOON, as_expected, &what).await.unwrap();
}

async fn select(client: &Client, selector: &Value) -> Response {
    // Adding replaces too; what is absent has to be there to be removed.
    let patch = match selector {
        Value::Null => json!([{ "op": "remove", "path": "/spec/namespaceSelector" }]),
        selector => json!([{ "op": "add", "path": "/spec/namespaceSelector", "value": selector }]),
    };
    call(client, Method::PATCH, &format!("{AAQS}/{}", names::AAQ_NAME), JSON_PATCH, &patch).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_of_a_selector_gates_the_namespaces_that_it_selects_and_no_others() {
    let bed = idle_bed().await;
    let _world = Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();
    let mut teams = Vec::new();
    for (letter, labels) in NAMESPACES {
        teams.push((letter, Team::with(&bed, &format!("form-{letter}"), labels).await));
    }
    let applied = || async { apply_aaq(&client, json!({})).await.ok() };
    wait::eventually(SOON, applied, "the AAQ to be applied").await.unwrap();
    until_gated(&teams, "d", &json!("an AAQ without a selector")).await;
    let is_said = || async {
        let aaq = get(&client, &format!("{AAQS}/{}", names::AAQ_NAME)).await.ok()?.body;
        let conditions = aaq["status"]["conditions"].as_array()?.clone();
        let gating = conditions.iter().find(|condition| condition["type"] == names::GATING)?;
        (gating["status"] == "True" && gating["reason"] == "GatedByPolicy").then_some(())
    };
    wait::eventually(SOON, is_said, "the AAQ to say that pods are gated by a policy").await.unwrap();
    let mut before = "d";
    for (selector, expected) in table() {
        assert_ne!(before, expected, "{selector} would pass without an effect");
        let answer = select(&client, &selector).await;
        assert!(answer.is_ok(), "{selector}: {answer:?}");
        until_gated(&teams, expected, &selector).await;
        before = expected;
    }
}
