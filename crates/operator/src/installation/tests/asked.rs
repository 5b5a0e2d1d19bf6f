//! What is asked of the operator's process.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::{aaq, asking, mtq, world};

fn ca_minutes(asked: Option<Asked>) -> Option<u64> {
    let lifetime = asked?.lifetimes.ca.unwrap()?;
    Some(lifetime.duration.as_secs() / 60)
}

#[test]
fn the_aaq_is_asked_and_without_one_the_mtq() {
    let config = |duration: &str| json!({ "certConfig": { "ca": { "duration": duration } } });
    let mut world = world();
    assert_eq!(ca_minutes(Asked::by(&world)), None);
    world.mtqs = Some([("mtq".to_owned(), mtq("mtq", &config("20m")))].into());
    assert_eq!(ca_minutes(Asked::by(&world)), Some(20));
    let (a, b) = (aaq("a", 2, &config("30m"), &Value::Null), aaq("b", 1, &config("40m"), &Value::Null));
    world.aaqs = Some([("a".to_owned(), a), ("b".to_owned(), b)].into());
    assert_eq!(ca_minutes(Asked::by(&world)), Some(40), "the oldest holds");
    let of_aaq = asking(&json!({ "tlsSecurityProfile": { "type": "Modern" } }));
    let asked = Asked::by(&of_aaq).unwrap();
    assert_eq!(asked.tls_profile, json!({ "type": "Modern" }));
    assert_eq!(ca_minutes(Some(asked)), None);
}

#[test]
fn what_was_not_looked_for_asks_nothing_yet() {
    let mut unknown = world();
    unknown.mtqs = None;
    assert!(Asked::by(&unknown).is_none());
    unknown.aaqs = asking(&json!({ "certConfig": { "ca": { "duration": "5m", "renewBefore": "2m" } } })).aaqs;
    let asked = Asked::by(&unknown).unwrap();
    assert_eq!(asked.lifetimes.ca.unwrap().unwrap().renew_after, Duration::from_secs(180));
    unknown.mtqs = Some(BTreeMap::new());
    unknown.aaqs = None;
    assert!(Asked::by(&unknown).is_none());
}
