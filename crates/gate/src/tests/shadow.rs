//! Rules in the shadow: the gate does the same with and without them, and what they would charge is what enforcing charges.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_engine::evaluation::{Strategy as Kept, combine};
use sluice_engine::vm::Calculator;
use sluice_engine::{Amount, Charge, Claim, QuotaId, Resource};
use sluice_index::NamespaceWire;

use super::evaluations::price;
use super::machines::sized;
use super::protocol::steps;
use super::replica::Replica;
use super::server::{CPU, Kind, uid, wire};
use super::step::{Step, Trouble};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use super::trace::Trace;
use super::world::{SHARED, Setting, TEAM, World};
use crate::{
    Action, Again, AskShadows, Content, Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, Moment,
    OnFailure, Opinion, Outcome, Price, Said, SaidLater, SeenPod, Selection, ShadowConfig, ShadowFigures,
    State,
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

fn cpu(milli: i128) -> Charge {
    Charge::from_pairs([
        (Resource::from_quota_key(CPU), Amount::from_nanos(milli * 1_000_000)),
        (Resource::Pods, Amount::ONE),
    ])
}

/// What the rule says of a pod with this content: each of four things.
fn opinion(hash: u128) -> Opinion {
    let charge = Arc::new(cpu(50 * i128::try_from(hash >> 40 & 63).unwrap()));
    match hash >> 34 & 3 {
        0 => Opinion::NoMatch,
        1 => Opinion::None,
        kind => Opinion::Charge { charge, retains: kind == 2 },
    }
}

/// The pod was seen, and its rules are evaluated.
pub fn see(state: &mut State, pod: &Value, hash: u128) {
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

fn say(state: &mut State, pod: &Value, hash: u128, opinion: &Opinion) {
    let seen = seen(pod);
    let content = Content { hash, selected_by: 1, revision: state.shadow_revision() };
    if state.see_in_shadow(&seen, content).is_some() {
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

/// Told of the rule in the shadow.
fn figures(story: &Story) -> (usize, ShadowFigures) {
    let figures = story.state.rule_figures();
    let found = figures.iter().find(|(name, _)| **name == *"shadow").unwrap();
    (found.1.matched, found.1.shadow.clone().unwrap())
}

/// The changes of CPU that are told, of each quota.
fn changes(story: &Story) -> Vec<String> {
    let of = |amount: &crate::ShadowAmount| {
        format!(
            "{} {} of {}: {} to {}",
            amount.quota.name, amount.key, amount.hard, amount.used, amount.enforced
        )
    };
    figures(story).1.largest.iter().map(of).collect()
}

/// When all that was to be written before is written.
const LATER: Moment = Moment { mono_ms: 30_000, unix_ms: 30_000 };

impl Story {
    fn shadowed(hard: u64) -> Self {
        let mut story = Self::led();
        story.state.follow_shadow(Some(config()));
        story.server.set_hard(hard);
        story.run(at(0));
        story
    }

    /// The rule says this of a pod.
    fn opine(&mut self, pod: &str, hash: u128, opinion: Opinion) {
        let pod = self.server.pod(pod).clone();
        say(&mut self.state, &pod, hash << 64, &opinion);
        self.run(LATER);
    }
}

fn charge(milli: i128, retains: bool) -> Opinion {
    Opinion::Charge { charge: Arc::new(cpu(milli)), retains }
}

#[test]
fn what_enforcing_would_change_is_told_and_holds_nobody() {
    let mut story = Story::shadowed(1000);
    for pod in ["a", "b", "c", "waits"] {
        story.server.create_pod(pod, 300, 0);
    }
    story.run(LATER);
    assert_eq!((story.gated(), story.server.used()), (vec!["waits"], "900m"));
    for pod in ["a", "b", "c", "waits"] {
        story.opine(pod, 1, Opinion::NoMatch);
    }
    assert_eq!(figures(&story), (0, ShadowFigures::default()));
    story.opine("a", 2, charge(700, false));
    story.opine("b", 2, charge(200, true));
    story.opine("c", 2, Opinion::None);
    story.opine("waits", 2, charge(10, false));
    let (matched, told) = figures(&story);
    assert_eq!((matched, told.held, told.differences), (3, 0, 1), "what runs is not held: {told:?}");
    assert_eq!(changes(&story), ["compute requests.cpu of 1: 900m to 1500m"], "400m more of a, 200m of b");
    let total: Vec<_> = told.total.iter().map(|(key, amount)| format!("{key} {amount}")).collect();
    assert_eq!(total, ["pods 1", "count/pods -1", "cpu 600m"], "b takes two");
    story.opine("waits", 3, Opinion::None);
    assert_eq!(figures(&story).1.held, 1);
    assert_eq!((story.gated(), story.server.used()), (vec!["waits"], "900m"), "nothing comes of it");
    story.server.finish_pod("a");
    story.run(at(60_000));
    assert_eq!(story.gated(), Vec::<&str>::new(), "it waits for room alone");
    assert_eq!(changes(&story), ["compute requests.cpu of 1: 900m to 1100m"]);
    story.server.delete_pod("b");
    story.run(at(90_000));
    assert_eq!(figures(&story), (0, ShadowFigures::default()));
}

#[test]
fn a_namespace_that_the_rule_does_not_select_is_left_out() {
    let mut story = Story::led();
    let namespaces = kube::core::Selector::from_iter([("tier", "gold")]);
    let selection = Selection { namespaces, ..Selection::default() };
    let config = ShadowConfig { evaluators: vec![("shadow".into(), selection)], ..(*config()).clone() };
    story.state.follow_shadow(Some(Arc::new(config)));
    story.server.set_hard(1000);
    story.server.create_pod("a", 300, 0);
    story.run(at(0));
    story.opine("a", 1, charge(700, false));
    for (tier, wanted) in [("gold", vec!["compute requests.cpu of 1: 300m to 700m"]), ("none", vec![])] {
        let metadata =
            json!({"name": NAMESPACE, "uid": "n", "resourceVersion": "1", "labels": {"tier": tier}});
        let namespace: NamespaceWire = wire(json!({ "metadata": metadata }));
        story.state.apply_namespace(&namespace, at(0));
        story.run(at(0));
        assert_eq!(changes(&story), wanted, "{tier}");
    }
}

/// What evaluators in force say is what the rule would be added to.
#[test]
fn beside_evaluators_in_force_the_sum_is_told() {
    for (now, retained, opinion, wanted) in [
        (Ok(Price::NoMatch), false, charge(700, false), Some("compute requests.cpu of 2: 100m to 700m")),
        (Ok(Price::NoMatch), false, charge(700, true), Some("compute requests.cpu of 2: 100m to 800m")),
        (price(400), false, charge(700, false), Some("compute requests.cpu of 2: 400m to 1100m")),
        (price(400), false, charge(700, true), Some("compute requests.cpu of 2: 400m to 1200m")),
        (price(400), true, charge(700, true), Some("compute requests.cpu of 2: 400m to 1100m")),
        (price(400), false, Opinion::None, None),
    ] {
        let mut story = Story::evaluated(OnFailure::Hold);
        story.server.set_hard(2000);
        story.server.create_pod("a", 100, 0);
        let Evaluate { pod, uid, hash, serial, .. } = story.question(10_000);
        let answer = now.clone().map(|price| Said { retains: retained, ..Said::from(price) });
        story.state.on_outcome(Outcome::Evaluated { pod, uid, hash, serial, answer }, at(10_000));
        story.run(LATER);
        story.state.follow_shadow(Some(config()));
        story.opine("a", 1, opinion.clone());
        assert_eq!(changes(&story), wanted.into_iter().collect::<Vec<_>>(), "{now:?} {opinion:?}");
    }
}

/// What it says of a VM's first launcher is charged beside the VM, and once in a migration.
#[test]
fn of_a_vm_what_is_said_of_one_launcher_is_added() {
    let (source, target) = ("v1-p1", "v1-p2");
    let mut story = Story::counting(Calculator::VirtualResources, 2500);
    story.state.follow_shadow(Some(config()));
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(source, 100, 0);
    story.run(LATER);
    for retains in [false, true] {
        story.opine(source, 1 + u128::from(retains), charge(700, retains));
        assert_eq!(changes(&story), ["compute requests.cpu of 2500m: 2 to 2700m"]);
    }
    story.server.create_pod(target, 100, 0);
    story.run(LATER);
    story.opine(target, 1, charge(700, false));
    assert_eq!(
        (story.gated().len(), changes(&story)),
        (0, vec!["compute requests.cpu of 2500m: 2 to 2700m".to_owned()])
    );
    story.server.delete_pod(source);
    story.run(LATER);
    assert_eq!(changes(&story), ["compute requests.cpu of 2500m: 2 to 2700m"]);
}

/// However many quotas a rule is about.
#[test]
fn the_largest_are_told_and_how_many_there_are() {
    let mut story = Story::shadowed(1000);
    for number in 0..20 {
        let name = format!("n{number:02}");
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
        story.state.apply_namespace(&wire(json!({ "metadata": metadata })), at(0));
        let metadata =
            json!({"name": "q", "namespace": name, "uid": format!("q-{name}"), "resourceVersion": "1"});
        let hard = json!({ CPU: format!("{}", 100 - number) });
        story
            .state
            .apply_watched_quota(&wire(json!({ "metadata": metadata, "spec": { "hard": hard } })), at(0));
        let metadata =
            json!({"name": "p", "namespace": name, "uid": format!("p-{name}"), "resourceVersion": "1"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}});
        story.state.apply_pod(&wire(pod.clone()), at(0));
        say(&mut story.state, &pod, 1, &charge(1000, true));
    }
    story.state.plan(at(0));
    let told = figures(&story).1;
    assert_eq!((told.differences, told.largest.len()), (20, 16));
    let namespaces: Vec<_> = told.largest.iter().map(|amount| &*amount.namespace).collect();
    let wanted: Vec<_> = (4..20).rev().map(|number| format!("n{number:02}")).collect();
    assert_eq!(namespaces, wanted, "those of the smallest limits differ most");
}
