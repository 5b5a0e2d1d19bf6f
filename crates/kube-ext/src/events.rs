//! Events for humans (`events.k8s.io/v1`), written in the background and given up under pressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::with_deadline;
use crate::retry::{Failure, classify};

/// Events that wait at most.
const QUEUE: usize = 1024;
/// Limit of the API for `note`, in bytes.
const NOTE_BYTES: usize = 1024;
/// Limit of the API for `reason`, `action` and `reportingInstance`, in bytes.
const WORD_BYTES: usize = 128;

/// Whether a human should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Expected course.
    Normal,
    /// Something needs attention.
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One event. The caller sees to it that the same thing is not reported again and again.
#[derive(Debug, Clone)]
pub struct Report {
    /// The object it is about; cluster-scoped ones have no namespace.
    pub regarding: ObjectReference,
    /// Second object, if the action concerns one.
    pub related: Option<ObjectReference>,
    /// Normal or Warning.
    pub severity: Severity,
    /// Why, in CamelCase.
    pub reason: String,
    /// What was done, in CamelCase.
    pub action: String,
    /// Text for humans; cut to 1024 bytes.
    pub note: String,
}

/// What became of events.
#[derive(Debug, Clone, Default)]
pub struct EventCounts {
    /// Written to the server.
    pub written: Counter,
    /// Not written: the queue was full.
    pub dropped: Counter,
    /// Refused by the server or lost on the way.
    pub failed: Counter,
}

impl EventCounts {
    /// Registers `events_written_total`, `events_dropped_total`, `events_failed_total`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("events_written", "Events written", self.written.clone());
        registry.register(
            "events_dropped",
            "Events not written because too many were waiting",
            self.dropped.clone(),
        );
        registry.register(
            "events_failed",
            "Events that the API server refused or that were lost",
            self.failed.clone(),
        );
    }
}

/// Takes reports; never blocks. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Report>,
    counts: EventCounts,
}

/// Writes what the [`Recorder`] took, one at a time so that events never compete with real work.
pub struct EventWriter {
    client: Client,
    controller: String,
    instance: String,
    queue: mpsc::Receiver<Report>,
    counts: EventCounts,
    sequence: Arc<AtomicU64>,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// A recorder and the task body that writes for it. `controller` is a qualified name such as `quota.example.dev/gate`,
/// `instance` names this process.
pub fn recorder(client: Client, controller: &str, instance: &str) -> (Recorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let counts = EventCounts::default();
    let recorder = Recorder { queue: sender, counts: counts.clone() };
    let writer = EventWriter {
        client,
        controller: controller.to_owned(),
        instance: truncate(instance, WORD_BYTES).to_owned(),
        queue,
        counts,
        sequence: Arc::default(),
    };
    (recorder, writer)
}

impl Recorder {
    /// Queues a report; it is dropped and counted when too many are waiting.
    pub fn report(&self, report: Report) {
        if self.queue.try_send(report).is_err() {
            self.counts.dropped.inc();
        }
    }

    /// Counts of written, dropped and failed events.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    /// A recorder whose reports go nowhere, for tests.
    pub fn discarding() -> Self {
        let (queue, _) = mpsc::channel(1);
        Self { queue, counts: EventCounts::default() }
    }
}

impl EventWriter {
    /// Writes until `cancel`, then what is still queued for at most two seconds.
    pub async fn run(mut self, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                report = self.queue.recv() => match report {
                    Some(report) => self.write(report).await,
                    None => return cancel.cancelled().await,
                },
            }
        }
        self.queue.close();
        let rest = async {
            while let Some(report) = self.queue.recv().await {
                self.write(report).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(2), rest).await.is_err() {
            self.counts.dropped.inc_by(u64::try_from(self.queue.len()).unwrap_or(0));
        }
    }

    async fn write(&self, report: Report) {
        let event = self.event(report);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let limit = Duration::from_secs(5);
        let mut answer = with_deadline(limit, api.create(&params, &event)).await;
        if let Err(error) = &answer
            && let Failure::Throttled { retry_after } = classify(error)
        {
            tokio::time::sleep(retry_after.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(10)))
                .await;
            answer = with_deadline(limit, api.create(&params, &event)).await;
        }
        match answer {
            Ok(_) => _ = self.counts.written.inc(),
            Err(error) => {
                self.counts.failed.inc();
                tracing::debug!(ns = %namespace, %error, "event not written");
            }
        }
    }

    fn event(&self, report: Report) -> Event {
        let now = jiff::Timestamp::now();
        let about = report.regarding.name.as_deref().unwrap_or("unnamed");
        // Names are at most 253 bytes; the suffix makes them unique within this process and across restarts.
        let name = format!(
            "{}.{:x}{:04x}",
            truncate(about, 220).trim_end_matches(['.', '-']),
            now.as_nanosecond(),
            self.sequence.fetch_add(1, Relaxed) & 0xffff
        );
        // Events about cluster-scoped objects are kept in `default`; the API refuses any other place.
        let namespace = report.regarding.namespace.clone().filter(|ns| !ns.is_empty());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            regarding: Some(report.regarding),
            related: report.related,
            type_: Some(report.severity.as_str().to_owned()),
            reason: Some(truncate(&report.reason, WORD_BYTES).to_owned()),
            action: Some(truncate(&report.action, WORD_BYTES).to_owned()),
            note: Some(shorten(&report.note)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// The longest prefix of at most `bytes` bytes that ends between two characters.
fn truncate(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// A note within the API's limit; one that was cut ends in an ellipsis.
fn shorten(note: &str) -> String {
    const CUT: &str = "…";
    if note.len() <= NOTE_BYTES {
        return note.to_owned();
    }
    format!("{}{CUT}", truncate(note, NOTE_BYTES - CUT.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
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
            severity: Severity::Warning,
            reason: "Held".into(),
            action: "Hold".into(),
            note: note.into(),
        }
    }

    type Written = Arc<Mutex<Vec<(String, Event)>>>;

    fn server(codes: Vec<u16>) -> (Client, Written) {
        let written = Written::default();
        let (log, codes) = (written.clone(), Arc::new(Mutex::new(codes)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (log, codes) = (log.clone(), codes.clone());
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let code = codes.lock().pop().unwrap_or(201);
                if code == 201 {
                    log.lock().push((path, serde_json::from_slice(&body).unwrap()));
                }
                let refusal = serde_json::json!({"kind": "Status", "status": "Failure", "code": code});
                let body =
                    Body::from(if code == 201 { body.to_vec() } else { refusal.to_string().into_bytes() });
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        (Client::new(service, "default"), written)
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
    async fn names_stay_legal_for_long_objects() {
        let (_, writer) = recorder(server(Vec::new()).0, "c", "i");
        let mut long = report("n");
        long.regarding.name = Some(format!("{}.{}", "a".repeat(219), "b".repeat(33)));
        let names: Vec<_> = (0..2).map(|_| writer.event(long.clone()).metadata.name.unwrap()).collect();
        assert!(names.iter().all(|name| name.len() <= 253 && !name.contains("..")), "{names:?}");
        assert_ne!(names[0], names[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_are_dropped_and_a_throttled_one_is_tried_once_more() {
        let (client, written) = server(vec![403, 429]);
        let (recorder, writer) = recorder(client, "c", "i");
        for _ in 0..QUEUE + 5 {
            recorder.report(report("n"));
        }
        assert_eq!(recorder.counts().dropped.get(), 5);
        flush(writer).await;
        assert_eq!(recorder.counts().failed.get(), 1, "429, then 403 on the second attempt");
        assert_eq!(recorder.counts().written.get(), QUEUE as u64 - 1);
        assert_eq!(written.lock().len(), QUEUE - 1);
    }
}
