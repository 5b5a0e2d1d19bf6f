//! What Rancher does to the ResourceQuota of a namespace: its namespace handler, which projects the namespace's annotation,
//! and the validating webhook of 2.14.6 and 2.15.2, which lets only Rancher and Kubernetes itself write such quotas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_engine::Quantity;
use sluice_engine::headroom::MARK;
use sluice_testbed::Bed;
use tokio::task::JoinHandle;

use crate::simulated_webhook::{Review, SimulatedWebhook, Verdict, WebhookOptions, rule};

/// Label of the quota that Rancher owns.
pub const MARKER: &str = "resourcequota.management.cattle.io/default-resource-quota";
/// Annotation of a namespace that says what its quota is.
pub const WANTED: &str = "field.cattle.io/resourceQuota";
/// Rancher's own requests; together with the group `system:masters` they pass its webhook unseen.
const RANCHER: &str = "system:serviceaccount:cattle-system:rancher-webhook-sudo";
const MASTERS: &str = "system:masters";
/// The accounts that may write the status of any quota.
const STATUS_WRITERS: [&str; 2] =
    ["system:serviceaccount:kube-system:resourcequota-controller", "system:apiserver"];
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// What the webhook says about a status that is not written by Kubernetes itself.
pub const STATUS_IS_IMMUTABLE: &str = "status is immutable";
const CREATED: &str =
    "users are forbidden from creating resources managed by Rancher. Remove the marker label";
const CHANGED: &str = "users are forbidden from changing resources managed by Rancher";
const PROMOTED: &str =
    "users are forbidden from promoting resources to Rancher management. Remove the marker label";
const DELETED: &str = "users are forbidden from deleting resources managed by Rancher";

/// Fields of the annotation and the keys that they become in the quota.
const KEYS: [(&str, &str); 13] = [
    ("configMaps", "configmaps"),
    ("limitsCpu", "limits.cpu"),
    ("limitsMemory", "limits.memory"),
    ("persistentVolumeClaims", "persistentvolumeclaims"),
    ("pods", "pods"),
    ("replicationControllers", "replicationcontrollers"),
    ("requestsCpu", "requests.cpu"),
    ("requestsMemory", "requests.memory"),
    ("requestsStorage", "requests.storage"),
    ("secrets", "secrets"),
    ("services", "services"),
    ("servicesLoadBalancers", "services.loadbalancers"),
    ("servicesNodePorts", "services.nodeports"),
];

/// The rules of the webhook, in its order: with status 400, what a managed quota and every status are kept from.
#[must_use]
pub fn judge(review: Review<'_>) -> Verdict {
    let is_managed = |object| review.label(object, MARKER) == "true";
    let (before, after) = (is_managed("oldObject"), is_managed("object"));
    let is_status = review.text("/subResource") == "status";
    let denial = match review.operation() {
        _ if review.user() == RANCHER && review.is_in_group(MASTERS) => None,
        "CREATE" if after => Some(CREATED),
        "UPDATE" if is_status && before && !after => Some(CHANGED),
        "UPDATE" if is_status && !before && after => Some(PROMOTED),
        "UPDATE" if is_status && STATUS_WRITERS.contains(&review.user()) => None,
        "UPDATE" if is_status => Some(STATUS_IS_IMMUTABLE),
        "UPDATE" if before => Some(CHANGED),
        "UPDATE" if after => Some(PROMOTED),
        "DELETE" if before && review.user() != NAMESPACE_CONTROLLER => Some(DELETED),
        _ => None,
    };
    denial.map_or_else(Verdict::allow, |message| Verdict::deny(400, message))
}

/// Whether Rancher's webhook guards the quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validator {
    /// Rancher up to 2.14.5 and 2.15.1, or none.
    Absent,
    /// Rancher 2.14.6, 2.15.2 and later.
    Present,
}

/// Rancher, as far as it has to do with one namespace.
pub struct SimulatedRancher {
    client: Client,
    namespace: String,
    validator: Option<SimulatedWebhook>,
}

impl SimulatedRancher {
    /// Starts its webhook, if it has one; returns when that is in force.
    ///
    /// # Errors
    /// When the API server refuses the webhook or does not ask it.
    pub async fn start(bed: &Bed, namespace: &str, validator: Validator) -> anyhow::Result<Self> {
        let client = bed.client_as_user(RANCHER, &[MASTERS])?.client()?;
        let rules = rule(&["CREATE", "UPDATE", "DELETE"], &["resourcequotas", "resourcequotas/status"]);
        let options = WebhookOptions::new("rancher.cattle.io.resourcequotas", namespace, vec![rules]);
        let validator = match validator {
            Validator::Present => Some(SimulatedWebhook::start(bed, options, judge).await?),
            Validator::Absent => None,
        };
        Ok(Self { client, namespace: namespace.to_owned(), validator })
    }

    /// How many requests its webhook denied.
    #[must_use]
    pub fn denials(&self) -> usize {
        self.validator.as_ref().map_or(0, SimulatedWebhook::denials)
    }

    /// How many requests its webhook was asked about.
    #[must_use]
    pub fn reviews(&self) -> usize {
        self.validator.as_ref().map_or(0, SimulatedWebhook::reviews)
    }

    fn quotas(&self) -> Api<ResourceQuota> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A quota with the marker label, under a name that a report has. In a cluster the name is generated.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_quota(&self, name: &str, hard: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let metadata = json!({ "name": name, "labels": { MARKER: "true", "cattle.io/creator": "norman" } });
        self.create(metadata, json!(hard)).await
    }

    async fn create(&self, metadata: Value, hard: Value) -> anyhow::Result<()> {
        let quota = serde_json::from_value(json!({ "metadata": metadata, "spec": { "hard": hard } }))?;
        self.quotas().create(&PostParams::default(), &quota).await.context("creating Rancher's quota")?;
        Ok(())
    }

    /// Sets `limit` of the namespace's annotation, or removes the annotation. The quota follows at the next
    /// [`Self::synchronize`].
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn want(&self, limit: Option<&Value>) -> anyhow::Result<()> {
        let wanted = limit.map(|limit| json!({ "limit": limit }).to_string());
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { WANTED: wanted } } }));
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.patch(&self.namespace, &PatchParams::default(), &patch).await.context("annotating")?;
        Ok(())
    }

    async fn wanted(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let namespace = Api::<Namespace>::all(self.client.clone()).get(&self.namespace).await?;
        let Some(text) = namespace.annotations().get(WANTED) else { return Ok(BTreeMap::new()) };
        let wanted: Value = serde_json::from_str(text).context("reading the namespace's annotation")?;
        Ok(projected(&wanted))
    }

    /// What the namespace handler does when its agent starts and when the namespace or its project changes. It has no
    /// watch on quotas.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn synchronize(&self) -> anyhow::Result<()> {
        let wanted = self.wanted().await?;
        let quotas = self.quotas();
        loop {
            let managed = ListParams::default().labels(&format!("{MARKER}=true"));
            let Some(mut quota) = quotas.list(&managed).await?.items.pop() else {
                if wanted.is_empty() {
                    return Ok(());
                }
                let metadata = json!({ "generateName": "default-", "labels": { MARKER: "true" } });
                return self.create(metadata, json!(wanted)).await;
            };
            if wanted.is_empty() {
                quotas.delete(&quota.name_any(), &DeleteParams::default()).await?;
                return Ok(());
            }
            if is_same(&quota, &wanted) {
                return Ok(());
            }
            // The whole spec, scopes included.
            quota.spec = serde_json::from_value(json!({ "hard": wanted }))?;
            match quotas.replace(&quota.name_any(), &PostParams::default(), &quota).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                replaced => return replaced.map(drop).context("replacing the spec of Rancher's quota"),
            }
        }
    }

    /// From now on, whenever a quota is raised: the annotation becomes the next of `limits`, and the agent starts.
    #[must_use]
    pub fn rewrite_while_raised(self: &Arc<Self>, limits: Vec<Value>) -> Rewriting {
        let rewrites = Arc::<AtomicUsize>::default();
        let acting = tokio::spawn(rewrite(Arc::clone(self), limits, Arc::clone(&rewrites)));
        Rewriting { rewrites, acting }
    }
}

/// Rancher at work in the background.
pub struct Rewriting {
    rewrites: Arc<AtomicUsize>,
    acting: JoinHandle<anyhow::Result<()>>,
}

impl Rewriting {
    /// Ends it; how often it has rewritten the quota.
    ///
    /// # Errors
    /// What went wrong meanwhile.
    pub async fn end(self) -> anyhow::Result<usize> {
        self.acting.abort();
        match self.acting.await {
            Err(error) if error.is_cancelled() => Ok(self.rewrites.load(Ordering::SeqCst)),
            ended => ended.context("rewriting quotas")?.map(|()| 0),
        }
    }
}

async fn rewrite(
    rancher: Arc<SimulatedRancher>,
    limits: Vec<Value>,
    rewrites: Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let mut events = std::pin::pin!(watcher::watcher(rancher.quotas(), watcher::Config::default()));
    let mut answered = None;
    let mut next = limits.iter().cycle();
    while let Some(event) = events.next().await {
        let Ok(watcher::Event::Apply(quota)) = event else { continue };
        let mark = quota.status.and_then(|status| status.hard?.get(MARK).cloned());
        if mark.is_some() && mark != answered {
            answered = mark;
            rancher.want(next.next()).await?;
            rancher.synchronize().await?;
            rewrites.fetch_add(1, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// The keys of a quota as an annotation says them; fields of `extended` keep their names, and give way to the others.
fn projected(annotation: &Value) -> BTreeMap<String, String> {
    let limit = annotation.get("limit").and_then(Value::as_object).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let extended = limit.get("extended").and_then(Value::as_object).cloned().unwrap_or_default();
    let extended = extended.into_iter().filter_map(|(key, value)| Some((key, text(&value)?)));
    let named = KEYS.iter().filter_map(|&(field, key)| Some((key.to_owned(), text(limit.get(field)?)?)));
    extended.chain(named).collect()
}

fn is_same(quota: &ResourceQuota, wanted: &BTreeMap<String, String>) -> bool {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let same = |key: &String, wanted: &String| {
        let there = hard.get(key).and_then(|there| Quantity::parse(&there.0).ok());
        there.is_some() && there == Quantity::parse(wanted).ok()
    };
    hard.len() == wanted.len() && wanted.iter().all(|(key, wanted)| same(key, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "system:serviceaccount:sluice-system:sluice-webhook";

    fn verdict(operation: &str, subresource: &str, marked: (bool, bool), user: &str) -> Option<String> {
        let object = |marked: bool| json!({ "metadata": { "labels": { MARKER: marked.to_string() } } });
        let request = json!({
            "operation": operation, "subResource": subresource,
            "oldObject": object(marked.0), "object": object(marked.1),
            "userInfo": { "username": user, "groups": [MASTERS] },
        });
        judge(Review(&request)).denial().map(str::to_owned)
    }

    #[test]
    fn the_rules_are_those_of_ranchers_validator() {
        let [kube, apiserver] = STATUS_WRITERS;
        let (yes, no) = ((true, true), (false, false));
        for (operation, subresource, marked, user, denial) in [
            ("CREATE", "", (false, true), USER, Some(CREATED)),
            ("CREATE", "", no, USER, None),
            ("CREATE", "", (false, true), RANCHER, None),
            ("UPDATE", "", yes, USER, Some(CHANGED)),
            ("UPDATE", "", (true, false), USER, Some(CHANGED)),
            ("UPDATE", "", (false, true), USER, Some(PROMOTED)),
            ("UPDATE", "", no, USER, None),
            ("UPDATE", "", yes, kube, Some(CHANGED)),
            ("UPDATE", "", yes, RANCHER, None),
            ("UPDATE", "status", yes, USER, Some(STATUS_IS_IMMUTABLE)),
            ("UPDATE", "status", no, USER, Some(STATUS_IS_IMMUTABLE)),
            ("UPDATE", "status", yes, kube, None),
            ("UPDATE", "status", no, kube, None),
            ("UPDATE", "status", yes, apiserver, None),
            ("UPDATE", "status", (true, false), kube, Some(CHANGED)),
            ("UPDATE", "status", (false, true), kube, Some(PROMOTED)),
            ("DELETE", "", (true, false), USER, Some(DELETED)),
            ("DELETE", "", (true, false), NAMESPACE_CONTROLLER, None),
            ("DELETE", "", no, USER, None),
        ] {
            let told = verdict(operation, subresource, marked, user);
            assert_eq!(told.as_deref(), denial, "{operation} {subresource} {marked:?} {user}");
        }
    }

    #[test]
    fn ranchers_account_alone_without_its_group_is_a_user() {
        let request = json!({
            "operation": "UPDATE", "subResource": "status",
            "userInfo": { "username": RANCHER, "groups": ["system:authenticated"] },
        });
        assert_eq!(judge(Review(&request)).denial(), Some(STATUS_IS_IMMUTABLE));
    }

    #[test]
    fn named_fields_of_the_annotation_win_over_extended_ones() {
        let annotation = json!({ "limit": {
            "limitsCpu": "3000m", "extended": { "limits.cpu": "9", "count/jobs.batch": "5" },
        }});
        let wanted = projected(&annotation);
        assert_eq!((wanted["limits.cpu"].as_str(), wanted["count/jobs.batch"].as_str()), ("3000m", "5"));
        let quota = serde_json::from_value(json!({ "metadata": {}, "spec": { "hard": {
            "limits.cpu": "3", "count/jobs.batch": "5",
        }}}));
        assert!(is_same(&quota.unwrap(), &wanted));
    }
}
