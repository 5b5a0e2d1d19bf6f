//! Updates of pods without gates that may take more of a quota: resizes, and what moves a pod under another scope
//! (`docs/protocols.md`, *Charged at admission*).
//!
//! The leading controller decides. The webhook hands it each review as it is ([`relay_router`]) and gives its answer back;
//! the controller answers with [`growth_router`]. Whatever keeps it from deciding is a refusal that clients repeat by
//! themselves: code 429 with a time to wait, as client-go understands it (`k8s.io/client-go/rest/with_retry.go`).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use futures::future::BoxFuture;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_api::names;
use sluice_index::PodWire;
use sluice_runtime::leader::LeaderLink;
use tokio::sync::Semaphore;

use crate::review::{Operation, Review};
use crate::router::{Answer, App, Refusal, answer, answer_with, counted, read};
use crate::verdict::Verdict;

/// Name of the endpoint in metrics and logs.
const ENDPOINT: &str = "growth";
/// How long the leader may take. The API server waits 5 s, of which handshakes may take a part.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many reviews one replica has at the leader at a time; more wait here.
const AT_ONCE: usize = 64;
/// After so many seconds a client may try again.
const RETRY_AFTER_S: u32 = 1;

/// An update that may take more.
#[derive(Debug)]
pub struct Growth {
    /// The pod as it is stored.
    pub before: PodWire,
    /// The pod as it is to be.
    pub after: PodWire,
    /// Nothing is to be charged.
    pub dry_run: bool,
}

/// What is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthVerdict {
    /// There is room, and it is charged.
    Allowed,
    /// There is no room, in these words.
    Refused(String),
    /// It cannot be decided now, because of this.
    Undecided(String),
}

/// Who decides.
pub type Judge = Arc<dyn Fn(Growth) -> BoxFuture<'static, GrowthVerdict> + Send + Sync>;

/// What a review asks.
///
/// # Errors
/// A verdict on what is no update of a pod.
pub fn growth(review: &Review<'_>) -> Result<Growth, Verdict> {
    if review.kind != "Pod" || review.operation != Operation::Update {
        return Err(Verdict::malformed(format!(
            "expected the update of a pod: kind \"{}\", operation {:?}",
            review.kind, review.operation
        )));
    }
    let pod = |field: &str, raw: Option<&RawValue>| {
        let raw = raw
            .ok_or_else(|| Verdict::malformed(format!("admission request has no {field}: expected a pod")))?;
        serde_json::from_str(raw.get())
            .map_err(|error| Verdict::malformed(format!("could not read {field} as a pod: {error}")))
    };
    Ok(Growth {
        before: pod("oldObject", review.old_object)?,
        after: pod("object", review.object)?,
        dry_run: review.dry_run,
    })
}

/// How it is told to the API server.
#[must_use]
pub fn verdict(decided: GrowthVerdict) -> Verdict {
    match decided {
        GrowthVerdict::Allowed => Verdict::allow(""),
        GrowthVerdict::Refused(words) => Verdict::deny(words),
        GrowthVerdict::Undecided(why) => undecided(&why),
    }
}

fn undecided(why: &str) -> Verdict {
    Verdict::retry(RETRY_AFTER_S, format!("could not charge the pod's quotas: {why}; try again"))
}

/// The path of [`names::WEBHOOK_GROWTH`] in the process that decides.
pub fn growth_router(app: Arc<App>, judge: Judge) -> Router {
    Router::new().route(names::PATH_GROWTH, post(decide)).with_state((app, judge))
}

async fn decide(State((app, judge)): State<(Arc<App>, Judge)>, request: Request) -> Response {
    counted(&app, answer_growth(&app, &judge, request)).await
}

async fn answer_growth(app: &App, judge: &Judge, request: Request) -> Result<Answer, Refusal> {
    let body = read(app, request).await?;
    let review = Review::decode(&body.bytes).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    let asked = growth(&review);
    let (uid, namespace, name, dry_run) = (review.uid, review.namespace, review.name, review.dry_run);
    // Recording the charge takes a while; the body is not kept for it.
    drop(body);
    let verdict = match asked {
        Ok(growth) => verdict(judge(growth).await),
        Err(malformed) => malformed,
    };
    let Verdict { allowed, code, message, .. } = &verdict;
    tracing::debug!(endpoint = ENDPOINT, uid, namespace, name, dry_run, allowed, code, %message, "admission answered");
    answer(ENDPOINT, &uid, &verdict)
}

/// The path of [`names::WEBHOOK_GROWTH`] in a process that does not decide.
pub fn relay_router(app: Arc<App>, leader: Arc<LeaderLink>) -> Router {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    Router::new().route(names::PATH_GROWTH, post(relay)).with_state((app, leader, turns))
}

type Relay = (Arc<App>, Arc<LeaderLink>, Arc<Semaphore>);

async fn relay(State((app, leader, turns)): State<Relay>, request: Request) -> Response {
    counted(&app, relay_growth(&app, &leader, &turns, request)).await
}

async fn relay_growth(
    app: &App,
    leader: &LeaderLink,
    turns: &Semaphore,
    request: Request,
) -> Result<Answer, Refusal> {
    let mut body = read(app, request).await?;
    let uid = Review::decode(&body.bytes).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?.uid;
    let bytes = std::mem::take(&mut body.bytes);
    let asking = async {
        let _turn = turns.acquire().await;
        leader.post(names::PATH_GROWTH, bytes).await
    };
    let asked = tokio::time::timeout(PATIENCE, asking).await;
    drop(body);
    let why = match asked {
        Ok(Ok((StatusCode::OK, bytes))) => match serde_json::from_slice::<Answered>(&bytes) {
            Ok(Answered { response }) if response.uid == uid => {
                return Ok(answer_with(ENDPOINT, response.allowed, response.status.code, bytes));
            }
            _ => "the leader's answer cannot be read".to_owned(),
        },
        Ok(Ok((status, _))) => format!("the leader answered {status}"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the leader did not answer within {PATIENCE:?}"),
    };
    tracing::warn!(endpoint = ENDPOINT, uid, why, "growth of a pod not decided");
    answer(ENDPOINT, &uid, &undecided(&why))
}

/// Of the leader's answer what is counted here.
#[derive(Deserialize)]
struct Answered {
    response: AnsweredResponse,
}

#[derive(Deserialize)]
struct AnsweredResponse {
    uid: String,
    allowed: bool,
    status: AnsweredStatus,
}

#[derive(Deserialize)]
struct AnsweredStatus {
    code: u16,
}
