//! Has evaluators asked: finds the text of the pod, and hands it on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_engine::Charge;
use sluice_index::{PodFacts, PodView, Version, ViewKey};
use tokio::time::timeout;

use super::action::Outcome;
use super::apply::Apply;
use super::apply::Page;
use super::evaluators::{
    Again, Content, Evaluate, EvaluatorQuestion, Failed, NotRead, Price, Priced, ReadRound, Said,
};
use super::handle::Gate;
use super::metrics::Work;
use super::other_pods::{Gathering, NamespacePods, OtherPodsForm, TooMany, add_page};
use super::shadow::{MOST_SHADOWS, Opinion, RuleFigures, SeenPod};
use super::state::State;

/// No question takes longer, with its wait for a turn: one that has none for good gives its place back. That is twice what
/// as many as are on their way take of the slowest evaluator that may be.
const ANSWERED_IN: Duration = Duration::from_secs(320);

/// No namespace takes longer to be read.
pub(super) const READ_IN: Duration = Duration::from_secs(60);

/// So long an update of a pod waits for an answer.
const JUDGED_IN: Duration = Duration::from_secs(2);

/// What is told of a pod in a namespace whose pods could not be read.
const UNREAD: &str = "the pods of its namespace could not be read from the API server";

/// What is told of a pod in a namespace whose pods cannot be sent along.
const TOO_MANY: &str = "the pods of the namespace are too many to be sent to evaluators (3.6 MB, cut to what counting \
                        needs): have fewer in it, or set spec.sidecar.otherPods: None in the Evaluator of each sidecar \
                        that does not look at them";

/// A pod whose text could not be had is asked about again after so long.
const AGAIN: Duration = Duration::from_secs(1);

impl Gate {
    /// Asks the evaluators in the shadow that answer at once about a pod that was seen in this version, if it is other than
    /// before.
    pub(super) fn cast_shadow(&self, pod: &SeenPod, version: Version, view: &PodView) {
        let (revision, Some(config)) = self.shadow.borrow().clone() else { return };
        let content = Content { hash: view.hash, selected_by: config.selecting(view), revision };
        let seen = self.locked(Work::Watch, |state, _| state.see_in_shadow(pod, version, content));
        let Some(counted) = seen else { return };
        let at_once = content.selected_by & !config.later;
        let places: Vec<usize> = (0..MOST_SHADOWS).filter(|place| at_once >> place & 1 == 1).collect();
        let said = config.asker.ask(&places, view.json.as_bytes(), &counted);
        let opinions: Vec<(usize, Opinion)> = places.into_iter().zip(said).collect();
        self.locked(Work::Settle, |state, _| state.on_opinions(pod, content, opinions));
    }

    /// How many pods each evaluator in force matches and holds, by its name.
    #[must_use]
    pub fn rule_figures(&self) -> Vec<(Arc<str>, RuleFigures)> {
        self.state().lock().rule_figures()
    }

    /// Waits until evaluators are to be asked, or rules are in the shadow: then pods have to come
    /// [with their JSON](Self::on_pods_with_text).
    pub async fn asks_evaluators(&self) {
        let (mut evaluators, mut shadow) = (self.evaluators.subscribe(), self.shadow.subscribe());
        let ended = tokio::select! {
            there = evaluators.wait_for(|(_, config)| config.is_some()) => there.is_err(),
            there = shadow.wait_for(|(_, config)| config.is_some()) => there.is_err(),
        };
        if ended {
            std::future::pending::<()>().await;
        }
    }

    pub(super) async fn evaluate(&self, apply: &Apply, question: Evaluate) -> Outcome {
        let answer = self.answer_about(apply, &question).await;
        if let Err(failed) = &answer {
            let Evaluate { namespace, name, .. } = &question;
            tracing::debug!(%namespace, pod = %name, why = %failed.text, "not evaluated");
        }
        let Evaluate { pod, uid, hash, serial, .. } = question;
        Outcome::Evaluated { pod, uid, hash, serial, answer }
    }

    async fn answer_about(&self, apply: &Apply, question: &Evaluate) -> Result<Said, Failed> {
        let beside = question.round.as_ref().and_then(|round| round.pods.get());
        let kept = self.texts.lock().get(&question.uid, question.hash);
        let own = || beside?.own(&question.uid, question.hash);
        let text = match kept.or_else(own) {
            Some(text) => text,
            None => self.read_text(apply, (&question.namespace, &question.name), question.hash).await?,
        };
        let other_pods = beside.map(|pods| pods.encoded.clone()).unwrap_or_default();
        let asking = question.config.asker.ask(asked(question, text, other_pods));
        let silent = || Err(failed("evaluators did not answer"));
        let answer = timeout(ANSWERED_IN, asking).await.unwrap_or_else(|_| silent());
        if answer.is_ok() {
            self.texts.lock().forget(&question.uid);
        }
        answer
    }

    /// Reads the pods of a namespace for its round.
    pub(super) async fn read_round(&self, apply: &Apply, read: ReadRound) -> Outcome {
        let ReadRound { namespace, name, round, form } = read;
        let reading = read_namespace(apply, &self.view, &name, round.version, form);
        let late = || Err(NotRead { text: UNREAD.into(), are_too_many: false });
        let pods = timeout(READ_IN, reading).await.unwrap_or_else(|_| late());
        self.metrics.observe_round(pods.as_ref().map(|pods| pods.fit));
        let read = pods.map(|pods| {
            let _ = round.pods.set(pods);
        });
        Outcome::RoundRead(namespace, round.number, read)
    }

    pub(super) async fn read_text(
        &self,
        apply: &Apply,
        (namespace, name): (&str, &str),
        hash: u64,
    ) -> Result<Bytes, Failed> {
        let text = apply.pod_text(namespace, name).await;
        let text = text.map_err(|error| {
            tracing::debug!(%namespace, pod = %name, %error, "reading pod to evaluate");
            Failed { again: Again::In(AGAIN), ..failed("the pod could not be read from the API server") }
        })?;
        // What has changed is seen, and asked about as it is then.
        let view = self.view.view(&text).ok().filter(|view| view.hash == hash);
        let changed = || Failed { again: Again::In(AGAIN), ..failed("the pod has changed meanwhile") };
        view.map(|view| view.json.into()).ok_or_else(changed)
    }

    /// Answers the question by rules, which takes no other process.
    pub(super) fn answer_at_once(&self, question: Evaluate, text: Bytes) {
        let asked = asked(&question, text, Bytes::new());
        let Some(answer) = question.config.asker.answer(asked) else { return };
        let Evaluate { pod, uid, hash, serial, .. } = question;
        let outcome = Outcome::Evaluated { pod, uid, hash, serial, answer };
        self.change(Work::Settle, |state, now| state.on_outcome(outcome, now));
    }

    /// What evaluators say of a pod as an update is to make it, by its JSON, or why they do not say it in time; `None`:
    /// there are none, or they cannot be asked.
    pub(super) async fn price_of_update(
        &self,
        after: &PodFacts,
        text: Option<&str>,
    ) -> Option<Result<Priced, Failed>> {
        let (revision, config) = self.evaluators.borrow().clone();
        let config = config?;
        let view = self.view.view(text?).ok()?;
        let namespace = |state: &mut State, _| state.cluster().selecting_namespace(&after.namespace, &config);
        let in_namespace = self.locked(Work::Admit, namespace);
        let priced = |price| Priced { price, revision, in_namespace };
        let selected = config.selecting(&view) & in_namespace;
        if selected == 0 {
            return Some(Ok(priced(Price::NoMatch)));
        }
        let asking = async {
            let counted = Arc::new(Charge::clone(&after.charge));
            let form = config.other_pods.filter(|_| selected & config.in_rounds != 0);
            let other_pods = match (form, self.reader.get()) {
                (Some(form), Some(reader)) => {
                    let read = read_namespace(reader, &self.view, &after.namespace, 0, form).await;
                    read.map_err(|why| failed(&why.text))?.encoded
                }
                (Some(_), None) => return Err(failed("the pods of its namespace cannot be read yet")),
                (None, _) => Bytes::new(),
            };
            let asked = EvaluatorQuestion {
                uid: after.uid.clone(),
                namespace: after.namespace.as_ref().into(),
                hash: view.hash,
                pod_json: view.json.into(),
                other_pods,
                is_waiting: true,
                native: Arc::clone(&counted),
                counted,
                selected,
            };
            config.asker.ask(asked).await
        };
        let said = timeout(JUDGED_IN, asking).await;
        let silent =
            || Err(failed(&format!("evaluators ({}) have not answered in time", config.names(selected))));
        Some(said.unwrap_or_else(|_| silent()).map(|said| priced(said.price)))
    }
}

/// The pods of a namespace, by a state of this version or a later one; 0: of now.
pub(super) async fn read_namespace(
    apply: &Apply,
    view: &ViewKey,
    namespace: &str,
    version: u64,
    form: OtherPodsForm,
) -> Result<NamespacePods, NotRead> {
    let mut gathering = Gathering::new(form);
    let mut next = Page::First { version };
    loop {
        // The page is in memory until its pods are gathered.
        let _turn = apply.pages.acquire().await;
        let page = apply.pod_texts(Some(namespace), &next).await.map_err(|error| {
            tracing::debug!(%namespace, %error, "reading the pods of a namespace to evaluate some");
            NotRead { text: UNREAD.into(), are_too_many: false }
        })?;
        let too_many = |TooMany| NotRead { text: TOO_MANY.into(), are_too_many: true };
        add_page(&mut gathering, view, &page.items).map_err(too_many)?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => next = Page::Next { token },
            None => return Ok(gathering.finish()),
        }
    }
}

fn asked(question: &Evaluate, pod_json: Bytes, other_pods: Bytes) -> EvaluatorQuestion {
    EvaluatorQuestion {
        uid: question.uid.clone(),
        namespace: Arc::clone(&question.namespace),
        hash: question.hash,
        pod_json,
        other_pods,
        is_waiting: question.is_waiting,
        native: Arc::clone(&question.native),
        counted: Arc::clone(&question.counted),
        selected: question.selected,
    }
}

fn failed(text: &str) -> Failed {
    Failed { text: text.into(), by: 0, again: Again::Later }
}
