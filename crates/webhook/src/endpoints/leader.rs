//! Asking the controller that leads: it is sent a review as it came, and its answer is an answer to that review.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use sluice_api::Endpoint;
use sluice_runtime::leader::LeaderLink;
use tokio::sync::Semaphore;

use crate::review::Verdict;

/// The way to the leader's decision of one endpoint.
pub(super) struct Leader {
    link: Arc<LeaderLink>,
    endpoint: Endpoint,
    /// How long it may take.
    patience: Duration,
    /// Reviews that are at the leader at a time; more wait here.
    turns: Semaphore,
}

impl Leader {
    pub(super) fn new(link: Arc<LeaderLink>, endpoint: Endpoint, patience: Duration, at_once: usize) -> Self {
        Self { link, endpoint, patience, turns: Semaphore::new(at_once) }
    }

    /// The answer to the review `uid`, whose body this is; or why there is none.
    pub(super) async fn ask(&self, uid: &str, body: Bytes) -> Result<LeaderAnswer, String> {
        let patience = self.patience;
        let asking = async {
            let _turn = self.turns.acquire().await;
            self.link.post(self.endpoint.path(), body).await
        };
        match tokio::time::timeout(patience, asking).await {
            Ok(Ok((StatusCode::OK, answer))) => LeaderAnswer::read(uid, &answer)
                .ok_or_else(|| "the leader's answer cannot be read".to_owned()),
            Ok(Ok((status, _))) => Err(format!("the leader answered {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the leader did not answer within {patience:?}")),
        }
    }
}

/// What the leader says of a review.
#[derive(Debug, PartialEq)]
pub(super) struct LeaderAnswer {
    /// Its verdict, without patches and warnings.
    pub verdict: Verdict,
    /// `patch`, in base64.
    pub patch: Option<String>,
}

impl LeaderAnswer {
    /// Reads the answer to the review `uid`.
    pub(super) fn read(uid: &str, answer: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let field = |path| answer.pointer(path);
        let number = |path| field(path).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        if field("/response/uid")? != uid {
            return None;
        }
        let code = u16::try_from(number("/response/status/code")?).ok()?;
        let verdict = Verdict {
            allowed: field("/response/allowed")?.as_bool()?,
            retry_after_s: number("/response/status/details/retryAfterSeconds"),
            ..Verdict::refuse(code, field("/response/status/message")?.as_str()?.to_owned())
        };
        let patch = field("/response/patch").and_then(Value::as_str).map(str::to_owned);
        Some(Self { verdict, patch })
    }
}
