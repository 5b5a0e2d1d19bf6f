//! The gate as it runs, beside evaluators that answer when they like.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_engine::{Charge, PodId, Uid};
use sluice_index::Version;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::lease::{Election, LeaseOptions};
use sluice_runtime::metrics::ApiWrites;
use sluice_runtime::watch::Event;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::evaluator::config;
use super::server::wire;
use crate::apply::Apply;
use crate::handle::Gate;
use crate::{
    AskEvaluators, AskShadows, Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, Opinion, Outcome,
    Price, Said, SaidLater, Selection, ShadowConfig,
};

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

/// It has a deadline from its turn on. Until then others are asked about: fifteen, ten seconds each. One that has no turn
/// for good ends all the same.
#[tokio::test(start_paused = true)]
async fn a_question_waits_for_its_turn_as_long_as_that_takes_and_not_for_ever() {
    assert_eq!(answered_in(Duration::from_secs(160)).await, Ok(Said::from(Price::NoMatch)));
    assert_eq!(&*answered_in(TEN_MINUTES).await.unwrap_err().text, "evaluators did not answer");
}

async fn answered_in(time: Duration) -> Result<Said, Failed> {
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
        config: Arc::new(EvaluatorsConfig { asker: Arc::new(Slow(time)), ..(*config()).clone() }),
    };
    let Outcome::Evaluated { answer, .. } = gate.evaluate(&apply(), question).await else { panic!() };
    answer
}

/// By namespace, when it was asked about pods.
type Asked = Arc<Mutex<BTreeMap<String, Vec<Duration>>>>;

/// It takes half a minute for a pod of the namespace `slow`.
struct Uneven {
    began: Instant,
    asked: Asked,
}

impl AskShadows for Uneven {
    fn ask(&self, _: &[usize], _: &[u8], _: &Charge) -> Vec<Opinion> {
        Vec::new()
    }

    fn ask_later(&self, question: EvaluatorQuestion) -> BoxFuture<'static, Vec<SaidLater>> {
        let namespace = question.namespace.to_string();
        let takes = Duration::from_secs(if namespace == "slow" { 30 } else { 0 });
        self.asked.lock().entry(namespace).or_default().push(self.began.elapsed());
        let said = vec![SaidLater { place: 0, opinion: Opinion::NoMatch, is_final: true }];
        sleep(takes).map(|()| said).boxed()
    }

    fn unreachable(&self) -> u16 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_about_which_it_is_slow_delays_the_shadow_of_no_other() {
    let gate = Gate::unfed(Arc::new(ServerClock::default()));
    assert!(gate.reader.set(apply()).is_ok());
    let asked = Asked::default();
    let asker = Arc::new(Uneven { began: Instant::now(), asked: Arc::clone(&asked) });
    let evaluators = vec![("sidecar".into(), Selection::default())];
    gate.shadow_by(Some(Arc::new(ShadowConfig {
        evaluators,
        later: 1,
        in_rounds: 0,
        other_pods: None,
        asker,
    })));
    for namespace in ["slow", "team"] {
        let labels = json!({"application-aware-quota/enable-gating": ""});
        let metadata = json!({"name": namespace, "uid": namespace, "resourceVersion": "1", "labels": labels});
        gate.on_namespaces(&Event::Apply(wire(json!({ "metadata": metadata }))));
        let metadata = json!({"name": "q", "namespace": namespace, "uid": namespace, "resourceVersion": "1"});
        gate.on_quotas(&Event::Apply(wire(json!({"metadata": metadata, "spec": {"hard": {"pods": "1k"}}}))));
    }
    let see = |namespace: &str, name: &str| {
        let pod = pod(namespace, name);
        gate.on_pods_with_text(&Event::Apply(wire(pod.clone())), Some(&pod.to_string()));
    };
    (0..80).for_each(|n| see("slow", &format!("p{n}")));
    let cancel = CancellationToken::new();
    let asking = tokio::spawn(gate.clone().ask_shadows(cancel.clone()));
    let has_asked = |namespace: &str, count: usize| {
        let known = asked.lock();
        known.get(namespace).is_some_and(|asked| asked.len() >= count)
    };
    let until = |namespace: &'static str, count: usize| {
        let has_asked = &has_asked;
        async move {
            while !has_asked(namespace, count) {
                sleep(Duration::from_millis(100)).await;
            }
        }
    };
    timeout(TEN_MINUTES, until("slow", 8)).await.unwrap();
    see("team", "a");
    timeout(Duration::from_secs(10), until("team", 1)).await.unwrap();
    timeout(TEN_MINUTES, until("slow", 80)).await.unwrap();
    cancel.cancel();
    asking.await.unwrap();
    assert_eq!(asked.lock()["slow"].len(), 80, "about each once");
}
