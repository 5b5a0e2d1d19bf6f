//! Whatever evaluators say or do not say, when, and to whom: no more is released than fits by the answers that were given,
//! and nothing that fits is forgotten.

use proptest::prelude::*;

use super::server::Kind;
use super::step::{Step, Trouble, answers, crashes, deliveries, waits};
use super::world::{SHARED, Setting, TEAM, World};

fn step(setting: &'static Setting) -> impl Strategy<Value = Step> {
    let namespaces = u8::try_from(setting.namespaces.len()).unwrap();
    let pod = move || (0..namespaces, 0..setting.pods.min(5));
    let kinds: &[Kind] = &[Kind::Pod, Kind::Quota, Kind::ClusterQuota, Kind::Charge];
    prop_oneof![
        8 => (pod(), 1..30u64, 0..2i32).prop_map(|(pod, size, priority)| Step::Create(pod, size * 20, priority)),
        4 => (pod(), 1..30u64).prop_map(|(pod, price)| Step::Relabel(pod, price * 50)),
        2 => pod().prop_map(Step::Delete),
        1 => pod().prop_map(Step::Finish),
        1 => pod().prop_map(Step::Touch),
        24 => answers(),
        4 => any::<u8>().prop_map(Step::Execute),
        16 => deliveries(kinds),
        12 => deliveries(&[Kind::Pod]),
        1 => any::<u8>().prop_map(|replica| Step::Relist(replica, Kind::Pod)),
        1 => any::<u8>().prop_map(Step::Policy),
        1 => any::<u8>().prop_map(Step::Expect),
        3 => (any::<u8>(), 1..6u8).prop_map(|(replica, count)| Step::ReadBeside(replica, count)),
        1 => any::<u8>().prop_map(Step::Switch),
        3 => crashes(),
        5 => waits(),
    ]
}

fn steps(setting: &'static Setting) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(setting), 20..250)
}

/// As [`steps`], with evaluators that are silent about some pods, and with seconds in which everything is delivered and
/// answered: so it gets to states that single steps in any order hardly get to.
pub(super) fn steps_that_get_far(setting: &'static Setting) -> impl Strategy<Value = Vec<Step>> {
    let namespaces = u8::try_from(setting.namespaces.len()).unwrap();
    let silence = (any::<u8>(), (0..namespaces, 0..setting.pods.min(5)), any::<bool>());
    let step = prop_oneof![
        86 => step(setting),
        2 => silence.prop_map(|(replica, pod, is_silent)| Step::Silence(replica, pod, is_silent)),
        2 => Just(Step::Calm),
    ];
    proptest::collection::vec(step, 20..250)
}

/// As [`steps`], by the same rules all the time. With others a release without an answer is not repeated before the pod has
/// an answer by them, and whether it was done is not waited for.
fn steps_by_one_policy(setting: &'static Setting) -> impl Strategy<Value = Vec<Step>> {
    let is_other = |step: &Step| matches!(step, Step::Policy(_) | Step::Switch(_));
    steps(setting).prop_map(move |steps| steps.into_iter().filter(|step| !is_other(step)).collect())
}

fn run(setting: &'static Setting, trouble: Trouble, steps: &[Step]) {
    end(World::new(setting, trouble).evaluate(), steps);
}

fn run_in_rounds(setting: &'static Setting, trouble: Trouble, steps: &[Step]) {
    end(World::new(setting, trouble).evaluate_in_rounds(), steps);
}

pub(super) fn end(mut world: World, steps: &[Step]) {
    for step in steps {
        world.step(step);
    }
    world.calm_down();
    world.price_as_leader();
    world.check_end();
}

proptest! {
    #[test]
    fn two_leaders_release_what_fits_by_the_answers(steps in steps(&TEAM)) {
        run(&TEAM, Trouble::TwoLeaders, &steps);
    }

    #[test]
    fn successive_leaders_release_what_fits_by_the_answers(steps in steps(&TEAM)) {
        run(&TEAM, Trouble::Expiry, &steps);
    }

    #[test]
    fn leaders_release_what_fits_into_a_cluster_quota_by_the_answers(steps in steps(&SHARED)) {
        run(&SHARED, Trouble::TwoLeaders, &steps);
    }

    /// Where evaluators are sent the other pods too, each pod goes by a state that shows who went before. Of two leaders
    /// each knows what it has released itself alone.
    #[test]
    fn leaders_release_by_states_that_show_what_they_released(steps in steps_by_one_policy(&TEAM)) {
        run_in_rounds(&TEAM, Trouble::Expiry, &steps);
    }

    #[test]
    fn two_leaders_release_in_rounds_what_fits(steps in steps(&TEAM)) {
        run_in_rounds(&TEAM, Trouble::TwoLeaders, &steps);
    }

    #[test]
    fn leaders_release_in_rounds_of_several_namespaces(steps in steps_by_one_policy(&SHARED)) {
        run_in_rounds(&SHARED, Trouble::Expiry, &steps);
    }
}
