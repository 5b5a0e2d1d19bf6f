//! A certificate of cert-manager, which `issue` stands for here.

use super::*;
use crate::certificates::{Given, TakeError, Taking, is_published, issue_serving, new_authority, take};

fn given(ca: &CaPair, now: Timestamp) -> Given {
    let pair = issue_serving(now, ca, &names(), SERVING).expect("a certificate");
    Given { certificate: pair.certificate, key: pair.key, authority: ca.certificate.clone() }
}

fn authority(now: Timestamp) -> CaPair {
    new_authority(now, "", CA).expect("an authority")
}

/// Takes what is given until there is nothing left to do now; returns when the next step is due.
fn run(world: &mut World, now: Timestamp, given: &Given, published: Option<Timestamp>) -> Option<Timestamp> {
    for _ in 0..4 {
        let own = (world.ca.as_ref(), world.serving.as_ref());
        let Taking { made, due } = take(now, own, given, &names(), published).expect("of use");
        match made {
            None => return due,
            Some(Made::Authority(pair)) => world.ca = Some(pair),
            Some(Made::Serving(pair)) => world.serving = Some(pair),
        }
    }
    panic!("it does not come to rest");
}

fn nothing() -> World {
    World { ca: None, serving: None, order: plain() }
}

#[test]
fn the_first_certificate_is_served_at_once_and_clients_accept_it() {
    let (mut world, now) = (nothing(), start());
    let first = given(&authority(now), now);
    run(&mut world, now, &first, None);
    let (ca, serving) = (world.ca().clone(), world.serving().clone());
    assert!(is_published(Some(&ca), &first) && !is_published(None, &first));
    assert!(accepted(&ca.bundle, &serving, "sluice-webhook.sluice-system.svc", now));
    assert!(is_path(&ca.path) && ca.path == serving.path && serving.key == first.key);
    let due = run(&mut world, now + HOUR, &first, Some(now));
    assert!(world.ca.as_ref() == Some(&ca) && world.serving.as_ref() == Some(&serving), "nothing is written");
    assert!(due.is_some_and(|due| due > now + HOUR));
}

#[test]
fn a_renewed_certificate_of_the_same_authority_is_served_at_once() {
    let (mut world, now, issuer) = (nothing(), start(), authority(start()));
    run(&mut world, now, &given(&issuer, now), None);
    let (path, later) = (world.ca().path.clone(), now + HOUR);
    let renewed = given(&issuer, later);
    run(&mut world, later, &renewed, None);
    assert_eq!(world.serving().certificate, renewed.certificate);
    assert_eq!(world.ca().path, path, "the segment stays");
}

#[test]
fn another_authority_is_published_first_and_signs_what_is_served_later() {
    let (mut world, now) = (nothing(), start());
    let first = given(&authority(now), now);
    run(&mut world, now, &first, None);
    let later = now + HOUR;
    let second = given(&authority(later), later);
    assert!(!is_published(world.ca.as_ref(), &second));
    let due = run(&mut world, later, &second, None);
    assert!(is_published(world.ca.as_ref(), &second) && is_published(world.ca.as_ref(), &first));
    assert_eq!(world.serving().certificate, first.certificate);
    assert_eq!(
        world.serving().bundle,
        world.ca().bundle,
        "the processes trust both before they show the second"
    );
    assert_eq!(due, Some(later + SETTLE));
    run(&mut world, later + SETTLE, &second, Some(later));
    assert_eq!(world.serving().certificate, second.certificate);
    assert!(accepted(
        &world.ca().bundle,
        world.serving(),
        "sluice-webhook.sluice-system.svc",
        later + SETTLE
    ));
}

#[test]
fn an_own_authority_hands_over_and_takes_over_again() {
    let now = start();
    let mut world = World::installed(now);
    let own = world.serving().certificate.clone();
    let later = now + HOUR;
    let first = given(&authority(later), later);
    run(&mut world, later, &first, None);
    assert_eq!(world.serving().certificate, own, "API servers have to learn of the other authority");
    run(&mut world, later + SETTLE, &first, Some(later));
    assert_eq!(world.serving().certificate, first.certificate);
    // The option is gone: the own plan finds a certificate that is still trusted.
    world.run(later + SETTLE + HOUR);
    let at = later + SETTLE + HOUR;
    assert!(accepted(&world.ca().bundle, world.serving(), "sluice-webhook.sluice-system.svc", at));
    let mut fresh = nothing();
    run(&mut fresh, now, &given(&authority(now), now), None);
    fresh.run(later);
    assert!(accepted(&fresh.ca().bundle, fresh.serving(), "sluice-webhook.sluice-system.svc", later));
}

/// A webhook that API servers do not trust yet refuses what it should review.
#[test]
fn an_own_authority_is_published_before_what_it_signs_where_there_was_none() {
    let (mut world, now) = (nothing(), start());
    let first = given(&authority(now), now);
    run(&mut world, now, &first, None);
    let (known, later) = (world.ca().bundle.clone(), now + HOUR);
    let due = world.run(later);
    assert_eq!(world.serving().certificate, first.certificate, "it is valid, and API servers trust it");
    assert!(!world.ca().key.is_empty() && world.serving().bundle == world.ca().bundle);
    assert!(accepted(&known, world.serving(), "sluice-webhook.sluice-system.svc", later));
    assert!(due >= later + SETTLE);
    // What has ended is of no use: nothing is lost by both at once.
    let mut ended = nothing();
    run(&mut ended, now, &first, None);
    let late = now + SERVING_LIFETIME + HOUR;
    ended.run(late);
    assert!(accepted(&ended.ca().bundle, ended.serving(), "sluice-webhook.sluice-system.svc", late));
}

#[test]
fn what_ends_is_replaced_without_a_wait() {
    let (mut world, now) = (nothing(), start());
    run(&mut world, now, &given(&authority(now), now), None);
    for late in [SERVING_LIFETIME - HOUR, SERVING_LIFETIME + HOUR] {
        let (mut world, at) =
            (World { ca: world.ca.clone(), serving: world.serving.clone(), order: plain() }, now + late);
        let second = given(&authority(at), at);
        run(&mut world, at, &second, None);
        assert_eq!(world.serving().certificate, second.certificate);
    }
}

#[test]
fn what_is_of_no_use_is_refused_by_name() {
    let (now, issuer) = (start(), authority(start()));
    let good = given(&issuer, now);
    let take = |given: &Given, at| take(at, (None, None), given, &names(), None);
    let without = Given { authority: String::new(), ..good.clone() };
    assert!(matches!(take(&without, now), Err(TakeError::NoAuthority)));
    let self_signed = Given { authority: good.certificate.clone(), ..good.clone() };
    assert!(matches!(take(&self_signed, now), Err(TakeError::NoAuthority)));
    let other_key = Given { key: given(&issuer, now).key, ..good.clone() };
    assert!(matches!(take(&other_key, now), Err(TakeError::NoPair)));
    let other = Given { authority: authority(now).certificate, ..good.clone() };
    assert!(matches!(take(&other, now), Err(TakeError::OtherAuthority)));
    let late = now + SERVING_LIFETIME + HOUR;
    assert!(matches!(take(&good, late), Err(TakeError::NotValid)));
    let early = now - HOUR;
    assert!(matches!(take(&good, early), Err(TakeError::NotYet(from)) if early < from && from <= now));
    let empty = Given::default();
    assert!(take(&empty, now).unwrap_err().to_string().contains("ca.crt"));
}
