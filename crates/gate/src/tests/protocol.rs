//! Charge first, then release: whatever fails, is late or happens twice, no more is released than fits, nothing that fits is
//! forgotten, and no namespace is held up by another one's own quota.

use proptest::prelude::*;

use super::server::{Kind, is_gated};
use super::step::{Fault, Step, Trouble, answers, crashes, deliveries, waits};
use super::trace::Trace;
use super::world::{Request, SHARED, Setting, TEAM, World};
use crate::{Action, Release};

const ALL: &[Kind] =
    &[Kind::Pod, Kind::Namespace, Kind::Quota, Kind::ClusterQuota, Kind::Charge, Kind::Permission];

fn of_pods(setting: &'static Setting) -> impl Strategy<Value = Step> {
    let namespaces = u8::try_from(setting.namespaces.len()).unwrap();
    let pod = || (0..namespaces, 0..setting.pods);
    prop_oneof![
        8 => (pod(), 1..40u64, 0..2i32)
            .prop_map(|(pod, size, priority)| Step::Create(pod, size * 50, priority)),
        2 => pod().prop_map(Step::Delete),
        2 => pod().prop_map(Step::Finish),
        1 => pod().prop_map(Step::Touch),
        6 => (any::<u8>(), pod(), 1..40u64)
            .prop_map(|(replica, pod, size)| Step::Resize(replica, pod, size * 50)),
        6 => any::<u8>().prop_map(Step::Commit),
    ]
}

fn of_watches(setting: &'static Setting) -> impl Strategy<Value = Step> {
    let (kinds, listed): (&[Kind], &[Kind]) = if setting.is_shared() {
        (ALL, &[Kind::Pod, Kind::ClusterQuota, Kind::Charge])
    } else {
        (&[Kind::Pod, Kind::Quota], &[Kind::Pod])
    };
    prop_oneof![
        20 => deliveries(kinds),
        12 => deliveries(&[Kind::Pod]),
        1 => (any::<u8>(), prop::sample::select(listed)).prop_map(|(replica, kind)| Step::Relist(replica, kind)),
    ]
}

/// What people do, or processes of their own accord.
fn of_trouble(setting: &'static Setting, trouble: Trouble) -> BoxedStrategy<Step> {
    let hard = || (any::<u8>(), 0..6000u64).prop_map(|(quota, hard)| Step::Hard(quota, hard));
    let meaning = || any::<u8>().prop_map(Step::Meaning);
    let of_quotas = match trouble {
        Trouble::ScribbledStatus => {
            let scribble = (any::<u8>(), 0..9000u64).prop_map(|(quota, used)| Step::Scribble(quota, used));
            return prop_oneof![2 => scribble, 1 => meaning()].boxed();
        }
        Trouble::TwoLeaders | Trouble::Expiry => prop_oneof![hard(), meaning()].boxed(),
        Trouble::Pauses => (any::<u8>(), 0..40u8).prop_map(|(at, seconds)| Step::Pause(at, seconds)).boxed(),
        Trouble::BusyAdmin => {
            prop_oneof![3 => hard(), 1 => meaning(), 2 => any::<u8>().prop_map(Step::DeleteQuota)].boxed()
        }
    };
    let of_people = match trouble {
        _ if !setting.is_shared() => of_quotas,
        Trouble::BusyAdmin => prop_oneof![
            6 => of_quotas,
            1 => Just(Step::DeleteCharge),
            4 => (any::<u8>(), any::<bool>()).prop_map(|(namespace, is_member)| Step::Label(namespace, is_member)),
            1 => Just(Step::Selector),
            2 => any::<bool>().prop_map(Step::Allow),
        ]
        .boxed(),
        _ => prop_oneof![of_quotas, Just(Step::DeleteCharge)].boxed(),
    };
    prop_oneof![of_people, crashes()].boxed()
}

pub(super) fn steps(setting: &'static Setting, trouble: Trouble) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        25 => of_pods(setting),
        6 => any::<u8>().prop_map(Step::Execute),
        20 => answers(),
        33 => of_watches(setting),
        4 => of_trouble(setting, trouble),
        5 => waits(),
        2 => Just(Step::Calm),
    ];
    proptest::collection::vec(step, 20..250)
}

pub(super) fn run(setting: &'static Setting, trouble: Trouble, steps: &[Step]) -> Trace {
    let mut world = World::new(setting, trouble);
    for step in steps {
        world.step(step);
    }
    world.calm_down();
    world.check_end();
    if trouble == Trouble::Pauses {
        world.check_in_force();
    }
    world.trace
}

proptest! {

    /// With limits that never sink, the sum over running pods never passes them: not when processes crash at
    /// any point, not when two of them believe to lead.
    #[test]
    fn two_leaders_never_release_more_than_hard(steps in steps(&TEAM, Trouble::TwoLeaders)) {
        run(&TEAM, Trouble::TwoLeaders, &steps);
    }

    /// The same when leases work as they should.
    #[test]
    fn successive_leaders_never_release_more_than_hard(steps in steps(&TEAM, Trouble::Expiry)) {
        run(&TEAM, Trouble::Expiry, &steps);
    }

    /// The status is output: whatever another client writes there, no more is released, no pod is held up, and it
    /// is put right.
    #[test]
    fn a_scribbled_status_releases_nothing_and_blocks_nobody(steps in steps(&TEAM, Trouble::ScribbledStatus)) {
        run(&TEAM, Trouble::ScribbledStatus, &steps);
    }

    /// With limits that change and quotas that come and go, everything settles: what fits is released, the
    /// status is true, and nothing is written any more.
    #[test]
    fn it_settles_whatever_the_admin_does(steps in steps(&TEAM, Trouble::BusyAdmin)) {
        run(&TEAM, Trouble::BusyAdmin, &steps);
    }

    /// The pods of all namespaces together never pass the limits of the cluster quota, not when processes crash at any
    /// point, two of them believe to lead, or a stranger deletes the record.
    #[test]
    fn two_leaders_never_release_more_than_a_cluster_quota_has(steps in steps(&SHARED, Trouble::TwoLeaders)) {
        run(&SHARED, Trouble::TwoLeaders, &steps);
    }

    /// With limits that change, quotas that come and go and namespaces that join and leave, everything settles.
    #[test]
    fn cluster_quotas_settle_whatever_the_admin_does(steps in steps(&SHARED, Trouble::BusyAdmin)) {
        run(&SHARED, Trouble::BusyAdmin, &steps);
    }
}

/// The check must fail where a pod is released that is charged to nothing, else it checks nothing.
#[test]
fn the_model_notices_a_release_without_a_charge() {
    for setting in [&TEAM, &SHARED] {
        let mut world = World::new(setting, Trouble::TwoLeaders);
        for at in 0..2 {
            world.step(&Step::Create((at, at), 2000, 0));
        }
        world.calm_down();
        let gated: Vec<_> = world.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod)).collect();
        let [((_, namespace, name), _)] = gated.as_slice() else { panic!("one has room: {gated:?}") };
        let pods = world.leader().state.index().0;
        let (pod, record) = pods.iter().find(|(_, pod)| *pod.name == **name).unwrap();
        let (uid, version) = (record.uid.clone(), record.version);
        let release =
            Release { pod, namespace: namespace.as_str().into(), name: record.name.clone(), uid, version };
        let (begun_ms, action) = (world.now_ms, Action::Release(release));
        world.requests.push(Request { replica: 0, life: 0, action, begun_ms, logged: 0, outcome: None });
        let answered = std::panic::AssertUnwindSafe(|| world.answer(0, Fault::None));
        assert!(std::panic::catch_unwind(answered).is_err(), "{setting:?}");
    }
}

/// A replica gets the lease while its watch of pods is late, or a list of them is under way: next it sees that a pod has
/// ended, and not yet who got the room.
#[test]
fn who_leads_has_seen_who_got_the_room_of_a_pod_that_ended() {
    for relists in [false, true] {
        let mut world = World::new(&TEAM, Trouble::Expiry);
        let (old, new) = ("a-ends", "b-gets-its-room");
        world.server.create_pod(old, 2000, 0);
        settle(&mut world);
        world.server.create_pod("c-waits", 2500, 0);
        world.deliver(1, Kind::Pod, usize::MAX);
        world.server.finish_pod(old);
        let ended = world.server.log.len() - world.replicas[1].cursors[Kind::Pod as usize];
        world.server.create_pod(new, 2000, 1);
        settle(&mut world);
        assert_eq!(world.server.taken(), 2000);
        world.deliver(1, Kind::Quota, usize::MAX);
        if relists {
            world.step(&Step::Relist(1, Kind::Pod));
        }
        world.step(&Step::Lead(1));
        world.deliver(1, Kind::Pod, if relists { 1 } else { ended });
        world.plan();
        for _ in 0..10 {
            world.answer(0, Fault::None);
            world.plan();
        }
        assert_eq!(world.server.taken(), 2000, "relists: {relists}");
    }
}

/// The first replica leads, and everything it asks for is done.
fn settle(world: &mut World) {
    for _ in 0..10 {
        world.deliver_to(0);
        world.plan();
        while !world.requests.is_empty() {
            world.answer(0, Fault::None);
        }
    }
}
