use super::*;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One lease behind the API's rules: create once, replace only at the current version.
#[derive(Clone, Default)]
struct FakeApi {
    lease: Arc<Mutex<Option<Value>>>,
    version: Arc<AtomicU64>,
    /// Requests of this kind get this answer instead; 0 hangs.
    faults: Arc<Mutex<Vec<(Method, u16)>>>,
    /// Who watches is told of each write; `None`: watches are refused.
    watchers: Option<tokio::sync::broadcast::Sender<Value>>,
    /// How often the lease was read.
    reads: Arc<AtomicU64>,
}

impl FakeApi {
    fn client(&self) -> Client {
        let api = self.clone();
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let api = api.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let fault = api
                        .faults
                        .lock()
                        .iter()
                        .find(|(method, _)| *method == parts.method)
                        .map(|fault| fault.1);
                    if fault == Some(0) {
                        return std::future::pending().await;
                    }
                    if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
                        let (code, body) = match &api.watchers {
                            Some(watchers) => (200, changes(watchers.subscribe())),
                            None => (403, whole(&status(403, "Forbidden"))),
                        };
                        return Ok(Response::builder().status(code).body(body).unwrap());
                    }
                    let body = body.collect().await.unwrap().to_bytes();
                    let (code, answer) = match fault {
                        Some(code) => (code, status(code, "Injected")),
                        None => api.answer(&parts.method, &body),
                    };
                    Ok::<_, Infallible>(Response::builder().status(code).body(whole(&answer)).unwrap())
                }
            }),
            "default",
        )
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let mut lease = self.lease.lock();
        if method == Method::GET {
            self.reads.fetch_add(1, Ordering::SeqCst);
            return lease.clone().map_or_else(|| (404, status(404, "NotFound")), |lease| (200, lease));
        }
        let mut wanted: Value = serde_json::from_slice(body).unwrap();
        match (&*lease, method.as_str()) {
            (Some(_), "POST") => return (409, status(409, "AlreadyExists")),
            (None, "PUT") => return (404, status(404, "NotFound")),
            (Some(current), "PUT")
                if current["metadata"]["resourceVersion"] != wanted["metadata"]["resourceVersion"] =>
            {
                return (409, status(409, "Conflict"));
            }
            _ => {}
        }
        wanted["metadata"]["resourceVersion"] =
            json!((self.version.fetch_add(1, Ordering::SeqCst) + 1).to_string());
        *lease = Some(wanted.clone());
        let told = self.watchers.as_ref().map(|watchers| watchers.send(wanted.clone()));
        drop(told);
        (200, wanted)
    }

    fn holder(&self) -> String {
        let lease = self.lease.lock();
        lease
            .as_ref()
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    fn fail(&self, faults: &[(Method, u16)]) {
        *self.faults.lock() = faults.to_vec();
    }

    fn candidate(&self, name: &str) -> Running {
        let identity = name.to_owned();
        let options =
            LeaseOptions { identity, handover: Some("handed-over"), ..LeaseOptions::new("system", "lease") };
        let election = Election::new(self.client(), options).unwrap();
        let (token, leadership, cancel) = (election.token(), election.leadership(), CancellationToken::new());
        let handover = election.handover();
        let task = tokio::spawn(election.run(cancel.clone()));
        Running { token, leadership, handover, cancel, task }
    }
}

type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

fn whole(answer: &Value) -> Answer {
    http_body_util::Full::new(Bytes::from(answer.to_string())).boxed_unsync()
}

/// A watch that tells of these writes.
fn changes(writes: tokio::sync::broadcast::Receiver<Value>) -> Answer {
    let lines = futures::stream::unfold(writes, |mut writes| async {
        let lease = writes.recv().await.ok()?;
        let mut object = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease" });
        object.as_object_mut().unwrap().extend(lease.as_object().unwrap().clone());
        let line = format!("{}\n", json!({ "type": "MODIFIED", "object": object }));
        Some((Ok(hyper::body::Frame::data(Bytes::from(line))), writes))
    });
    http_body_util::StreamBody::new(lines).boxed_unsync()
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code})
}

struct Running {
    token: WriteToken,
    leadership: watch::Receiver<Leadership>,
    handover: Handover,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), LeaseError>>,
}

impl Running {
    async fn leads_within(&mut self, limit: u64) {
        tokio::time::timeout(Duration::from_secs(limit), self.leadership.wait_for(Leadership::is_leading))
            .await
            .expect("not leading in time")
            .unwrap();
        assert!(self.token.is_held());
    }

    async fn ends_within(self, limit: u64) -> Result<(), LeaseError> {
        tokio::time::timeout(Duration::from_secs(limit), self.task).await.expect("still running").unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_the_second_follows_until_it_releases() {
    let api = FakeApi::default();
    let mut a = api.candidate("a");
    a.leads_within(1).await;
    let mut b = api.candidate("b");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(a.token.is_held() && !b.token.is_held(), "a renews, b waits");
    assert_eq!(*b.leadership.borrow(), Leadership::Following { leader: Some("a".into()) });
    let token = a.token.clone();
    a.cancel.cancel();
    a.ends_within(1).await.unwrap();
    assert!(!token.is_held());
    b.leads_within(5).await;
    assert_eq!(*b.leadership.borrow(), Leadership::Leading { term: 1, is_handed_over: false });
}

/// A follower is told of a lease that is given back, and reads it seldom while it is renewed.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let api = FakeApi { watchers: Some(tokio::sync::broadcast::channel(64).0), ..FakeApi::default() };
    let mut a = api.candidate("a");
    a.leads_within(1).await;
    let mut b = api.candidate("b");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(a.token.is_held() && !b.token.is_held(), "a renews, b waits");
    let reads = api.reads.load(Ordering::SeqCst);
    assert!(reads < 10, "{reads} reads in two minutes");
    a.cancel.cancel();
    a.ends_within(1).await.unwrap();
    let given_back = tokio::time::Instant::now();
    b.leads_within(5).await;
    assert!(given_back.elapsed() <= Duration::from_millis(500), "{:?}", given_back.elapsed());
    // A holder that dies says nothing: its lease runs out.
    b.task.abort();
    let mut c = api.candidate("c");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!c.token.is_held());
    c.leads_within(10).await;
}

/// In a rollout the youngest candidates are those of the new version.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_goes_to_the_youngest() {
    let api = FakeApi { watchers: Some(tokio::sync::broadcast::channel(64).0), ..FakeApi::default() };
    let mut holder = api.candidate("holder");
    holder.leads_within(1).await;
    let old = api.candidate("old");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut young = api.candidate("young");
    tokio::time::sleep(Duration::from_secs(6)).await;
    holder.cancel.cancel();
    holder.ends_within(1).await.unwrap();
    let given_back = tokio::time::Instant::now();
    young.leads_within(5).await;
    // What six seconds of looking cost it.
    assert!(given_back.elapsed() < Duration::from_millis(200), "{:?}", given_back.elapsed());
    assert!(!old.token.is_held());
}

/// What a holder said counts for the next one alone, and for none that takes a lease that ran out.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_says_whether_something_is_under_way() {
    let api = FakeApi::default();
    let mut a = api.candidate("a");
    a.leads_within(1).await;
    a.handover.nothing_is_under_way();
    a.cancel.cancel();
    a.ends_within(1).await.unwrap();
    let mut b = api.candidate("b");
    b.leads_within(5).await;
    assert_eq!(*b.leadership.borrow(), Leadership::Leading { term: 1, is_handed_over: true });
    assert!(api.lease.lock().as_ref().unwrap()["metadata"]["annotations"].get("handed-over").is_none());
    b.cancel.cancel();
    b.ends_within(1).await.unwrap();
    let mut c = api.candidate("c");
    c.leads_within(5).await;
    assert_eq!(*c.leadership.borrow(), Leadership::Leading { term: 2, is_handed_over: false });
    // It ends without giving it back, and somebody writes what it did not say.
    c.task.abort();
    api.lease.lock().as_mut().unwrap()["metadata"]["annotations"] = json!({"handed-over": "2"});
    let mut d = api.candidate("d");
    d.leads_within(40).await;
    assert_eq!(*d.leadership.borrow(), Leadership::Leading { term: 3, is_handed_over: false });
    // What is left of an earlier term says nothing of a later one.
    d.cancel.cancel();
    d.ends_within(1).await.unwrap();
    api.lease.lock().as_mut().unwrap()["metadata"]["annotations"] = json!({"handed-over": "2"});
    let mut e = api.candidate("e");
    e.leads_within(5).await;
    assert_eq!(*e.leadership.borrow(), Leadership::Leading { term: 4, is_handed_over: false });
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_the_next_begins() {
    for fault in [0, 429, 500] {
        let api = FakeApi::default();
        let mut a = api.candidate("a");
        a.leads_within(1).await;
        let mut b = api.candidate("b");
        tokio::time::sleep(Duration::from_secs(5)).await;
        api.fail(&[(Method::PUT, fault)]);
        let token = a.token.clone();
        let error = a.ends_within(11).await.unwrap_err();
        assert!(
            error.to_string().starts_with("lost lease system/lease: could not renew it for 10s"),
            "{error}"
        );
        assert!(!token.is_held());
        assert!(!b.token.is_held(), "b may not have it yet");
        api.fail(&[]);
        b.leads_within(30).await;
        assert_eq!(api.holder(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn short_trouble_does_not_depose() {
    let api = FakeApi::default();
    let mut a = api.candidate("a");
    a.leads_within(1).await;
    api.fail(&[(Method::PUT, 500)]);
    tokio::time::sleep(Duration::from_secs(7)).await;
    api.fail(&[]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(a.token.is_held());
    assert_eq!(*a.leadership.borrow(), Leadership::Leading { term: 0, is_handed_over: false });
}

#[tokio::test(start_paused = true)]
async fn a_stopped_process_refuses_by_itself() {
    let api = FakeApi::default();
    let mut a = api.candidate("a");
    a.leads_within(1).await;
    // The task is not polled while the clock moves, as after SIGSTOP.
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(!a.token.is_held());
    assert!(a.ends_within(1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_forged_holder_deposes_and_a_deleted_lease_is_made_anew() {
    let api = FakeApi::default();
    let mut a = api.candidate("a");
    a.leads_within(1).await;
    *api.lease.lock() = None;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(api.holder(), "a");
    assert!(a.token.is_held());
    let mut forged = api.lease.lock().clone().unwrap();
    forged["spec"]["holderIdentity"] = json!("mallory");
    forged["metadata"]["resourceVersion"] = json!("forged");
    *api.lease.lock() = Some(forged);
    let error = a.ends_within(5).await.unwrap_err();
    assert_eq!(error.to_string(), "lost lease system/lease: it is now held by mallory");
}

#[tokio::test(start_paused = true)]
async fn foreign_labels_and_annotations_survive() {
    let api = FakeApi::default();
    let meta = json!({"name": "lease", "labels": {"team": "x"}, "resourceVersion": "0"});
    *api.lease.lock() = Some(json!({"metadata": meta, "spec": {"holderIdentity": ""}}));
    let mut a = api.candidate("a");
    a.leads_within(5).await;
    assert_eq!(api.lease.lock().as_ref().unwrap()["metadata"]["labels"]["team"], "x");
}

#[test]
fn identities_differ_between_starts() {
    assert_ne!(unique_identity(), unique_identity());
}

#[tokio::test]
async fn unsound_times_are_refused() {
    let timings = Timings { renew_deadline: Duration::from_secs(20), ..Timings::default() };
    let options = LeaseOptions { timings, ..LeaseOptions::new("system", "lease") };
    assert!(matches!(Election::new(FakeApi::default().client(), options), Err(LeaseError::Timings(_))));
}
