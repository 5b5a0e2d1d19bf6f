//! Sends the writes to managed quotas.

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use sluice_index::Key;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::{Answer, send};

use super::kind::ManagedKind;
use super::plan::Write;

const DEADLINE: Duration = Duration::from_secs(5);

/// Writes managed quotas of a kind.
#[derive(Clone)]
pub(super) struct Writer {
    pub kind: ManagedKind,
    pub client: Client,
    pub writes: ApiWrites,
    pub token: WriteToken,
}

impl Writer {
    pub async fn write(&self, key: &Key, write: Write) -> Answer<()> {
        if !self.token.is_held() {
            return Answer::Busy(None);
        }
        let objects = Request::new(self.kind.url_path(key));
        let name = self.kind.name(key);
        let (verb, request) = match write {
            Write::Create(object) => {
                ("create", objects.create(&PostParams::default(), object.to_string().into_bytes()))
            }
            Write::Update(patch) => {
                ("patch", objects.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)))
            }
            Write::Delete(uid) => {
                let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
                ("delete", objects.delete(&name, &DeleteParams::default().preconditions(preconditions)))
            }
        };
        let sent = async { send(&self.client, request, DEADLINE).await?.check() };
        let (kind, ns, quota) = (self.kind.kind(), &key.namespace, &key.name);
        let answer = Answer::from(self.writes.record(self.kind.plural(), verb, sent).await);
        match &answer {
            Answer::Done(()) => tracing::info!(%kind, namespace = %ns, %quota, verb, "managed quota written"),
            // What is there now comes by the watch.
            Answer::Stale(_) => {}
            failed => {
                tracing::warn!(%kind, namespace = %ns, %quota, verb, ?failed, "managed quota not written");
            }
        }
        answer
    }
}
