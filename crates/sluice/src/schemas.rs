//! Whether the CRDs keep what the controller records. It does not lead where they drop a part of it: what is charged would
//! be missing when it is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use sluice_api::{RECORDED_IN, names, schema_too_old};
use sluice_runtime::events::Recorder;
use sluice_runtime::lease::{Election, LeaseError};
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, WentBack, watch};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alarm::alarmed;

/// By name of each CRD that was looked for, what is wrong with it.
type Looked = BTreeMap<&'static str, Option<String>>;

/// The CRDs as they are. Clones share what is known.
#[derive(Clone)]
pub struct Schemas {
    seen: Arc<watch::Sender<Looked>>,
    watches: [WatchHealth; RECORDED_IN.len()],
}

/// What is known of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Fit,
    /// A sentence for people.
    TooOld(String),
}

impl Schemas {
    /// Nothing was looked for yet.
    pub fn new() -> Self {
        let watches = RECORDED_IN.map(WatchHealth::new);
        Self { seen: Arc::new(watch::Sender::new(Looked::new())), watches }
    }

    /// For readiness.
    ///
    /// # Errors
    /// What keeps this process from leading, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        match verdict(&self.seen.borrow()) {
            Verdict::Fit => Ok(()),
            Verdict::Unknown => {
                let why = self.watches.iter().find_map(|watch| watch.check().err());
                Err(why.unwrap_or_else(|| "not all were read yet".to_owned()))
            }
            Verdict::TooOld(why) => Err(why),
        }
    }

    /// Follows them until `cancel`. `tell` gets each sentence once.
    ///
    /// # Errors
    /// When resource versions went back.
    pub async fn follow(
        self,
        client: Client,
        tell: impl Fn(String),
        cancel: CancellationToken,
    ) -> Result<(), WentBack> {
        let all = RECORDED_IN.into_iter().zip(&self.watches);
        try_join_all(all.map(|of| self.follow_one(&client, of, &tell, &cancel))).await.map(drop)
    }

    async fn follow_one(
        &self,
        client: &Client,
        (name, health): (&'static str, &WatchHealth),
        tell: &impl Fn(String),
        cancel: &CancellationToken,
    ) -> Result<(), WentBack> {
        let (mut found, mut is_listed) = (None, false);
        let sink = |event: Event<CustomResourceDefinition>| {
            match event {
                Event::Init => (found, is_listed) = (None, false),
                Event::InitApply(crd) | Event::Apply(crd) => found = schema_too_old(&crd),
                Event::InitDone => is_listed = true,
                // A kind that does not exist keeps nothing wrongly.
                Event::Delete(_) => found = None,
            }
            if is_listed {
                self.put(name, found.clone(), tell);
            }
        };
        let options = WatchOptions::default().fields(format!("metadata.name={name}"));
        watch(Api::all(client.clone()), options, sink, health.clone(), cancel.clone()).await
    }

    fn put(&self, name: &'static str, found: Option<String>, tell: &impl Fn(String)) {
        let is_news =
            self.seen.send_if_modified(|seen| seen.insert(name, found.clone()) != Some(found.clone()));
        if let Some(why) = found.filter(|_| is_news) {
            tell(why);
        }
    }

    /// Takes part in the election once all of them are known to fit. When that changes the process ends by `cancel`, as by a
    /// signal: the one that is started in its place waits here. The lease is given back after `stopped`.
    ///
    /// # Errors
    /// As the election.
    pub async fn elect(
        self,
        election: Election,
        cancel: CancellationToken,
        stopped: CancellationToken,
    ) -> Result<(), LeaseError> {
        let mut seen = self.seen.subscribe();
        let fits = seen.wait_for(|seen| verdict(seen) == Verdict::Fit);
        if stopped.run_until_cancelled(fits).await.is_none() {
            return Ok(());
        }
        let mut seen = self.seen.subscribe();
        let ending = async {
            if seen.wait_for(|seen| matches!(verdict(seen), Verdict::TooOld(_))).await.is_ok() {
                cancel.cancel();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = election.run(stopped) => result,
            () = ending => Ok(()),
        }
    }
}

/// Says what is wrong, whether this process leads or not: on such a CRD none does.
pub fn telling(events: &Recorder, namespace: &str) -> impl Fn(String) + use<> {
    let (events, namespace) = (events.clone(), namespace.to_owned());
    move |note| {
        tracing::error!(%note, "this process does not lead");
        events.report(alarmed(&namespace, names::SCHEMA_TOO_OLD, note));
    }
}

fn verdict(seen: &Looked) -> Verdict {
    let wrong: Vec<&str> = seen.values().flatten().map(String::as_str).collect();
    if !wrong.is_empty() {
        Verdict::TooOld(wrong.join("; "))
    } else if RECORDED_IN.iter().all(|name| seen.contains_key(name)) {
        Verdict::Fit
    } else {
        Verdict::Unknown
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_have_to_be_known_to_fit_and_each_sentence_is_told_once() {
        let (schemas, told) = (Schemas::new(), RefCell::new(Vec::new()));
        let put = |name, found: Option<&str>| {
            schemas.put(name, found.map(str::to_owned), &|why| told.borrow_mut().push(why));
            schemas.check()
        };
        let [one, two, three] = RECORDED_IN;
        assert!(put(one, None).is_err(), "two were not read");
        assert_eq!(put(two, Some("two drops a")), Err("two drops a".to_owned()));
        assert_eq!(put(three, None), Err("two drops a".to_owned()));
        assert!(put(two, Some("two drops a")).is_err());
        assert_eq!(put(two, None), Ok(()));
        assert_eq!(put(one, Some("one drops b")), Err("one drops b".to_owned()));
        assert_eq!(told.into_inner(), ["two drops a", "one drops b"]);
    }
}
