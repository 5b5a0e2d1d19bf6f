//! The plan with a fixed clock, and chains checked by the TLS library that clients use.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::{
    BACKDATE, CA, CaPair, CertOrder, CertStep, Made, SERVING, SETTLE, ServingPair, inspect, is_path, make,
    plan, service_names,
};

mod given;
mod lifetimes;
mod paths;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const CA_LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);
const CA_RENEW_AFTER: SignedDuration = SignedDuration::from_hours(20 * 24);
const SERVING_LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("in range")
}

fn names() -> Vec<String> {
    service_names("sluice-webhook", "sluice-system")
}

/// Of which nothing special is asked.
fn plain() -> CertOrder {
    CertOrder { names: names(), ca: Some(CA), serving: Some(SERVING) }
}

/// Whether a client that trusts `bundle` accepts the certificate at `now`.
fn accepted(bundle: &str, serving: &ServingPair, name: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.expect("PEM")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("roots");
    let leaf = CertificateDer::from_pem_slice(serving.certificate.as_bytes()).expect("PEM");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok()
}

/// The two Secrets, what is asked of them, and what the loop does with them.
struct World {
    ca: Option<CaPair>,
    serving: Option<ServingPair>,
    order: CertOrder,
}

impl World {
    fn installed(now: Timestamp) -> Self {
        let mut world = Self { ca: None, serving: None, order: plain() };
        world.run(now);
        world
    }

    /// Does what the plan says until there is nothing left to do; returns when the next step is due.
    fn run(&mut self, now: Timestamp) -> Timestamp {
        for _ in 0..6 {
            let plan = plan(now, self.ca.as_ref(), self.serving.as_ref(), &self.order);
            if plan.steps.is_empty() {
                return plan.due;
            }
            for step in plan.steps {
                self.step(now, step);
            }
        }
        panic!("the plan does not come to rest");
    }

    fn step(&mut self, now: Timestamp, step: CertStep) {
        let made =
            make(now, step, self.ca.clone(), self.serving.clone(), &self.order).expect("random numbers");
        match made.expect("what the step changes") {
            Made::Authority(pair) => self.ca = Some(pair),
            Made::Serving(pair) => self.serving = Some(pair),
        }
    }

    fn ca(&self) -> &CaPair {
        self.ca.as_ref().expect("an authority")
    }

    fn serving(&self) -> &ServingPair {
        self.serving.as_ref().expect("a serving certificate")
    }
}

#[test]
fn an_empty_cluster_gets_both_and_clients_accept_them() {
    let world = World::installed(start());
    let serving = world.serving();
    for name in names().iter().filter(|name| name.contains('.')) {
        assert!(accepted(&world.ca().bundle, serving, name, start()), "{name}");
    }
    let late = start() + SERVING_LIFETIME - HOUR;
    let bundle = &world.ca().bundle;
    assert!(accepted(bundle, serving, "sluice-webhook.sluice-system.svc", late));
    assert!(!accepted(bundle, serving, "sluice-webhook.sluice-system.svc", late + HOUR + HOUR));
    assert!(accepted(bundle, serving, "sluice-webhook.sluice-system.svc", start() - BACKDATE));
    assert!(!accepted(bundle, serving, "other.sluice-system.svc", start()));
}

#[test]
fn the_serving_certificate_is_renewed_at_a_third_of_its_life() {
    let mut world = World::installed(start());
    let first = world.serving().clone();
    let due = world.run(start());
    assert_eq!(due, start() + HOUR * 56);
    world.run(due - HOUR);
    assert!(*world.serving() == first, "not before it is due");
    world.run(due);
    assert!(*world.serving() != first, "when it is due");
}

#[test]
fn without_an_operator_all_works_for_four_days_at_any_time() {
    let mut world = World::installed(start());
    let mut now = start();
    while now < start() + CA_LIFETIME * 3 {
        let due = world.run(now);
        let away = due + HOUR * 4 * 24;
        let name = "sluice-webhook.sluice-system.svc";
        assert!(accepted(&world.ca().bundle, world.serving(), name, away), "from {due} on");
        now = due;
    }
}

#[test]
fn no_client_ever_meets_a_certificate_it_does_not_trust() {
    let mut world = World::installed(start());
    let mut now = start();
    let mut authorities_seen = 1;
    let mut ca = world.ca().clone();
    // Bundles reach clients late: they still have the one from `SETTLE` ago.
    let mut client = ca.bundle.clone();
    let end = start() + CA_LIFETIME * 4;
    while now < end {
        let due = world.run(now);
        assert!(due > now, "the next step is in the future");
        if world.ca().certificate != ca.certificate {
            authorities_seen += 1;
            ca = world.ca().clone();
        }
        assert!(
            accepted(&client, world.serving(), "sluice-webhook.sluice-system.svc", now),
            "a client with the old bundle refuses at {now}"
        );
        let settled = now + SETTLE - SignedDuration::from_secs(1);
        if due >= settled {
            client.clone_from(&world.ca().bundle);
        }
        assert!(
            accepted(&world.ca().bundle, world.serving(), "sluice-webhook.sluice-system.svc", due),
            "the serving certificate does not last until {due}"
        );
        now = due;
    }
    assert!(authorities_seen >= 5, "the authority was renewed {authorities_seen} times");
}

#[test]
fn both_authorities_are_trusted_until_the_old_one_expires() {
    let mut world = World::installed(start());
    let old = world.ca().certificate.clone();
    let renewal = start() + CA_RENEW_AFTER;
    world.run(renewal - HOUR);
    assert_eq!(world.ca().certificate, old);
    world.run(renewal);
    let new = world.ca().certificate.clone();
    assert_ne!(new, old);
    assert_eq!(world.ca().bundle, format!("{new}{old}"));
    world.run(start() + CA_LIFETIME - HOUR);
    assert!(world.ca().bundle.contains(&old));
    world.run(start() + CA_LIFETIME);
    assert_eq!(world.ca().bundle, new, "nothing expired is trusted");
}

#[test]
fn a_working_serving_certificate_is_not_replaced_before_the_new_authority_is_published() {
    let mut world = World::installed(start());
    let renewal = start() + CA_RENEW_AFTER;
    // Two thirds of the last one's life are over when there is a new authority.
    world.run(renewal - HOUR * 100);
    world.run(renewal - HOUR * 100 + SETTLE);
    world.run(renewal - HOUR * 100 + SETTLE * 2);
    let before = world.serving().clone();
    let due = world.run(renewal);
    let ServingPair { bundle, .. } = world.serving().clone();
    assert!(*world.serving() == ServingPair { bundle, ..before }, "the bundle is all that changes");
    assert_eq!(
        world.serving().bundle,
        world.ca().bundle,
        "processes trust the next certificate before it is served"
    );
    assert_eq!(due, renewal + SETTLE);
    world.run(due);
    assert!(inspect::signed_by(&world.serving().certificate, &world.ca().certificate));
}

#[test]
fn what_does_not_fit_together_is_made_anew() {
    let now = start();
    let good = World::installed(now);
    let other = World::installed(now);
    let plan_of = |ca: &CaPair, serving: &ServingPair| plan(now, Some(ca), Some(serving), &plain()).steps;
    assert!(plan_of(good.ca(), good.serving()).is_empty());

    let foreign_key = CaPair { key: other.ca().key.clone(), ..good.ca().clone() };
    assert!(
        matches!(plan_of(&foreign_key, good.serving()).as_slice(), [CertStep::NewAuthority { .. }]),
        "what is served is trusted on"
    );
    let untrusted = CaPair { bundle: String::new(), ..foreign_key };
    assert!(matches!(
        plan_of(&untrusted, good.serving()).as_slice(),
        [CertStep::NewAuthority { .. }, CertStep::IssueServing { .. }]
    ));
    let garbage = CaPair {
        certificate: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        ..good.ca().clone()
    };
    assert!(matches!(plan_of(&garbage, good.serving()).first(), Some(CertStep::NewAuthority { .. })));

    let again = |path_before: Option<&str>| {
        [CertStep::IssueServing { path_is_new: false, path_before: path_before.map(str::to_owned) }]
    };
    let theirs = other.serving();
    assert_eq!(plan_of(good.ca(), theirs), again(Some(&theirs.path)), "another authority's");
    let mixed = ServingPair { key: theirs.key.clone(), ..good.serving().clone() };
    assert_eq!(plan_of(good.ca(), &mixed), again(None), "another certificate's key");
    let renamed = plan(
        now,
        good.ca.as_ref(),
        good.serving.as_ref(),
        &CertOrder { names: vec!["elsewhere.svc".to_owned()], ..plain() },
    );
    assert_eq!(renamed.steps, again(None), "other names");
    let leaf_as_ca = CaPair {
        certificate: good.serving().certificate.clone(),
        key: good.serving().key.clone(),
        bundle: String::new(),
        path: String::new(),
        path_since: None,
        told: good.serving().told.clone(),
    };
    assert!(matches!(plan_of(&leaf_as_ca, good.serving()).first(), Some(CertStep::NewAuthority { .. })));
}

#[test]
fn a_damaged_bundle_is_repaired() {
    let now = start();
    let world = World::installed(now);
    for bundle in ["", "no PEM", "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n"] {
        let damaged = CaPair { bundle: bundle.to_owned(), ..world.ca().clone() };
        let plan = plan(now, Some(&damaged), world.serving.as_ref(), &plain());
        let expected = CertStep::StoreBundle { bundle: world.ca().certificate.clone() };
        assert_eq!(plan.steps, [expected], "{bundle:?}");
        let damaged = ServingPair { bundle: bundle.to_owned(), ..world.serving().clone() };
        let plan = super::plan(now, world.ca.as_ref(), Some(&damaged), &plain());
        assert_eq!(plan.steps, [CertStep::StoreServing { path_before: None }], "{bundle:?}");
    }
}

#[test]
fn keys_are_not_printed() {
    let world = World::installed(start());
    let printed = format!("{:?} {:?}", world.ca(), world.serving());
    assert!(!printed.contains("PRIVATE") && !printed.contains(&world.ca().path), "{printed}");
}

#[test]
fn an_operator_whose_clock_is_five_minutes_off_makes_nothing_anew() {
    for skew in [-5, 5].map(SignedDuration::from_mins) {
        let mut world = World::installed(start());
        let made = (world.ca().certificate.clone(), world.serving().certificate.clone());
        world.run(start() + skew);
        assert_eq!((&world.ca().certificate, &world.serving().certificate), (&made.0, &made.1), "{skew:#}");
    }
}
