//! Sidecars in the shadow: who is to be asked about what, and what becomes of what they say.

use std::sync::Arc;

use kube::core::Selector;
use serde_json::{Value, json};
use sluice_engine::{Amount, Charge, PodId, Resource};

use super::evaluator::content_of;
use super::server::CPU;
use super::shadow::{config, seen, version_of};
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Content, Opinion, RuleFigures, SaidLater, Selection, ShadowConfig, State};

/// A rule that matches nothing, and a sidecar that is about pods of the app db.
fn with_sidecar() -> ShadowConfig {
    let pods = Selector::from_iter([("app", "db")]);
    let sidecar = ("sidecar".into(), Selection { pods, ..Selection::default() });
    let evaluators = vec![("rule".into(), Selection::default()), sidecar];
    ShadowConfig { evaluators, later: 0b10, ..(*config()).clone() }
}

/// The pod was seen, and what answers at once has answered.
pub fn see(state: &mut State, pod: &Value, hash: u64) {
    let selected_by = if pod["metadata"]["labels"]["app"] == "db" { 0b11 } else { 0b01 };
    let content = Content { hash, selected_by, revision: state.shadow_revision() };
    if state.see_in_shadow(&seen(pod), version_of(pod), content).is_some() {
        state.on_opinions(&seen(pod), content, vec![(0, Opinion::NoMatch)]);
    }
}

impl Story {
    fn in_shadow_of_sidecar() -> Self {
        let mut story = Self::led();
        story.state.follow_shadow(Some(Arc::new(with_sidecar())));
        story.server.set_hard(1000);
        story.run(at(0));
        story
    }

    fn create_in_shadow(&mut self, app: &str, name: &str, now: u64) {
        self.server.create_pod_with(name, 100, |pod| pod["metadata"]["labels"] = json!({"app": app}));
        for later in [0, 10, 100, 1_000] {
            self.run(at(now + later));
        }
    }

    /// About whom the sidecar is to be asked.
    fn asked(&mut self, again: u16) -> Vec<String> {
        self.asked_at(again, 2_000)
    }

    fn asked_at(&mut self, again: u16, now: u64) -> Vec<String> {
        let asked = self.state.plan_shadow_asks(NAMESPACE, (again, PodId(0)), at(now));
        assert!(asked.iter().all(|it| it.selected == 0b10), "{asked:?}");
        let mut names: Vec<String> = asked.iter().map(|it| it.pod.name.to_string()).collect();
        names.sort();
        names
    }

    /// The sidecar says this of the pod as it is.
    fn say_later(&mut self, name: &str, opinion: Opinion, is_final: bool, now: u64) {
        let pod = self.server.pods().find(|(known, _)| *known == name).unwrap().1.clone();
        let content = (self.state.shadow_revision(), content_of(&pod));
        let said = vec![SaidLater { place: 1, opinion, is_final }];
        self.state.on_said_later(&seen(&pod), content, said, at(now));
        self.run(at(now));
    }

    fn figures(&self) -> RuleFigures {
        let figures = self.state.rule_figures();
        figures.into_iter().find(|(name, _)| **name == *"sidecar").unwrap().1
    }

    /// How much more CPU all pods would be charged.
    fn total(&self) -> Option<String> {
        let shadow = self.figures().shadow.unwrap();
        shadow.total.iter().find(|(key, _)| key == "cpu").map(|(_, change)| change.to_string())
    }
}

fn charging(milli: i128) -> Opinion {
    let cpu = (Resource::from_quota_key(CPU), Amount::from_nanos(milli * 1_000_000));
    Opinion::Charge {
        charge: Arc::new(Charge::from_pairs([cpu, (Resource::Pods, Amount::ONE)])),
        retains: false,
    }
}

#[test]
fn it_is_asked_about_what_it_selects_once_and_charges_nothing() {
    let mut story = Story::in_shadow_of_sidecar();
    story.create_in_shadow("db", "a", 0);
    story.create_in_shadow("web", "b", 0);
    assert_eq!((story.gated(), story.server.used()), (vec![], "200m"), "nobody waits for it");
    assert_eq!(story.asked(0), ["a"]);
    story.say_later("a", charging(300), true, 2_000);
    assert_eq!((story.asked(0), story.asked(0b10)), (vec![], vec!["a".to_owned()]));
    assert_eq!((story.figures().matched, story.total().as_deref()), (1, Some("200m")));
    assert_eq!(story.server.used(), "200m");
}

#[test]
fn what_was_said_stays_until_something_else_is_said_of_what_the_pod_is_now() {
    let mut story = Story::in_shadow_of_sidecar();
    story.create_in_shadow("db", "a", 0);
    story.say_later("a", charging(300), true, 2_000);
    let key = super::server::key(super::server::Kind::Pod, NAMESPACE, "a");
    let before = content_of(story.server.pods().next().unwrap().1);
    story.server.edit(&key, |pod| pod["metadata"]["labels"]["size"] = json!("large"));
    story.run(at(2_020));
    assert_eq!((story.asked(0), story.total().as_deref()), (vec!["a".to_owned()], Some("200m")));
    let pod = story.server.pods().next().unwrap().1.clone();
    let late = vec![SaidLater { place: 1, opinion: charging(700), is_final: true }];
    story.state.on_said_later(&seen(&pod), (story.state.shadow_revision(), before), late, at(2_030));
    story.run(at(2_030));
    assert_eq!(story.total().as_deref(), Some("200m"), "it is about what the pod was");
    story.say_later("a", charging(500), true, 2_040);
    assert_eq!((story.asked(0).len(), story.total().as_deref()), (0, Some("400m")));
    story.say_later("a", Opinion::NoMatch, true, 2_050);
    assert_eq!((story.figures().matched, story.total()), (0, None));
    // It selects the pod no more.
    story.say_later("a", charging(500), true, 2_060);
    story.server.edit(&key, |pod| pod["metadata"]["labels"] = json!({"app": "web"}));
    story.run(at(2_070));
    assert_eq!((story.asked(0b10).len(), story.figures().matched, story.total()), (0, 0, None));
}

#[test]
fn without_an_answer_a_pod_that_waits_would_be_held_and_is_asked_about_again() {
    let mut story = Story::in_shadow_of_sidecar();
    story.server.set_hard(100);
    for name in ["a", "b"] {
        story.create_in_shadow("db", name, 0);
        story.say_later(name, Opinion::None, false, 2_010);
    }
    assert_eq!(story.gated(), ["b"]);
    let figures = story.figures();
    assert_eq!(
        (figures.held, figures.shadow.unwrap().held),
        (0, 1),
        "one that runs would be charged as before"
    );
    assert_eq!(story.asked_at(0, 3_000), Vec::<String>::new());
    assert_eq!(story.asked_at(0, 3_010), ["a", "b"], "after a second");
    let another = with_sidecar();
    story.state.follow_shadow(Some(Arc::new(another)));
    assert_eq!(story.asked(0).len(), 0, "by another configuration nothing was seen yet");
}

/// Of two sidecars the one selects the namespace later than the other.
#[test]
fn who_selects_a_pod_later_is_asked_about_it_though_another_has_said_something() {
    let mut story = Story::led();
    let of = |tier: Option<&'static str>| {
        let namespaces = tier.map_or_else(Selector::default, |tier| Selector::from_iter([("tier", tier)]));
        ("sidecar".into(), Selection { namespaces, ..Selection::default() })
    };
    let evaluators = vec![("rule".into(), Selection::default()), of(None), of(Some("gold"))];
    let config = ShadowConfig { evaluators, later: 0b110, ..(*config()).clone() };
    story.state.follow_shadow(Some(Arc::new(config)));
    story.server.set_hard(1000);
    story.server.create_pod("a", 100, 0);
    story.run(at(0));
    let pod = story.server.pods().next().unwrap().1.clone();
    let hash = content_of(&pod);
    let content = Content { hash, selected_by: 0b111, revision: story.state.shadow_revision() };
    story.state.see_in_shadow(&seen(&pod), version_of(&pod), content);
    story.state.on_opinions(&seen(&pod), content, Vec::new());
    let asked = |story: &mut Story| {
        let asked = story.state.plan_shadow_asks(NAMESPACE, (0, PodId(0)), at(10));
        asked.iter().map(|it| it.selected).collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut story), [0b010]);
    let said = vec![SaidLater { place: 1, opinion: Opinion::NoMatch, is_final: true }];
    story.state.on_said_later(&seen(&pod), (content.revision, hash), said, at(10));
    assert!(asked(&mut story).is_empty());
    let labels = json!({"tier": "gold"});
    story.state.apply_namespace(
        &super::server::wire(json!({
            "metadata": {"name": NAMESPACE, "uid": "n", "resourceVersion": "2", "labels": labels},
        })),
        at(20),
    );
    assert_eq!(asked(&mut story), [0b100]);
}

#[test]
fn who_has_no_answer_is_asked_later_each_time_and_at_once_when_it_can_be() {
    let mut story = Story::in_shadow_of_sidecar();
    story.create_in_shadow("db", "a", 0);
    let mut now = 2_000;
    let mut waits = Vec::new();
    for _ in 0..9 {
        story.say_later("a", Opinion::None, false, now);
        let asked = (now..).step_by(500).find(|at| !story.asked_at(0, *at).is_empty()).unwrap();
        waits.push((asked - now) / 1_000);
        now = asked;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    story.say_later("a", Opinion::None, false, now);
    assert_eq!(story.asked_at(0b10, now + 1_000), Vec::<String>::new(), "whatever others do");
    story.state.retry_in_shadow(0b01);
    assert_eq!(story.asked_at(0, now + 1_000), Vec::<String>::new(), "another one can be asked");
    story.state.retry_in_shadow(0b10);
    assert_eq!(story.asked_at(0, now + 1_000), ["a"]);
    story.say_later("a", charging(300), true, now + 1_000);
    story.say_later("a", Opinion::None, false, now + 2_000);
    assert_eq!(story.asked_at(0, now + 3_000), ["a"], "it began anew");
}
