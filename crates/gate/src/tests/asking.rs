//! The gate as it runs, beside evaluators that answer when they like.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use sluice_engine::{PodId, Uid};
use sluice_index::Version;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::lease::{Election, LeaseOptions};
use sluice_runtime::metrics::ApiWrites;
use tokio::time::sleep;

use super::evaluator::config;
use crate::apply::Apply;
use crate::handle::Gate;
use crate::{AskEvaluators, Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, Outcome, Price, Said};

const TEN_MINUTES: Duration = Duration::from_secs(600);

fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "7",
        },
        "spec": {"containers": [{"name": "c"}]},
    })
}

/// Of an API server that has each pod that it is asked for.
fn apply() -> Apply {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let path: Vec<&str> = request.uri().path().split('/').collect();
        let [.., namespace, "pods", name] = path[..] else { panic!("{path:?}") };
        Ok::<_, Infallible>(Response::new(Body::from(pod(namespace, name).to_string().into_bytes())))
    });
    let client = kube::Client::new(service, "default");
    let lease = Election::new(client.clone(), LeaseOptions::new("sluice-system", "a")).unwrap();
    let write_event = |_| async { true }.boxed();
    Apply::new(client, lease.token(), ApiWrites::default(), "sluice-system", write_event, 16, TEN_MINUTES)
}

/// Answers after so long.
struct Slow(Duration);

impl AskEvaluators for Slow {
    fn ask(&self, _: EvaluatorQuestion) -> BoxFuture<'static, Result<Said, Failed>> {
        sleep(self.0).map(|()| Ok(Said::from(Price::NoMatch))).boxed()
    }

    fn answer(&self, _: EvaluatorQuestion) -> Option<Result<Said, Failed>> {
        None
    }

    fn is_immediate(&self) -> bool {
        false
    }
}

/// It has a deadline from its turn on. Until then others are asked about, perhaps for long.
#[tokio::test(start_paused = true)]
async fn a_question_waits_for_its_turn_as_long_as_that_takes() {
    let gate = Gate::unfed(Arc::new(ServerClock::default()));
    let text = pod("team", "a").to_string();
    let hash = gate.view.view(&text).unwrap().hash;
    let question = Evaluate {
        pod: PodId(0),
        namespace: "team".into(),
        name: "a".into(),
        uid: Uid::parse("a"),
        version: Version::parse(Some("7")),
        hash,
        serial: 1,
        is_waiting: true,
        native: Arc::default(),
        counted: Arc::default(),
        selected: 1,
        round: None,
        config: Arc::new(EvaluatorsConfig { asker: Arc::new(Slow(TEN_MINUTES)), ..(*config()).clone() }),
    };
    let Outcome::Evaluated { answer, .. } = gate.evaluate(&apply(), question).await else { panic!() };
    assert_eq!(answer, Ok(Said::from(Price::NoMatch)));
}
