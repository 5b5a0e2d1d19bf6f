//! What a controller says about who gates: metrics, readiness, log, events.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use sluice_api::names;
use sluice_e2e::Controller;
use sluice_e2e::metrics::Samples;
use sluice_e2e::probe::get;
use sluice_testbed::{Bed, wait};

use crate::context::SOON;

/// What a controller says.
pub struct Report {
    /// What `/readyz` answers.
    pub ready: String,
    /// What was logged so far.
    pub log: String,
}

impl Report {
    /// Waits until the one API server is counted as gated by, and its last word as had by these.
    pub async fn until(controller: &Controller, gates: &str, last_word: &str) -> Self {
        let series = [("sluice_gate_api_servers", gates), ("sluice_gate_last_word_api_servers", last_word)];
        let said = || async {
            let samples = Samples::of(&controller.admin).await.ok()?;
            let (code, ready) = get(&controller.admin, names::PATH_READYZ).await.ok()?;
            assert_eq!(code, 200, "nothing that a restart would help: {ready}");
            let words = format!("gated by {gates}, the last word has {last_word}");
            let all = series.into_iter().all(|(name, by)| samples.sum(name, &[("by", by)]) == Some(1.0));
            (all && ready.contains(&words)).then(|| Self { ready, log: controller.program.log() })
        };
        let what = format!("the controller to say: gated by {gates}, the last word has {last_word}");
        wait::eventually(SOON, said, &what).await.unwrap()
    }

    /// Waits for an event about the installation.
    pub async fn until_event(bed: &Bed, reason: &str) {
        let events: Api<Event> = Api::all(bed.admin().unwrap());
        let told = || async {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            events.into_iter().find(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.regarding.as_ref().and_then(|about| about.name.as_deref())
                        == Some(names::INSTALL_NAMESPACE)
            })
        };
        wait::eventually(SOON, told, &format!("an event {reason}")).await.unwrap();
    }
}
