//! Ends raises: of a session that is over, and of those that were left.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::headroom::restore;
use sluice_index::ResourceQuotaRecord;
use sluice_runtime::backoff::Backoff;
use tokio::time::{Instant, sleep};

use crate::patches;
use crate::protocol::{Left, QuotaRef, sweep};
use crate::requests::Requests;
use crate::status_writer::{StatusWriter, Written};

/// Waits between tries.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Puts quotas back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restorer<'r> {
    pub(crate) requests: &'r Requests,
    pub(crate) writer: &'r StatusWriter,
    pub(crate) namespace: &'r str,
}

impl Restorer<'_> {
    /// Ends the raise of a quota that has a mark for which `is_own` holds, whatever else has changed, until `end` at most.
    /// `known` is the quota as it was last seen.
    pub(crate) async fn end(
        &self,
        quota: &QuotaRef,
        mut known: Option<Arc<ResourceQuotaRecord>>,
        is_own: impl Fn(i64) -> bool,
        end: Instant,
    ) -> Written {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1, 0);
        loop {
            let record = match known.take() {
                Some(record) => record,
                None => match self.read(quota).await {
                    Ok(Some(record)) => record,
                    Ok(None) => return Written::Conflict,
                    Err(why) if Instant::now() >= end => return Written::Failed(why),
                    Err(_) => {
                        sleep(backoff.failed()).await;
                        continue;
                    }
                },
            };
            let native = record.native();
            // A quota without our mark is not raised by us any more: kube-controller-manager drops mark and raise together.
            let Some(write) = restore(&native).filter(|_| native.mark().is_some_and(&is_own)) else {
                return Written::Conflict;
            };
            let patch = patches::restore(&record, &write);
            match self.writer.write(self.namespace, &quota.name, &patch).await {
                Written::Conflict if backoff.failures() == 0 => _ = backoff.failed(),
                // A refusal too: an API server that has just started does not know all rights yet.
                Written::Conflict | Written::Refused(_) | Written::Unanswered(_) | Written::Failed(_)
                    if Instant::now() < end =>
                {
                    sleep(backoff.failed()).await;
                }
                written => return written,
            }
        }
    }

    /// Restores a quota that is left raised, if it still is. `now_ms` and `raised_ms` as [`sweep`] takes them.
    pub(crate) async fn sweep(&self, quota: &QuotaRef, now_ms: i64, raised_ms: u64) -> Written {
        let record = match self.read(quota).await {
            Ok(Some(record)) => record,
            Ok(None) => return Written::Conflict,
            Err(why) => return Written::Failed(why),
        };
        match sweep(&record.native(), now_ms, raised_ms) {
            Left::Now(write) => {
                self.writer.write(self.namespace, &quota.name, &patches::restore(&record, &write)).await
            }
            Left::Nothing | Left::Later(_) => Written::Conflict,
        }
    }

    async fn read(&self, quota: &QuotaRef) -> Result<Option<Arc<ResourceQuotaRecord>>, Arc<str>> {
        let wire = self.requests.quota(self.namespace, &quota.name).await;
        let wire =
            wire.map_err(|error| Arc::<str>::from(format!("reading quota {}: {error}", quota.name)))?;
        Ok(wire
            .as_ref()
            .map(ResourceQuotaRecord::read)
            .filter(|record| record.uid == quota.uid)
            .map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use sluice_engine::Uid;
    use sluice_engine::headroom::MARK;
    use sluice_runtime::clock::ServerClock;
    use sluice_runtime::metrics::ApiWrites;

    use super::*;

    const OWN: i64 = 1_795_294_869_123;

    /// An API server that refuses so many writes of a raised quota.
    fn refusing(writes: u32) -> Client {
        let left = Mutex::new(writes);
        let quota = json!({
            "metadata": { "name": "rq", "namespace": "ns", "uid": "uid", "resourceVersion": "7" },
            "spec": { "hard": { "pods": "1" } },
            "status": { "hard": { "pods": "2", MARK: OWN.to_string() }, "used": { "pods": "1" } },
        });
        let refusal = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "RBAC" });
        let answer = move |method: &Method| -> (u16, Value) {
            let mut left = left.lock();
            match *method {
                Method::POST => (201, json!({ "status": { "allowed": false } })),
                Method::PATCH if *left > 0 => {
                    *left -= 1;
                    (403, refusal.clone())
                }
                _ => (200, quota.clone()),
            }
        };
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = answer(request.method());
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        Client::new(service, "default")
    }

    async fn end(client: Client, time: Duration) -> Written {
        let clock = Arc::new(ServerClock::default());
        let requests = Requests::new(client.clone(), Arc::clone(&clock));
        let writer = StatusWriter::new(client.clone(), client, clock, ApiWrites::default());
        let restorer = Restorer { requests: &requests, writer: &writer, namespace: "ns" };
        let quota = QuotaRef { name: "rq".into(), uid: Uid::parse("uid") };
        restorer.end(&quota, None, |mark| mark == OWN, Instant::now() + time).await
    }

    #[tokio::test]
    async fn a_refused_restore_is_tried_again_while_the_lock_holds() {
        let written = end(refusing(3), Duration::from_secs(60)).await;
        assert!(matches!(written, Written::Done(..)), "{written:?}");
        let written = end(refusing(u32::MAX), Duration::ZERO).await;
        assert!(matches!(written, Written::Refused(_)), "{written:?}");
    }
}
