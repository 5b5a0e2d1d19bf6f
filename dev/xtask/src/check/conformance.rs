//! The tests that `docs/conformance.md` names exist, and it has a row for each of upstream's specs.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::shell::root;

const PAGE: &str = "docs/conformance.md";
const SUITES: &str = "dev/e2e/tests/e2e";
/// How many specs upstream's suite has.
const SPECS: usize = 60;
/// Specs of managed-tenant-quota's operator.
const OF_MTQ: RangeInclusive<usize> = 26..=36;

/// Reports every test that is named and not there.
///
/// # Errors
/// When there is one, or a spec has no row.
pub(super) fn check() -> anyhow::Result<()> {
    let page =
        std::fs::read_to_string(root().join(PAGE)).with_context(|| format!("could not read {PAGE}"))?;
    let numbers: Vec<usize> = page.lines().filter_map(number).collect();
    ensure!(numbers.iter().copied().eq(1..=SPECS), "{PAGE} has not one row for each of {SPECS} specs");
    let of_mtq: Vec<usize> = page.lines().filter_map(number_of_mtq).collect();
    ensure!(of_mtq.iter().copied().eq(OF_MTQ), "{PAGE} has not one row for each of F{OF_MTQ:?}");
    let suites = root().join(SUITES);
    let mut missing = 0;
    for test in tests(&page).filter(|test| !exists(&suites, test)) {
        eprintln!("{PAGE}: there is no test {test} in {SUITES}");
        missing += 1;
    }
    ensure!(missing == 0, "{missing} tests that {PAGE} names do not exist");
    Ok(())
}

/// The number of a row's spec.
fn number(line: &str) -> Option<usize> {
    line.strip_prefix("| ")?.split(' ').next()?.parse().ok()
}

/// The number of a row's spec of managed-tenant-quota.
fn number_of_mtq(line: &str) -> Option<usize> {
    line.strip_prefix("| F")?.split(' ').next()?.parse().ok()
}

/// What is written as code and is a path of modules.
fn tests(page: &str) -> impl Iterator<Item = &str> {
    let codes = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    codes.filter(|code| code.contains("::"))
}

fn exists(suites: &Path, test: &str) -> bool {
    let Some((module, name)) = test.rsplit_once("::") else { return false };
    let file = suites.join(module.replace("::", "/")).with_extension("rs");
    std::fs::read_to_string(file).is_ok_and(|source| has_test(&source, name))
}

fn has_test(source: &str, name: &str) -> bool {
    let starts = format!("async fn {name}(");
    let mut pairs = source.lines().zip(source.lines().skip(1));
    pairs.any(|(attribute, line)| attribute.starts_with("#[tokio::test") && line.starts_with(&starts))
}

#[cfg(test)]
mod tests {
    use super::{has_test, number, number_of_mtq, tests};

    #[test]
    fn tests_are_what_is_written_as_a_path() {
        let page = "`AAQ`\n```sh\nx::y\n```\n| 3 | name | `a::b::c`, with `--flag`; `d::e` |";
        assert_eq!(tests(page).collect::<Vec<_>>(), ["a::b::c", "d::e"]);
    }

    #[test]
    fn only_rows_of_specs_have_a_number() {
        assert_eq!(number("| 12 | name | `a::b` |"), Some(12));
        for line in ["| | upstream's spec | test |", "|---|---|---|", "12 tests", ""] {
            assert_eq!(number(line), None, "{line}");
        }
        assert_eq!((number("| F26 | a | b |"), number_of_mtq("| F26 | a | b |")), (None, Some(26)));
        assert_eq!(number_of_mtq("| 26 | a | b |"), None);
    }

    #[test]
    fn a_helper_or_a_part_of_a_name_is_no_test() {
        let source = "async fn helper() {}\n#[tokio::test]\nasync fn it_works() {}\n\
                      #[tokio::test]\nasync fn for_each(#[case] of: u8) {}\n";
        assert!(has_test(source, "it_works") && has_test(source, "for_each"));
        for name in ["helper", "it_work", "works"] {
            assert!(!has_test(source, name), "{name}");
        }
    }
}
