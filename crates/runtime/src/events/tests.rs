use super::*;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;

fn report(note: &str) -> Report {
    Report {
        regarding: ObjectReference {
            name: Some("web".into()),
            namespace: Some("shop".into()),
            ..ObjectReference::default()
        },
        related: None,
        type_: EventType::Warning,
        reason: "Held".into(),
        action: "Hold".into(),
        note: note.into(),
    }
}

type Written = Arc<Mutex<Vec<(String, Event)>>>;

/// An API server that answers with these codes, the last first, and then does what it is asked.
fn server(codes: Vec<u16>) -> (Client, Written) {
    let written = Written::default();
    let (log, codes) = (written.clone(), Arc::new(Mutex::new(codes)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, codes) = (log.clone(), codes.clone());
        async move {
            let path = request.uri().path().to_owned();
            let method = request.method().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let told = codes.lock().pop();
            let (code, body) = match told {
                None => store(&mut log.lock(), &method, path, &body),
                Some(code) => (code, refusal(code, "")),
            };
            let body = Body::from(body);
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), written)
}

fn refusal(code: u16, reason: &str) -> Vec<u8> {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
    status.to_string().into_bytes()
}

fn store(events: &mut Vec<(String, Event)>, method: &Method, path: String, body: &[u8]) -> (u16, Vec<u8>) {
    let named = |event: &Event, path: &str| path.ends_with(event.metadata.name.as_deref().unwrap());
    if *method == Method::POST {
        let event: Event = serde_json::from_slice(body).unwrap();
        if events.iter().any(|(_, known)| known.metadata == event.metadata) {
            return (409, refusal(409, "AlreadyExists"));
        }
        events.push((path, event));
        return (201, body.to_vec());
    }
    let (_, event) = events.iter_mut().find(|(_, event)| named(event, &path)).unwrap();
    if *method == Method::PATCH {
        let patch: Event = serde_json::from_slice(body).unwrap();
        event.series = patch.series;
    }
    (200, serde_json::to_vec(event).unwrap())
}

async fn flush(writer: EventWriter) {
    let cancel = CancellationToken::new();
    cancel.cancel();
    writer.run(cancel).await;
}

#[tokio::test]
async fn events_carry_all_that_the_api_demands() {
    let (client, written) = server(Vec::new());
    let (recorder, writer) = recorder(client, "quota.example.dev/gate", "pod-1");
    recorder.report(report("waits for cpu"));
    let mut cluster = report("waits");
    cluster.regarding.namespace = None;
    recorder.report(cluster);
    flush(writer).await;
    let written = written.lock();
    assert_eq!(written[0].0, "/apis/events.k8s.io/v1/namespaces/shop/events");
    assert_eq!(written[1].0, "/apis/events.k8s.io/v1/namespaces/default/events");
    let event = &written[0].1;
    assert_eq!(event.note.as_deref(), Some("waits for cpu"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reporting_controller.as_deref(), Some("quota.example.dev/gate"));
    assert!(event.event_time.is_some() && event.action.is_some() && event.reporting_instance.is_some());
    assert_eq!(recorder.counts().written.get(), 2);
}

#[test]
fn long_notes_are_cut_between_characters() {
    for pad in 0..4 {
        let note = format!("{}{}", "x".repeat(pad), "ü€𝄞".repeat(300));
        let short = shorten(&note);
        assert!(short.len() <= NOTE_BYTES && short.len() > NOTE_BYTES - 8, "{}", short.len());
        assert!(note.starts_with(short.trim_end_matches('…')));
    }
    assert_eq!(shorten(&"a".repeat(1024)).len(), 1024);
}

#[tokio::test]
async fn the_same_words_again_are_a_series() {
    let (client, written) = server(Vec::new());
    let (one, _) = recorder(client.clone(), "quota.example.dev/gate", "pod-1");
    let (other, _) = recorder(client, "quota.example.dev/gate", "pod-2");
    assert!(one.write(report("waits for cpu")).await);
    assert!(one.write(report("waits for memory")).await);
    assert_eq!(written.lock().iter().filter(|(_, event)| event.series.is_some()).count(), 0);
    assert!(one.write(report("waits for cpu")).await);
    assert!(other.write(report("waits for cpu")).await, "another process goes on");
    let written = written.lock();
    assert_eq!(written.len(), 2);
    let series = written[0].1.series.as_ref().unwrap();
    assert_eq!(series.count, 3);
    assert!(series.last_observed_time.0 >= written[0].1.event_time.as_ref().unwrap().0);
}

#[tokio::test]
async fn names_stay_legal_for_long_objects() {
    let (recorder, _) = recorder(server(Vec::new()).0, "c", "i");
    let writer = recorder.writer;
    let mut long = report("n");
    long.regarding.name = Some(format!("{}.{}", "a".repeat(219), "b".repeat(33)));
    let mut other = long.clone();
    other.regarding.uid = Some("another".into());
    let names = [long, other].map(|report| writer.event(report).metadata.name.unwrap());
    assert!(names.iter().all(|name| name.len() <= 253 && !name.contains("..")), "{names:?}");
    assert_ne!(names[0], names[1]);
}

#[tokio::test(start_paused = true)]
async fn too_many_are_dropped_and_a_throttled_one_is_tried_once_more() {
    let (client, written) = server(vec![403, 429]);
    let (recorder, writer) = recorder(client, "c", "i");
    for n in 0..QUEUE + 5 {
        recorder.report(report(&n.to_string()));
    }
    assert_eq!(recorder.counts().dropped.get(), 5);
    flush(writer).await;
    assert_eq!(recorder.counts().failed.get(), 1, "429, then 403 on the second attempt");
    assert_eq!(recorder.counts().written.get(), QUEUE as u64 - 1);
    assert_eq!(written.lock().len(), QUEUE - 1);
}
