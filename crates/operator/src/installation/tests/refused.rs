//! An API server that does not take a container of an `Evaluator`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_runtime::events::recorder;

use super::super::named::NamedSidecar;
use super::super::{InstallationSettings, Writer};
use super::{asking, options};

/// What it is told, one after the other, and how often it has refused a Deployment.
#[derive(Default)]
struct Seen {
    degraded: Vec<String>,
    refusals: usize,
}

fn answer(body: &Value, seen: &Mutex<Seen>) -> (u16, Value) {
    if let Some(conditions) = body["status"]["conditions"].as_array() {
        let degraded = conditions.iter().find(|said| said["type"] == names::DEGRADED).unwrap();
        seen.lock().degraded.push(degraded["message"].as_str().unwrap().to_owned());
    }
    let containers = body["spec"]["template"]["spec"]["containers"].as_array();
    if containers.into_iter().flatten().all(|it| it["name"] != "a") {
        return (200, body.clone());
    }
    seen.lock().refusals += 1;
    (422, json!({ "kind": "Status", "status": "Failure", "message": "no images of others", "code": 422 }))
}

#[tokio::test(start_paused = true)]
async fn what_stays_refused_is_told_the_same_whenever_it_is_tried_again() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let asked = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, body) = answer(&serde_json::from_slice(&body).unwrap(), &asked);
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let client = Client::new(service, "default");
    let (events, _writer) = recorder(client.clone(), "operator", "test");
    let mut writer = Writer::new(client, InstallationSettings::new(options(), Some("1")), events);
    let mut world = asking(&json!({}));
    let container = Some(json!({ "name": "a", "image": "i" }));
    let named = NamedSidecar { created: 0, container, is_refused: false };
    world.evaluators.named = Some([("a".to_owned(), named)].into());
    for refusals in [2, 3, 4] {
        writer.round(&world, &|| true).await.unwrap();
        assert_eq!(seen.lock().refusals, refusals, "the write and a dry run, and later a dry run");
        tokio::time::advance(Duration::from_secs(600)).await;
    }
    let mut told = seen.lock().degraded.clone();
    assert_eq!(told.len(), 3);
    told.dedup();
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(
        told.starts_with("the container of the Evaluator a is left out") && told.contains("no images"),
        "{told}"
    );
}
