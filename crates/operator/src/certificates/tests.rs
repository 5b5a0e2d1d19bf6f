//! What the loop decides from the Secrets it sees.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use sluice_manifests::certificates::{
    CA, CertOrder, CertStep, Made, SERVING, TakeError, Told, issue_serving, new_authority, service_names,
};

use super::observe::Seen;
use super::plan::{Round, next_round};
use super::{bundle, given};

fn secret(entries: &[(&str, &str)], told: Told) -> Seen<Secret> {
    let data: BTreeMap<_, _> =
        entries.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec()))).collect();
    let annotations = told.annotations().map(|(key, text)| (key.to_owned(), text)).collect();
    let metadata = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
    Seen::Present(Secret { metadata, data: Some(data), ..Secret::default() })
}

fn order() -> CertOrder {
    CertOrder::new(&service_names("w", "n"), None)
}

#[test]
fn nothing_is_made_before_both_secrets_were_looked_for() {
    let now = Timestamp::now();
    for (ca, serving) in [(Seen::Unknown, Seen::Absent), (Seen::Absent, Seen::Unknown)] {
        assert!(matches!(next_round(now, &ca, &serving, &order()), Round::Blind));
    }
    let round = next_round(now, &Seen::Absent, &Seen::Absent, &order());
    let Round::Work { steps, ca: None, serving: None } = round else {
        panic!("both are missing: {round:?}");
    };
    assert!(matches!(steps.as_slice(), [CertStep::NewAuthority { .. }, CertStep::IssueServing { .. }]));
}

#[test]
fn good_secrets_are_left_alone_until_a_third_of_the_serving_certificates_life() {
    let now = Timestamp::from_second(1_800_000_000).expect("in range");
    let ca = new_authority(now, "", CA).expect("an authority");
    let serving = issue_serving(now, &ca, &order().names, SERVING).expect("a certificate");
    let path = ("webhook-path", ca.path.as_str());
    let bundle = ("ca.crt", ca.bundle.as_str());
    let entries = [("tls.crt", serving.certificate.as_str()), ("tls.key", &serving.key), bundle, path];
    let unmarked = secret(&entries, Told::default());
    let serving = secret(&entries, serving.told);
    let ca = secret(&[("tls.crt", &ca.certificate), ("tls.key", &ca.key), bundle, path], ca.told.clone());
    let later = now + SignedDuration::from_hours(2);
    let round = next_round(later, &ca, &serving, &order());
    let Round::Rest { until } = round else { panic!("nothing to do: {round:?}") };
    assert_eq!(until.as_secs(), 54 * 3600);
    let Round::Work { steps, .. } = next_round(later, &ca, &unmarked, &order()) else {
        panic!("it gets the annotations that a version before has not written");
    };
    assert_eq!(steps, [CertStep::StoreServing { path_before: None }]);
}

#[test]
fn secrets_without_data_or_with_garbage_are_filled() {
    let garbage = secret(&[("tls.crt", "\u{fffd}"), ("tls.key", "x"), ("other", "y")], Told::default());
    for present in [Seen::Present(Secret::default()), garbage] {
        let round = next_round(Timestamp::now(), &present, &present, &order());
        let Round::Work { steps, ca: Some(_), serving: Some(_) } = round else {
            panic!("nothing usable is there: {round:?}");
        };
        assert_eq!(steps.len(), 2);
    }
}

/// A Secret as cert-manager writes it: pair, chain and `ca.crt`, without what ours has beside.
#[test]
fn what_cert_manager_gives_is_stored_authority_first() {
    let now = Timestamp::from_second(1_800_000_000).expect("in range");
    let ca = new_authority(now, "", CA).expect("an authority");
    let pair = issue_serving(now, &ca, &order().names, SERVING).expect("a certificate");
    let entries =
        [("tls.crt", pair.certificate.as_str()), ("tls.key", &pair.key), ("ca.crt", &ca.certificate)];
    let given = secret(&entries, Told::default());
    let next = |own: &Seen<Secret>, given: &Seen<Secret>| {
        given::next_round(now, [own, &Seen::Absent, given], &order().names, None)
    };
    assert!(matches!(next(&Seen::Unknown, &given), given::Round::Blind));
    assert!(matches!(next(&Seen::Absent, &Seen::Unknown), given::Round::Blind));
    assert!(matches!(next(&Seen::Absent, &Seen::Absent), given::Round::Missing));
    let empty = Seen::Present(Secret::default());
    assert!(matches!(next(&Seen::Absent, &empty), given::Round::Refused(_)));
    let given::Round::Store(made) = next(&Seen::Absent, &given) else { panic!("nothing is there yet") };
    let Made::Authority(first) = *made else { panic!("API servers learn of the authority first") };
    let (bundle, path) = (first.bundle.as_str(), first.path.as_str());
    let own = secret(
        &[("tls.crt", ""), ("tls.key", ""), ("ca.crt", bundle), ("webhook-path", path)],
        Told::default(),
    );
    let given::Round::Store(made) = next(&own, &given) else { panic!("nothing is served yet") };
    assert!(matches!(*made, Made::Serving(serving) if serving.key == pair.key && serving.path == path));
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_looked_at_again_soon() {
    let now = Timestamp::from_second(1_800_000_000).expect("in range");
    let waits = |error: &TakeError| given::refused_for(now, error).as_secs();
    assert_eq!(waits(&TakeError::NotYet(now + SignedDuration::from_secs(7))), 7);
    assert_eq!(waits(&TakeError::NotYet(now + SignedDuration::from_hours(7))), 30);
    assert_eq!(waits(&TakeError::NotValid), 3600);
}

#[test]
fn authorities_are_written_where_they_are_looked_for_and_only_if_they_differ() {
    let map = ("aaq-server-signer-bundle", "ca-bundle.crt");
    let authority = secret(&[("ca.crt", "PEM")], Told::default());
    let holding = |text: &str| {
        let data = BTreeMap::from([(map.1.to_owned(), text.to_owned())]);
        Seen::Present(ConfigMap { data: Some(data), ..ConfigMap::default() })
    };
    let emptied = Seen::Present(ConfigMap::default());
    for is in [Seen::Absent, emptied, holding("old")] {
        let body = bundle::wanted(map, &authority, &is).expect("a write");
        assert_eq!(body["data"][map.1], "PEM");
        assert_eq!(body["metadata"]["name"], map.0);
    }
    for (authority, is) in [
        (&authority, holding("PEM")),
        (&authority, Seen::Unknown),
        (&Seen::Absent, Seen::Absent),
        (&secret(&[], Told::default()), Seen::Absent),
    ] {
        assert!(bundle::wanted(map, authority, &is).is_none());
    }
}
