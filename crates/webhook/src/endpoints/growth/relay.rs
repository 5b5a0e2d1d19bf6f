//! Growth of pods and VMs in a process that does not decide about it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;
use sluice_api::Endpoint;
use sluice_runtime::leader::LeaderLink;
use tokio::sync::Semaphore;

use super::GrowthVerdict;
use crate::endpoints::AsyncEndpoint;
use crate::http::body::HeldBody;
use crate::review::{Review, Verdict};
use crate::settings::Settings;

/// How long the leader may take. The API server waits 5 s, of which handshakes may take a part.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many reviews one replica has at the leader at a time; more wait here.
const AT_ONCE: usize = 64;

/// Hands reviews on to the leader.
pub struct GrowthRelay {
    leader: Arc<LeaderLink>,
    turns: Semaphore,
}

impl GrowthRelay {
    /// To the leader that `leader` follows.
    pub fn new(leader: Arc<LeaderLink>) -> Self {
        Self { leader, turns: Semaphore::new(AT_ONCE) }
    }

    async fn ask(&self, uid: &str, body: Bytes) -> Result<Verdict, String> {
        let asking = async {
            let _turn = self.turns.acquire().await;
            self.leader.post(Endpoint::Growth.path(), body).await
        };
        match tokio::time::timeout(PATIENCE, asking).await {
            Ok(Ok((StatusCode::OK, answer))) => {
                verdict(uid, &answer).ok_or_else(|| "the leader's answer cannot be read".to_owned())
            }
            Ok(Ok((status, _))) => Err(format!("the leader answered {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the leader did not answer within {PATIENCE:?}")),
        }
    }
}

impl AsyncEndpoint for GrowthRelay {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        _settings: &Settings,
        body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        let (uid, kind, body) = (review.uid.clone(), review.kind.clone(), body.clone());
        async move {
            let asked = self.ask(&uid, body.bytes.clone()).await;
            asked.unwrap_or_else(|why| {
                tracing::warn!(endpoint = Endpoint::Growth.name(), uid, kind, why, "growth not decided");
                GrowthVerdict::Undecided(why).about(&kind)
            })
        }
        .boxed()
    }
}

/// The verdict on the request `uid` that the leader's answer carries; about growth there are no patches or warnings.
fn verdict(uid: &str, answer: &[u8]) -> Option<Verdict> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let field = |path| answer.pointer(path);
    let number = |path| field(path).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    if field("/response/uid")? != uid {
        return None;
    }
    let code = u16::try_from(number("/response/status/code")?).ok()?;
    Some(Verdict {
        allowed: field("/response/allowed")?.as_bool()?,
        retry_after_s: number("/response/status/details/retryAfterSeconds"),
        ..Verdict::refuse(code, field("/response/status/message")?.as_str()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::RETRY_AFTER_S;
    use super::*;

    #[test]
    fn the_leaders_verdict_is_given_back_as_it_is() {
        let why = || "exceeded quota: q".to_owned();
        let all = [GrowthVerdict::Allowed, GrowthVerdict::Refused(why()), GrowthVerdict::Undecided(why())];
        for decided in all {
            let given = decided.about("Pod");
            let answer = given.encode("u").unwrap();
            assert_eq!(verdict("u", &answer), Some(given));
            assert_eq!(verdict("another", &answer), None);
        }
        assert_eq!(verdict("u", b"{}"), None);
    }

    /// While an installation is upgraded, webhook and leader are of two versions. What is read here is frozen; a leader may
    /// say more.
    #[test]
    fn the_answers_of_a_leader_of_another_version_are_read() {
        let why = || "exceeded quota: q".to_owned();
        let late = "could not charge the pod's quotas: exceeded quota: q; try again";
        for (decided, allowed, status) in [
            (GrowthVerdict::Allowed, true, json!({ "code": 202, "message": "" })),
            (GrowthVerdict::Refused(why()), false, json!({ "code": 403, "message": why() })),
            (
                GrowthVerdict::Undecided(why()),
                false,
                json!({ "code": 429, "message": late, "details": { "retryAfterSeconds": RETRY_AFTER_S } }),
            ),
        ] {
            let given = decided.about("Pod");
            let frozen = json!({ "response": { "uid": "u", "allowed": allowed, "status": status } });
            assert_eq!(verdict("u", frozen.to_string().as_bytes()), Some(given.clone()));
            let sent: Value = serde_json::from_slice(&given.encode("u").unwrap()).unwrap();
            let mut merged = sent.clone();
            json_patch::merge(&mut merged, &frozen);
            assert_eq!(merged, sent, "all of it is said");
        }
    }
}
