//! Puts other evaluators in force.
//!
//! Where they answer at once, all pods are read beside their watch first, and the next evaluators are asked about them while
//! those of before are in force. So a quota stands still only while its pods are charged anew. Others are in force at once:
//! then quotas stand still until all pods are listed again and answered.

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

/// So long all pods may take to be read. Then the evaluators are in force, and what is missing is listed.
const PREPARED_IN: Duration = Duration::from_secs(120);

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
    /// From now on these evaluators are asked. No pod that one of them may be about goes before it is read, listed again
    /// by [`Self::follow_evaluators`], and answered.
    pub fn evaluate_by(&self, config: Option<Arc<EvaluatorsConfig>>) {
        self.locked(Work::Watch, |state, now| {
            let revision = state.follow_evaluators(config.clone(), now);
            self.evaluators.send_replace((revision, config));
        });
        self.news.notify_one();
    }

    /// These evaluators, the next ones by this number, are to be in force: at once, or as soon as they are prepared by
    /// [`Self::follow_evaluators`], until when those of before are.
    pub fn change_evaluators(&self, number: u64, config: Option<Arc<EvaluatorsConfig>>, is_at_once: bool) {
        let wanted = Wanted { number, config };
        if is_at_once {
            self.put_in_force(&wanted);
        }
        self.wanted.send_replace(wanted);
    }

    /// Whatever evaluators are to be in force are from now on.
    pub fn enforce_evaluators(&self) {
        let wanted = self.wanted.borrow().clone();
        self.put_in_force(&wanted);
    }

    /// The number of the evaluators that are in force.
    #[must_use]
    pub fn evaluators_in_force(&self) -> latest::Receiver<u64> {
        self.in_force.subscribe()
    }

    /// Puts these evaluators in force, if neither they nor later ones are. Returns whether they have been asked before about
    /// the pods that were read.
    fn put_in_force(&self, Wanted { number, config }: &Wanted) -> bool {
        let put = self.locked(Work::Watch, |state, now| {
            if *self.in_force.borrow() >= *number {
                return None;
            }
            let is_prepared = config.as_ref().is_some_and(|config| state.expects(config));
            let revision = state.follow_evaluators(config.clone(), now);
            self.evaluators.send_replace((revision, config.clone()));
            self.next.send_replace(Numbered::default());
            self.in_force.send_replace(*number);
            Some(is_prepared)
        });
        let Some(is_prepared) = put else { return false };
        self.news.notify_one();
        let names: Vec<&str> = config.iter().flat_map(|config| config.asked()).collect();
        tracing::info!(?names, "evaluators in force");
        is_prepared
    }

    /// From now on these evaluators are in the shadow, or none.
    pub fn shadow_by(&self, config: Option<Arc<ShadowConfig>>) {
        self.locked(Work::Watch, |state, _| {
            let revision = state.follow_shadow(config.clone());
            self.shadow.send_replace((revision, config));
        });
    }

    /// Puts evaluators in force as they are wanted, and has pods read whenever others are to be asked, in the shadow too,
    /// from this call on until `cancel`.
    pub fn follow_evaluators(self, cancel: CancellationToken) -> impl Future<Output = ()> {
        let (mut in_force, mut shadow) = (self.evaluators.subscribe(), self.shadow.subscribe());
        let mut wanted = self.wanted.subscribe();
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

    /// Prepares the evaluators if they can be, and puts them in force.
    async fn prepare(&self, wanted: Wanted, in_force: &mut latest::Receiver<Numbered>) {
        if *self.in_force.borrow() >= wanted.number {
            return;
        }
        let config = wanted.config.as_ref().filter(|config| config.asker.is_immediate());
        let is_read = match config.filter(|_| self.can_read_beside()) {
            Some(config) => {
                self.locked(Work::Watch, |state, _| {
                    let number = state.expect_evaluators(Arc::clone(config));
                    self.next.send_replace((number, Some(Arc::clone(config))));
                });
                self.read_beside().await
            }
            None => false,
        };
        let is_prepared = self.put_in_force(&wanted);
        if is_read && is_prepared || wanted.config.is_none() {
            // Nothing has to be listed.
            in_force.mark_unchanged();
        }
    }

    /// Has all pods read, beside their watch if that may be.
    async fn read_or_list(&self) {
        if !self.can_read_beside() || !self.read_beside().await {
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
            let of = (version, number);
            self.locked(Work::Settle, |state, _| state.say_for_next((id, &uid), of, said));
        }
    }
}
