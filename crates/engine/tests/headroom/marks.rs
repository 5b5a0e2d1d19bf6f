//! Which raise tells that quota admission knows of all.

use super::*;

const FULL: [(&str, &str); 1] = [("requests.memory", "2Gi")];

fn full(name: &str) -> NativeQuota {
    quota(name, &FULL, &FULL)
}

fn scoped(name: &str) -> NativeQuota {
    NativeQuota { scopes: Scopes::new([ScopeRequirement::exists(Scope::NotTerminating)]), ..full(name) }
}

/// Quotas in the order in which they are raised, those that are marked with a `*`.
fn marks(quotas: &[NativeQuota]) -> Vec<String> {
    let raises = raises(plan(&need(&FULL), quotas, &unlimited()));
    let zero = Quantity::from_units(0, Format::DecimalSi);
    let word = |raise: &Raise| {
        assert_eq!(raise.hard.get(MARK) == Some(&zero), raise.marked, "{raise:?}");
        assert!(raise.keys.iter().all(|key| &*key.key != MARK), "a mark is no head-room");
        format!("{}{}", raise.quota, if raise.marked { "*" } else { "" })
    };
    raises.iter().map(word).collect()
}

#[test]
fn the_last_of_several_raises_is_marked() {
    assert_eq!(marks(&[full("b"), full("a")]), ["a", "b*"]);
}

#[test]
fn quotas_with_scopes_are_raised_first_as_only_the_others_see_windows() {
    assert_eq!(marks(&[full("a"), scoped("b")]), ["b", "a*"]);
    assert_eq!(marks(&[scoped("a")]), ["a"]);
}

#[test]
fn a_limit_on_windows_that_somebody_has_set_stays() {
    let limited = [("requests.memory", "2Gi"), (MARK, "5")];
    assert_eq!(marks(&[quota("a", &limited, &FULL)]), ["a"]);
}

#[test]
fn a_mark_that_is_there_tells_of_an_earlier_raise() {
    let mut raised = full("a");
    raised.status_hard = amounts(&[("requests.memory", "3Gi"), (MARK, "0")]);
    raised.used = amounts(&[("requests.memory", "3Gi")]);
    let again = raises(plan(&need(&FULL), &[raised], &unlimited()));
    assert!(!again[0].marked && again[0].hard.contains_key(MARK));
}
