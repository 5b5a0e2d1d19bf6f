//! What rules say of a pod.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::{Charge, Quantity, Resource};
use sluice_rules::{EvaluationError, Outcome, Rule};

fn pod() -> Value {
    json!({
        "metadata": { "name": "db-0", "labels": { "app": "db", "flavour": "large" } },
        "spec": {
            "runtimeClassName": "kata",
            "containers": [
                { "name": "db", "image": "registry.example/oracle:19",
                  "resources": { "requests": { "cpu": "1500m", "memory": "2Gi" } },
                  "ports": [{ "containerPort": 1521 }] },
                { "name": "side", "image": "registry.example/proxy:1" },
            ],
        },
    })
}

fn native() -> Charge {
    Charge::from_pairs(
        [("requests.cpu", "1500m"), ("memory", "2Gi"), ("pods", "1")].map(|(key, amount)| {
            (Resource::from_quota_key(key), Quantity::parse(amount).expect(amount).into())
        }),
    )
}

fn rule(matches: &str, amount: &str) -> Rule {
    let charge: BTreeMap<_, _> = [("example.com/license".to_owned(), amount.to_owned())].into();
    Rule::compile(matches, &charge).unwrap_or_else(|error| panic!("{matches} {amount}: {error}"))
}

fn evaluate(matches: &str, amount: &str) -> Result<Outcome, EvaluationError> {
    rule(matches, amount).evaluate(&pod(), &native())
}

#[rstest]
#[case("pod.spec.containers.exists(c, c.image.startsWith('registry.example/oracle'))", true)]
#[case("pod.spec.containers.all(c, c.image.contains('oracle'))", false)]
#[case("pod.spec.containers.exists_one(c, has(c.ports))", true)]
#[case("has(pod.spec.runtimeClassName) && pod.spec.runtimeClassName == 'kata'", true)]
#[case("has(pod.spec.nodeName)", false)]
#[case("pod['metadata']['labels']['app'] in ['db', 'cache']", true)]
#[case("'tier' in pod.metadata.labels", false)]
#[case("pod.metadata.labels.exists(key, key.startsWith('fla'))", true)]
#[case("size(pod.spec.containers) == 2 && pod.metadata.name.size() == 4", true)]
#[case("pod.metadata.name.matches(r'^db-\\d+$')", true)]
#[case("pod.spec.containers.filter(c, has(c.ports)).map(c, c.name) == ['db']", true)]
#[case("pod.spec.containers.map(c, has(c.ports), c.ports[0].containerPort) == [1521]", true)]
#[case("native['requests.cpu'] == native['cpu'] && native.memory > quantity('1Gi')", true)]
#[case("'requests.nvidia.com/gpu' in native", false)]
#[case("pod.spec.nodeName == 'x' || true", true)]
#[case("false && pod.spec.nodeName == 'x'", false)]
#[case("pod.spec.containers.exists(c, c.ports[0].containerPort == 1521)", true)]
#[case("native.cpu > 1 && native.cpu < 1.6 && 1.5 == native.cpu", true)]
#[case("quantity('0.1') + quantity('0.2') == quantity('0.3') && 0.1 + 0.2 == 0.3", true)]
#[case("quantity('1Gi') == 1073741824", true)]
fn a_match(#[case] source: &str, #[case] matches: bool) {
    let outcome = evaluate(source, "1").unwrap_or_else(|error| panic!("{source}: {error}"));
    assert_eq!(outcome != Outcome::NoMatch, matches, "{source}");
}

#[rstest]
#[case("native['requests.cpu'].ceil()", "2")]
#[case("int(native['requests.cpu'])", "1")]
#[case("native.cpu * 2", "3")]
#[case("native.cpu / 7", "214285715n")]
#[case("native.memory * 1.5", "3Gi")]
#[case("native.memory / quantity('512Mi')", "4")]
#[case("native.memory % quantity('1500Mi')", "548Mi")]
#[case("7 / 2 + 7 % 2", "4")]
#[case("[native.cpu, quantity('1')].max()", "1500m")]
#[case("[native.cpu, 1].min()", "1")]
#[case("pod.spec.containers.map(c, has(c.ports), quantity(c.resources.requests.cpu)).sum()", "1500m")]
#[case("[].sum()", "0")]
#[case("pod.metadata.labels.flavour == 'large' ? 4 : 1", "4")]
#[case("-(-native.cpu)", "1500m")]
#[case("int('12')", "12")]
fn an_amount(#[case] source: &str, #[case] amount: &str) {
    let outcome = evaluate("true", source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let Outcome::Charge(charge) = outcome else { panic!("{source}: no match") };
    assert_eq!(charge.iter().map(|(_, amount)| amount.to_string()).collect::<Vec<_>>(), [amount], "{source}");
}

#[rstest]
#[case(
    "pod.spec.nodeName == 'a'",
    "spec.cel.match: 1:9: there is no \"nodeName\" here: ask before with has(), or with \"nodeName\" in …"
)]
#[case(
    "native['requests.nvidia.com/gpu'] > 0",
    "spec.cel.match: 1:7: Kubernetes charges this pod no \"requests.nvidia.com/gpu\": ask before with \
    \"requests.nvidia.com/gpu\" in native"
)]
#[case(
    "pod.spec.containers[2].name == 'a'",
    "spec.cel.match: 1:20: there is no element 2 in a list of 2: ask before with size(), or use exists()"
)]
#[case(
    "pod.spec.containers[0].resources.requests.cpu > 1",
    "spec.cel.match: 1:47: > cannot be used between a text and an integer: write quantity() around the text"
)]
#[case(
    "pod.spec.containers[0].resources.requests.cpu == 1",
    "spec.cel.match: 1:47: == cannot be used between a text and an integer: write quantity() around the text"
)]
#[case("pod.metadata", "spec.cel.match: 1:1: match wants true or false, this is a map")]
#[case(
    "quantity(pod.metadata.name) > 1",
    "spec.cel.match: 1:9: \"db-0\" is no amount: parsing quantity: expected a number with an optional suffix, like \
    500m, 1.5 or 2Gi"
)]
#[case(
    "9223372036854775807 + 1 > 0",
    "spec.cel.match: 1:21: the result of + is too large: integers have 64 bits, amounts about 1.7e29"
)]
#[case("1 / 0 > 0", "spec.cel.match: 1:3: / by zero: ask before whether it is zero")]
#[case(
    "[].max() > 0",
    "spec.cel.match: 1:7: max of an empty list: ask before with size(), or add an element"
)]
fn a_match_without_a_value(#[case] source: &str, #[case] says: &str) {
    assert_eq!(evaluate(source, "1").expect_err(source).to_string(), says);
}

#[rstest]
#[case(
    "1 - 2",
    "spec.cel.charge[example.com/license]: 1:1: the amount is -1, below zero: use [amount, 0].max()"
)]
#[case(
    "quantity('1e25')",
    "spec.cel.charge[example.com/license]: 1:1: the amount is 10e24, no quota is that large: the limit is 2^104 \
    nano-units, about 2e22"
)]
#[case(
    "'1'",
    "spec.cel.charge[example.com/license]: 1:1: charge wants a number or an amount, this is a text"
)]
fn an_amount_that_cannot_be_charged(#[case] source: &str, #[case] says: &str) {
    assert_eq!(evaluate("true", source).expect_err(source).to_string(), says);
}

#[test]
fn all_charges_are_given_in_the_order_of_their_keys() {
    let charge = [("example.com/b", "2"), ("example.com/a", "native.memory"), ("requests.cpu", "native.cpu")];
    let charge = charge.map(|(key, amount)| (key.to_owned(), amount.to_owned())).into();
    let rule = Rule::compile("true", &charge).expect("a rule");
    let Ok(Outcome::Charge(charged)) = rule.evaluate(&pod(), &native()) else { panic!("no charge") };
    let charged: Vec<_> = charged.iter().map(|(key, amount)| format!("{key}={amount}")).collect();
    assert_eq!(charged, ["example.com/a=2Gi", "example.com/b=2", "requests.cpu=1500m"]);
    assert_eq!(rule.keys().collect::<Vec<_>>(), ["example.com/a", "example.com/b", "requests.cpu"]);
}
