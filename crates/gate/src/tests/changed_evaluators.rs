//! The gate as it runs while evaluators change, beside an API server that lists pods.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_engine::{Amount, Charge, Resource};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::lease::{Election, LeaseOptions};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::watch::Event;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::evaluator::config;
use super::server::wire;
use crate::apply::Apply;
use crate::handle::Gate;
use crate::{AskEvaluators, EvaluatorQuestion, EvaluatorsConfig, Failed, Price, Said};

const DEADLINE: Duration = Duration::from_secs(600);

fn pod(name: &str, version: u64) -> Value {
    let resources = json!({"requests": {"cpu": "1"}});
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "resourceVersion": version.to_string(),
            "labels": {"version": version.to_string()},
        },
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    })
}

/// Charges so many pods for each.
struct Counting {
    pods: i128,
    asked: AtomicUsize,
}

impl AskEvaluators for Counting {
    fn ask(&self, _: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>> {
        unreachable!("it answers at once")
    }

    fn answer(&self, _: EvaluatorQuestion) -> Option<Result<Said, Failed>> {
        self.asked.fetch_add(1, SeqCst);
        let charge = Charge::from_pairs([(Resource::Pods, Amount::from_nanos(self.pods * 1_000_000_000))]);
        Some(Ok(Said::from(Price::Charge(Arc::new(charge)))))
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

fn charging(pods: i128) -> (Arc<Counting>, Option<Arc<EvaluatorsConfig>>) {
    let asker = Arc::new(Counting { pods, asked: AtomicUsize::new(0) });
    let config =
        EvaluatorsConfig { asker: Arc::clone(&asker) as Arc<dyn AskEvaluators>, ..(*config()).clone() };
    (asker, Some(Arc::new(config)))
}

/// Lists pods page by page, one pod on each, as soon as it may.
struct Lists {
    pods: Mutex<Vec<Value>>,
    may_go: Semaphore,
    /// So many requests are refused first.
    refused: AtomicUsize,
    served: AtomicUsize,
}

impl Lists {
    fn apply(self: &Arc<Self>) -> Apply {
        let lists = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let lists = Arc::clone(&lists);
            let uri = request.uri().clone();
            async move { Ok::<_, Infallible>(lists.answer(uri).await) }
        });
        let client = kube::Client::new(service, "default");
        let lease = Election::new(client.clone(), LeaseOptions::new("sluice-system", "a")).unwrap();
        let write_event = |_| async { true }.boxed();
        Apply::new(client, lease.token(), ApiWrites::default(), "sluice-system", write_event, 16, DEADLINE)
    }

    async fn answer(&self, uri: Uri) -> Response<Body> {
        assert_eq!(uri.path(), "/api/v1/pods");
        self.may_go.acquire().await.unwrap().forget();
        if self.refused.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            let expired = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                "reason": "Expired", "message": "the continue token is too old"});
            let body = Body::from(expired.to_string().into_bytes());
            return Response::builder().status(StatusCode::GONE).body(body).unwrap();
        }
        let query = uri.query().unwrap_or_default();
        let at = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("continue="))
            .map_or(0, |at| at.parse().unwrap());
        let pods = self.pods.lock();
        let items: Vec<&Value> = pods.iter().skip(at).take(1).collect();
        let next = (at + 1 < pods.len()).then(|| (at + 1).to_string());
        let list = json!({"kind": "PodList", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": "100", "continue": next}});
        self.served.fetch_add(1, SeqCst);
        Response::new(Body::from(list.to_string().into_bytes()))
    }
}

impl Lists {
    fn is_read_to_the_end(&self) -> bool {
        self.served.load(SeqCst) >= self.pods.lock().len()
    }
}

struct Setting {
    gate: Gate,
    lists: Arc<Lists>,
    cancel: CancellationToken,
    following: tokio::task::JoinHandle<()>,
}

impl Setting {
    /// A gate that has been handed three pods that run, each of which is charged one.
    fn new() -> Self {
        let gate = Gate::unfed(Arc::new(ServerClock::default()));
        let pods = Mutex::new((0..3).map(|n| pod(&format!("p{n}"), 10 + n)).collect());
        let (may_go, refused, served) = (Semaphore::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let lists = Arc::new(Lists { pods, may_go, refused, served });
        assert!(gate.reader.set(lists.apply()).is_ok());
        let labels = json!({"application-aware-quota/enable-gating": ""});
        let metadata = json!({"name": "team", "uid": "team", "resourceVersion": "1", "labels": labels});
        gate.on_namespaces(&Event::Apply(wire(json!({ "metadata": metadata }))));
        let metadata = json!({"name": "q", "namespace": "team", "uid": "q", "resourceVersion": "1"});
        gate.on_quotas(&Event::Apply(wire(json!({"metadata": metadata, "spec": {"hard": {"pods": "1k"}}}))));
        gate.change_evaluators(1, charging(1).1, true);
        let cancel = CancellationToken::new();
        let following = tokio::spawn(gate.clone().follow_evaluators(cancel.clone()));
        let setting = Self { gate, lists, cancel, following };
        setting.gate.on_pods_with_text(&Event::Init, None);
        for pod in setting.lists.pods.lock().iter() {
            setting.see(pod);
        }
        setting.gate.on_pods_with_text(&Event::InitDone, None);
        assert_eq!(setting.charged(), Some(3));
        setting
    }

    fn see(&self, pod: &Value) {
        self.gate.on_pods_with_text(&Event::Apply(wire(pod.clone())), Some(&pod.to_string()));
    }

    /// How many pods the quota is charged for; `None`: its sums are not complete.
    fn charged(&self) -> Option<i128> {
        let state = self.gate.state();
        let mut state = state.lock();
        state.plan(self.gate.now());
        state.charged_pods()
    }

    /// So many requests may go, and are answered.
    async fn serve(&self, requests: usize) {
        self.lists.may_go.add_permits(requests);
        self.until(|| self.lists.may_go.available_permits() == 0).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let wait = async {
            while !is_so() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(DEADLINE, wait).await.unwrap();
    }

    async fn in_force(&self, number: u64) {
        let mut in_force = self.gate.evaluators_in_force();
        timeout(DEADLINE, in_force.wait_for(|known| *known == number)).await.unwrap().unwrap();
    }

    async fn end(self) {
        self.cancel.cancel();
        self.following.await.unwrap();
    }
}

#[tokio::test]
async fn evaluators_are_in_force_when_all_pods_were_read_for_them() {
    let setting = Setting::new();
    let (asker, two) = charging(2);
    setting.gate.change_evaluators(2, two, false);
    setting.serve(2).await;
    setting.until(|| asker.asked.load(SeqCst) == 2).await;
    assert_eq!(setting.charged(), Some(3), "the last page is still to come");
    // One that has come meanwhile, and one that has changed after it was read.
    setting.see(&pod("new", 50));
    setting.see(&pod("p0", 51));
    assert_eq!((setting.charged(), asker.asked.load(SeqCst)), (Some(4), 4));
    setting.serve(1).await;
    setting.in_force(2).await;
    assert_eq!((setting.charged(), asker.asked.load(SeqCst)), (Some(8), 5), "nothing is asked again");
    setting.end().await;
}

/// The gate drops the evaluators that it was preparing.
#[tokio::test(start_paused = true)]
async fn a_list_of_evaluators_puts_them_in_force_at_once() {
    let setting = Setting::new();
    let (two, three) = (charging(2).1, charging(3).1);
    setting.gate.change_evaluators(2, two, false);
    setting.serve(1).await;
    setting.gate.enforce_evaluators();
    assert_eq!(*setting.gate.evaluators_in_force().borrow(), 2);
    assert_eq!(setting.charged(), None, "two pods are not answered about");
    setting.gate.change_evaluators(3, three, true);
    // The gate stops reading pods for the evaluators that it was preparing.
    setting.lists.may_go.add_permits(2);
    assert_eq!(*setting.gate.evaluators_in_force().borrow(), 3, "what was prepared is not in force");
    // Until nothing else is to be done.
    sleep(Duration::from_secs(1)).await;
    assert!(setting.gate.next.borrow().1.is_none() && !setting.lists.is_read_to_the_end());
    for (n, version) in [(0, 10), (1, 11), (2, 12)] {
        setting.see(&pod(&format!("p{n}"), version));
    }
    assert_eq!(setting.charged(), Some(9));
    setting.end().await;
}

#[tokio::test(start_paused = true)]
async fn reading_begins_anew_when_it_fails() {
    let setting = Setting::new();
    let (asker, two) = charging(2);
    setting.lists.refused.store(1, SeqCst);
    setting.gate.change_evaluators(2, two, false);
    setting.serve(4).await;
    setting.in_force(2).await;
    assert_eq!((setting.charged(), asker.asked.load(SeqCst)), (Some(6), 3));
    setting.end().await;
}

/// After two minutes the gate puts the rule in force, and lists pods again.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_lists_nothing_keeps_no_rule_from_being_in_force() {
    let setting = Setting::new();
    setting.gate.change_evaluators(2, charging(2).1, false);
    setting.in_force(2).await;
    assert_eq!(setting.charged(), None, "pods have to be listed");
    setting.end().await;
}

#[tokio::test]
async fn of_several_changes_the_last_is_in_force_in_the_end() {
    let setting = Setting::new();
    for number in 2..=9 {
        setting.gate.change_evaluators(number, charging(i128::from(number)).1, false);
        setting.serve(1).await;
    }
    setting.lists.may_go.add_permits(1_000);
    setting.in_force(9).await;
    assert_eq!(setting.charged(), Some(27));
    assert!(setting.lists.served.load(SeqCst) <= 12, "those between are passed over");
    setting.end().await;
}
