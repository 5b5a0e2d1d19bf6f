//! Carries out steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use sluice_api::names;
use sluice_manifests::uninstall::{Collection, ObjectName, Step, Wait};
use sluice_runtime::clock::ServerClock;

use super::finalizers::unfinalize;
use super::goes_on::GoesOn;
use super::observe::processes;
use super::release::{Released, release};
use super::report::{Action, Report};
use super::requests::{api_of, list, while_wanted};
use super::restore::{Restored, restore};
use crate::progress::{Progress, Say, to_stderr};
use crate::requests::{CONCURRENT, RequestError, failed, find, patiently};

/// How long API servers are given to follow a deletion: as long as the operator gives them.
const FOLLOWED: Duration = Duration::from_secs(2);
/// Processes end within their grace of 30 s. What is there still is on a node that does not answer; its rights go next.
const ENDED: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// So often a collection is listed again, for what came meanwhile.
const CLEARINGS: usize = 3;

/// What steps are carried out with.
pub(crate) struct Removal<'a> {
    client: Client,
    as_quota_controller: (Client, Arc<ServerClock>),
    namespace: String,
    say: Say,
    goes_on: GoesOn<'a>,
    released: Released,
}

impl<'a> Removal<'a> {
    pub(crate) fn new(
        client: Client,
        as_quota_controller: (Client, Arc<ServerClock>),
        namespace: String,
        (say, goes_on): (Say, GoesOn<'a>),
    ) -> Self {
        Self { client, as_quota_controller, namespace, say, goes_on, released: Released::default() }
    }

    /// Does the step and reports it, also what was done before an error. Returns why the steps after it have to wait, if
    /// they have to.
    pub(crate) async fn carry_out(
        &mut self,
        step: &Step,
        report: &mut Report,
    ) -> anyhow::Result<Option<String>> {
        match step {
            Step::Stop(object) => {
                if self.stop(object).await? {
                    report.did(Action::Stop, object);
                }
            }
            Step::Delete(object, uid) => {
                if delete(&self.client, object, uid).await? {
                    report.did(Action::Delete, object);
                }
            }
            Step::Wait(Wait::Followed) => tokio::time::sleep(FOLLOWED).await,
            Step::Wait(Wait::Ended) => self.until_ended().await?,
            Step::Release => {
                let done = release(&self.client, (self.say, self.goes_on), &mut self.released).await;
                report.released(&self.released);
                done?;
            }
            Step::Restore => {
                let (impersonating, clock) = &self.as_quota_controller;
                let mut restored = Restored::default();
                let done = restore((&self.client, impersonating), clock, self.say, &mut restored).await;
                report.restored(&restored);
                done?;
                return Ok(restored.holds_up());
            }
            Step::Clear(collection) => {
                let mut deleted = 0;
                let done = self.clear(*collection, &mut deleted).await;
                report.count(Action::Delete, &collection.kind().kind, deleted);
                done?;
            }
            Step::Unfinalize => unfinalize(&self.client).await?,
        }
        Ok(None)
    }

    /// Whether there was something to stop.
    async fn stop(&self, object: &ObjectName) -> Result<bool, RequestError> {
        let api = api_of(&self.client, object);
        let params =
            PatchParams { field_manager: Some(names::UNINSTALL.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        match patiently(|| api.patch(&object.name, &params, &patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(failed("patch", object.to_string(), object.kind.qualified())(error)),
        }
    }

    async fn until_ended(&self) -> Result<(), RequestError> {
        let (begin, mut progress) = (Instant::now(), Progress::begin(self.say));
        loop {
            let left = processes(&self.client, &self.namespace).await?.len();
            if left == 0 || begin.elapsed() > ENDED {
                return Ok(());
            }
            progress.say(|| format!("waiting until {left} pods of controller and webhook have ended"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Counts the objects that were deleted.
    async fn clear(&self, collection: Collection, deleted: &mut usize) -> Result<(), RequestError> {
        let mut progress = Progress::begin(self.say);
        let kind = collection.kind();
        for _ in 0..CLEARINGS {
            let objects = list(&self.client, collection, &self.namespace).await?;
            let due: Vec<_> =
                objects.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none()).collect();
            if due.is_empty() || !(self.goes_on)() {
                break;
            }
            let (client, of) = (&self.client, &kind);
            let requests = due.into_iter().map(|object| async move {
                let metadata = object.metadata;
                let (namespace, name) = (metadata.namespace, metadata.name.unwrap_or_default());
                let object = ObjectName { kind: of.clone(), namespace, name };
                delete(client, &object, &metadata.uid.unwrap_or_default()).await
            });
            let mut answers = while_wanted(requests, self.goes_on).buffer_unordered(CONCURRENT);
            while let Some(answer) = answers.next().await {
                *deleted += usize::from(answer?);
                progress.say(|| format!("deleted {deleted} {}", kind.qualified()));
            }
        }
        Ok(())
    }
}

/// Whether the object that has this uid was there.
pub(super) async fn delete(client: &Client, object: &ObjectName, uid: &str) -> Result<bool, RequestError> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    let api = api_of(client, object);
    match patiently(|| api.delete(&object.name, &params)).await {
        Ok(_) => Ok(true),
        // Gone, or another object has its name: the next look shows that.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
        Err(error) => Err(failed("delete", object.to_string(), object.kind.qualified())(error)),
    }
}

/// Whether the object is gone in time.
pub(super) async fn until_gone(
    client: &Client,
    object: &ObjectName,
    most: Duration,
) -> Result<bool, RequestError> {
    let (begin, mut progress) = (Instant::now(), Progress::begin(to_stderr));
    let api = api_of(client, object);
    loop {
        let found = find(&api, &object.name).await;
        let found = found.map_err(failed("get", object.to_string(), object.kind.qualified()))?;
        if found.is_none() {
            return Ok(true);
        }
        if begin.elapsed() > most {
            return Ok(false);
        }
        progress.say(|| format!("waiting until {object} is gone"));
        tokio::time::sleep(PAUSE).await;
    }
}
