//! A stranger deletes the object that records the charges of a cluster quota, and a process that never saw it makes it anew:
//! what it said is not known, which is not the same as nothing.

use super::cluster_stories::{cluster_quota, own_quota};
use super::server::{Kind, is_gated};
use super::step::{Fault, Step, Trouble};
use super::world::{SHARED, World};
use crate::Action;

/// `--in-flight-grace`, and what a leader needs to begin and to end it.
const HELD_S: usize = 45;
const FREED_S: usize = 15;

/// One leads and another has not noticed that it does not any more.
const LEADER: usize = 0;
const DEPOSED: usize = 1;

/// The cluster quota has room for 3000m; each of blue's two pods asks for 2000m. Both processes found no record and asked to
/// create it; the deposed one is about to go on with the first pod, the leader with the second one.
fn two_leaders() -> World {
    let mut world = World::new(&SHARED, Trouble::TwoLeaders);
    world.server.delete(&own_quota());
    world.deliver_all();
    world.lead(DEPOSED);
    world.lead(LEADER);
    let lives = world.lives.clone();
    world.requests.retain(|request| request.life == lives[request.replica]);
    world.step(&Step::Create((0, 0), 2000, 0));
    world.deliver(DEPOSED, Kind::Pod, usize::MAX);
    world.step(&Step::Create((0, 1), 2000, 1));
    world.deliver(LEADER, Kind::Pod, usize::MAX);
    world.plan();
    let creates = |replica| world.requests.iter().any(|it| it.replica == replica && is_creation(&it.action));
    assert!(creates(LEADER) && creates(DEPOSED));
    world
}

const fn is_creation(action: &Action) -> bool {
    matches!(action, Action::Record(record) if record.is_new())
}

/// Whatever the process asks for is done, until it asks for nothing; of these kinds it sees all that happens.
fn go_on(world: &mut World, replica: usize, kinds: &[Kind]) {
    for _ in 0..100 {
        kinds.iter().for_each(|kind| world.deliver(replica, *kind, usize::MAX));
        world.plan();
        let Some(at) = world.requests.iter().position(|request| request.replica == replica) else { return };
        world.answer(at, Fault::None);
        world.pass(10);
    }
    panic!("requests without an end: {:?}", world.requests.last().map(|request| &request.action));
}

fn answer_creation(world: &mut World, replica: usize, fault: Fault) {
    world.plan();
    let at = world.requests.iter().position(|it| it.replica == replica && is_creation(&it.action));
    world.answer(at.expect("it creates the record"), fault);
}

fn gated(world: &World) -> Vec<&str> {
    let gated = world.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod));
    gated.map(|(key, _)| key.2.as_str()).collect()
}

fn run(world: &mut World, seconds: usize) {
    (0..seconds).for_each(|_| world.quiet_second());
}

/// The deposed leader has charged and released its pod when the stranger deletes the record.
fn released_and_deleted() -> World {
    let mut world = two_leaders();
    go_on(&mut world, DEPOSED, &[Kind::Quota, Kind::ClusterQuota, Kind::Charge]);
    assert_eq!((gated(&world), world.taken()[0]), (vec!["blue-p1"], 2000));
    world.delete_charge();
    world
}

/// The leader's pod goes when there is room, and not before whatever the other one has charged is seen.
fn it_is_held_until_it_is_seen(mut world: World) {
    world.server.finish(&SHARED.pod((0, 0)));
    run(&mut world, HELD_S);
    assert_eq!(gated(&world), ["blue-p1"], "what the record said may be under way");
    run(&mut world, FREED_S);
    assert_eq!(gated(&world), Vec::<&str>::new());
    world.calm_down();
    world.check_end();
}

/// Its request to show the quota and to create the record comes late.
#[test]
fn a_leader_that_asked_for_the_first_record_does_not_make_the_second_one_for_it() {
    let mut world = released_and_deleted();
    go_on(&mut world, LEADER, &[]);
    assert_eq!(gated(&world), ["blue-p1"]);
    assert_eq!(world.server.all(Kind::Charge, "").count(), 0, "the quota is not as it was shown the leader");
    world.pass(1_000);
    go_on(&mut world, LEADER, &[Kind::ClusterQuota]);
    assert_eq!((gated(&world), world.taken()[0]), (vec!["blue-p1"], 2000));
    assert_eq!(world.server.all(Kind::Charge, "").count(), 1);
    it_is_held_until_it_is_seen(world);
}

/// Another leader, which knows that a record is lost, has made it anew when this one sees it first: by its watch, or because
/// its own request finds it.
#[test]
fn a_record_that_another_made_and_that_says_nothing_is_lost() {
    for is_watched in [false, true] {
        let mut world = released_and_deleted();
        world.deliver(DEPOSED, Kind::Charge, usize::MAX);
        world.pass(1_000);
        answer_creation(&mut world, DEPOSED, Fault::None);
        world.requests.retain(|request| request.replica == LEADER);
        world.replicas[DEPOSED].deposed_at = None;
        if is_watched {
            answer_creation(&mut world, LEADER, Fault::RequestLost);
            // A list shows nothing of those that were there before.
            world.replicas[LEADER].relist(&world.server, Kind::Charge);
            world.deliver(LEADER, Kind::Charge, usize::MAX);
        }
        go_on(&mut world, LEADER, &[]);
        world.pass(1_000);
        go_on(&mut world, LEADER, &[Kind::ClusterQuota]);
        assert_eq!((gated(&world), world.taken()[0]), (vec!["blue-p1"], 2000), "is_watched: {is_watched}");
        it_is_held_until_it_is_seen(world);
    }
}

/// As is each first record: the watch shows it before the answer comes.
#[test]
fn the_first_record_of_a_quota_holds_nobody() {
    for is_seen_first in [false, true] {
        let mut world = World::new(&SHARED, Trouble::BusyAdmin);
        world.step(&Step::Create((0, 0), 2000, 0));
        let at = world.requests.iter().position(|request| is_creation(&request.action)).unwrap();
        world.execute(at);
        if is_seen_first {
            world.deliver_all();
            world.plan();
        }
        world.answer(at, Fault::None);
        run(&mut world, 2);
        assert_eq!(gated(&world), Vec::<&str>::new(), "is_seen_first: {is_seen_first}");
        world.check_end();
    }
}

/// The quota counts other things before the answer comes, which is not heard: so whose the record is that the watch has
/// shown is not known.
#[test]
fn a_record_whose_creation_is_not_heard_of_is_lost() {
    let mut world = World::new(&SHARED, Trouble::BusyAdmin);
    let at = world.requests.iter().position(|request| is_creation(&request.action)).unwrap();
    world.execute(at);
    world.deliver_all();
    world.server.count_otherwise(&cluster_quota());
    world.deliver_all();
    world.plan();
    world.answer(at, Fault::None);
    world.step(&Step::Create((0, 0), 2000, 0));
    run(&mut world, HELD_S);
    assert_eq!(gated(&world), ["blue-p0"]);
    run(&mut world, FREED_S);
    assert_eq!(gated(&world), Vec::<&str>::new());
    world.check_end();
}
