//! A pod under two cluster quotas is charged by two writes. A leader that ends between them leaves one.

use super::cluster_stories::own_quota;
use super::server::{Key, Kind, is_gated, key, uid};
use super::step::{Fault, Trouble};
use super::world::{SHARED, World};
use super::writes::charge_key;
use crate::{Action, RecordedIn};

/// `--in-flight-grace`, and what a leader needs to begin and to end it.
const HELD_S: usize = 45;
const FREED_S: usize = 15;

/// Both are about blue and green; each has room for one pod of 2000m.
fn quotas() -> [Key; 2] {
    ["all", "more"].map(|name| key(Kind::ClusterQuota, "", name))
}

fn world() -> World {
    let mut world = World::new(&SHARED, Trouble::BusyAdmin);
    world.server.delete(&own_quota());
    for quota in quotas() {
        world.server.limit(&quota, 3000);
    }
    // The quota that was there was edited after it was asked to be shown.
    run(&mut world, 3);
    world
}

/// At no time more is released than each of both has.
fn run(world: &mut World, seconds: usize) {
    for _ in 0..seconds {
        world.quiet_second();
        for quota in quotas() {
            let (taken, hard) = (world.server.taken_of(&quota).0, world.server.hard(&quota).unwrap());
            assert!(taken <= hard, "{quota:?}: {taken}m of {hard}m are taken");
        }
    }
}

fn create(world: &mut World, namespace: &str) {
    world.server.create_in(namespace, &format!("{namespace}-p0"), 2000, 0);
}

fn gated(world: &World) -> Vec<String> {
    let gated = world.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod));
    gated.map(|(key, _)| key.2.clone()).collect()
}

/// The CPUs that the charge of a quota says are used.
fn recorded(world: &World, quota: &Key) -> String {
    let charge = charge_key(uid(world.server.get(quota).unwrap()));
    let charge = world.server.get(&charge).expect("a charge");
    charge["status"]["used"]["requests.cpu"].as_str().unwrap().to_owned()
}

/// The first leader charges blue's pod to `charged` alone; then it is gone, and the other replica leads.
fn leader_ends_after(world: &mut World, charged: &Key) {
    create(world, "blue");
    world.deliver_to(0);
    world.plan();
    let uid = uid(world.server.get(charged).unwrap()).to_owned();
    let is_charge = |action: &Action| {
        matches!(action, Action::Record(record)
            if record.uid.to_string() == uid && matches!(record.object, RecordedIn::Charge(_)))
    };
    let records = world.requests.iter().filter(|request| matches!(request.action, Action::Record(_)));
    assert_eq!(records.count(), 2, "one for each quota");
    let at = world.requests.iter().position(|request| is_charge(&request.action)).unwrap();
    world.answer(at, Fault::None);
    world.requests.clear();
    world.lead(1);
    world.crash(0);
    let said = quotas().map(|quota| recorded(world, &quota));
    assert_eq!(said, quotas().map(|quota| if quota == *charged { "2" } else { "0" }.to_owned()));
}

#[test]
fn what_one_of_two_records_says_for_nothing_is_free_after_the_grace() {
    for charged in quotas() {
        let mut world = world();
        leader_ends_after(&mut world, &charged);
        world.server.delete(&SHARED.pod((0, 0)));
        create(&mut world, "green");
        run(&mut world, HELD_S);
        assert_eq!(gated(&world), ["green-p0"], "{charged:?}: the release may be under way");
        run(&mut world, FREED_S);
        assert_eq!(gated(&world), Vec::<String>::new(), "{charged:?}");
        world.calm_down();
        world.check_end();
        assert_eq!(quotas().map(|quota| recorded(&world, &quota)), ["2", "2"], "{charged:?}");
    }
}

/// The pod that was half charged is there still, and another one wants the same room.
#[test]
fn the_pod_that_was_half_charged_is_charged_once_and_goes_alone() {
    for charged in quotas() {
        let mut world = world();
        leader_ends_after(&mut world, &charged);
        create(&mut world, "green");
        run(&mut world, HELD_S + FREED_S);
        assert_eq!(gated(&world).len(), 1, "{charged:?}: both take the same part: either goes");
        let gone = if gated(&world) == ["green-p0"] { 0 } else { 1 };
        world.calm_down();
        world.check_end();
        assert_eq!(quotas().map(|quota| recorded(&world, &quota)), ["2", "2"], "{charged:?}");
        world.server.finish(&SHARED.pod((gone, 0)));
        run(&mut world, 2);
        assert_eq!(gated(&world), Vec::<String>::new(), "{charged:?}");
    }
}
