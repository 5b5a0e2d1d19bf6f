//! Charge first, then release: whatever fails, is late or happens twice, no more is released than fits, and
//! nothing that fits is forgotten.

use proptest::prelude::*;

use super::server::NAMESPACE;
use super::step::{Fault, Step, Trouble, Watch};
use super::world::{Request, World};
use crate::gate::Action;

pub(super) fn steps(trouble: Trouble) -> impl Strategy<Value = Vec<Step>> {
    let pod = 0..12u8;
    let fault = prop_oneof![
        8 => Just(Fault::None), 1 => Just(Fault::AnswerLost), 1 => Just(Fault::RequestLost), 1 => Just(Fault::Late),
        1 => Just(Fault::Refused), 1 => Just(Fault::Busy)
    ];
    let watch = prop_oneof![Just(Watch::Pods), Just(Watch::Quotas)];
    let special = match trouble {
        Trouble::TwoLeaders | Trouble::Expiry => crashes().boxed(),
        Trouble::Pauses => {
            prop_oneof![crashes(), (0..40u8).prop_map(|seconds| Step::Pause { seconds })].boxed()
        }
        Trouble::ScribbledStatus => (0..9000u64).prop_map(|used| Step::Scribble { used }).boxed(),
        Trouble::BusyAdmin => {
            prop_oneof![crashes(), (0..6000u64).prop_map(|hard| Step::Hard { hard }), Just(Step::DeleteQuota)]
                .boxed()
        }
    };
    let step = prop_oneof![
        8 => (pod.clone(), 1..40u64, 0..2i32)
            .prop_map(|(pod, size, priority)| Step::Create { pod, milli_cpu: size * 50, priority }),
        2 => pod.clone().prop_map(|pod| Step::Delete { pod }),
        2 => pod.clone().prop_map(|pod| Step::Finish { pod }),
        1 => pod.clone().prop_map(|pod| Step::Touch { pod }),
        6 => (any::<bool>(), pod, 1..40u64)
            .prop_map(|(replica, pod, size)| Step::Resize { replica, pod, milli_cpu: size * 50 }),
        6 => any::<u8>().prop_map(|at| Step::Commit { at }),
        20 => (any::<bool>(), watch, 1..6u8)
            .prop_map(|(replica, watch, count)| Step::Deliver { replica, watch, count }),
        20 => (any::<u8>(), fault).prop_map(|(at, fault)| Step::Answer { at, fault }),
        1 => any::<bool>().prop_map(|replica| Step::Relist { replica }),
        2 => special,
        1 => Just(Step::Meaning),
        4 => (1..3000u64).prop_map(|ms| Step::Wait { ms }),
        // All that is only a matter of time is over then; what is late is late still.
        1 => (20_000..70_000u64).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 20..200)
}

fn crashes() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(|replica| Step::Crash { replica }),
        any::<bool>().prop_map(|replica| Step::Lead { replica }),
    ]
}

pub(super) fn run(trouble: Trouble, steps: &[Step]) {
    let mut world = World::new(trouble);
    for step in steps {
        world.step(step);
    }
    world.calm_down();
    world.check_end();
}

proptest! {

    /// With limits that never sink, the sum over running pods never passes them: not when processes crash at
    /// any point, not when two of them believe to lead.
    #[test]
    fn two_leaders_never_release_more_than_hard(steps in steps(Trouble::TwoLeaders)) {
        run(Trouble::TwoLeaders, &steps);
    }

    /// The same when leases work as they should.
    #[test]
    fn successive_leaders_never_release_more_than_hard(steps in steps(Trouble::Expiry)) {
        run(Trouble::Expiry, &steps);
    }

    /// The status is output: whatever another client writes there, no more is released, no pod is held up, and it
    /// is put right.
    #[test]
    fn a_scribbled_status_releases_nothing_and_blocks_nobody(steps in steps(Trouble::ScribbledStatus)) {
        run(Trouble::ScribbledStatus, &steps);
    }

    /// With limits that change and quotas that come and go, everything settles: what fits is released, the
    /// status is true, and nothing is written any more.
    #[test]
    fn it_settles_whatever_the_admin_does(steps in steps(Trouble::BusyAdmin)) {
        run(Trouble::BusyAdmin, &steps);
    }
}

#[test]
fn the_model_notices_a_release_without_a_charge() {
    // The same world, but with a second controller that knows nothing of the first one's charges: the check
    // must fail, else it checks nothing.
    let outcome = std::panic::catch_unwind(|| {
        let mut world = World::new(Trouble::TwoLeaders);
        for pod in 0..2 {
            world.server.create_pod(&format!("p{pod}"), 2000, 0);
        }
        world.deliver(0, Watch::Pods, usize::MAX);
        world.deliver(0, Watch::Quotas, usize::MAX);
        world.plan();
        world.answer(0, Fault::None);
        world.plan();
        let forged: Vec<_> = world.replicas[0]
            .state
            .index()
            .0
            .iter()
            .map(|(id, record)| crate::gate::Release {
                pod: id,
                namespace: NAMESPACE.into(),
                name: record.name.clone(),
                uid: record.uid.clone(),
                version: record.version,
            })
            .collect();
        world.requests.clear();
        for release in forged {
            world.requests.push(Request {
                replica: 0,
                life: 0,
                action: Action::Release(release),
                begun_ms: 0,
                logged: 0,
            });
        }
        world.answer(0, Fault::None);
        world.answer(0, Fault::None);
    });
    assert!(outcome.is_err());
}

/// A replica gets the lease while its watch of pods is late, or a list of them is under way: next it sees that a pod has
/// ended, and not yet who got the room.
#[test]
fn who_leads_has_seen_who_got_the_room_of_a_pod_that_ended() {
    for relists in [false, true] {
        let mut world = World::new(Trouble::Expiry);
        let (old, new) = ("a-ends", "b-gets-its-room");
        world.server.create_pod(old, 2000, 0);
        settle(&mut world);
        let everything = usize::MAX;
        world.server.create_pod("c-waits", 2500, 0);
        world.deliver(1, Watch::Pods, everything);
        world.server.finish_pod(old);
        let ended = world.server.log.len() - world.replicas[1].cursors[Watch::Pods as usize];
        world.server.create_pod(new, 2000, 1);
        settle(&mut world);
        assert_eq!(world.server.taken(), 2000);
        world.deliver(1, Watch::Quotas, everything);
        if relists {
            world.step(&Step::Relist { replica: true });
        }
        world.step(&Step::Lead { replica: true });
        world.deliver(1, Watch::Pods, if relists { 1 } else { ended });
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
        world.deliver(0, Watch::Pods, usize::MAX);
        world.deliver(0, Watch::Quotas, usize::MAX);
        world.plan();
        while !world.requests.is_empty() {
            world.answer(0, Fault::None);
        }
    }
}
