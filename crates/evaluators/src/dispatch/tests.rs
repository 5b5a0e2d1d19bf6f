//! Questions that are asked once more, call by call.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sluice_evaluator_sdk::protocol::{ResourceList, frame};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::*;
use crate::{EvaluatorState, OtherPods};

const NEVER: Duration = Duration::from_hours(1);

/// What a process says to its next question; `None`: the call is lost.
type Says = Option<&'static str>;

/// A process that says so to one question after the other, each as soon as it may go on.
struct Process {
    incarnation: Incarnation,
    asked: Arc<AtomicUsize>,
    may_go_on: Arc<Semaphore>,
}

impl Process {
    async fn start(number: u64, says: impl Fn(usize) -> Says + Send + Sync + 'static) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (asked, may_go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counted, waited_for, says) = (asked.clone(), may_go_on.clone(), Arc::new(says));
        let service = service_fn(move |_| {
            let said = says(counted.fetch_add(1, Ordering::SeqCst));
            let waited_for = waited_for.clone();
            async move {
                waited_for.acquire().await.unwrap().forget();
                said.map(answer).ok_or("lost")
            }
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(theirs), service));
        let link = Arc::new(Link::over(ours).await.unwrap());
        Self { incarnation: Incarnation { number, link }, asked, may_go_on }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(list: &'static str) -> Response<BoxBody<Bytes, Infallible>> {
    let message = PodUsageResponse {
        resource_list: Some(ResourceList { resource_list_json: list.into() }),
        r#match: true,
        error: None,
    };
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = Full::new(frame(&message)).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

struct Asked {
    dispatch: Dispatch,
    states: watch::Sender<Vec<EvaluatorState>>,
    /// Who is gone is not asked for.
    askers: Vec<oneshot::Receiver<Result<Answered, Failure>>>,
}

impl Asked {
    fn new(process: &Process, repeat_every: Duration) -> Self {
        let name: Arc<str> = "label".into();
        let state = EvaluatorState { name: name.clone(), presence: None, breaker: None, differs: None };
        let states = watch::Sender::new(vec![state]);
        let mut config = Config { repeat_every, ..Config::new(name, "/") };
        config.limits = Limits { timeout: NEVER, concurrency: 1 };
        let report = Report::new(states.clone(), 0);
        let mut dispatch = Dispatch::new(config, EvaluatorMetrics::default(), report, watch::Sender::new(0));
        dispatch.presence = Presence::Here(process.incarnation.clone());
        Self { dispatch, states, askers: Vec::new() }
    }

    fn ask(&mut self, pod: &str) {
        let question = Question {
            uid: pod.into(),
            namespace: "t".into(),
            hash: 0,
            pod_json: "{}".into(),
            other_pods: OtherPods::default(),
            is_waiting: true,
            native: Arc::default(),
            counted: Arc::default(),
            rules: Arc::default(),
            sidecars: Arc::default(),
        };
        let (reply, asker) = oneshot::channel();
        self.askers.push(asker);
        self.dispatch.asked(Ask { question, policy: Arc::default(), reply });
        self.dispatch.start();
    }

    /// The next call that this process may answer ends.
    async fn ends(&mut self, process: &Process) {
        process.may_go_on.add_permits(1);
        let done = self.dispatch.calls.next().await.unwrap();
        self.dispatch.done(done);
        self.dispatch.start();
    }

    fn differs(&self) -> bool {
        self.states.borrow()[0].differs.is_some()
    }

    fn requests(&self) -> Vec<String> {
        let mut registry = Registry::default();
        self.dispatch.metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| line.starts_with("evaluator_requests_total")).map(str::to_owned).collect()
    }
}

const ONE: &str = r#"{"pods":1}"#;
const TWO: &str = r#"{"pods":2}"#;

#[tokio::test]
async fn another_process_is_not_asked_what_the_one_before_has_said() {
    let (before, after) = (Process::start(1, |_| Some(ONE)).await, Process::start(2, |_| Some(TWO)).await);
    let mut asked = Asked::new(&before, Duration::ZERO);
    asked.ask("a");
    // It takes the other's place while the question is on its way.
    asked.dispatch.found(Presence::Here(after.incarnation.clone()));
    after.may_go_on.add_permits(1);
    asked.ends(&before).await;
    asked.ends(&before).await;
    assert_eq!((before.asked(), after.asked(), asked.differs()), (2, 0, false));
}

/// A repeat fails last of five: four failures of questions do not open the breaker.
#[tokio::test]
async fn a_repeat_that_fails_is_no_question_without_an_answer() {
    let process = Process::start(1, |call| (call == 0).then_some(ONE)).await;
    let mut asked = Asked::new(&process, Duration::ZERO);
    asked.dispatch.turns.allow(8);
    asked.ask("a");
    asked.ends(&process).await;
    assert_eq!(asked.dispatch.calls.len(), 1, "it is asked once more");
    for pod in ["b", "c", "d", "e"] {
        asked.ask(pod);
    }
    while !asked.dispatch.calls.is_empty() {
        asked.ends(&process).await;
    }
    assert!(!asked.dispatch.breaker.is_open());
    let requests = asked.requests();
    assert_eq!(process.asked(), 6);
    assert!(
        requests.iter().any(|line| line.contains(r#"result="charge""#) && line.ends_with(" 1")),
        "{requests:?}"
    );
    assert!(requests.len() == 2 && requests.iter().any(|line| line.ends_with(" 4")), "{requests:?}");
}

#[tokio::test]
async fn no_question_waits_for_one_that_is_asked_once_more_and_so_often_at_most() {
    let process = Process::start(1, |call| Some(if call % 2 == 0 { ONE } else { TWO })).await;
    let mut asked = Asked::new(&process, NEVER);
    asked.dispatch.repeats.next = Instant::now();
    for pod in ["a", "b", "c"] {
        asked.ask(pod);
    }
    asked.ends(&process).await;
    assert_eq!((asked.dispatch.calls.len(), asked.dispatch.turns.len()), (1, 1), "the next one has the slot");
    asked.ends(&process).await;
    asked.ends(&process).await;
    assert_eq!((asked.dispatch.calls.len(), asked.differs()), (1, false), "the last one is asked once more");
    asked.ends(&process).await;
    assert!(asked.differs());
    asked.ask("d");
    asked.ends(&process).await;
    assert_eq!((process.asked(), asked.dispatch.calls.len()), (5, 0), "one more, and no more repeats");
}
