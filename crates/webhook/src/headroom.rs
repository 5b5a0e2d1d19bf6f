//! Lets the target pods of live migrations pass full quotas (`docs/protocols.md`, *Raise and restore*).
//!
//! The answer is always "allowed": this endpoint makes room before it gives it, or leaves the judgement to the quota.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_api::names;
use sluice_engine::headroom::Need;
use sluice_engine::{Charge, ChargeRules, Uid};
use sluice_index::{PodWire, VmiRecord, VmimRecord};
use sluice_window::{Headroom, MigrationRef, Target};
use tokio::sync::watch;

use crate::review::{Operation, Review, nullable};
use crate::router::{Answer, App, Refusal, answer, counted, read};
use crate::verdict::Verdict;

/// Name of the endpoint in metrics and logs.
const ENDPOINT: &str = "headroom";
/// How long a target may wait at most. The API server waits 10 s for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Label of KubeVirt's pods: what they are for.
const ROLE_LABEL: &str = "kubevirt.io";

/// A pod's creation that claims to be for a migration. Whether it is true is not known yet.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace.
    pub namespace: String,
    /// The pod's uid, which the API server has given it already.
    pub pod: String,
    /// What the pod is for: a launcher, or what is attached to it.
    pub role: String,
    /// The uid of the migration.
    pub migration_uid: String,
    /// The name of the migration, if the pod tells.
    pub migration_name: Option<String>,
    /// What it asks for.
    pub wire: PodWire,
}

#[derive(Deserialize)]
struct ClaimView {
    #[serde(default)]
    metadata: ClaimMeta,
}

#[derive(Default, Deserialize)]
struct ClaimMeta {
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default, deserialize_with = "nullable")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    annotations: BTreeMap<String, String>,
}

/// What a review says of its pod. Only creations by KubeVirt's controller are of interest; what another account
/// creates, whatever its labels, is judged by the quota alone.
///
/// # Errors
/// Why no room is made.
pub fn claim(review: &Review<'_>, kubevirt_controller: Option<&str>) -> Result<Claim, &'static str> {
    if review.kind != "Pod" || review.operation != Operation::Create {
        return Err("not the creation of a pod");
    }
    if review.dry_run {
        return Err("a dry run takes nothing");
    }
    if kubevirt_controller != Some(review.username.as_str()) {
        return Err("not created by KubeVirt's controller");
    }
    let object = review.object.ok_or("the request has no object")?;
    read_claim(review, object).ok_or("not a pod of a migration")
}

fn read_claim(review: &Review<'_>, object: &RawValue) -> Option<Claim> {
    let mut metadata = serde_json::from_str::<ClaimView>(object.get()).ok()?.metadata;
    let wire: PodWire = serde_json::from_str(object.get()).ok()?;
    Some(Claim {
        namespace: review.namespace.clone(),
        pod: metadata.uid,
        role: metadata.labels.remove(ROLE_LABEL).unwrap_or_default(),
        migration_uid: metadata.labels.remove(names::MIGRATION_JOB_LABEL)?,
        migration_name: metadata.annotations.remove(names::MIGRATION_NAME_ANNOTATION),
        wire,
    })
}

impl Claim {
    /// Whether the claim is true: the migration exists in this namespace and is not over, and the machine that it moves runs
    /// here, so that its pod is counted by the quotas of this namespace already.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(
        &self,
        migration: Option<&VmimRecord>,
        machine: Option<&VmiRecord>,
    ) -> Result<(), &'static str> {
        let migration = migration.filter(|migration| {
            migration.uid == Uid::parse(&self.migration_uid) && *migration.namespace == *self.namespace
        });
        let migration = migration.ok_or("there is no such migration in the namespace")?;
        if migration.is_final() {
            return Err("the migration is over");
        }
        if migration.receiving {
            return Err("the machine comes from elsewhere: the quota judges it like any other");
        }
        let machine = machine.filter(|machine| machine.name.as_ref() == &*migration.machine);
        let runs = machine.is_some_and(|machine| machine.running && machine.node.is_some());
        if runs { Ok(()) } else { Err("no machine that runs in the namespace is moved") }
    }

    /// What the pod takes.
    ///
    /// # Errors
    /// When it cannot be calculated.
    pub fn need(&self, rules: ChargeRules) -> Result<Need, &'static str> {
        sluice_index::need_of(&self.wire, rules).map_err(|_| "a quantity of the pod cannot be read")
    }

    fn target(self, migration: &VmimRecord, machine: &VmiRecord, need: Need) -> Target {
        Target {
            namespace: Arc::from(self.namespace),
            pod: Uid::parse(&self.pod),
            role: self.role.into(),
            migration: MigrationRef {
                name: Arc::clone(&migration.name),
                uid: migration.uid.clone(),
                machine: Arc::clone(&machine.name),
                machine_uid: machine.uid.clone(),
            },
            need,
        }
    }
}

/// What the largest of a machine's pods takes: its launcher, not what is attached to it.
fn largest(pods: &[PodWire], rules: ChargeRules) -> Charge {
    let memory = sluice_engine::Resource::Memory;
    let needs = pods.iter().filter_map(|pod| sluice_index::need_of(pod, rules).ok());
    needs.map(|need| need.charge).max_by_key(|charge| charge.get(&memory)).unwrap_or_default()
}

/// The endpoint's own state.
#[derive(Debug)]
pub struct HeadroomEndpoint {
    headroom: Arc<Headroom>,
    rules: watch::Receiver<ChargeRules>,
}

impl HeadroomEndpoint {
    /// Makes room with `headroom`; charges are counted by the rules of the API server's version.
    pub fn new(headroom: Arc<Headroom>, rules: watch::Receiver<ChargeRules>) -> Arc<Self> {
        Arc::new(Self { headroom, rules })
    }

    /// Returns when the creation may go on, and why.
    async fn make_room(&self, claim: Result<Claim, &'static str>) -> &'static str {
        let target = match claim {
            Ok(claim) => self.target(claim).await,
            Err(why) => Err(why),
        };
        match target {
            Ok(target) => self.headroom.admit(target, PATIENCE).await,
            Err(why) => why,
        }
    }

    async fn target(&self, claim: Claim) -> Result<Target, &'static str> {
        let migration = self.migration(&claim).await?;
        let observed = self.headroom.observed();
        let machine = observed.read(|index| index.vmis.get(&claim.namespace, &migration.machine).cloned());
        claim.check(Some(&migration), machine.as_deref())?;
        let machine = machine.ok_or("the machine is not known")?;
        let rules = *self.rules.borrow();
        let mut need = claim.need(rules)?;
        if machine.growing {
            let pods = self.headroom.pods_of(&claim.namespace, &machine.uid.to_string()).await;
            let pods = pods.map_err(|_| "the pods of a machine that grows cannot be read")?;
            need.grows_from = Some(largest(&pods, rules));
        }
        Ok(claim.target(&migration, &machine, need))
    }

    async fn migration(&self, claim: &Claim) -> Result<Arc<VmimRecord>, &'static str> {
        let uid = Uid::parse(&claim.migration_uid);
        if let Some(known) = self.headroom.observed().read(|index| index.vmims.by_uid(&uid).cloned()) {
            return Ok(known);
        }
        // virt-controller may be faster than our watch.
        let name = claim.migration_name.as_deref().ok_or("the pod does not name its migration")?;
        let live = self.headroom.migration(&claim.namespace, name).await;
        live.map_err(|_| "the migration cannot be read")?.map(Arc::new).ok_or("there is no such migration")
    }
}

/// The path of [`names::WEBHOOK_HEADROOM`], which answers when there is room for a target.
pub fn headroom_router(app: Arc<App>, endpoint: Arc<HeadroomEndpoint>) -> Router {
    Router::new().route(names::PATH_HEADROOM, post(make_room)).with_state((app, endpoint))
}

type Shared = (Arc<App>, Arc<HeadroomEndpoint>);

async fn make_room(State((app, endpoint)): State<Shared>, request: Request) -> Response {
    counted(&app, answer_claim(&app, &endpoint, request)).await
}

async fn answer_claim(app: &App, endpoint: &HeadroomEndpoint, request: Request) -> Result<Answer, Refusal> {
    let body = read(app, request).await?;
    let review = Review::decode(&body.bytes).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    let controller = endpoint.headroom.observed().read(|index| index.kubevirt_controller());
    let claim = claim(&review, controller.as_deref());
    let (uid, namespace, name) = (review.uid, review.namespace, review.name);
    // Making room may take a while; the body is not kept for it.
    drop(body);
    let why = endpoint.make_room(claim).await;
    tracing::debug!(endpoint = ENDPOINT, uid, namespace, name, why, "admission answered");
    answer(ENDPOINT, &uid, &Verdict::allow(why))
}
