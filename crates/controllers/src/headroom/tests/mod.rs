//! The decisions as stories, without any I/O.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sluice_engine::headroom::{Amounts, Budget, Grant, NativeQuota, Need};
use sluice_engine::{Amount, Charge, Quantity, Resource, Uid};

use super::action::{Action, Cause, Done, Ending, Failed, Opened, Outcome, Tell};
use super::config::ReactiveConfig;
use super::facts::{BlockedFacts, NamespaceFacts, WindowFacts};
use super::place::NUDGE_KEY;
use super::state::State;
use crate::gate::Moment;

fn amounts(pairs: &[(&str, &str)]) -> Amounts {
    pairs.iter().map(|(key, amount)| (Arc::from(*key), Quantity::parse(amount).unwrap())).collect()
}

/// A quota of 10 bytes of memory of which 6 are used.
fn quota() -> NativeQuota {
    NativeQuota {
        spec_hard: amounts(&[("memory", "10")]),
        status_hard: amounts(&[("memory", "10")]),
        used: amounts(&[("memory", "6")]),
        ..NativeQuota::new("rq", Uid::parse("rq"))
    }
}

fn need(bytes: i64) -> Need {
    let bytes = Amount::from(Quantity::parse(&bytes.to_string()).unwrap());
    Need { charge: Charge::from_pairs([(Resource::from_quota_key("memory"), bytes)]), ..Need::default() }
}

fn budget(bytes: &str) -> Budget {
    Budget {
        grants: vec![Grant::Amounts { source: "grant".into(), additional: amounts(&[("memory", bytes)]) }],
    }
}

fn blocked(name: &str) -> BlockedFacts {
    BlockedFacts {
        uid: Uid::parse(name),
        name: name.into(),
        version: "1".into(),
        machine: format!("vm-{name}").into(),
        machine_uid: format!("vm-{name}").into(),
        node: Some("node".into()),
        attempt: None,
    }
}

/// A cluster that is looked at, and a clock.
struct World {
    state: State,
    facts: BTreeMap<Arc<str>, NamespaceFacts>,
    now: Moment,
}

impl World {
    fn new(config: ReactiveConfig) -> Self {
        let mut state = State::new(config, 7);
        state.lead([]);
        Self { state, facts: BTreeMap::new(), now: Moment { mono_ms: 1_000_000, unix_ms: 1_000_000 } }
    }

    fn full(namespace: &str, grant: &str, names: &[&str]) -> Self {
        let mut world = Self::new(ReactiveConfig::default());
        world.add(namespace, grant, names);
        world
    }

    fn add(&mut self, namespace: &str, grant: &str, names: &[&str]) {
        let facts = NamespaceFacts {
            quotas: vec![quota()],
            budget: budget(grant),
            blocked: names.iter().map(|name| blocked(name)).collect(),
            creator: Some("kubevirt".to_owned()),
            ..NamespaceFacts::default()
        };
        self.facts.insert(namespace.into(), facts);
        self.state.see([Arc::from(namespace)]);
    }

    fn change(&mut self, namespace: &str, change: impl FnOnce(&mut NamespaceFacts)) -> Vec<Action> {
        change(self.facts.get_mut(namespace).unwrap());
        self.state.see([Arc::from(namespace)]);
        self.plan()
    }

    fn plan(&mut self) -> Vec<Action> {
        let facts = &self.facts;
        self.state.plan(self.now, |namespace| facts.get(namespace).cloned().unwrap_or_default())
    }

    /// Answers, and plans again.
    fn answer(&mut self, namespace: &str, result: Done) -> Vec<Action> {
        let mut actions = self.state.settle(Outcome { namespace: namespace.into(), result }, self.now);
        actions.extend(self.plan());
        actions
    }

    /// Lets time pass to the next due moment, but not more than `ms`.
    fn wait(&mut self, ms: u64) -> Vec<Action> {
        let due = self.state.next_due_ms(self.now).unwrap_or(ms).min(ms);
        self.now.mono_ms += due;
        self.now.unix_ms += i64::try_from(due).unwrap();
        self.plan()
    }

    /// Tells what each source takes until that is not asked any more. Returns the other actions.
    fn looked(&mut self, bytes: i64) -> Vec<Action> {
        let actions = self.plan();
        self.tell_sources(actions, bytes)
    }

    fn tell_sources(&mut self, actions: Vec<Action>, bytes: i64) -> Vec<Action> {
        let mut todo = VecDeque::from(actions);
        let mut others = Vec::new();
        while let Some(action) = todo.pop_front() {
            match action {
                Action::Look(blocked) => {
                    let looked = Done::Looked(blocked.uid, Some(need(bytes)));
                    todo.extend(self.answer(&blocked.namespace, looked));
                }
                other => others.push(other),
            }
        }
        others
    }
}

fn opened(actions: &[Action]) -> Vec<&str> {
    let names = actions.iter().filter_map(|action| match action {
        Action::Open { blocked, .. } => Some(&*blocked.name),
        _ => None,
    });
    names.collect()
}

fn told(actions: &[Action]) -> Vec<String> {
    let sentences = actions.iter().filter_map(|action| match action {
        Action::Tell(Tell::NotEnough { sentence, .. }) => Some(sentence.to_string()),
        _ => None,
    });
    sentences.collect()
}

fn window(ending: Ending, took_ms: u64) -> impl Fn(&str) -> Done {
    move |uid| Done::Opened(Uid::parse(uid), Opened { ending: ending.clone(), took_ms })
}

#[test]
fn a_window_opens_for_one_at_a_time_in_order() {
    let mut world = World::full("shop", "100", &["first", "second"]);
    let actions = world.looked(5);
    assert_eq!(opened(&actions), ["first"]);
    let entered = window(Ending::Entered, 30);
    world.facts.get_mut("shop").unwrap().blocked.remove(0);
    let actions = world.answer("shop", entered("first"));
    assert_eq!(opened(&world.tell_sources(actions, 5)), ["second"]);
}

#[test]
fn who_lacks_head_room_is_told_once_and_holds_nobody_up() {
    let mut world = World::full("shop", "3", &["large", "small"]);
    let look = world.plan();
    assert!(matches!(&look[..], [Action::Look(blocked)] if &*blocked.name == "large"));
    let next = world.answer("shop", Done::Looked(Uid::parse("large"), Some(need(8))));
    assert_eq!(told(&next).len(), 1);
    assert!(told(&next)[0].ends_with("missing 1"), "{:?}", told(&next));
    let next = world.answer("shop", Done::Looked(Uid::parse("small"), Some(need(7))));
    assert_eq!(opened(&next), ["small"]);
    assert_eq!(told(&next), [""; 0]);
}

#[test]
fn a_hundred_without_budget_cause_nothing_in_steady_state() {
    let names: Vec<String> = (0..100).map(|n| format!("m{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::full("shop", "0", &names);
    let actions = world.looked(5);
    assert_eq!((told(&actions).len(), actions.len()), (100, 100));
    assert_eq!(world.state.next_due_ms(world.now), None, "nothing is due, ever");
    assert_eq!(world.change("shop", |_| {}), [], "an event that changes nothing");
    assert_eq!(world.state.blocked(), (100, 100));
}

#[test]
fn every_input_that_changes_is_looked_at_at_once() {
    type Change = fn(&mut NamespaceFacts);
    let enlarge: [(&str, Change); 4] = [
        ("grant", |facts| facts.budget = budget("1")),
        ("quota", |facts| facts.quotas[0].spec_hard = amounts(&[("memory", "11")])),
        ("usage", |facts| facts.quotas[0].used = amounts(&[("memory", "5")])),
        ("unlimited", |facts| facts.budget.grants.push(Grant::Unlimited { source: "policy".into() })),
    ];
    for (what, change) in enlarge {
        let mut world = World::full("shop", "0", &["mig"]);
        assert_eq!(told(&world.looked(5)).len(), 1);
        let actions = world.change("shop", change);
        if what == "usage" {
            // It fits: KubeVirt's controller is woken by the write that lowered the usage.
            assert_eq!(actions, []);
            assert!(matches!(&world.wait(1_000)[..], [Action::Nudge(_)]), "and if it did not notice, later");
        } else {
            assert_eq!(opened(&actions), ["mig"], "{what}");
        }
    }
    let mut world = World::full("shop", "0", &["mig"]);
    world.looked(5);
    let actions = world.change("shop", |facts| facts.blocked[0].version = "2".into());
    assert!(matches!(&actions[..], [Action::Look(_)]), "the migration");
    let mut world = World::full("shop", "0", &["mig"]);
    world.looked(5);
    let actions = world.change("shop", |facts| facts.limit_ranges = 1);
    let [Action::Nudge(nudge)] = &actions[..] else { panic!("the LimitRange: {actions:?}") };
    assert!(!nudge.marked);
    world.answer("shop", Done::Nudged);
    let mark: Arc<str> = NUDGE_KEY.into();
    let marked =
        |facts: &mut NamespaceFacts| _ = facts.quotas[0].used.insert(mark, Quantity::parse("0").unwrap());
    assert_eq!(world.change("shop", marked), [], "our own mark is no news");
}

#[test]
fn a_window_in_vain_is_tried_again_ever_more_rarely_and_rests_in_proportion() {
    let mut world = World::full("shop", "100", &["mig"]);
    assert_eq!(opened(&world.looked(5)), ["mig"]);
    let in_vain = window(Ending::InVain, 2_000);
    assert_eq!(world.answer("shop", in_vain("mig")), []);
    let usage = |facts: &mut NamespaceFacts| facts.quotas[0].used = amounts(&[("memory", "7")]);
    assert_eq!(world.change("shop", usage), [], "a change does not end the rest");
    let start = world.now.mono_ms;
    let mut waits = Vec::new();
    for _ in 0..12 {
        let before = world.now.mono_ms;
        assert_eq!(opened(&world.wait(u64::MAX / 2)), ["mig"]);
        waits.push(world.now.mono_ms - before);
        world.answer("shop", in_vain("mig"));
    }
    assert!(waits.iter().all(|wait| (20_000..=300_000).contains(wait)), "{waits:?}");
    assert!(*waits.last().unwrap() >= 150_000, "{waits:?} since {start}");
}

#[test]
fn room_that_another_target_took_is_made_again_at_once() {
    let mut world = World::full("shop", "100", &["mig", "other"]);
    assert_eq!(opened(&world.looked(5)), ["mig"]);
    let other_came = |facts: &mut NamespaceFacts| {
        facts.blocked.pop();
        facts.running.push(None);
    };
    assert_eq!(world.change("shop", other_came), []);
    let in_vain = window(Ending::InVain, 500);
    assert_eq!(opened(&world.answer("shop", in_vain("mig"))), ["mig"]);
    assert_eq!(world.answer("shop", in_vain("mig")), [], "nobody came this time");
}

#[test]
fn no_window_for_who_may_not_start_anyway() {
    let mut world = World::full("shop", "100", &["mig"]);
    world.add("busy", "0", &[]);
    let two = vec![Some(Arc::from("node")); 2];
    world.facts.get_mut("busy").unwrap().running = two;
    assert_eq!(world.looked(5), []);
    assert_eq!(world.state.next_due_ms(world.now), None);
    let actions = world.change("busy", |facts| _ = facts.running.pop());
    assert!(matches!(&actions[..], [Action::Look(_)]), "one of them is done: {actions:?}");
}

#[test]
fn windows_are_bounded_and_given_in_turn() {
    let mut world = World::new(ReactiveConfig { windows: 2, ..ReactiveConfig::default() });
    for namespace in ["a", "b", "c", "d"] {
        world.add(namespace, "100", &["mig"]);
    }
    assert_eq!(opened(&world.looked(5)).len(), 2);
    assert_eq!(world.state.open(), 2);
    let in_vain = window(Ending::InVain, 10);
    let next = world.answer("a", in_vain("mig"));
    assert!(matches!(&next[..], [Action::Open { blocked, .. }] if &*blocked.namespace == "c"), "{next:?}");
    let next = world.answer("b", in_vain("mig"));
    assert!(matches!(&next[..], [Action::Open { blocked, .. }] if &*blocked.namespace == "d"), "{next:?}");
}

fn raised(facts: &mut NamespaceFacts) {
    facts.quotas[0].status_hard = amounts(&[("memory", "12")]);
}

#[test]
fn what_is_raised_without_a_window_is_swept_after_a_moment() {
    let mut world = World::full("shop", "0", &[]);
    assert_eq!(world.change("shop", raised), []);
    assert_eq!(world.wait(999), []);
    let sweep = [Action::Sweep("shop".into(), Cause::Raised)];
    assert_eq!(world.wait(1), sweep);
    assert_eq!(world.answer("shop", Done::Failed(Failed::Other("down".into()))), []);
    assert_eq!(world.wait(1_000), sweep, "again");
    assert_eq!(world.answer("shop", Done::Swept { restored: 1, live: false }), []);
    assert_eq!(world.change("shop", |facts| facts.quotas = vec![quota()]), []);
    assert_eq!(world.state.next_due_ms(world.now), None);
    assert_eq!(world.state.known().count(), 0, "nothing is remembered");
}

#[test]
fn what_a_predecessor_left_is_swept_at_once() {
    let mut world = World::full("shop", "0", &[]);
    raised(world.facts.get_mut("shop").unwrap());
    world.state = State::new(ReactiveConfig::default(), 7);
    world.state.lead([Arc::from("shop")]);
    assert_eq!(world.plan(), [Action::Sweep("shop".into(), Cause::Raised)]);
}

#[test]
fn a_window_is_left_until_its_time_is_over_on_either_clock() {
    for (ahead_s, due_ms) in [(5, 6_000), (3_600, 8_000)] {
        let mut world = World::full("shop", "0", &[]);
        let until = world.now.unix_s() + ahead_s;
        let open = |facts: &mut NamespaceFacts| facts.window = Some(WindowFacts { nonce: "n".into(), until });
        assert_eq!(world.change("shop", open), []);
        assert_eq!(world.state.next_due_ms(world.now), Some(due_ms), "{ahead_s}");
        assert_eq!(world.wait(due_ms), [Action::Sweep("shop".into(), Cause::Expired)]);
    }
}

/// Its holder has stopped by then, or is dead; the lock still holds.
#[test]
fn what_is_raised_is_looked_at_in_the_last_second_of_its_window() {
    let mut world = World::full("shop", "0", &[]);
    world.now.unix_ms += 250;
    let until = world.now.unix_s() + 5;
    let open = |facts: &mut NamespaceFacts| {
        raised(facts);
        facts.window = Some(WindowFacts { nonce: "n".into(), until });
    };
    assert_eq!(world.change("shop", open), []);
    assert_eq!(world.state.next_due_ms(world.now), Some(4_750 - 700));
    assert_eq!(world.wait(5_000), [Action::Sweep("shop".into(), Cause::Expired)]);
    assert_eq!(world.answer("shop", Done::Swept { restored: 0, live: true }), []);
    let again = world.state.next_due_ms(world.now).unwrap();
    assert!((1..=1_500).contains(&again), "too early by the API server's clock: {again}");
}

#[test]
fn who_forbids_is_told_of_once_and_left_alone_for_long() {
    let mut world = World::full("shop", "0", &[]);
    world.change("shop", raised);
    world.wait(1_000);
    let said: Arc<str> = "status is immutable".into();
    let actions = world.answer("shop", Done::Failed(Failed::Forbidden(Arc::clone(&said))));
    let [Action::Tell(Tell::Forbidden { quota: name, said: told, .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((&**name, told), ("rq", &said));
    assert_eq!(world.state.summary("shop").forbidden, Some(Arc::clone(&said)));
    assert!(world.state.next_due_ms(world.now).unwrap() >= 30_000);
    assert_eq!(world.state.forbidden(), 1);
    assert!(matches!(&world.wait(u64::MAX / 2)[..], [Action::Sweep(..)]));
    assert_eq!(world.answer("shop", Done::Failed(Failed::Forbidden(said))), [], "told already");
    world.change("shop", |facts| facts.quotas = vec![quota()]);
    assert_eq!(world.state.summary("shop").forbidden, None);
}
