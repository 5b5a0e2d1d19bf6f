//! The two namespaces: the same is asked of both, and it is read what comes of it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota, names};
use sluice_e2e::objects::{self, from_json, is_held};
use sluice_testbed::{Bed, wait};

use super::quotas::{QUOTAS, Size, Used, read};
use super::steps::Step;
use crate::context::SOON;
use crate::team::Team;

/// A key of the native quotas that no pod takes. With another limit of it kube-controller-manager counts again.
const UNUSED_KEY: &str = "requests.example.com/dongle";

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    LetIn,
    /// There is no room, in these words: from the name of the quota on.
    Refused(String),
}

impl Verdict {
    fn exceeded(message: &str) -> Option<Self> {
        message.split_once("exceeded quota: ").map(|(_, words)| Self::Refused(words.to_owned()))
    }

    /// A refusal names one of the quotas without room; native quotas are looked at in no certain order (an index of an
    /// informer, `k8s.io/apiserver/pkg/admission/plugin/resourcequota/resource_access.go`).
    /// Of the same quota the same is said.
    fn is_like(&self, other: &Self) -> bool {
        let quota = |words: &str| words.split(',').next().map(str::to_owned);
        match (self, other) {
            (Self::Refused(own), Self::Refused(others)) => own == others || quota(own) != quota(others),
            (own, other) => own == other,
        }
    }
}

fn pod(name: &str, size: Size, deadline: Option<i64>) -> Pod {
    let mut pod = objects::pod(name, &[]);
    let spec = pod.spec.as_mut().unwrap();
    spec.containers[0].resources = Some(from_json(size.resources()));
    spec.active_deadline_seconds = deadline;
    pod
}

/// Returns when the pod is gone: as it is on no node, that is at once.
async fn delete(pods: &Api<Pod>, name: &str) -> anyhow::Result<()> {
    pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    wait::wait_for(pods, name, SOON, "the pod to be gone", |pod| pod.is_none()).await.map(drop)
}

/// What the API server says to a step. `None` if it may say something else to the same request in a moment: Sluice could not
/// decide in time, or quota admission has come too late with each of its writes.
async fn ask(pods: &Api<Pod>, step: &Step) -> Option<anyhow::Result<Verdict>> {
    let params = PatchParams::default();
    let answer = match step {
        Step::Create { name, size, deadline } => {
            pods.create(&PostParams::default(), &pod(name, *size, *deadline)).await
        }
        Step::Delete { name } => return Some(delete(pods, name).await.map(|()| Verdict::LetIn)),
        Step::Resize { name, size } => {
            let container = json!({ "name": "main", "resources": size.resources() });
            let patch = Patch::Strategic(json!({ "spec": { "containers": [container] } }));
            pods.patch_subresource("resize", name, &params, &patch).await
        }
        Step::Deadline { name, seconds } => {
            let patch = Patch::Merge(json!({ "spec": { "activeDeadlineSeconds": seconds } }));
            pods.patch(name, &params, &patch).await
        }
    };
    match answer {
        Ok(_) => Some(Ok(Verdict::LetIn)),
        Err(kube::Error::Api(status)) if matches!(status.code, 409 | 429 | 500) => None,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let verdict = Verdict::exceeded(&status.message);
            Some(verdict.with_context(|| format!("not refused by a quota: {}", status.message)))
        }
        Err(error) => Some(Err(error.into())),
    }
}

/// Writes what a kubelet reports of a pod that runs with this size.
async fn report(pods: &Api<Pod>, name: &str, size: Size) -> anyhow::Result<()> {
    let resources = size.resources();
    let status = json!({
        "phase": "Running",
        "containerStatuses": [{
            "name": "main", "image": "none", "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
            "allocatedResources": resources["requests"], "resources": resources,
        }],
    });
    let patch: Patch<Value> = Patch::Merge(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &patch).await.map(drop).context("reporting a pod")
}

/// The namespace that Sluice governs.
pub struct Ours {
    team: Team,
    events: Api<Event>,
}

impl Ours {
    pub async fn on(bed: &Bed) -> Self {
        let team = Team::plain(bed, "arq").await;
        for quota in &QUOTAS {
            let object: ApplicationAwareResourceQuota =
                from_json(quota.object(names::API_VERSION, "ApplicationAwareResourceQuota"));
            objects::create(&team.client, &team.namespace.name, &object).await.unwrap();
        }
        let events = Api::namespaced(team.client.clone(), &team.namespace.name);
        Self { team, events }
    }

    /// What becomes of the step. A new pod for which there is no room is held here, where a native quota refuses it: it is
    /// taken away again, which makes both the same.
    pub async fn judge(&self, step: &Step) -> anyhow::Result<Verdict> {
        let pods = &self.team.pods;
        let verdict = wait::eventually(SOON, || ask(pods, step), "Sluice to decide").await??;
        let Step::Create { name, .. } = step else { return Ok(verdict) };
        let what = "the new pod to be released, or to be told why it is held";
        let verdict = wait::eventually(2 * SOON, || self.fate(name), what).await?;
        if verdict != Verdict::LetIn {
            delete(pods, name).await?;
        }
        Ok(verdict)
    }

    /// `None` as long as it is not known.
    async fn fate(&self, name: &str) -> Option<Verdict> {
        let pod = self.team.pods.get(name).await.ok()?;
        if !is_held(&pod) {
            return Some(Verdict::LetIn);
        }
        let events = self.events.list(&ListParams::default()).await.ok()?.items;
        let about =
            |event: &Event| event.regarding.as_ref().is_some_and(|pod| pod.name.as_deref() == Some(name));
        // What to do follows the words that a native quota says too.
        let words = |event: &Event| Verdict::exceeded(event.note.as_deref()?.split("; ").next()?);
        events.iter().filter(|event| about(event)).find_map(words)
    }

    pub async fn report(&self, name: &str, size: Size) -> anyhow::Result<()> {
        report(&self.team.pods, name, size).await
    }

    /// What is used, and how many pods wait.
    pub async fn used(&self) -> Option<(Used, i64)> {
        let quotas = self.team.quotas.list(&ListParams::default()).await.ok()?.items;
        let held = quotas.iter().filter_map(|quota| quota.status.as_ref()?.held).sum();
        let used = read(|name| {
            let quota = quotas.iter().find(|quota| quota.metadata.name.as_deref() == Some(name))?;
            Some(quota.status.as_ref()?.used.clone())
        });
        Some((used, held))
    }
}

/// The namespace with quotas of Kubernetes' own.
pub struct Native {
    pods: Api<Pod>,
    quotas: Api<ResourceQuota>,
    counts: AtomicU32,
}

impl Native {
    /// Beside `ours`, with the same client, which tries nothing again by itself.
    pub async fn on(bed: &Bed, ours: &Ours) -> Self {
        let namespace = bed.namespace("native", &[]).await.unwrap().name;
        let client = ours.team.client.clone();
        for quota in &QUOTAS {
            let mut object = quota.object("v1", "ResourceQuota");
            object["spec"]["hard"][UNUSED_KEY] = json!("0");
            let object: ResourceQuota = from_json(object);
            objects::create(&client, &namespace, &object).await.unwrap();
        }
        let pods = Api::namespaced(client.clone(), &namespace);
        Self { pods, quotas: Api::namespaced(client, &namespace), counts: AtomicU32::new(0) }
    }

    /// Waits until quota admission has seen the quotas, and that what is used was counted: it learns of both by watch.
    pub async fn until_in_force(&self) -> anyhow::Result<()> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        for quota in &QUOTAS {
            let (size, deadline) = quota.too_much;
            let probe = pod("probe", size, deadline);
            let named = format!("exceeded quota: {},", quota.name);
            let refused = || async {
                let answer = self.pods.create(&dry, &probe).await;
                let Err(kube::Error::Api(status)) = answer else { return None };
                status.message.contains(&named).then_some(())
            };
            wait::eventually(2 * SOON, refused, "quota admission to know the native quotas").await?;
        }
        Ok(())
    }

    /// Has the step judged, which must come out as in the other namespace. A refusal is asked about again: admission judges
    /// by what it has seen of the quotas, and may not have seen yet that kube-controller-manager has given room back. Room
    /// that there really is not does not appear by asking. What was let in wrongly stays so.
    pub async fn judge_like(&self, step: &Step, ours: &Verdict) -> anyhow::Result<()> {
        let last = RefCell::new(None);
        let like = || async {
            let verdict = match ask(&self.pods, step).await? {
                Ok(verdict) => verdict,
                Err(error) => return Some(Err(error)),
            };
            let judged = match &verdict {
                verdict if verdict.is_like(ours) => Some(Ok(())),
                Verdict::LetIn => Some(Err(anyhow!("it is let in"))),
                Verdict::Refused(_) => None,
            };
            *last.borrow_mut() = Some(verdict);
            judged
        };
        let judged = wait::eventually(SOON, like, "the same verdict").await;
        let told = || format!("Sluice: {ours:?}; native quotas: {:?}", last.borrow());
        judged.with_context(told)?.with_context(told)
    }

    pub async fn report(&self, name: &str, size: Size) -> anyhow::Result<()> {
        report(&self.pods, name, size).await
    }

    pub async fn used(&self) -> Option<Used> {
        let quotas = self.quotas.list(&ListParams::default()).await.ok()?.items;
        let used = read(|name| {
            let quota = quotas.iter().find(|quota| quota.metadata.name.as_deref() == Some(name))?;
            quota.status.as_ref()?.used.clone()
        });
        Some(used)
    }

    /// Has kube-controller-manager count what is used once more.
    pub async fn count_again(&self) -> anyhow::Result<()> {
        let limit = self.counts.fetch_add(1, Ordering::Relaxed) + 1;
        let patch: Patch<Value> =
            Patch::Merge(json!({ "spec": { "hard": { UNUSED_KEY: limit.to_string() } } }));
        for quota in &QUOTAS {
            self.quotas.patch(quota.name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}
