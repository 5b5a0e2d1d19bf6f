//! What is refused, where, and with which remedy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use rstest::rstest;
use sluice_rules::{CompileError, Rule};

fn charge(key: &str, amount: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), amount.to_owned())].into()
}

fn refused(matches: &str) -> CompileError {
    Rule::compile(matches, &charge("example.com/license", "1")).expect_err(matches)
}

#[rstest]
#[case::empty(
    "  ",
    "spec.cel.match: the expression is empty: write true to match every pod, or an amount such as 1"
)]
#[case::variable(
    "object.spec.hostNetwork",
    "spec.cel.match: 1:1: there is no variable object: use pod and native, and within exists, all, filter and map their \
     elements"
)]
#[case::second_line(
    "true &&\n  vm.spec",
    "spec.cel.match: 2:3: there is no variable vm: use pod and native, and within exists, all, filter and map their elements"
)]
// Behind text that is not ASCII the parser counts more columns than there are: here it should be 1:10.
#[case::behind_wide_text(
    "'äöü' == x",
    "spec.cel.match: 1:11: there is no variable x: use pod and native, and within exists, all, filter and map their elements"
)]
#[case::function(
    "pod.metadata.name.lowerAscii() == 'a'",
    "spec.cel.match: 1:29: there is no function lowerAscii: compare by startsWith, endsWith, contains and matches"
)]
#[case::clock(
    "now() > pod.x",
    "spec.cel.match: 1:4: there is no function now: a rule has no clock, so that its answer stays until the pod changes"
)]
#[case::usage(
    "size(pod, 1) > 0",
    "spec.cel.match: 1:5: size is not used like this: write size(x) or x.size()"
)]
#[case::global_max("max(1, 2) > 0", "spec.cel.match: 1:4: max is not used like this: write [a, b].max()")]
#[case::macro_arguments(
    "pod.x.exists(c)",
    "spec.cel.match: 1:13: there is no function exists: macros take a name and an expression, as in list.exists(c, \
    c.name == 'x')"
)]
#[case::hides(
    "pod.x.exists(pod, true)",
    "spec.cel.match: 1:13: pod cannot be the name of an element, it is a variable: choose another name"
)]
#[case::map(
    "{'a': 1}['a'] == 1",
    "spec.cel.match: 1:1: maps and messages cannot be made: choose by a conditional, as in a == 'x' ? 1 : 2"
)]
#[case::unsigned("1u == 1", "spec.cel.match: 1:1: an unsigned number cannot be used: leave out the u")]
#[case::digits(
    "0.1234567891 == 1",
    "spec.cel.match: 1:1: a number of more than 15 digits, or of more than 9 behind the point cannot be used: write \
    fewer, or quantity('…')"
)]
#[case::pattern_not_literal(
    "pod.a.matches(pod.b)",
    "spec.cel.match: 1:14: the pattern of matches is not a text in quotes: write it out, it is compiled once"
)]
#[case::pattern("pod.a.matches('a(')", "spec.cel.match: 1:14: the pattern cannot be used: unclosed group")]
#[case::large_pattern(
    "pod.a.matches(r'((a{99}){99}){99}')",
    "spec.cel.match: 1:14: the pattern cannot be used: compiled it takes more than 256 KiB: use smaller repetitions"
)]
#[case::nested(
    "pod.a.all(x, pod.b.all(y, pod.c.all(z, true)))",
    "spec.cel.match: 1:36: exists, all, filter and map are nested more than twice here: what takes so many turns is \
    too slow \
     for a rule"
)]
#[case::character("pod.a == #1", "spec.cel.match: 1:10: '#' means nothing here: put text into quotes")]
#[case::unclosed_bracket("(pod.a", "spec.cel.match: 1:1: ( is not closed: add its end")]
#[case::unclosed_quote("pod.a == 'x", "spec.cel.match: 1:10: ' is not closed: add its end")]
#[case::closes_nothing(
    "pod.a)",
    "spec.cel.match: 1:6: ) closes nothing that is open here: remove it, or open it before"
)]
#[case::escape(
    r"pod.a.matches('\d')",
    "spec.cel.match: 1:17: a backslash begins \\\\ \\' \\\" \\n \\r \\t \\xHH or \\uHHHH: \
    write r'…' around a pattern, where a backslash is itself"
)]
#[case::prefix(
    "pod.a == b'x'",
    "spec.cel.match: 1:11: a letter or digit stands right before a quote: put a blank between them; only r'…' has a \
    letter there"
)]
#[case::syntax("pod.a ==", "spec.cel.match: 1:9: it cannot be parsed: mismatched input '<EOF>'")]
fn a_match(#[case] source: &str, #[case] says: &str) {
    assert_eq!(refused(source).to_string(), says);
}

#[rstest]
#[case::cores(
    "cpu!",
    "1",
    "spec.cel.charge[cpu!]: no pod can be charged with this key: use one that pods consume, such as requests.cpu, or \
    a name with a domain, such as example.com/license"
)]
#[case::of_others(
    "requests.storage",
    "1",
    "spec.cel.charge[requests.storage]: no pod can be charged with this key: use one that pods consume, such as \
    requests.cpu, or a name with a domain, such as example.com/license"
)]
#[case::amount(
    "example.com/license",
    "cores",
    "spec.cel.charge[example.com/license]: 1:1: there is no variable cores: use pod and native, and within exists, \
    all, filter and map their elements"
)]
fn a_charge(#[case] key: &str, #[case] amount: &str, #[case] says: &str) {
    let error = Rule::compile("true", &charge(key, amount)).expect_err(key);
    assert_eq!(error.to_string(), says);
}

#[test]
fn keys_are_bounded_and_name_different_numbers() {
    let none = Rule::compile("true", &BTreeMap::new()).expect_err("no charge");
    assert_eq!(
        none.to_string(),
        "spec.cel.charge: no amount is given: write the key of a quota and an expression for its amount"
    );
    let both = ["cpu", "requests.cpu"].map(|key| (key.to_owned(), "1".to_owned())).into();
    let both = Rule::compile("true", &both).expect_err("two names");
    assert_eq!(
        both.to_string(),
        "spec.cel.charge[requests.cpu]: it is the same number as cpu: give one of the two"
    );
    let many = (0..17).map(|n| (format!("example.com/k{n}"), "1".to_owned())).collect();
    let many = Rule::compile("true", &many).expect_err("many");
    assert_eq!(
        many.to_string(),
        "spec.cel.charge: 17 keys are given, at most 16 are allowed: write several Evaluators"
    );
}
