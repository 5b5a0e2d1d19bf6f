//! Writes what the planner says.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use serde_json::Value;
use sluice_api::{ApplicationAwareAppliedClusterResourceQuota, ApplicationAwareClusterResourceQuota, names};
use sluice_engine::QuotaId;
use sluice_index::{AacrqWire, AcrqWire, Source};
use sluice_runtime::backoff::process_seed;
use sluice_runtime::lease::WriteToken;
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::request::{Answer, send};
use sluice_runtime::watch::Event;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::planner::{MirrorNamespaces, Planner, Write};
use crate::Gate;

/// Changes are collected for so long before they are shown: no object is written more often.
const COLLECT_TIME: Duration = Duration::from_secs(1);

/// Mirrors that are written in that time.
pub const MIRRORS: usize = 50;

/// Requests that are under way at a time.
const AT_A_TIME: usize = 4;

/// Namespaces that are copied before the gate gets its turn.
const SLICE: usize = 200;

const DEADLINE: Duration = Duration::from_secs(5);

/// Shows what cluster quotas' namespaces take; clones share it.
#[derive(Clone, Debug)]
pub struct ClusterQuotaStatus {
    planner: Arc<Mutex<Planner>>,
    news: Arc<Notify>,
}

impl ClusterQuotaStatus {
    /// Nothing is known yet. Mirrors show these `namespaces`.
    #[must_use]
    pub fn new(namespaces: MirrorNamespaces) -> Self {
        Self { planner: Arc::new(Mutex::new(Planner::new(namespaces, process_seed()))), news: Arc::default() }
    }

    /// An event of the watch of `ApplicationAwareClusterResourceQuota`s.
    pub fn on_quotas(&self, event: &Event<AcrqWire>) {
        self.change(|planner| match event {
            Event::Init => planner.begin_quotas(),
            Event::InitDone => planner.end_quotas(),
            Event::InitApply(quota) | Event::Apply(quota) => planner.apply_quota(quota, Source::Watch),
            Event::Delete(quota) => planner.delete_quota(quota.metadata.name.as_deref().unwrap_or_default()),
        });
    }

    /// An event of the watch of `ApplicationAwareAppliedClusterResourceQuota`s.
    pub fn on_mirrors(&self, event: &Event<AacrqWire>) {
        self.change(|planner| match event {
            Event::Init => planner.begin_mirrors(),
            Event::InitDone => planner.end_mirrors(),
            Event::InitApply(mirror) | Event::Apply(mirror) => planner.apply_mirror(mirror, Source::Watch),
            Event::Delete(mirror) => planner.delete_mirror(mirror),
        });
    }

    fn change(&self, change: impl FnOnce(&mut Planner)) {
        change(&mut self.planner.lock());
        self.news.notify_one();
    }

    /// Writes until `cancel`, while `token` is held.
    pub async fn run(
        self,
        gate: Gate,
        client: Client,
        token: WriteToken,
        writes: ApiWrites,
        cancel: CancellationToken,
    ) {
        let requests = Requests { client, writes };
        let work = async {
            loop {
                let due = self.planner.lock().next_due_ms();
                tokio::select! {
                    () = gate.clusters_changed() => {}
                    () = self.news.notified() => {}
                    () = gate.until(due) => {}
                }
                loop {
                    // No object is written twice in that time.
                    tokio::time::sleep(COLLECT_TIME).await;
                    if !token.is_held() {
                        break;
                    }
                    self.look(&gate);
                    let planned = self.planner.lock().plan(MIRRORS, gate.now());
                    self.write(planned, &requests, &gate).await;
                    if !self.planner.lock().has_more() {
                        break;
                    }
                }
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    /// Has the planner see what changed in the gate.
    fn look(&self, gate: &Gate) {
        let state = gate.state();
        let changed = state.lock().take_changed_clusters();
        for id in changed {
            if !self.look_at(&state, id) {
                // The sums of the quota are not complete now.
                state.lock().note_changed_cluster(id);
            }
        }
    }

    fn look_at(&self, state: &Mutex<crate::State>, id: QuotaId) -> bool {
        let all = self.planner.lock().needs_all(id);
        let Some(names) = state.lock().take_changed_namespaces(id, all) else { return false };
        let names: Vec<Arc<str>> = names.into_iter().collect();
        let (first, rest) = names.split_at(names.len().min(SLICE));
        let slices = std::iter::once((first, all)).chain(rest.chunks(SLICE).map(|slice| (slice, false)));
        for (slice, all) in slices {
            let Some(view) = state.lock().cluster_view(id, slice) else {
                // Which namespaces have changed is not known any more.
                self.planner.lock().forget_view(id);
                return false;
            };
            self.planner.lock().show(view, all);
        }
        true
    }

    async fn write(&self, planned: Vec<Write>, requests: &Requests, gate: &Gate) {
        let mut answers = futures::stream::iter(planned)
            .map(|write| async { (requests.send(&write).await, write) })
            .buffer_unordered(AT_A_TIME);
        while let Some((answer, write)) = answers.next().await {
            let mut planner = self.planner.lock();
            match Answer::from(answer) {
                Answer::Done(written) => {
                    planner.done(&write);
                    match written {
                        Some(Written::Quota(quota)) => planner.apply_quota(&quota, Source::Answer),
                        Some(Written::Mirror(mirror)) => planner.apply_mirror(&mirror, Source::Answer),
                        None => {}
                    }
                }
                // A watch tells what the object is now.
                Answer::Stale(_) => {}
                failed => {
                    tracing::warn!(object = %write.object(), ?failed, "cluster quota not shown");
                    planner.failed(&write, gate.now());
                }
            }
        }
    }
}

/// An object as it was written.
#[derive(Debug)]
enum Written {
    Quota(AcrqWire),
    Mirror(AacrqWire),
}

struct Requests {
    client: Client,
    writes: ApiWrites,
}

impl Requests {
    async fn send(&self, write: &Write) -> kube::Result<Option<Written>> {
        let (plural, verb, request) = request(write);
        let sent = async {
            let reply = send(&self.client, request, DEADLINE).await?;
            reply.check()?;
            match write {
                Write::Status(..) => reply.decode().map(|quota| Some(Written::Quota(quota))),
                Write::Create(..) | Write::Replace(..) => {
                    reply.decode().map(|mirror| Some(Written::Mirror(mirror)))
                }
                Write::Delete(..) => Ok(None),
            }
        };
        self.writes.record(plural, verb, sent).await
    }
}

type Made = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

fn request(write: &Write) -> (&'static str, &'static str, Made) {
    let mirrors = |namespace: &str| {
        Request::new(ApplicationAwareAppliedClusterResourceQuota::url_path(&(), Some(namespace)))
    };
    let body = |object: &Value| object.to_string().into_bytes();
    let params = PostParams::default();
    match write {
        Write::Status(name, object) => {
            let quotas = Request::new(ApplicationAwareClusterResourceQuota::url_path(&(), None));
            (names::ACRQS, "update", quotas.replace_subresource("status", name, &params, body(object)))
        }
        Write::Create((_, namespace), object) => {
            (names::AACRQS, "create", mirrors(namespace).create(&params, body(object)))
        }
        Write::Replace((name, namespace), object) => {
            (names::AACRQS, "update", mirrors(namespace).replace(name, &params, body(object)))
        }
        Write::Delete((name, namespace), uid) => {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams::default().preconditions(preconditions);
            (names::AACRQS, "delete", mirrors(namespace).delete(name, &params))
        }
    }
}
