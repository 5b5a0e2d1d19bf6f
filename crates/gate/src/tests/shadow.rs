//! Rules in the shadow: the gate does the same with and without them, and what they would charge is what enforcing charges.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use proptest::prelude::*;
use serde_json::Value;
use sluice_engine::evaluation::{Strategy as Kept, combine};
use sluice_engine::{Amount, Charge, Claim, QuotaId, Resource};
use sluice_index::Version;

use super::protocol::steps;
use super::replica::Replica;
use super::server::{CPU, Kind, uid};
use super::step::{Step, Trouble};
use super::trace::Trace;
use super::world::{SHARED, Setting, TEAM, World};
use crate::{
    Action, Again, AskShadows, Content, Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, Moment,
    Opinion, Outcome, Price, Said, SaidLater, SeenPod, Selection, ShadowConfig, State,
};

/// One rule, about all pods.
pub fn config() -> Arc<ShadowConfig> {
    let evaluators = vec![("shadow".into(), Selection::default())];
    let asker = Arc::new(Simulated);
    Arc::new(ShadowConfig { evaluators, later: 0, in_rounds: 0, other_pods: None, asker })
}

/// Opinions are given by [`see`].
struct Simulated;

impl AskShadows for Simulated {
    fn ask(&self, _: &[usize], _: &[u8], _: &Charge) -> Vec<Opinion> {
        unreachable!("no simulation asks by this")
    }

    fn ask_later(&self, _: EvaluatorQuestion) -> BoxFuture<'static, Vec<SaidLater>> {
        unreachable!("no simulation asks by this")
    }

    fn unreachable(&self) -> u16 {
        0
    }
}

pub fn cpu(milli: i128) -> Charge {
    Charge::from_pairs([
        (Resource::from_quota_key(CPU), Amount::from_nanos(milli * 1_000_000)),
        (Resource::Pods, Amount::ONE),
    ])
}

/// What the rule says of a pod with this content: each of four things.
fn opinion(hash: u64) -> Opinion {
    let charge = Arc::new(cpu(50 * i128::from(hash >> 8 & 63)));
    match hash >> 2 & 3 {
        0 => Opinion::NoMatch,
        1 => Opinion::None,
        kind => Opinion::Charge { charge, retains: kind == 2 },
    }
}

/// The pod was seen, and its rules are evaluated.
pub fn see(state: &mut State, pod: &Value, hash: u64) {
    if state.asks_shadows_later() {
        super::shadow_later::see(state, pod, hash);
    } else {
        say(state, pod, hash, &opinion(hash));
    }
}

pub fn seen(pod: &Value) -> SeenPod {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap().into();
    SeenPod { namespace: text("namespace"), name: text("name"), uid: sluice_engine::Uid::parse(uid(pod)) }
}

pub fn version_of(pod: &Value) -> Version {
    Version::parse(pod["metadata"]["resourceVersion"].as_str())
}

pub fn say(state: &mut State, pod: &Value, hash: u64, opinion: &Opinion) {
    let seen = seen(pod);
    let content = Content { hash, selected_by: 1, revision: state.shadow_revision() };
    if state.see_in_shadow(&seen, version_of(pod), content).is_some() {
        state.on_opinions(&seen, content, vec![(0, opinion.clone())]);
    }
}

fn run(setting: &'static Setting, trouble: Trouble, steps: &[Step], has_shadow: bool) -> World {
    let mut world = World::new(setting, trouble);
    if has_shadow {
        world.server.has_shadow = true;
        for replica in &mut world.replicas {
            replica.state.follow_shadow(Some(config()));
        }
    }
    for step in steps {
        world.step(step);
    }
    world.calm_down();
    world.check_end();
    world
}

/// What is counted of each resource of each quota (nano-units).
fn counted(state: &State) -> BTreeMap<QuotaId, BTreeMap<Resource, i128>> {
    let lines = |id| state.queue().ledger(id).into_iter().flat_map(|ledger| ledger.lines());
    let of =
        |id| lines(id).map(|line| (line.resource.clone(), line.claimed(Claim::Counted).nanos())).collect();
    state.index().2.iter().map(|(id, _)| (id, of(id))).collect()
}

/// The same rule, enforced from now on beside the evaluators of before; all of it is answered.
fn enforce(replica: &mut Replica, world: &World, now: Moment) {
    let evaluators = vec![("shadow".into(), Selection::default())];
    let config = EvaluatorsConfig { evaluators, may_fail: 0, ..(*super::evaluator::config()).clone() };
    replica.state.follow_shadow(None);
    replica.state.follow_evaluators(Some(Arc::new(config)), now);
    replica.relist(&world.server, Kind::Pod);
    replica.deliver(&world.server, Kind::Pod, usize::MAX, now);
    settle(&mut replica.state, now);
}

/// Plans until there is nothing to do, and answers what is asked about pods. Nothing else that is wanted is done.
fn settle(state: &mut State, now: Moment) {
    for _ in 0..10_000 {
        let actions = state.plan(now);
        let questions = actions.iter().filter_map(|action| match action {
            Action::Evaluate(question) => Some(question),
            _ => None,
        });
        let answers: Vec<Outcome> = questions.map(|question| answer(question)).collect();
        let is_over = answers.is_empty() && state.next_due_ms(now) != Some(0);
        answers.into_iter().for_each(|outcome| state.on_outcome(outcome, now));
        if is_over {
            return;
        }
    }
    panic!("it never ends");
}

fn answer(question: &Evaluate) -> Outcome {
    let answer = match opinion(question.hash) {
        Opinion::NoMatch => Ok(Said::from(Price::NoMatch)),
        Opinion::None => Err(Failed { text: "no".into(), by: 1, again: Again::WhenChanged }),
        Opinion::Charge { charge, retains } => {
            let kept = if retains { Kept::Retain } else { Kept::Replace };
            let charge = combine(&question.native, [(kept, &*charge)]).unwrap();
            Ok(Said { price: Price::Charge(charge.into()), matched: 1, retains })
        }
    };
    let Evaluate { pod, ref uid, hash, serial, .. } = *question;
    Outcome::Evaluated { pod, uid: uid.clone(), hash, serial, answer }
}

/// What each process says that enforcing would charge is what it charges when it enforces. Returns how many sums are others.
fn check_sums(mut world: World) -> usize {
    let now = world.moment();
    let mut others = 0;
    for mut replica in std::mem::take(&mut world.replicas) {
        // Who does not lead plans nothing in a run.
        settle(&mut replica.state, now);
        let (before, changes) = (counted(&replica.state), replica.state.shadow_sums());
        enforce(&mut replica, &world, now);
        let after = counted(&replica.state);
        let mut wanted = before;
        for (id, change) in changes {
            let of_quota = wanted.get_mut(&id).unwrap_or_else(|| panic!("{id:?} is no quota"));
            for (resource, nanos) in change {
                if let Some(sum) = of_quota.get_mut(&resource) {
                    *sum += nanos;
                    others += 1;
                }
            }
        }
        assert_eq!(after, wanted);
    }
    others
}

/// What is asked for is the same with and without a rule in the shadow. In few runs the order of some requests is that of a
/// hash map: such a run is made again and again, and has to be at some time what it is without.
fn check_the_same(trouble: Trouble, steps: &[Step]) {
    let trace = |has_shadow| run(&TEAM, trouble, steps, has_shadow).trace;
    if trace(false) == trace(true) {
        return;
    }
    let [without, with] =
        [false, true].map(|has_shadow| (0..40).map(|_| trace(has_shadow)).collect::<Vec<_>>());
    assert!(with.iter().any(|trace| without.contains(trace)), "{:?} and {:?}", without[0], with[0]);
}

proptest! {
    /// Releases, statuses and events.
    #[test]
    fn two_leaders_do_the_same_with_and_without_a_rule_in_the_shadow(steps in steps(&TEAM, Trouble::TwoLeaders)) {
        check_the_same(Trouble::TwoLeaders, &steps);
    }

    #[test]
    fn the_same_is_done_whatever_is_written_into_a_status(steps in steps(&TEAM, Trouble::ScribbledStatus)) {
        check_the_same(Trouble::ScribbledStatus, &steps);
    }

    #[test]
    fn the_sums_of_the_shadow_are_those_of_enforcing(steps in steps(&TEAM, Trouble::BusyAdmin)) {
        check_sums(run(&TEAM, Trouble::BusyAdmin, &steps, true));
    }

    /// Where namespaces join and leave, and quotas come and go.
    #[test]
    fn so_they_are_of_cluster_quotas(steps in steps(&SHARED, Trouble::BusyAdmin)) {
        check_sums(run(&SHARED, Trouble::BusyAdmin, &steps, true));
    }
}

/// Runs in which the rule would change nothing show nothing.
#[test]
fn a_run_has_sums_that_enforcing_changes() {
    let steps: Vec<Step> = (0..8).map(|pod| Step::Create((0, pod), 100, 0)).collect();
    let others = check_sums(run(&TEAM, Trouble::Expiry, &steps, true));
    assert!(others >= 2, "{others} sums of two processes");
    let trace = run(&TEAM, Trouble::Expiry, &steps, true).trace;
    assert_ne!(trace, Trace::default(), "something is done");
}
