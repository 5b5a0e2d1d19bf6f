//! Growth of pods and VMs in a process that does not decide about it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_api::Endpoint;
use sluice_runtime::leader::LeaderLink;

use super::GrowthVerdict;
use crate::endpoints::AsyncEndpoint;
use crate::endpoints::leader::Leader;
use crate::http::body::HeldBody;
use crate::review::{Review, Verdict};
use crate::settings::Settings;

/// How long the leader may take. The API server waits 5 s, of which handshakes may take a part.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many reviews one replica has at the leader at a time; more wait here.
const AT_ONCE: usize = 64;

/// Hands reviews on to the leader.
pub struct GrowthRelay(Leader);

impl GrowthRelay {
    /// To the leader that `leader` follows.
    pub fn new(leader: Arc<LeaderLink>) -> Self {
        Self(Leader::new(leader, Endpoint::Growth, PATIENCE, AT_ONCE))
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
            // About growth there are no patches.
            let asked = self.0.ask(&uid, body.bytes.clone()).await.map(|answer| answer.verdict);
            asked.unwrap_or_else(|why| {
                tracing::warn!(endpoint = Endpoint::Growth.name(), uid, kind, why, "growth not decided");
                GrowthVerdict::Undecided(why).about(&kind)
            })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::RETRY_AFTER_S;
    use super::*;
    use crate::endpoints::leader::LeaderAnswer;

    fn verdict(uid: &str, answer: &[u8]) -> Option<Verdict> {
        LeaderAnswer::read(uid, answer).map(|answer| answer.verdict)
    }

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
