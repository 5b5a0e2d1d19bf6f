//! Targets of migrations that are held: short stories, one behaviour each. `v2-pm3` is the target of the migration `m3`.

use rstest::rstest;
use serde_json::json;
use sluice_api::names;
use sluice_engine::vm::Calculator;
use sluice_index::VmimWire;

use super::owners::recharge;
use super::server::wire;
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::Regarding;

/// Each pod is charged for itself. One takes all there is.
fn full() -> Story {
    let mut story = Story::counting(Calculator::IgnoreVmiCalculator, 1000);
    story.server.create_pod("v0-p1", 1000, 0);
    story.run(at(0));
    story
}

fn migration(namespace: &str, uid: &str, timeout: Option<&str>) -> VmimWire {
    let annotations = json!({ names::PENDING_TIMEOUT_ANNOTATION: timeout });
    let metadata =
        json!({ "namespace": namespace, "name": format!("{uid}-x"), "uid": uid, "annotations": annotations });
    wire(json!({ "metadata": metadata, "spec": { "vmiName": "vm" }, "status": { "phase": "Scheduling" } }))
}

impl Story {
    fn create(&mut self, second: u64, pod: &str, milli_cpu: u64, priority: i32) {
        self.server.now_s = i64::try_from(second).unwrap();
        self.server.create_pod(pod, milli_cpu, priority);
        self.run_in(second);
    }

    fn run_in(&mut self, second: u64) {
        self.run(at(second * 1000));
    }

    fn see_migration(&mut self, second: u64, uid: &str, timeout: Option<&str>) {
        self.state.apply_migration(&migration(NAMESPACE, uid, timeout), at(second * 1000));
        self.run_in(second);
    }

    /// The pod that takes all ends. Those that wait do not fit together: returns which waits on.
    fn make_room(&mut self, second: u64) -> Vec<&str> {
        self.server.delete_pod("v0-p1");
        self.run_in(second);
        self.held()
    }
}

#[rstest]
#[case::in_the_last_five_minutes(Some("310"), "v1-pm1")]
#[case::before(Some("330"), "v2-pm2")]
#[case::by_default(None, "v2-pm2")]
#[case::garbage(Some("soon"), "v2-pm2")]
#[case::nothing(Some("0"), "v2-pm2")]
#[case::negative(Some("-9223372036854775808"), "v2-pm2")]
#[case::huge(Some("9223372036854775807"), "v2-pm2")]
#[case::larger_than_any_number(Some("99999999999999999999"), "v2-pm2")]
fn a_target_near_its_limit_goes_first_although_it_is_younger_and_lower(
    #[case] timeout: Option<&str>,
    #[case] waits_on: &str,
) {
    let mut story = full();
    story.create(0, "v1-pm1", 600, 5);
    story.see_migration(9, "m2", timeout);
    story.create(10, "v2-pm2", 600, 0);
    assert_eq!(story.make_room(25), [waits_on]);
}

#[test]
fn of_two_the_one_nearer_to_its_limit_goes_first() {
    let mut story = full();
    story.see_migration(0, "m2", Some("700"));
    story.create(0, "v1-pm1", 600, 5);
    story.create(10, "v2-pm2", 600, 0);
    assert_eq!(story.make_room(650), ["v1-pm1"]);
}

/// It has 900 seconds from second 1 on.
#[rstest]
#[case::just_before(600, "v1-pm1")]
#[case::near(601, "web")]
#[case::just_before_it_is_over(900, "web")]
#[case::over(901, "v1-pm1")]
fn a_target_whose_migration_is_never_seen_has_kubevirts_default(#[case] second: u64, #[case] waits_on: &str) {
    let mut story = full();
    story.create(0, "web", 600, 0);
    story.create(1, "v1-pm1", 600, 0);
    assert_eq!(story.make_room(second), [waits_on]);
}

#[rstest]
#[case::seen_late(Some("310"), "v1-pm1")]
#[case::has_more_time_than_before(Some("5000"), "v2-pm2")]
#[case::is_gone(None, "v2-pm2")]
fn what_is_seen_of_the_migration_last_counts(#[case] last: Option<&str>, #[case] waits_on: &str) {
    let mut story = full();
    story.create(0, "v1-pm1", 600, 5);
    story.create(10, "v2-pm2", 600, 0);
    story.see_migration(20, "m2", Some(if last == Some("310") { "5000" } else { "310" }));
    match last {
        Some(_) => story.see_migration(21, "m2", last),
        None => story.state.delete_migration(&migration(NAMESPACE, "m2", None), at(21_000)),
    }
    assert_eq!(story.make_room(25), [waits_on]);
}

#[test]
fn a_migration_that_a_list_does_not_hold_is_gone() {
    let mut story = full();
    story.create(0, "v1-pm1", 600, 5);
    story.create(10, "v2-pm2", 600, 0);
    story.see_migration(20, "m2", Some("310"));
    story.state.begin_migrations();
    story.state.end_migrations(at(21_000));
    assert_eq!(story.make_room(25), ["v2-pm2"]);
}

#[rstest]
#[case::another_has_created_the_pod("v2-pxm2", NAMESPACE)]
#[case::the_migration_is_of_another_namespace("v2-pm2", "another")]
fn what_is_only_claimed_changes_nothing(#[case] pod: &str, #[case] namespace: &str) {
    let mut story = full();
    story.create(0, "v1-pm1", 600, 5);
    story.state.apply_migration(&migration(namespace, "m2", Some("310")), at(9_000));
    story.create(10, pod, 600, 0);
    assert_eq!(story.make_room(25), [pod]);
}

#[test]
fn room_that_is_kept_for_the_oldest_pod_goes_to_the_target() {
    let mut story = full();
    story.see_migration(0, "m2", Some("400"));
    story.create(0, "old", 800, 9);
    story.create(5, "v2-pm2", 700, 0);
    story.create(6, "young", 600, 9);
    story.run_in(104);
    story.server.resize_pod("v0-p1", 300);
    story.run_in(104);
    assert_eq!(
        story.held(),
        ["old", "v2-pm2", "young"],
        "room for the target, which is kept for the oldest one"
    );
    story.run_in(105);
    assert_eq!(story.held(), ["old", "young"], "it is given up in five minutes");
    story.server.delete_pod("v2-pm2");
    story.run_in(106);
    assert_eq!(story.held(), ["old", "young"], "and again it is kept for the oldest one");
}

/// What is missing of a VM's charge changes while its target waits.
#[test]
fn a_target_of_a_vm_that_is_charged_keeps_its_place_when_the_charge_changes() {
    let mut story = full();
    recharge(&mut story.state, "v2", Some(600), at(0));
    story.see_migration(0, "m2", Some("310"));
    story.create(0, "web", 600, 5);
    story.create(10, "v2-pm2", 100, 0);
    story.run_in(21);
    recharge(&mut story.state, "v2", Some(550), at(22_000));
    assert_eq!(story.make_room(25), ["web"]);
}

const HELD: &str = "target of a migration, held since 1970-01-01T00:00:00Z, KubeVirt gives it up at 1970-01-01T00:15:00Z: \
    exceeded quota: compute, requested: requests.cpu=600m, used: requests.cpu=1, limited: requests.cpu=1";

#[rstest]
fn a_target_that_is_held_for_five_minutes_is_told_so_once_and_its_migration_too(
    #[values(false, true)] is_seen: bool,
) {
    let mut story = full();
    if is_seen {
        story.see_migration(0, "m1", None);
    }
    story.create(0, "v1-pm1", 600, 0);
    assert_eq!(story.state.next_target(), Some(300), "it is not looked at before");
    story.run_in(299);
    assert_eq!(story.told.len(), 1, "why it is held");
    for second in [300, 301, 400, 600, 899] {
        story.run_in(second);
    }
    let told: Vec<_> = story.told_of("v1-pm1").into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(told, ["QuotaExceeded", "MigrationTargetHeld"]);
    assert_eq!(story.told_of("v1-pm1")[1].1, HELD);
    let on_migration: Vec<_> = story.told.iter().filter(|it| it.regarding == Regarding::Migration).collect();
    assert_eq!(on_migration.len(), usize::from(is_seen));
    for told in on_migration {
        assert_eq!((&*told.name, told.uid.to_string().as_str()), ("m1-x", "m1"));
        assert_eq!((told.reason, told.message.as_str()), ("MigrationTargetHeld", HELD));
    }
}

#[test]
fn one_that_is_given_up_sooner_is_told_sooner_and_nothing_after_it_has_gone() {
    let mut story = full();
    story.see_migration(0, "m1", Some("60"));
    story.create(0, "v1-pm1", 600, 0);
    let [(reason, message)] = story.told_of("v1-pm1")[..] else { panic!("{:?}", story.told) };
    assert_eq!(reason, "MigrationTargetHeld");
    assert!(message.contains("KubeVirt gives it up at 1970-01-01T00:01:00Z: exceeded quota"), "{message}");
    assert_eq!(story.make_room(30), Vec::<&str>::new());
    let many = story.told.len();
    assert_eq!(story.state.next_target(), None);
    story.run_in(2_000);
    assert_eq!(story.told.len(), many);
}

#[test]
fn a_pod_that_only_claims_to_be_a_target_is_told_nothing_of_it() {
    let mut story = full();
    story.create(0, "v1-pxm1", 600, 0);
    (1..10).for_each(|minutes| story.run_in(minutes * 60));
    let told: Vec<_> = story.told_of("v1-pxm1").into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(told, ["QuotaExceeded"]);
}
