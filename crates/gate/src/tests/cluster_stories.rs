//! Short stories, one behaviour of cluster quotas each. The first replica leads, and everything it asks for is done.

use serde_json::json;
use sluice_api::names;

use super::owners::{annotations, kubevirt, references};
use super::server::{Key, Kind, is_gated};
use super::step::{Fault, Step, Trouble};
use super::world::{SHARED, World};
use crate::Action;

pub(super) fn cluster_quota() -> Key {
    SHARED.quota(0)
}

/// The quota that green has of its own.
pub(super) fn own_quota() -> Key {
    SHARED.quota(1)
}

/// The cluster quota is over blue and green and has room for 3000m.
fn world() -> World {
    let mut world = World::new(&SHARED, Trouble::BusyAdmin);
    world.server.delete(&own_quota());
    run(&mut world, 2);
    world
}

fn run(world: &mut World, seconds: usize) {
    (0..seconds).for_each(|_| world.quiet_second());
}

fn create(world: &mut World, namespace: u8, number: u8, milli_cpu: u64) {
    world.step(&Step::Create((namespace, number), milli_cpu, 0));
}

fn gated(world: &World) -> Vec<&str> {
    let gated = world.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod));
    gated.map(|(key, _)| key.2.as_str()).collect()
}

fn label(world: &mut World, namespace: u8, is_member: bool) {
    world.server.label(SHARED.namespace(namespace), is_member);
}

/// Does and answers only requests of this kind, until there are none.
fn do_only(world: &mut World, is_wanted: fn(&Action) -> bool) {
    while let Some(at) = world.requests.iter().position(|request| is_wanted(&request.action)) {
        world.answer(at, Fault::None);
        world.plan();
    }
}

const fn is_record(action: &Action) -> bool {
    matches!(action, Action::Record(_))
}

const fn is_no_catching_up(action: &Action) -> bool {
    !matches!(action, Action::CatchUpClusterQuotas)
}

#[test]
fn two_namespaces_ask_for_the_last_room_and_one_gets_it() {
    let mut world = world();
    create(&mut world, 0, 0, 2000);
    create(&mut world, 1, 0, 2000);
    run(&mut world, 2);
    assert_eq!(gated(&world).len(), 1, "both take the same part: either goes");
    let gone = if gated(&world) == ["green-p0"] { 0 } else { 1 };
    world.server.finish(&SHARED.pod((gone, 0)));
    run(&mut world, 2);
    assert_eq!(gated(&world), Vec::<&str>::new());
}

#[test]
fn what_runs_in_a_namespace_that_joins_is_counted_and_makes_room_when_it_leaves() {
    let mut world = world();
    create(&mut world, 2, 0, 5000);
    run(&mut world, 2);
    assert_eq!(gated(&world), Vec::<&str>::new(), "no quota is about it");
    label(&mut world, 2, true);
    run(&mut world, 2);
    create(&mut world, 0, 0, 100);
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p0"]);
    label(&mut world, 2, false);
    run(&mut world, 2);
    assert_eq!(gated(&world), Vec::<&str>::new());
    world.check_end();
}

#[test]
fn when_the_record_is_deleted_no_room_is_given_before_requests_of_other_leaders_are_dead() {
    for is_new_leader in [false, true] {
        let mut world = world();
        create(&mut world, 0, 0, 1000);
        run(&mut world, 2);
        world.delete_charge();
        if is_new_leader {
            world.lead(1);
            world.crash(0);
        }
        create(&mut world, 1, 0, 1000);
        run(&mut world, 45);
        assert_eq!(gated(&world), ["green-p0"], "is_new_leader: {is_new_leader}");
        run(&mut world, 15);
        assert_eq!(gated(&world), Vec::<&str>::new());
        world.calm_down();
        world.check_end();
    }
}

/// A pod of a VM, and the target of a migration.
fn create_target(world: &mut World, namespace: u8, number: u8, milli_cpu: u64) {
    let now = world.moment();
    for replica in &mut world.replicas {
        replica.state.set_kubevirt(Some(kubevirt()), now);
    }
    create(world, namespace, number, milli_cpu);
    world.server.edit(&SHARED.pod((namespace, number)), |pod| {
        let metadata = &mut pod["metadata"];
        metadata["ownerReferences"] = references("vm-p1");
        metadata["annotations"] = annotations("vm-p1");
        metadata["labels"] = json!({ names::MIGRATION_JOB_LABEL: "m" });
    });
}

/// What KubeVirt waits for is the tenant's own choice.
#[test]
fn a_target_that_is_given_up_soon_goes_before_others_of_its_namespace_and_of_no_other() {
    let mut world = world();
    create(&mut world, 0, 0, 1500);
    create(&mut world, 1, 0, 1500);
    run(&mut world, 2);
    create(&mut world, 1, 1, 1200);
    run(&mut world, 1);
    create(&mut world, 0, 1, 1200);
    run(&mut world, 1);
    create_target(&mut world, 0, 2, 1200);
    run(&mut world, 650);
    assert_eq!(gated(&world), ["blue-p1", "blue-p2", "green-p1"]);
    world.server.finish(&SHARED.pod((0, 0)));
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p1", "blue-p2"], "the other namespace has waited longer");
    world.server.finish(&SHARED.pod((1, 0)));
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p1"]);
    world.check_end();
}

/// The answer says that there is what has been seen to end.
#[test]
fn a_record_that_ended_before_its_answer_came_is_made_anew() {
    let mut world = world();
    create(&mut world, 0, 0, 1000);
    world.deliver_to(0);
    world.plan();
    let at = world.requests.iter().position(|request| is_record(&request.action)).unwrap();
    world.execute(at);
    world.delete_charge();
    world.deliver_to(0);
    world.plan();
    world.answer(at, Fault::None);
    world.plan();
    run(&mut world, 60);
    assert_eq!(gated(&world), Vec::<&str>::new());
    world.check_end();
}

/// A leader found no record and made the object anew, and was replaced before it recorded anything.
#[test]
fn a_record_that_was_made_anew_and_is_empty_is_lost_as_well() {
    let mut world = world();
    create(&mut world, 0, 0, 1000);
    run(&mut world, 2);
    let charge = world.server.all(Kind::Charge, "").next().map(|(key, _)| key.clone()).unwrap();
    world.server.delete(&charge);
    world.server.put(&charge, serde_json::json!({"metadata": {}}));
    world.lead(1);
    world.crash(0);
    create(&mut world, 1, 0, 1000);
    run(&mut world, 45);
    assert_eq!(gated(&world), ["green-p0"]);
    run(&mut world, 15);
    assert_eq!(gated(&world), Vec::<&str>::new());
}

#[test]
fn what_a_leader_recorded_before_it_crashed_is_honoured_for_a_while() {
    let mut world = world();
    create(&mut world, 0, 0, 2000);
    world.deliver_to(0);
    world.plan();
    do_only(&mut world, is_record);
    world.requests.clear();
    world.lead(1);
    world.crash(0);
    world.server.delete(&SHARED.pod((0, 0)));
    create(&mut world, 1, 0, 2000);
    run(&mut world, 45);
    assert_eq!(gated(&world), ["green-p0"], "the release may be under way");
    run(&mut world, 15);
    assert_eq!(gated(&world), Vec::<&str>::new());
}

#[test]
fn a_quota_whose_watch_is_late_is_waited_for() {
    let mut world = world();
    world.server.delete(&cluster_quota());
    run(&mut world, 2);
    world.server.limit(&cluster_quota(), 500);
    create(&mut world, 0, 0, 600);
    world.deliver(0, Kind::Pod, usize::MAX);
    world.plan();
    do_only(&mut world, is_no_catching_up);
    assert_eq!(gated(&world), ["blue-p0"], "the watch has not come to the present");
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p0"]);
}

#[test]
fn limits_that_sink_while_a_decision_awaits_its_list_undo_it() {
    let mut world = world();
    create(&mut world, 0, 0, 2000);
    world.deliver(0, Kind::Pod, usize::MAX);
    world.plan();
    do_only(&mut world, is_record);
    world.server.limit(&cluster_quota(), 1000);
    do_only(&mut world, is_no_catching_up);
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p0"]);
    world.check_end();
}

#[test]
fn without_permission_pods_go_without_it() {
    let mut world = world();
    create(&mut world, 0, 0, 4000);
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p0"]);
    world.server.allow(false);
    run(&mut world, 2);
    assert_eq!(gated(&world), Vec::<&str>::new());
}

/// The replica that leads next saw the pod before the permission ended.
#[test]
fn who_leads_awaits_the_lists_that_matter_then() {
    let mut world = world();
    world.server.delete(&cluster_quota());
    run(&mut world, 2);
    create(&mut world, 0, 0, 100);
    world.deliver(1, Kind::Pod, usize::MAX);
    world.server.allow(false);
    world.crash(0);
    world.deliver(1, Kind::Permission, usize::MAX);
    world.lead(1);
    run(&mut world, 2);
    assert_eq!(gated(&world), Vec::<&str>::new());
}

/// There are few quotas: those of both namespaces are read by one request, which confirms the pods of both.
#[test]
fn namespaces_share_a_list() {
    let mut world = world();
    create(&mut world, 0, 0, 100);
    create(&mut world, 1, 0, 100);
    world.deliver_to(0);
    world.plan();
    let of_namespaces = |action: &Action| match action {
        Action::ListQuotas(namespaces) => Some(namespaces.len()),
        _ => None,
    };
    let lists = world.requests.iter().filter_map(|request| of_namespaces(&request.action));
    assert_eq!(lists.collect::<Vec<_>>(), [2]);
    run(&mut world, 2);
    assert_eq!(gated(&world), Vec::<&str>::new());
}

/// Blue's pod fits. Green's do not go because green's own quota keeps its last room for the eldest of them.
#[test]
fn no_room_is_kept_for_a_pod_that_its_own_quota_keeps_waiting() {
    let mut world = World::new(&SHARED, Trouble::BusyAdmin);
    world.server.limit(&cluster_quota(), 3000);
    create(&mut world, 1, 0, 1500);
    run(&mut world, 2);
    create(&mut world, 1, 1, 800);
    run(&mut world, 2);
    create(&mut world, 1, 2, 400);
    run(&mut world, 1);
    assert_eq!(gated(&world), ["green-p1"], "the smaller one passes");
    create(&mut world, 1, 3, 100);
    create(&mut world, 0, 1, 1100);
    run(&mut world, 90);
    world.check_end();
    world.server.finish(&SHARED.pod((1, 2)));
    create(&mut world, 1, 4, 450);
    run(&mut world, 90);
    create(&mut world, 0, 2, 300);
    run(&mut world, 90);
    world.check_end();
}

#[test]
fn a_pod_that_waits_behind_one_of_another_namespace_is_told_amounts() {
    let mut world = world();
    create(&mut world, 0, 0, 2500);
    create(&mut world, 0, 3, 100);
    run(&mut world, 2);
    create(&mut world, 1, 1, 1000);
    run(&mut world, 62);
    world.server.finish(&SHARED.pod((0, 3)));
    run(&mut world, 2);
    create(&mut world, 0, 2, 100);
    run(&mut world, 2);
    assert_eq!(gated(&world), ["blue-p2", "green-p1"]);
    let event = world.told.iter().find(|event| &*event.name == "blue-p2").unwrap();
    let (_, _, quota) = cluster_quota();
    let words = format!(
        "waiting in queue: room in quota {quota} is kept for a pod that has waited longer, \
         requested: requests.cpu=100m, used: requests.cpu=2500m, limited: requests.cpu=3"
    );
    assert_eq!((event.reason, event.message.as_str()), ("QueuedBehind", words.as_str()));
}
