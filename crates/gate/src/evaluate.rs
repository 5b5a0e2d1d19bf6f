//! Has evaluators asked: finds the text of the pod, and hands it on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_engine::Charge;
use sluice_index::PodFacts;
use tokio::sync::watch as latest;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::action::Outcome;
use super::apply::Apply;
use super::evaluators::{Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, Price};
use super::handle::Gate;
use super::metrics::Work;

/// No answer takes longer, whatever the deadlines of evaluators are.
const ANSWERED_IN: Duration = Duration::from_secs(60);

/// So long an update of a pod waits for an answer.
const JUDGED_IN: Duration = Duration::from_secs(2);

/// A pod whose text could not be had is asked about again after so long.
const AGAIN: Duration = Duration::from_secs(1);

impl Gate {
    /// Asks these evaluators, and others when they change: then all pods are listed and read again.
    pub async fn follow_evaluators(
        self,
        mut config: latest::Receiver<Option<Arc<EvaluatorsConfig>>>,
        cancel: CancellationToken,
    ) {
        let follow = async {
            let mut is_first = true;
            loop {
                let now = config.borrow_and_update().clone();
                if !is_first || now.is_some() {
                    self.evaluate_by(now);
                    self.watches.pods.list_again().await;
                }
                is_first = false;
                if config.changed().await.is_err() {
                    break;
                }
            }
        };
        cancel.run_until_cancelled(follow).await;
        // The process goes on with the last ones.
        cancel.cancelled().await;
    }

    /// From now on these evaluators are asked. Pods have to be listed after that.
    pub(crate) fn evaluate_by(&self, config: Option<Arc<EvaluatorsConfig>>) {
        let revision = self.locked(Work::Watch, |state, now| state.follow_evaluators(config.clone(), now));
        *self.evaluators.write() = config.map(|config| (revision, config));
        self.news.notify_one();
    }

    pub(super) async fn evaluate(&self, apply: &Apply, question: Evaluate) -> Outcome {
        let answer = self.answer_about(apply, &question).await;
        if let Err(failed) = &answer {
            let Evaluate { namespace, name, .. } = &question;
            tracing::debug!(ns = %namespace, pod = %name, why = %failed.text, "not evaluated");
        }
        let Evaluate { pod, uid, hash, serial, .. } = question;
        Outcome::Evaluated { pod, uid, hash, serial, answer }
    }

    async fn answer_about(&self, apply: &Apply, question: &Evaluate) -> Result<Price, Failed> {
        let kept = self.texts.lock().get(&question.uid, question.hash);
        let text = match kept {
            Some(text) => text,
            None => self.read_text(apply, question).await?,
        };
        let answer = self.ask(EvaluatorQuestion {
            uid: question.uid.clone(),
            namespace: Arc::clone(&question.namespace),
            hash: question.hash,
            pod_json: text,
            is_waiting: question.is_waiting,
            native: Arc::clone(&question.native),
        });
        let answer = answer.await;
        if answer.is_ok() {
            self.texts.lock().forget(&question.uid);
        }
        answer
    }

    async fn ask(&self, question: EvaluatorQuestion) -> Result<Price, Failed> {
        let Some(asker) = &self.asker else { return Err(failed("this process asks no evaluators")) };
        let silent = || Err(failed("evaluators did not answer"));
        timeout(ANSWERED_IN, asker.ask(question)).await.unwrap_or_else(|_| silent())
    }

    async fn read_text(&self, apply: &Apply, question: &Evaluate) -> Result<Bytes, Failed> {
        let text = apply.pod_text(&question.namespace, &question.name).await;
        let text = text.map_err(|error| {
            tracing::debug!(ns = %question.namespace, pod = %question.name, %error, "reading pod to evaluate");
            Failed { retry: Some(AGAIN), ..failed("the pod could not be read from the API server") }
        })?;
        // What has changed is seen, and asked about as it is then.
        let view = self.view.view(&text).ok().filter(|view| view.hash == question.hash);
        let changed = || Failed { retry: Some(AGAIN), ..failed("the pod has changed meanwhile") };
        view.map(|view| view.json.into()).ok_or_else(changed)
    }

    /// What evaluators say of a pod as an update is to make it, by its JSON; `None`: they do not say it in time, or there
    /// are none.
    pub(super) async fn price_of_update(&self, after: &PodFacts, text: Option<&str>) -> Option<Price> {
        if self.evaluators.read().is_none() {
            return None;
        }
        let view = self.view.view(text?).ok()?;
        let answer = self.ask(EvaluatorQuestion {
            uid: after.uid.clone(),
            namespace: after.namespace.as_ref().into(),
            hash: view.hash,
            pod_json: view.json.into(),
            is_waiting: true,
            native: Arc::new(Charge::clone(&after.charge)),
        });
        timeout(JUDGED_IN, answer).await.ok()?.ok()
    }
}

fn failed(text: &str) -> Failed {
    Failed { text: text.into(), retry: None }
}
