//! Lets the target pods of live migrations pass full quotas.
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
use sluice_api::{WindowMigration, names};
use sluice_engine::{ChargeRules, Uid};
use sluice_headroom::{Headroom, Target};
use sluice_index::headroom::MigrationRecord;
use sluice_index::wire::PodWire;

use crate::review::{Operation, Review, nullable};
use crate::router::{Answer, App, Refusal, answer, counted, read};
use crate::verdict::Verdict;

/// Name of the endpoint in metrics and logs.
const ENDPOINT: &str = "headroom";
/// How long a target may wait for its turn. The API server waits 10 s for an answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// A pod's creation that claims to be for a migration. Whether it is true is not known yet.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace.
    pub namespace: String,
    /// Who creates it.
    pub creator: String,
    /// The pod's uid, which the API server has given it already.
    pub pod: String,
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

/// What a review says of its pod. Only creations by KubeVirt's controller are of interest; what somebody else creates,
/// whatever its labels, is judged by the quota alone.
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
        creator: review.username.clone(),
        pod: metadata.uid,
        migration_uid: metadata.labels.remove(names::MIGRATION_JOB_LABEL)?,
        migration_name: metadata.annotations.remove(names::MIGRATION_NAME_ANNOTATION),
        wire,
    })
}

impl Claim {
    /// Who is to be let in, if the claim is true: the migration exists in this namespace and is not over.
    ///
    /// # Errors
    /// Why it is not, or cannot be judged.
    pub fn target(
        self,
        migration: Option<&MigrationRecord>,
        rules: ChargeRules,
    ) -> Result<Target, &'static str> {
        let migration = migration.filter(|migration| {
            migration.uid == Uid::parse(&self.migration_uid) && *migration.namespace == *self.namespace
        });
        let migration = migration.ok_or("there is no such migration in the namespace")?;
        if migration.is_final() {
            return Err("the migration is over");
        }
        let need =
            sluice_index::need_of(&self.wire, rules).map_err(|_| "a quantity of the pod cannot be read")?;
        Ok(Target {
            namespace: Arc::from(self.namespace),
            migration: WindowMigration {
                name: migration.name.to_string(),
                uid: self.migration_uid,
                vmi: migration.machine.to_string(),
            },
            pod: Some(Uid::parse(&self.pod)),
            creator: self.creator,
            need,
        })
    }
}

/// The endpoint's own state.
#[derive(Debug)]
pub struct HeadroomEndpoint {
    headroom: Arc<Headroom>,
    rules: ChargeRules,
}

impl HeadroomEndpoint {
    /// Opens windows with `headroom`; charges are counted by the rules of the API server's version.
    pub fn new(headroom: Arc<Headroom>, rules: ChargeRules) -> Arc<Self> {
        Arc::new(Self { headroom, rules })
    }

    /// Returns when the creation may go on, and why.
    async fn make_room(&self, claim: Result<Claim, &'static str>) -> &'static str {
        let target = match claim {
            Ok(claim) => self.target(claim).await,
            Err(why) => Err(why),
        };
        match target {
            Err(why) => why,
            Ok(target) if !self.headroom.is_needed(&target) => "no quota is in the way",
            Ok(target) => {
                self.headroom.admit(target, PATIENCE).await;
                "a window was opened if it helps"
            }
        }
    }

    async fn target(&self, claim: Claim) -> Result<Target, &'static str> {
        let uid = Uid::parse(&claim.migration_uid);
        let known = self.headroom.observed().read(|index| index.migrations.by_uid(&uid).cloned());
        if known.is_some() {
            return claim.target(known.as_deref(), self.rules);
        }
        // virt-controller may be faster than our watch.
        let name = claim.migration_name.as_deref().ok_or("the pod does not name its migration")?;
        let live = self.headroom.migration(&claim.namespace, name).await;
        let live = live.map_err(|_| "the migration cannot be read")?;
        claim.target(live.as_ref(), self.rules)
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
    // A window may take a while; the body is not kept for it.
    drop(body);
    let why = endpoint.make_room(claim).await;
    tracing::debug!(endpoint = ENDPOINT, uid, namespace, name, why, "admission answered");
    answer(ENDPOINT, &uid, &Verdict::allow(why))
}
