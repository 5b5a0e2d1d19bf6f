//! Expressions and pods that are made to take long: each is refused or stopped by a count, whatever time that takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::Charge;
use sluice_rules::{Fault, MAX_MADE_BYTES, MAX_STEPS, Refusal, Rule, Spent};

fn charge() -> BTreeMap<String, String> {
    [("example.com/license".to_owned(), "1".to_owned())].into()
}

/// 10,000 containers with an environment, and 256 KiB in an annotation.
fn large_pod() -> Value {
    let container = |number: usize| {
        json!({ "name": format!("c{number}"), "image": "registry.example/a/very/long/name/of/an/image:1",
                "env": [{ "name": "A", "value": "b" }] })
    };
    json!({
        "metadata": { "annotations": { "large": "a".repeat(256 * 1024) } },
        "spec": { "containers": (0..10_000).map(container).collect::<Vec<_>>() },
    })
}

#[rstest]
#[case::gigabyte(&format!("{}1", "!!(!!!!!!(!!!!(((((!!(!!(!!!!((".repeat(4)))]
#[case::brackets(&format!("{}1{}", "(".repeat(33), ")".repeat(33)))]
#[case::lists(&format!("{}1{}", "[".repeat(33), "]".repeat(33)))]
#[case::indexes(&format!("{}1{}", "pod[".repeat(33), "]".repeat(33)))]
#[case::calls(&format!("{}1{}", "size(".repeat(33), ")".repeat(33)))]
#[case::signs(&format!("{}1", "-".repeat(33)))]
#[case::mixed(&format!("{}true{}", "!(".repeat(17), ")".repeat(17)))]
#[case::conditionals(&format!("{}1", "true ? 1 : ".repeat(33)))]
#[case::conditionals_within(&format!("{}1{}", "true ? ".repeat(33), " : 1".repeat(33)))]
#[case::behind_a_comment(&format!("// ' \n{}1", "!".repeat(33)))]
#[case::behind_a_text(&format!("'\\'' == {}1", "-".repeat(33)))]
#[case::behind_a_long_text(&format!("'''\n'\n''' == {}1", "-".repeat(33)))]
#[case::behind_a_raw_text(&format!("r'\\' == {}1", "-".repeat(33)))]
fn too_many_levels(#[case] source: &str) {
    let error = Rule::compile(source, &charge()).expect_err(source);
    assert_eq!(error.why, Refusal::TooDeep, "{source}");
}

/// What a text hides from the guard must be hidden from the parser too.
#[rstest]
#[case::number_before_a_raw_text("1r'\\' ((((((( '")]
#[case::word_before_a_raw_text("xr'\\' ((((((( '")]
#[case::keyword_before_a_text("'a' in'\\' ((((((( '")]
fn what_could_be_read_in_two_ways(#[case] source: &str) {
    assert_eq!(Rule::compile(source, &charge()).expect_err(source).why, Refusal::Prefix, "{source}");
}

#[rstest]
#[case::unknown("'\\q ((((((('")]
#[case::digits("'\\xg ((((((('")]
#[case::line_end("'\\\n((((((('")]
fn escapes_that_the_parser_does_not_read(#[case] source: &str) {
    assert_eq!(Rule::compile(source, &charge()).expect_err(source).why, Refusal::Escape, "{source}");
}

#[rstest]
#[case::sums("1 + ")]
#[case::comparisons("1 < ")]
#[case::memberships("1 in ")]
#[case::products("-1*")]
fn chains(#[case] link: &str) {
    let source = format!("{}1", link.repeat(150));
    assert_eq!(Rule::compile(&source, &charge()).expect_err(link).why, Refusal::LongChain, "{link}");
}

#[rstest]
#[case::selections(".a")]
#[case::indexes("[0]")]
#[case::calls(".size()")]
#[case::macros(".map(x, x)")]
fn chains_of_selections(#[case] link: &str) {
    let source = format!("pod{}", link.repeat(150));
    assert_eq!(Rule::compile(&source, &charge()).expect_err(link).why, Refusal::LongChain, "{link}");
}

/// A chain in each bracket is as deep as all of them together.
#[test]
fn chains_within_brackets_add_up() {
    let source = format!("{}1{}", "1+1+1+1+1+1+(".repeat(30), ")".repeat(30));
    assert_eq!(Rule::compile(&source, &charge()).expect_err("deep").why, Refusal::LongChain);
}

#[test]
fn long_expressions() {
    for source in ["!".repeat(100_000), "(".repeat(100_000), format!("'{}'", "a".repeat(2_047))] {
        let error = Rule::compile(&source, &charge()).expect_err("long");
        assert_eq!(error.why, Refusal::TooLong { bytes: source.len() });
    }
}

/// What is at the bounds is parsed on the stack of a thread of 2 MiB, in a debug build too.
#[test]
fn what_is_within_all_bounds_does_not_overflow_the_stack() {
    for source in [
        format!("{}1{}", "(".repeat(32), ")".repeat(32)),
        format!("{}1{}", "(1+1+1+1+".repeat(32), ")".repeat(32)),
        format!("{}1", "1 + ".repeat(128)),
        format!("pod{}", ".a".repeat(128)),
        format!("{}1{}", "!(".repeat(16), ")".repeat(16)),
        format!("{}1", "true ? 1 : ".repeat(32)),
        format!("{}true", "true && ".repeat(250)),
        format!("[{}1]", "1, ".repeat(600)),
    ] {
        let rule = Rule::compile(&source, &charge()).unwrap_or_else(|error| panic!("{source}: {error}"));
        // Whatever it says.
        let _ = rule.evaluate(&json!({}), &Charge::default());
    }
}

fn stopped(source: &str) -> (Fault, Spent) {
    let rule = Rule::compile(source, &charge()).unwrap_or_else(|error| panic!("{source}: {error}"));
    let (outcome, spent) = rule.evaluate_counted(&large_pod(), &Charge::default());
    (outcome.expect_err(source).why, spent)
}

#[rstest]
#[case::one_macro("pod.spec.containers.all(c, c.image.contains('image'))")]
#[case::nested("pod.spec.containers.all(c, pod.spec.containers.all(d, true))")]
#[case::makes_a_list("pod.spec.containers.map(c, pod.spec.containers) == []")]
#[case::absorbed("pod.spec.containers.all(c, c.missing) || true")]
#[case::absorbed_within("pod.spec.containers.exists(c, pod.spec.containers.all(d, d.missing))")]
#[case::joins_lists("pod.spec.containers + pod.spec.containers == []")]
#[case::equality("pod.spec.containers == pod.spec.containers")]
#[case::membership("1 in pod.spec.containers")]
#[case::long_text_again_and_again("[1,2,3].all(x, pod.metadata.annotations.large.contains('b') || true)")]
#[case::keys("pod.spec.containers.all(c, c.all(key, key != 'x'))")]
fn by_steps(#[case] source: &str) {
    let (why, spent) = stopped(source);
    assert_eq!(why, Fault::Steps, "{source}");
    // The last thing that is paid for is not done any more.
    assert!(spent.steps > MAX_STEPS && spent.made_bytes <= MAX_MADE_BYTES, "{source}: {spent:?}");
}

#[rstest]
#[case::doubled("pod.metadata.annotations.large + pod.metadata.annotations.large == ''")]
#[case::grown("pod.spec.containers.map(c, c.image + c.image + c.image).size() > 0")]
fn by_made_text(#[case] source: &str) {
    let (why, spent) = stopped(source);
    assert_eq!(why, Fault::MadeBytes, "{source}");
    assert!(spent.steps <= MAX_STEPS, "{source}: {spent:?}");
}

#[test]
fn long_texts_are_not_matched() {
    let (why, _) = stopped("pod.metadata.annotations.large.matches('(a*)*b')");
    assert_eq!(why, Fault::LongText { bytes: 256 * 1024 });
}

/// Patterns cost by their size and by the length of the text.
#[test]
fn large_patterns_are_paid_for() {
    let source = "pod.spec.containers.all(c, !c.image.matches(r'^\\w+-\\w+$'))";
    let (why, _) = stopped(source);
    assert_eq!(why, Fault::Steps);
    let pod = json!({ "spec": { "containers": [{ "image": "registry.example/oracle:19" }] } });
    let small = Rule::compile("pod.spec.containers.all(c, c.image.matches('oracle:1[0-9]'))", &charge());
    let (outcome, spent) = small.expect("a rule").evaluate_counted(&pod, &Charge::default());
    assert!(outcome.is_ok() && spent.steps < 100, "{outcome:?} {spent:?}");
}
