//! Which clients may see the metrics: those whose token the API server knows and whose account may `get` the path, as
//! controller-runtime asks it (`sigs.k8s.io/controller-runtime/pkg/metrics/filters`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::client::with_deadline;

/// How long an answer of the API server holds.
const HOLDS: Duration = Duration::from_secs(60);
/// How many answers are remembered.
const REMEMBERED: usize = 256;
/// How many tokens the API server is asked about at a time:
/// any client that reaches the port can make up as many as it likes.
const AT_A_TIME: usize = 2;
const DEADLINE: Duration = Duration::from_secs(5);

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAccess {
    /// No token, or none that the API server knows.
    Unknown,
    /// The API server knows the account and does not allow it.
    Forbidden,
    /// Too many tokens are being asked about.
    Busy,
    /// The API server did not say.
    NoAnswer,
}

impl IntoResponse for NoAccess {
    fn into_response(self) -> Response {
        match self {
            Self::Unknown => {
                let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
                (StatusCode::UNAUTHORIZED, scheme, "a token that the API server knows is needed\n")
                    .into_response()
            }
            Self::Forbidden => {
                let text = "a role with the verb get on this path is needed\n";
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::Busy => {
                (StatusCode::TOO_MANY_REQUESTS, "too many unknown tokens at a time\n").into_response()
            }
            Self::NoAnswer => {
                (StatusCode::INTERNAL_SERVER_ERROR, "the API server could not be asked\n").into_response()
            }
        }
    }
}

/// By digest: tokens are not kept.
type Key = [u8; 32];
/// When it was asked, and the answer.
type Said = (Instant, Result<(), NoAccess>);

/// Asks the API server, and remembers what it said.
pub struct Access {
    client: Client,
    asking: Semaphore,
    said: Mutex<HashMap<Key, Said>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Asks by `client`, whose account may create TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, asking: Semaphore::new(AT_A_TIME), said: Mutex::default() })
    }

    /// Whether the sender of a request with these headers may `get` `path`.
    ///
    /// # Errors
    /// Why not.
    pub async fn check(&self, headers: &HeaderMap, path: &str) -> Result<(), NoAccess> {
        let token = bearer(headers).ok_or(NoAccess::Unknown)?;
        let key = key(token, path);
        if let Some(said) = self.remembered(&key) {
            return said;
        }
        let Ok(_turn) = self.asking.try_acquire() else { return Err(NoAccess::Busy) };
        let said = match self.ask(token, path).await {
            Ok(said) => said,
            Err(error) => {
                tracing::warn!(%error, "cannot ask which clients may see the metrics");
                return Err(NoAccess::NoAnswer);
            }
        };
        self.remember(key, said);
        said
    }

    fn remembered(&self, key: &Key) -> Option<Result<(), NoAccess>> {
        let said = self.said.lock();
        said.get(key).filter(|(at, _)| at.elapsed() < HOLDS).map(|(_, said)| *said)
    }

    fn remember(&self, key: Key, said: Result<(), NoAccess>) {
        let mut all = self.said.lock();
        all.retain(|_, (at, _)| at.elapsed() < HOLDS);
        if all.len() >= REMEMBERED {
            // Made-up tokens must not push out the one that scrapes.
            all.retain(|_, (_, said)| said.is_ok());
        }
        if all.len() < REMEMBERED {
            all.insert(key, (Instant::now(), said));
        }
    }

    async fn ask(&self, token: &str, path: &str) -> kube::Result<Result<(), NoAccess>> {
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let params = PostParams::default();
        let review = with_deadline(DEADLINE, reviews.create(&params, &review)).await?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user else { return Ok(Err(NoAccess::Unknown)) };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = with_deadline(DEADLINE, reviews.create(&params, &may_get(user, path))).await?;
        let allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { Ok(()) } else { Err(NoAccess::Forbidden) })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn key(token: &str, path: &str) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, format!("{path} {token}").as_bytes()).as_ref());
    key
}

fn may_get(user: UserInfo, path: &str) -> SubjectAccessReview {
    let extra: Option<BTreeMap<_, _>> = user.extra;
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
