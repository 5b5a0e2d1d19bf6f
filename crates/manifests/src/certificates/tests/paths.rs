//! The segment before the webhook's paths: which one the configurations name, and which ones are answered.

use super::*;

impl World {
    fn answers(&self, path: &str) -> bool {
        let serving = self.serving();
        serving.path == path || serving.path_before.as_deref() == Some(path)
    }

    /// A world in which the serving certificate was renewed at the returned time.
    fn renewed() -> (Self, Timestamp) {
        let mut world = Self::installed(start());
        let renewal = world.run(start());
        world.run(renewal);
        (world, renewal)
    }
}

#[test]
fn a_renewed_certificate_brings_a_path_that_is_answered_before_it_is_named_and_forgets_the_old_one_last() {
    let mut world = World::installed(start());
    let old = world.ca().path.clone();
    assert!(is_path(&old), "{old}");
    assert_ne!(old, World::installed(start()).ca().path);
    assert_eq!((&world.serving().path, &world.serving().path_before), (&old, &None));

    let renewal = world.run(start());
    let naming = world.run(renewal);
    let new = world.serving().path.clone();
    assert!(is_path(&new) && new != old, "{new}");
    assert_eq!((naming, &world.ca().path), (renewal + SETTLE, &old));
    assert!(world.answers(&old), "it is the one that is named");

    let forgetting = world.run(naming);
    assert_eq!((forgetting, &world.ca().path), (naming + SETTLE, &new));
    assert!(world.answers(&old), "API servers may not know yet what is named");

    world.run(forgetting);
    assert_eq!((&world.serving().path, &world.serving().path_before), (&new, &None));
}

/// Each API server asks for a segment that the webhook answers: it knows what was named up to [`SETTLE`] ago, and the
/// webhook what was stored up to [`SETTLE`] ago.
#[test]
fn no_api_server_ever_asks_for_a_path_that_is_not_answered() {
    let late = SETTLE - SignedDuration::from_secs(1);
    // Hours for which the operator is away, again and again; 0: it runs all the time.
    for away in [0, 1, 12, 57, 113, 150] {
        let mut world = World::installed(start());
        let (mut now, mut awake) = (start(), start());
        let (mut named, mut served) =
            (Vec::<(Timestamp, String)>::new(), Vec::<(Timestamp, ServingPair)>::new());
        while now < start() + CA_LIFETIME * 2 {
            let due = world.run(now);
            if named.last().is_none_or(|(_, path)| *path != world.ca().path) {
                named.push((now, world.ca().path.clone()));
            }
            if served.last().is_none_or(|(_, pair)| pair != world.serving()) {
                served.push((now, world.serving().clone()));
            }
            if due > awake + HOUR {
                awake = due.max(now + HOUR * away);
            }
            now = due.max(awake);
        }
        for (at, (since, path)) in named.iter().enumerate() {
            let until = named.get(at + 1).map_or(now, |(next, _)| *next + late);
            for (at, (from, pair)) in served.iter().enumerate() {
                let to = served.get(at + 1).map_or(now, |(next, _)| *next + late);
                let answers = pair.path == *path || pair.path_before.as_ref() == Some(path);
                let meet = from <= &until && since <= &to;
                assert!(answers || !meet, "away {away} h: named {since} to {until}, served {from} to {to}");
            }
        }
        assert!(named.len() > 5, "away {away} h: {} paths", named.len());
    }
}

#[test]
fn a_new_authority_keeps_the_path_and_what_is_under_way() {
    let (mut world, renewal) = World::renewed();
    let (old, new) = (world.ca().path.clone(), world.serving().path.clone());
    let key = world.ca().key.clone();
    let broken = CaPair { key: String::new(), ..world.ca().clone() };
    world.ca = Some(broken);
    world.run(renewal);
    assert_ne!(world.ca().key, key);
    assert_eq!(world.ca().path, old, "configurations name it");
    assert!(world.answers(&old) && world.answers(&new));
}

#[test]
fn who_knew_the_path_is_out_a_while_after_the_authority_was_deleted() {
    let mut world = World::installed(start());
    let old = world.ca().path.clone();
    world.ca = None;
    let forgetting = world.run(start());
    let new = world.ca().path.clone();
    assert!(is_path(&new) && new != old && world.answers(&new));
    assert!(world.answers(&old), "until API servers know the new one");
    assert_eq!(forgetting, start() + SETTLE);
    world.run(forgetting);
    assert!(world.answers(&new) && !world.answers(&old));
}

#[test]
fn what_is_no_path_is_replaced_and_what_is_named_is_answered() {
    for other in ["", "guessable", "../../000000000000000000000000000000"] {
        let mut world = World::installed(start());
        let (path, authority) = (world.ca().path.clone(), world.ca().certificate.clone());
        world.ca.as_mut().expect("an authority").path = other.to_owned();
        world.run(start());
        assert_eq!(
            (&world.ca().path, &world.ca().certificate),
            (&path, &authority),
            "the one that is answered"
        );

        world.serving.as_mut().expect("a certificate").path = other.to_owned();
        world.run(start());
        assert_eq!((&world.serving().path, &world.ca().path), (&path, &path), "the one that is named");

        world.ca.as_mut().expect("an authority").path = other.to_owned();
        world.serving.as_mut().expect("a certificate").path = other.to_owned();
        world.run(start());
        assert!(is_path(&world.ca().path) && world.answers(&world.ca().path.clone()), "{other}");
    }
}
