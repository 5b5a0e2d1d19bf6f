//! QuotaReviews in a process that does not know the answers.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use serde_json::Value;
use sluice_api::Endpoint;
use sluice_runtime::leader::LeaderLink;

use super::{Question, Rate, STATUS, answered, is_short, too_often, unanswered};
use crate::endpoints::AsyncEndpoint;
use crate::endpoints::leader::{Leader, LeaderAnswer};
use crate::http::body::HeldBody;
use crate::review::{Review, Verdict};
use crate::settings::Settings;

/// How long the leader may take. The API server waits 3 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// Hands reviews on to the leader, one at a time.
pub struct ExplainRelay {
    leader: Leader,
    rate: Rate,
}

impl ExplainRelay {
    /// To the leader that `leader` follows.
    pub fn new(leader: Arc<LeaderLink>) -> Self {
        Self { leader: Leader::new(leader, Endpoint::Explain, PATIENCE, 1), rate: Rate::default() }
    }
}

impl AsyncEndpoint for ExplainRelay {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        _settings: &Settings,
        body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        // What is no question costs no turn.
        if let Err(refused) = Question::read(review, body) {
            return ready(refused).boxed();
        }
        if !self.rate.take() {
            return ready(too_often()).boxed();
        }
        let (uid, body) = (review.uid.clone(), body.clone());
        async move {
            match self.leader.ask(&uid, body.bytes.clone()).await {
                Ok(answer) => {
                    given(answer).unwrap_or_else(|| unanswered("the leader's answer cannot be read"))
                }
                Err(why) => unanswered(&why),
            }
        }
        .boxed()
    }
}

/// The leader's verdict. Of its patch only the status is taken: the leader answers, and changes nothing else.
fn given(LeaderAnswer { verdict, patch }: LeaderAnswer) -> Option<Verdict> {
    if !verdict.allowed {
        return Some(verdict);
    }
    let patch: Value = serde_json::from_slice(&STANDARD.decode(patch?).ok()?).ok()?;
    let mut ops = patch.as_array()?.iter();
    let status = ops.find(|op| op["op"] == "add" && op["path"] == STATUS)?.get("value")?.clone();
    (status.is_object() && is_short(&status)).then(|| answered(status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::QuotaReviewStatus;

    use super::super::Reply;
    use super::*;
    use crate::review::PatchOp;

    fn read(verdict: &Verdict) -> Option<Verdict> {
        given(LeaderAnswer::read("u", &verdict.encode("u").unwrap()).unwrap())
    }

    #[test]
    fn the_leaders_reply_is_given_back_as_it_is() {
        let status = QuotaReviewStatus { text: "train waits".to_owned(), ..QuotaReviewStatus::default() };
        for reply in [
            Reply::Answered(Box::new(status)),
            Reply::TooMuch("5,000 pods".to_owned()),
            Reply::Unknown("this process does not lead"),
        ] {
            let verdict = reply.verdict();
            assert_eq!(read(&verdict), Some(verdict));
        }
        assert_eq!(read(&too_often()), Some(too_often()));
    }

    #[test]
    fn of_the_leaders_patch_only_the_status_is_taken() {
        let add = |path: &str, value: Value| PatchOp::Add { path: path.to_owned(), value };
        let patched = |patch| read(&Verdict::allow("").with_patch(patch));
        let status = add("/status", json!({ "held": true }));
        let both = vec![add("/metadata/labels", json!({ "a": "b" })), status.clone()];
        assert_eq!(patched(both).unwrap().patch, [status]);
        for wrong in [vec![], vec![add("/spec", json!({}))], vec![add("/status", json!("text"))]] {
            assert_eq!(patched(wrong.clone()), None, "{wrong:?}");
        }
        let long = add("/status", json!({ "text": "x".repeat(64 * 1024) }));
        assert_eq!(patched(vec![long]), None);
    }
}
