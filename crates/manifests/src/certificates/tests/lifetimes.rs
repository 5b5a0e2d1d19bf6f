//! Lifetimes that are asked for, and renewals that somebody asks for by an annotation.

use serde_json::json;
use sluice_api::{AskedLifetimes, Lifetime};

use super::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn asking(config: &serde_json::Value) -> CertOrder {
    CertOrder::new(&names(), Some(&AskedLifetimes::of(config)))
}

/// Upstream's functional test asks for this of the authority, and for the shortest of the serving certificate.
fn short() -> CertOrder {
    asking(&json!({
        "ca": { "duration": "20m", "renewBefore": "5m" }, "server": { "duration": "5m", "renewBefore": "2m" },
    }))
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

impl World {
    /// Does what is due from one time to another; returns when the next step is.
    fn run_until(&mut self, from: Timestamp, end: Timestamp) -> Timestamp {
        let mut due = self.run(from);
        while due <= end {
            due = self.run(due);
        }
        due
    }
}

/// From `not-before` to `not-after`, as annotations say.
fn told_life(told: &super::super::Told) -> SignedDuration {
    let at = |text: &Option<String>| text.as_deref().unwrap_or_default().parse::<Timestamp>().unwrap();
    at(&told.not_after).duration_since(at(&told.not_before))
}

#[test]
fn what_is_asked_for_takes_the_place_of_the_own_lifetimes_and_nothing_else_does() {
    let order = CertOrder::new(&names(), None);
    assert_eq!((order.ca, order.serving), (None, None), "it is not known what is asked");
    let order = asking(&json!(null));
    assert_eq!((order.ca, order.serving), (Some(CA), Some(SERVING)));
    let order = asking(&json!({ "ca": { "duration": "x" }, "server": { "duration": "10m" } }));
    let ten = Lifetime { duration: minutes(10), renew_after: minutes(5) };
    assert_eq!((order.ca, order.serving), (None, Some(ten)), "what cannot be leaves it as it is");
}

#[test]
fn another_lifetime_renews_both_at_once_and_annotations_say_it_as_upstream_does() {
    let mut world = World::installed(start());
    let first = (world.ca().certificate.clone(), world.serving().certificate.clone());
    world.order = short();
    let now = start() + HOUR;
    let settled = world.run(now);
    assert_ne!(world.ca().certificate, first.0);
    assert_eq!(world.serving().certificate, first.1, "API servers learn of the authority first");
    assert_eq!(settled, now + SignedDuration::from_secs(18), "a tenth of the time between renewals");
    world.run(settled);
    assert!(inspect::signed_by(&world.serving().certificate, &world.ca().certificate));
    let (ca, serving) = (&world.ca().told, &world.serving().told);
    assert_eq!(ca.config.as_deref(), Some(r#"{"lifetime":"20m0s","refresh":"15m0s"}"#));
    assert_eq!(serving.config.as_deref(), Some(r#"{"lifetime":"5m0s","refresh":"3m0s"}"#));
    assert_eq!((told_life(ca), told_life(serving)), (MINUTE * 20, MINUTE * 5));
    let last = world.serving().certificate.clone();
    world.run_until(settled, settled + MINUTE * 3 - SignedDuration::from_secs(1));
    assert_eq!(world.serving().certificate, last);
    world.run(settled + MINUTE * 3);
    assert_ne!(world.serving().certificate, last, "two minutes before its end");
    // And back.
    world.order = plain();
    let mut due = settled + MINUTE * 4;
    for _ in 0..6 {
        due = world.run(due);
    }
    assert_eq!(
        (told_life(&world.ca().told), told_life(&world.serving().told)),
        (CA_LIFETIME, SERVING_LIFETIME)
    );
}

#[test]
fn another_time_of_renewal_alone_renews_too() {
    let mut world = World::installed(start());
    let first = world.serving().certificate.clone();
    world.order.serving = Some(Lifetime { renew_after: minutes(30 * 60), ..SERVING });
    world.run(start() + MINUTE);
    assert_ne!(world.serving().certificate, first);
    world.run(start() + MINUTE);
}

/// With lifetimes of minutes too no client meets a certificate that it does not trust: bundles and segments reach it as late
/// as the plan allows.
#[test]
fn no_client_ever_meets_a_certificate_it_does_not_trust_with_short_lifetimes() {
    let shortest = json!({ "duration": "5m", "renewBefore": "2m" });
    let late = json!({ "duration": "5m", "renewBefore": "3m" });
    let often = json!({ "duration": "30m", "renewBefore": "27m" });
    for (ca, server) in
        [(&shortest, &shortest), (&late, &shortest), (&shortest, &often), (&often, &shortest), (&late, &late)]
    {
        let mut world = World::installed(start());
        world.order = asking(&json!({ "ca": ca, "server": server }));
        let settle = super::super::lifetimes::settle(world.order.ca.unwrap(), world.order.serving.unwrap());
        assert!(settle >= SignedDuration::from_secs(12));
        // Bundle and segment that an API server knows last, each with the time since when it does.
        let known = |world: &World| (world.ca().bundle.clone(), world.ca().path.clone());
        let mut versions = vec![(start(), known(&world))];
        let mut now = start() + HOUR;
        let (mut rotations, mut steps, end) = ((0, 0), 0, now + HOUR * 2);
        while now < end {
            let before = (world.ca().certificate.clone(), world.serving().certificate.clone());
            let due = world.run(now);
            assert!(due > now, "the next step is in the future");
            rotations.0 += u32::from(world.ca().certificate != before.0);
            rotations.1 += u32::from(world.serving().certificate != before.1);
            if versions.last().unwrap().1 != known(&world) {
                versions.push((now + settle - SignedDuration::from_secs(1), known(&world)));
            }
            for at in [now, due] {
                let (_, (bundle, path)) = versions.iter().rev().find(|(since, _)| *since <= at).unwrap();
                let serving = world.serving();
                let is_accepted = accepted(bundle, serving, "sluice-webhook.sluice-system.svc", at);
                assert!(is_accepted, "{ca} {server}: refused at {at}");
                let is_answered = serving.path == *path || serving.path_before.as_ref() == Some(path);
                assert!(is_answered, "{ca} {server}: not answered at {at}");
            }
            now = due;
            steps += 1;
        }
        assert!(rotations.0 >= 20 && rotations.1 >= 20, "{ca} {server}: {rotations:?}");
        assert!(steps < 600, "{ca} {server}: {steps} steps in two hours");
        assert!(inspect::authorities(&world.ca().bundle).len() <= 11, "{ca} {server}");
    }
}

#[test]
fn a_certificate_that_its_authority_cuts_short_is_renewed_in_time_and_not_all_the_time() {
    let mut world = World::installed(start());
    world.order =
        asking(&json!({ "ca": { "duration": "20m", "renewBefore": "5m" }, "server": { "duration": "24h" } }));
    let mut now = start();
    let (mut issued, mut last) = (0, String::new());
    while now < start() + HOUR {
        now = world.run(now);
        assert!(accepted(&world.ca().bundle, world.serving(), "sluice-webhook.sluice-system.svc", now));
        issued += u32::from(world.serving().certificate != last);
        last.clone_from(&world.serving().certificate);
    }
    assert!((4..=30).contains(&issued), "{issued} in an hour");
}

#[test]
fn another_end_in_the_annotation_renews_within_a_minute() {
    let mut world = World::installed(start());
    let mut now = start() + HOUR;
    let authority = world.ca().certificate.clone();
    // As upstream's test does it.
    let soon = (start() + SignedDuration::from_secs(1)).to_string();
    for end in [soon.as_str(), "", "never", "2126-01-01T00:00:00Z"] {
        let old = world.serving().clone();
        world.serving.as_mut().unwrap().told.not_after = Some(end.to_owned());
        world.run(now);
        assert_ne!(world.serving().certificate, old.certificate, "{end:?}");
        // One that is so new stays for a while, however often somebody asks.
        let new = world.serving().certificate.clone();
        world.serving.as_mut().unwrap().told.not_after = Some(end.to_owned());
        assert_eq!(world.run(now), now + SignedDuration::from_secs(15));
        assert_eq!(world.serving().certificate, new);
        now += SignedDuration::from_secs(30);
        world.run(now);
        now += SignedDuration::from_secs(30);
        assert_eq!(told_life(&world.serving().told), SERVING_LIFETIME);
        assert_eq!(world.ca().certificate, authority);
    }
    world.ca.as_mut().unwrap().told.not_after = Some(soon.clone());
    world.run(now);
    assert_ne!(world.ca().certificate, authority);
    assert!(world.ca().bundle.contains(&authority), "it is trusted on");
    // One after the other: API servers get half a minute to learn of the authority.
    let old = world.serving().clone();
    world.serving.as_mut().unwrap().told.not_after = Some(soon);
    let due = world.run(now);
    assert_eq!((&world.serving().certificate, due), (&old.certificate, now + SignedDuration::from_secs(30)));
    world.run(due);
    assert!(inspect::signed_by(&world.serving().certificate, &world.ca().certificate));
}

/// Also while segments change, and then only the two segments are answered that API servers may ask for.
#[test]
fn who_asks_for_a_renewal_gets_one_at_any_time() {
    for phase in ["not named yet", "named", "long after"] {
        let mut world = World::installed(start());
        let renewal = world.run(start());
        let naming = world.run(renewal);
        let now = match phase {
            "not named yet" => renewal + MINUTE,
            "named" => {
                world.run(naming);
                naming + MINUTE
            }
            _ => world.run_until(naming, naming + HOUR) - HOUR,
        };
        let (old, named) = (world.serving().clone(), world.ca().path.clone());
        world.serving.as_mut().unwrap().told.not_after = Some(String::new());
        world.run(now);
        assert_ne!(world.serving().certificate, old.certificate, "{phase}");
        let serving = world.serving();
        assert!(serving.path == named || serving.path_before.as_ref() == Some(&named), "{phase}");
        if phase == "named" {
            let both = |pair: &ServingPair| (pair.path.clone(), pair.path_before.clone());
            assert_eq!(both(serving), both(&old), "the one before may be asked for still");
        }
    }
}

#[test]
fn annotations_that_are_missing_are_written_and_renew_nothing() {
    let mut world = World::installed(start());
    let before = (world.ca().clone(), world.serving().clone());
    world.ca.as_mut().unwrap().told = super::super::Told::default();
    world.serving.as_mut().unwrap().told.not_before = None;
    world.serving.as_mut().unwrap().told.not_after = None;
    world.run(start() + HOUR);
    assert!((world.ca(), world.serving()) == (&before.0, &before.1));
}

/// The AAQ says something that cannot be, or is not known yet: nobody takes that for another lifetime.
#[test]
fn what_is_not_known_leaves_lifetimes_as_they_are() {
    let mut world = World::installed(start());
    world.order = short();
    let now = world.run(start() + MINUTE);
    world.run(now);
    for order in [
        CertOrder::new(&names(), None),
        asking(&json!({ "ca": { "duration": "1s" }, "server": { "renewBefore": "?" } })),
    ] {
        world.order = order;
        let old = (world.ca().clone(), world.serving().clone());
        world.run(now);
        assert!((world.ca(), world.serving()) == (&old.0, &old.1));
    }
    // When they are renewed they live as long as the ones before.
    world.run(now + MINUTE * 3);
    assert_eq!(told_life(&world.serving().told), MINUTE * 5);
    // What people write about it is not taken for a lifetime if it cannot be one.
    for config in ["", "{}", r#"{"lifetime":"1s","refresh":"0s"}"#] {
        world.serving.as_mut().unwrap().told.config = Some(config.to_owned());
        assert_eq!(world.order.of_serving(world.serving.as_ref()), SERVING, "{config}");
    }
}
