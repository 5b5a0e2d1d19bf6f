//! Rules mean what the interpreter of `cel` says that they mean, apart from the differences in [`DIFFERENCES`].
//!
//! `PROPTEST_CASES=100000` for a long run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod expressions;
mod oracle;

use std::collections::BTreeMap;

use cel::Value as Cel;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use sluice_engine::Charge;
use sluice_rules::{Fault, Outcome, Rule};

use crate::expressions::Writer;
use crate::oracle::Oracle;

const KEY: &str = "example.com/license";
const CASES: u32 = 2_000;

/// What a rule has said, in words that both sides have.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Matches(bool),
    Amount(String),
    /// Why is not compared.
    Nothing,
}

/// A difference that is wanted: an expression that shows it, what each side says, and why.
const DIFFERENCES: [(&str, &str, &str, &str); 7] = [
    ("1 == '1'", "nothing", "false", "amounts in a pod are texts: such a comparison would be false for ever"),
    ("1 != '1'", "nothing", "true", "the same"),
    ("0.1 + 0.2 == 0.3", "true", "false", "amounts are exact"),
    ("5 == 5.0 && 5.0 / 2.0 * 2 == 5", "true", "nothing", "integers and amounts are both numbers"),
    (
        "9007199254740993.0 == 9007199254740992.0",
        "nothing",
        "true",
        "a literal that cannot be exact is refused",
    ),
    ("1.0 / 0.0 > 1.0", "nothing", "true", "there is no infinite amount"),
    ("native['requests.cpu'] == native.cpu", "true", "nothing", "both names of a number find it"),
];

fn ours(
    source: &str,
    as_amount: bool,
    pod: &serde_json::Value,
    native: &Charge,
) -> Result<Said, Option<Fault>> {
    let (matches, amount) = if as_amount { ("true", source) } else { (source, "1") };
    let charge: BTreeMap<_, _> = [(KEY.to_owned(), amount.to_owned())].into();
    let rule = Rule::compile(matches, &charge).map_err(|_| None)?;
    match rule.evaluate(pod, native) {
        Ok(Outcome::NoMatch) => Ok(Said::Matches(false)),
        Ok(Outcome::Charge(_)) if !as_amount => Ok(Said::Matches(true)),
        Ok(Outcome::Charge(charge)) => Ok(Said::Amount(charge[0].1.to_string())),
        Err(error) => Err(Some(error.why)),
    }
}

fn theirs(source: &str, oracle: &Oracle, as_amount: bool) -> Said {
    match oracle.value(source) {
        Some(Cel::Bool(value)) if !as_amount => Said::Matches(value),
        Some(Cel::Int(value)) if as_amount && value >= 0 => Said::Amount(
            sluice_engine::Quantity::from_units(value, sluice_engine::Format::DecimalSi).to_string(),
        ),
        _ => Said::Nothing,
    }
}

#[test]
fn differences_are_those_that_are_wanted() {
    let mut writer = Writer::new(&[]);
    let (pod, native) = (writer.pod(), oracle::native());
    let oracle = Oracle::new(&pod);
    let word = |said: &Said| match said {
        Said::Matches(value) => value.to_string(),
        Said::Amount(amount) => amount.clone(),
        Said::Nothing => "nothing".to_owned(),
    };
    for (source, own, other, why) in DIFFERENCES {
        let said = ours(source, false, &pod, &native).unwrap_or(Said::Nothing);
        assert_eq!(word(&said), own, "{source}: {why}");
        assert_eq!(word(&theirs(source, &oracle, false)), other, "cel: {source}: {why}");
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn generated_expressions_mean_the_same(choices in vec(any::<u8>(), 16..160)) {
        let mut writer = Writer::new(&choices);
        let pod = writer.pod();
        let native = oracle::native();
        let as_amount = writer.choose(3) == 0;
        let source = if as_amount { writer.number(4) } else { writer.truth(4) };
        let other = theirs(&source, &Oracle::new(&pod), as_amount);
        match ours(&source, as_amount, &pod, &native) {
            Ok(said) => assert_eq!(said, other, "{source}\n{pod}"),
            // The bounds are ours alone.
            Err(Some(Fault::Steps | Fault::MadeBytes | Fault::LongText { .. })) => {}
            Err(Some(fault)) => assert_eq!(other, Said::Nothing, "{source}\n{pod}\n{fault}"),
            Err(None) => {
                let error = Rule::compile(&source, &[(KEY.to_owned(), "1".to_owned())].into());
                panic!("{source} is refused: {error:?}");
            }
        }
    }

    /// Whatever is written, it is refused or evaluated within the bounds.
    #[test]
    fn any_text_is_survived(choices in vec(any::<u8>(), 0..400)) {
        let source = expressions::noise(&choices);
        let charge: BTreeMap<_, _> = [(KEY.to_owned(), source.clone())].into();
        let pod = Writer::new(&choices).pod();
        if let Ok(rule) = Rule::compile("true", &charge) {
            let _ = rule.evaluate(&pod, &oracle::native());
        }
        if let Ok(rule) = Rule::compile(&source, &[(KEY.to_owned(), "1".to_owned())].into()) {
            let _ = rule.evaluate(&pod, &oracle::native());
        }
    }
}
