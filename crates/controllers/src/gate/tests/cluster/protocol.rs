//! One quota over several namespaces: whatever fails, is late or happens twice, no more is released than fits, nothing that
//! fits is forgotten, and no namespace is held up by another one's own quota.

use proptest::prelude::*;

use super::super::step::Fault;
use super::server::{KINDS, Kind, is_gated};
use super::step::{Step, Trouble};
use super::world::{Request, World};
use crate::gate::Action;

fn of_pods() -> impl Strategy<Value = Step> {
    let pod = || (0..3u8, 0..5u8);
    prop_oneof![
        8 => (pod(), 1..40u64, 0..2i32).prop_map(|((namespace, pod), size, priority)| Step::Create {
            namespace, pod, milli_cpu: size * 50, priority
        }),
        2 => pod().prop_map(|(namespace, pod)| Step::Delete { namespace, pod }),
        2 => pod().prop_map(|(namespace, pod)| Step::Finish { namespace, pod }),
        1 => pod().prop_map(|(namespace, pod)| Step::Touch { namespace, pod }),
    ]
}

fn of_requests() -> impl Strategy<Value = Step> {
    let fault = prop_oneof![
        8 => Just(Fault::None), 1 => Just(Fault::AnswerLost), 1 => Just(Fault::RequestLost), 1 => Just(Fault::Late),
        1 => Just(Fault::Refused), 1 => Just(Fault::Busy)
    ];
    prop_oneof![
        6 => any::<u8>().prop_map(|at| Step::Execute { at }),
        20 => (any::<u8>(), fault).prop_map(|(at, fault)| Step::Answer { at, fault }),
    ]
}

fn of_watches() -> impl Strategy<Value = Step> {
    let kind = || (0..KINDS.len()).prop_map(|at| KINDS[at]);
    let listed = prop_oneof![Just(Kind::Pod), Just(Kind::ClusterQuota), Just(Kind::Charge)];
    prop_oneof![
        20 => (any::<bool>(), kind(), 1..12u8)
            .prop_map(|(replica, kind, count)| Step::Deliver { replica, kind, count }),
        12 => (any::<bool>(), 1..12u8)
            .prop_map(|(replica, count)| Step::Deliver { replica, kind: Kind::Pod, count }),
        1 => (any::<bool>(), listed).prop_map(|(replica, kind)| Step::Relist { replica, kind }),
    ]
}

fn of_people(trouble: Trouble) -> BoxedStrategy<Step> {
    let hard = (any::<bool>(), 0..6000u64).prop_map(|(is_own, hard)| Step::Hard { is_own, hard });
    let meaning = any::<bool>().prop_map(|is_own| Step::Meaning { is_own });
    if trouble == Trouble::TwoLeaders {
        return prop_oneof![1 => hard, 1 => meaning, 2 => Just(Step::DeleteCharge)].boxed();
    }
    prop_oneof![
        3 => hard,
        1 => meaning,
        1 => Just(Step::DeleteCharge),
        4 => (0..3u8, any::<bool>()).prop_map(|(namespace, is_member)| Step::Label { namespace, is_member }),
        2 => any::<bool>().prop_map(|is_own| Step::DeleteQuota { is_own }),
        1 => Just(Step::Selector),
        2 => any::<bool>().prop_map(|is_allowed| Step::Allow { is_allowed }),
    ]
    .boxed()
}

fn steps(trouble: Trouble) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        13 => of_pods(),
        26 => of_requests(),
        33 => of_watches(),
        2 => of_people(trouble),
        1 => any::<bool>().prop_map(|replica| Step::Crash { replica }),
        1 => any::<bool>().prop_map(|replica| Step::Lead { replica }),
        4 => (1..3000u64).prop_map(|ms| Step::Wait { ms }),
        // All that is only a matter of time is over then; what is late is late still.
        1 => (20_000..70_000u64).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 20..250)
}

fn run(trouble: Trouble, steps: &[Step]) {
    let mut world = World::new(trouble);
    for step in steps {
        world.step(step);
    }
    world.calm_down();
    world.check_end();
}

proptest! {

    /// The pods of all namespaces together never pass the limits of the cluster quota, not when processes crash at any
    /// point, two of them believe to lead, or a stranger deletes the record.
    #[test]
    fn two_leaders_never_release_more_than_hard(steps in steps(Trouble::TwoLeaders)) {
        run(Trouble::TwoLeaders, &steps);
    }

    /// With limits that change, quotas that come and go and namespaces that join and leave, everything settles.
    #[test]
    fn it_settles_whatever_the_admin_does(steps in steps(Trouble::BusyAdmin)) {
        run(Trouble::BusyAdmin, &steps);
    }
}

/// The check must fail where a pod is released that is charged to nothing, else it checks nothing.
#[test]
fn the_model_notices_a_release_without_a_charge() {
    let outcome = std::panic::catch_unwind(|| {
        let mut world = World::new(Trouble::TwoLeaders);
        for namespace in 0..2 {
            world.step(&Step::Create { namespace, pod: 0, milli_cpu: 2000, priority: 0 });
        }
        world.calm_down();
        let gated: Vec<_> = world.server.all(Kind::Pod, "").filter(|(_, pod)| is_gated(pod)).collect();
        assert_eq!(gated.len(), 1);
        let leader = &world.replicas[0].state;
        let (id, record) = leader.index().0.iter().find(|(_, pod)| *pod.name == *gated[0].0.2).unwrap();
        let release = crate::gate::Release {
            pod: id,
            namespace: gated[0].0.1.as_str().into(),
            name: record.name.clone(),
            uid: record.uid.clone(),
            version: record.version,
        };
        let (begun_ms, action) = (world.now_ms, Action::Release(release));
        world.requests.push(Request { replica: 0, life: 0, action, begun_ms, logged: 0, outcome: None });
        world
    });
    let mut world = outcome.expect("until then all is right");
    let is_noticed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.answer(0, Fault::None)));
    assert!(is_noticed.is_err());
}
