//! Puts other evaluators in force.
//!
//! Rules answer in the process. The gate prepares them: it reads all pods beside their watch and asks the next rules about
//! each, while those of before are in force. So a quota stands still only while its pods are charged anew. Sidecars are in
//! force at once, and quotas stand still until all pods are listed again and answered about.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use sluice_engine::Uid;
use sluice_index::{PodView, Version};
use sluice_runtime::backoff::{Backoff, process_seed};
use tokio::sync::watch as latest;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::apply::{Apply, Page};
use super::evaluators::{AskNext, Content, EvaluatorQuestion, EvaluatorsConfig, Numbered, Wanted};
use super::handle::Gate;
use super::metrics::Work;
use super::shadow::{SeenPod, ShadowConfig};

/// The gate reads pods for so long at most. Then it puts the evaluators in force and has pods listed again.
const PREPARED_IN: Duration = Duration::from_secs(120);

/// Evaluators are in force from now on.
struct PutInForce {
    /// The number of their configuration.
    revision: u32,
    /// They have been asked before about the pods that were read.
    are_prepared: bool,
}

/// What of a pod says which one it is.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: Box<str>,
    #[serde(default)]
    name: Box<str>,
    #[serde(default)]
    uid: Box<str>,
    resource_version: Option<Box<str>>,
}

impl Gate {
    /// Puts these evaluators in force now. The gate releases no pod that one of them may be about before
    /// [`Self::follow_evaluators`] has had it listed again and there is an answer about it.
    pub fn evaluate_by(&self, config: Option<Arc<EvaluatorsConfig>>) {
        self.locked(Work::Watch, |state, now| {
            let revision = state.follow_evaluators(config.clone(), now);
            self.evaluators.send_replace((revision, config));
        });
        self.news.notify_one();
    }

    /// Hands over the evaluators that are to be in force; `number` counts how many times that was done. With `is_at_once`
    /// they are in force when this returns. Otherwise [`Self::follow_evaluators`] prepares them, and those of before stay
    /// in force meanwhile.
    pub fn change_evaluators(&self, number: u64, config: Option<Arc<EvaluatorsConfig>>, is_at_once: bool) {
        let wanted = Wanted { number, config };
        if is_at_once {
            self.put_in_force(&wanted);
        }
        self.wanted.send_replace(wanted);
    }

    /// Puts the evaluators in force that were handed over last, prepared or not.
    pub fn enforce_evaluators(&self) {
        let wanted = self.wanted.borrow().clone();
        self.put_in_force(&wanted);
    }

    /// The `number` with which the evaluators in force were handed over.
    #[must_use]
    pub fn evaluators_in_force(&self) -> latest::Receiver<u64> {
        self.in_force.subscribe()
    }

    /// Has the evaluators in force answer anew about all pods. The caller has these listed again.
    pub(super) fn evaluate_again(&self) {
        self.locked(Work::Watch, |state, now| {
            let config = self.evaluators.borrow().1.clone();
            if config.is_some() {
                let revision = state.follow_evaluators(config.clone(), now);
                self.evaluators.send_replace((revision, config));
            }
        });
        self.news.notify_one();
    }

    /// Puts these evaluators in force, if neither they nor later ones are.
    fn put_in_force(&self, Wanted { number, config }: &Wanted) -> Option<PutInForce> {
        let put = self.locked(Work::Watch, |state, now| {
            if *self.in_force.borrow() >= *number {
                return None;
            }
            let are_prepared = config.as_ref().is_some_and(|config| state.expects(config));
            let revision = state.follow_evaluators(config.clone(), now);
            self.evaluators.send_replace((revision, config.clone()));
            self.next.send_replace(Numbered::default());
            self.in_force.send_replace(*number);
            Some(PutInForce { revision, are_prepared })
        })?;
        self.news.notify_one();
        let names: Vec<&str> = config.iter().flat_map(|config| config.asked()).collect();
        tracing::info!(?names, "evaluators in force");
        Some(put)
    }

    /// From now on these evaluators are in the shadow, or none.
    pub fn shadow_by(&self, config: Option<Arc<ShadowConfig>>) {
        self.locked(Work::Watch, |state, _| {
            let revision = state.follow_shadow(config.clone());
            self.shadow.send_replace((revision, config));
        });
    }

    /// Prepares the evaluators that are handed over and puts them in force, and has pods read for those in the shadow, from
    /// this call on until `cancel`.
    pub fn follow_evaluators(self, cancel: CancellationToken) -> impl Future<Output = ()> {
        let (mut in_force, mut shadow) = (self.evaluators.subscribe(), self.shadow.subscribe());
        let mut wanted = self.wanted.subscribe();
        // Those that were handed over before.
        wanted.mark_changed();
        async move {
            let follow = async {
                loop {
                    let goes_on = tokio::select! {
                        changed = in_force.changed() => {
                            self.watches.pods.list_again().await;
                            changed
                        }
                        changed = wanted.changed() => {
                            let wanted = wanted.borrow_and_update().clone();
                            self.prepare(wanted, &mut in_force).await;
                            changed
                        }
                        changed = shadow.changed() => {
                            self.read_or_list().await;
                            changed
                        }
                    };
                    if goes_on.is_err() {
                        return;
                    }
                }
            };
            cancel.run_until_cancelled(follow).await;
            // The process goes on with the last ones.
            cancel.cancelled().await;
        }
    }

    /// Prepares the evaluators if they can be, and puts them in force. A change of `evaluators` makes the caller list pods,
    /// so this marks its own change as seen where nothing has to be listed.
    async fn prepare(&self, wanted: Wanted, evaluators: &mut latest::Receiver<Numbered>) {
        let mut in_force = self.in_force.subscribe();
        let are_read = if self.announce(&wanted) {
            tokio::select! {
                are_read = self.read_beside() => are_read,
                // A list of evaluators has put these in force, or others.
                _ = in_force.wait_for(|number| *number >= wanted.number) => return,
            }
        } else {
            false
        };
        let Some(PutInForce { revision, are_prepared }) = self.put_in_force(&wanted) else { return };
        let is_to_list = wanted.config.is_some() && !(are_read && are_prepared);
        if !is_to_list && evaluators.borrow_and_update().0 != revision {
            // Others are in force by now.
            evaluators.mark_changed();
        }
    }

    /// Makes these the next evaluators, which the watch asks about pods from now on. Returns false if they cannot be
    /// prepared or are in force.
    fn announce(&self, wanted: &Wanted) -> bool {
        let config = wanted.config.as_ref().filter(|config| config.asker.is_immediate());
        let Some(config) = config.filter(|_| self.can_read_beside()) else { return false };
        self.locked(Work::Watch, |state, _| {
            if *self.in_force.borrow() >= wanted.number {
                return false;
            }
            let number = state.expect_evaluators(Arc::clone(config));
            number.is_some_and(|number| {
                self.next.send_replace((number, Some(Arc::clone(config))));
                true
            })
        })
    }

    /// Has all pods read, beside their watch if that may be.
    async fn read_or_list(&self) {
        let mut evaluators = self.evaluators.subscribe();
        let are_read = self.can_read_beside()
            && tokio::select! {
                are_read = self.read_beside() => are_read,
                // Then they are listed.
                _ = evaluators.changed() => return,
            };
        if !are_read {
            self.watches.pods.list_again().await;
        }
    }

    /// Whether the watch of pods hands on their JSON, so that nothing is missed beside it.
    fn can_read_beside(&self) -> bool {
        *self.has_texts.borrow() && self.reader.get().is_some()
    }

    /// Reads all pods once, for evaluators of which the watch knows. Returns whether all were read in time.
    async fn read_beside(&self) -> bool {
        let Some(reader) = self.reader.get() else { return false };
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), process_seed());
        let reading = async {
            while let Err(error) = self.read_pages(reader).await {
                let wait = backoff.failed();
                tracing::warn!(%error, retry_in = ?wait, "reading all pods for evaluators that have changed");
                sleep(wait).await;
            }
        };
        timeout(PREPARED_IN, reading).await.is_ok()
    }

    async fn read_pages(&self, reader: &Apply) -> kube::Result<()> {
        let mut next = Page::First { version: 0 };
        loop {
            // The page is in memory until its pods are read.
            let _turn = reader.pages.acquire().await;
            let page = reader.pod_texts(None, &next).await?;
            page.items.iter().for_each(|text| self.see_beside(text.get()));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => next = Page::Next { token },
                None => return Ok(()),
            }
        }
    }

    /// A pod was this when it was read. What has changed since comes by the watch.
    fn see_beside(&self, text: &str) {
        let (Ok(Named { metadata }), Ok(view)) = (serde_json::from_str(text), self.view.view(text)) else {
            return;
        };
        let version = Version::parse(metadata.resource_version.as_deref());
        let uid = Uid::parse(&metadata.uid);
        let pod = SeenPod { namespace: metadata.namespace, name: metadata.name, uid };
        self.ask_next(&pod, version, &view);
        self.cast_shadow(&pod, version, &view);
    }

    /// Asks the next evaluators about a pod that was seen in this version.
    pub(super) fn ask_next(&self, pod: &SeenPod, version: Version, view: &PodView) {
        let (number, Some(config)) = self.next.borrow().clone() else { return };
        let content = Content { hash: view.hash, selected_by: config.selecting(view), revision: number };
        let asked = self.locked(Work::Watch, |state, _| state.see_for_next(pod, version, content));
        let Some(AskNext { pod: id, namespace, uid, is_waiting, native, counted, selected }) = asked else {
            return;
        };
        let said = config.asker.answer(EvaluatorQuestion {
            uid: uid.clone(),
            namespace,
            hash: view.hash,
            pod_json: view.json.clone().into(),
            other_pods: Bytes::new(),
            is_waiting,
            native,
            counted,
            selected,
        });
        if let Some(said) = said {
            let of = (version, number, selected);
            self.locked(Work::Settle, |state, _| state.say_for_next((id, &uid), of, said));
        }
    }
}
