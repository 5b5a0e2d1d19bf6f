//! The simulations of evaluators are about these safeguards: with any one taken out they fail.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::evaluation_orders::{end, steps_that_get_far};
use super::step::Trouble;
use super::world::{SHARED, Setting, TEAM, World};

/// What keeps answers and sums right where evaluators are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// An answer counts for the content that was asked about, and for no other.
    Version,
    /// What evaluators have said before they are in force counts for the version of the pod that they were asked about.
    Next,
    /// Nothing is released in a namespace before the pods that run there are answered.
    Pause,
    /// What a predecessor has recorded is kept until the pods that may take it are answered.
    InFlight,
}

thread_local! {
    static OUT: Cell<Option<Safeguard>> = const { Cell::new(None) };
}

impl Safeguard {
    /// Whether it is taken out, on this thread.
    pub fn is_out(self) -> bool {
        OUT.get() == Some(self)
    }
}

/// More runs than it takes by far.
const RUNS: u32 = 5_000;

/// The number of the first run in which the simulation fails with this safeguard taken out, of so many, which are the same
/// each time.
fn fails_in(out: Option<Safeguard>, setting: &'static Setting, trouble: Trouble, cases: u32) -> Option<u32> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let runs = Cell::new(0);
    OUT.set(out);
    let ended = TestRunner::new_with_rng(config, random).run(&steps_that_get_far(setting), |steps| {
        runs.set(runs.get() + 1);
        let world = World::new(setting, trouble).evaluate();
        end(world, &steps);
        Ok(())
    });
    OUT.set(None);
    matches!(ended, Err(TestError::Fail(..))).then(|| runs.get())
}

/// The same runs pass with all of them.
#[test]
fn without_any_safeguard_of_evaluators_each_simulation_of_them_fails() {
    for (setting, trouble) in
        [(&TEAM, Trouble::TwoLeaders), (&TEAM, Trouble::Expiry), (&SHARED, Trouble::TwoLeaders)]
    {
        let mut most = 0;
        for safeguard in [Safeguard::Version, Safeguard::Next, Safeguard::Pause, Safeguard::InFlight] {
            let runs = fails_in(Some(safeguard), setting, trouble, RUNS);
            most = most.max(runs.unwrap_or_else(|| panic!("{safeguard:?}, {trouble:?}, {setting:?}")));
        }
        assert_eq!(fails_in(None, setting, trouble, most), None, "{trouble:?}, {setting:?}");
    }
}
