//! Attachments of a VM whose pods, counting and KubeVirt come and go in any order.

use proptest::prelude::*;
use serde_json::Value;
use sluice_engine::Quantity;
use sluice_engine::vm::Calculator;

use super::machines::sized;
use super::owners::kubevirt;
use super::platform::{ATTACHMENT, SOURCE, TARGET};
use super::server::{is_running, uid, wire};
use super::stories::{Story, at};
use super::team;

const PODS: [&str; 2] = [SOURCE, TARGET];
/// What a launcher asks for, and what its VM takes, in thousandths of a CPU.
const LAUNCHER: u64 = 300;
const MACHINE: u64 = 2000;
const ATTACHED: u64 = 50;

#[derive(Clone, Copy, Debug)]
enum Move {
    Launch(usize),
    Finish(usize),
    Delete(usize),
    Attach(usize, u8),
    Detach(usize, u8),
    Count(bool),
    Install(bool),
    Touch(usize),
    /// The other process takes over.
    Restart,
}

fn a_move() -> impl Strategy<Value = Move> {
    let pod = || 0..2_usize;
    prop_oneof![
        3 => pod().prop_map(Move::Launch),
        1 => pod().prop_map(Move::Finish),
        1 => pod().prop_map(Move::Delete),
        3 => (pod(), 0..2_u8).prop_map(|(pod, number)| Move::Attach(pod, number)),
        1 => (pod(), 0..2_u8).prop_map(|(pod, number)| Move::Detach(pod, number)),
        1 => any::<bool>().prop_map(Move::Count),
        1 => any::<bool>().prop_map(Move::Install),
        1 => pod().prop_map(Move::Touch),
        1 => Just(Move::Restart),
    ]
}

fn attachment(pod: usize, number: u8) -> String {
    format!("{ATTACHMENT}-{}-{number}", PODS[pod])
}

struct World {
    story: Story,
    is_counted: bool,
    is_installed: bool,
    now: u64,
}

impl World {
    fn step(&mut self, step: Move) {
        let server = &mut self.story.server;
        match step {
            Move::Launch(pod) => server.create_pod(PODS[pod], LAUNCHER, 0),
            Move::Finish(pod) => server.finish_pod(PODS[pod]),
            Move::Delete(pod) => server.delete_pod(PODS[pod]),
            Move::Touch(pod) => server.touch_pod(PODS[pod]),
            Move::Attach(pod, number) => {
                if server.get(&team::pod(PODS[pod])).is_some() {
                    self.story.attach(&attachment(pod, number), PODS[pod]);
                }
            }
            Move::Detach(pod, number) => server.delete_pod(&attachment(pod, number)),
            Move::Count(is_counted) => {
                self.is_counted = is_counted;
                self.story.state.count_machines_by(self.calculator(), at(self.now));
            }
            Move::Install(is_installed) => {
                self.is_installed = is_installed;
                self.story.state.set_kubevirt(is_installed.then(kubevirt), at(self.now));
            }
            Move::Restart => self.restart(),
        }
    }

    /// The lists come in the worst order.
    fn restart(&mut self) {
        let server = std::mem::replace(&mut self.story, Story::begin()).server;
        let (state, now) = (&mut self.story.state, at(self.now));
        for (_, pod) in server.pods().rev() {
            state.apply_pod(&wire(pod.clone()), now);
        }
        state.begin_quotas();
        if let Some(quota) = server.quota() {
            state.apply_listed_quota(&wire(quota.clone()), now);
        }
        state.end_quotas(now);
        self.story.server = server;
        let calculator = self.calculator();
        self.story.see_machine(&sized(2, 2), self.now);
        self.story.state.count_machines_by(calculator, now);
        self.story.state.set_kubevirt(self.is_installed.then(kubevirt), now);
        self.story.state.lead(now);
    }

    fn calculator(&self) -> Calculator {
        if self.is_counted { Calculator::VirtualResources } else { Calculator::IgnoreVmiCalculator }
    }

    /// What pods without gates take, by the rules alone.
    fn taken(&self) -> u64 {
        let server = &self.story.server;
        let get = |name: &str| server.get(&team::pod(name));
        let runs = |name: &str| get(name).is_some_and(is_running);
        let by_machine = self.is_counted && self.is_installed;
        let running = PODS.iter().filter(|name| runs(name)).count() as u64;
        let machine = if by_machine { MACHINE * running.min(1) } else { LAUNCHER * running };
        let is_exempt = |pod: &Value| {
            let controller = &pod["metadata"]["ownerReferences"][0];
            let launcher = controller["name"].as_str().and_then(get);
            by_machine && running > 0 && launcher.is_some_and(|launcher| controller["uid"] == uid(launcher))
        };
        let charged = server
            .pods()
            .filter(|(name, pod)| name.starts_with(ATTACHMENT) && is_running(pod) && !is_exempt(pod));
        machine + ATTACHED * charged.count() as u64
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]
    #[test]
    fn whatever_the_order_what_is_charged_is_what_the_rules_say(
        steps in prop::collection::vec((a_move(), 0..4_u8), 1..20),
        slices in any::<bool>(),
    ) {
        let story = Story::counting(Calculator::VirtualResources, 100_000);
        let mut world = World { story, is_counted: true, is_installed: true, now: 0 };
        world.story.see_machine(&sized(2, 2), 0);
        for (step, rounds) in steps {
            if slices {
                world.story.state.config_mut().reclassified_pods = 1;
            }
            world.now += 1_000;
            world.step(step);
            prop_assert!(world.story.is_audited(world.now), "before anything is done about {step:?}");
            // The next one comes in the middle of what is done about this one.
            if (1..=2).contains(&rounds) {
                for _ in 0..rounds {
                    world.story.run_once(at(world.now));
                }
                continue;
            }
            // A minute after it has begun, nothing of a predecessor is in flight.
            world.story.run(at(world.now));
            world.now += 60_000;
            let used = world.story.used_after(world.now);
            prop_assert_eq!(world.story.held(), Vec::<&str>::new(), "{:?}", step);
            let used = Quantity::parse(&used).unwrap();
            let taken = Quantity::parse(&format!("{}m", world.taken())).unwrap();
            prop_assert_eq!(used.to_string(), taken.to_string(), "after {:?}", step);
            prop_assert!(world.story.is_audited(world.now));
        }
    }
}
