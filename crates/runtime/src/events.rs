//! Events for people (`events.k8s.io/v1`). What is said of an object again, in the same words, is the same event: its
//! name follows from what it says, and its series counts. So nothing has to be remembered here, and another process goes
//! on where this one ended.
//!
//! `kube::runtime::events::Recorder` names an event after the moment and keeps its series in memory without a bound, so
//! after each change of the leader it would write every event anew. It also ignores the limits of the API for the fields and
//! knows no deadline; its types for what an event is and who reports it are used.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
pub use kube::runtime::events::EventType;
use kube::runtime::events::Reporter;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::with_deadline;
use crate::retry::{Failure, classify};

/// Events that wait at most.
const QUEUE: usize = 1024;
/// No request for an event takes longer.
const DEADLINE: Duration = Duration::from_secs(5);
/// An API server that has too much to do is waited for so long, if it does not say how long, and at most.
const THROTTLED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Limit of the API for `note`, in bytes.
const NOTE_BYTES: usize = 1024;
/// Limit of the API for `reason`, `action` and `reportingInstance`, in bytes.
const WORD_BYTES: usize = 128;

/// One event. The caller bounds how often it is reported.
#[derive(Debug, Clone)]
pub struct Report {
    /// The object it is about; cluster-scoped ones have no namespace.
    pub regarding: ObjectReference,
    /// Second object, if the action concerns one.
    pub related: Option<ObjectReference>,
    /// Whether a human should look.
    pub type_: EventType,
    /// Why, in CamelCase; cut to 128 bytes.
    pub reason: String,
    /// What was done, in CamelCase; cut to 128 bytes.
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
        let text = "Events not written because too many were waiting";
        registry.register("events_dropped", text, self.dropped.clone());
        let text = "Events that the API server refused or that were lost";
        registry.register("events_failed", text, self.failed.clone());
    }
}

/// Takes reports. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Report>,
    writer: Arc<Writer>,
}

/// Writes what was given to [`Recorder::report`], one at a time so that events never compete with real work.
pub struct EventWriter {
    queue: mpsc::Receiver<Report>,
    writer: Arc<Writer>,
}

struct Writer {
    client: Client,
    reporter: Reporter,
    counts: EventCounts,
}

/// A recorder and the task body that writes for it. `controller` is a qualified name such as `quota.example.dev/gate`,
/// `instance` names this process and is cut to 128 bytes.
pub fn recorder(client: Client, controller: &str, instance: &str) -> (Recorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let instance = Some(truncate(instance, WORD_BYTES).to_owned());
    let reporter = Reporter { controller: controller.to_owned(), instance };
    let writer = Arc::new(Writer { client, reporter, counts: EventCounts::default() });
    (Recorder { queue: sender, writer: Arc::clone(&writer) }, EventWriter { queue, writer })
}

impl Recorder {
    /// Queues a report and never blocks; it is dropped and counted when 1024 are waiting.
    pub fn report(&self, report: Report) {
        if self.queue.try_send(report).is_err() {
            self.writer.counts.dropped.inc();
        }
    }

    /// Writes a report now, once, in at most 15 s; true if it was written. The caller bounds how many are under way, and
    /// tries again.
    pub async fn write(&self, report: Report) -> bool {
        self.writer.counted(self.writer.put(&self.writer.event(report)).await)
    }

    /// Counts of written, dropped and failed events.
    pub fn counts(&self) -> &EventCounts {
        &self.writer.counts
    }
}

impl EventWriter {
    /// Writes until `cancel`, then what is still queued for at most two seconds.
    pub async fn run(mut self, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                report = self.queue.recv() => match report {
                    Some(report) => self.writer.write(report).await,
                    None => return cancel.cancelled().await,
                },
            }
        }
        self.queue.close();
        let rest = async {
            while let Some(report) = self.queue.recv().await {
                self.writer.write(report).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(2), rest).await.is_err() {
            self.writer.counts.dropped.inc_by(u64::try_from(self.queue.len()).unwrap_or(0));
        }
    }
}

impl Writer {
    /// Writes a report, and once more if the API server had too much to do.
    async fn write(&self, report: Report) {
        let event = self.event(report);
        let mut answer = self.put(&event).await;
        if let Err(error) = &answer
            && let Failure::Throttled { retry_after } = classify(error)
        {
            tokio::time::sleep(retry_after.unwrap_or(THROTTLED.0).min(THROTTLED.1)).await;
            answer = self.put(&event).await;
        }
        self.counted(answer);
    }

    fn counted(&self, answer: kube::Result<()>) -> bool {
        match &answer {
            Ok(()) => _ = self.counts.written.inc(),
            Err(error) => {
                self.counts.failed.inc();
                tracing::debug!(%error, "event not written");
            }
        }
        answer.is_ok()
    }

    async fn put(&self, event: &Event) -> kube::Result<()> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        put(&Api::namespaced(self.client.clone(), namespace), event).await
    }

    fn event(&self, report: Report) -> Event {
        // Events about cluster-scoped objects are kept in `default`; the API refuses any other place.
        let namespace = report.regarding.namespace.clone().filter(|ns| !ns.is_empty());
        let type_ = match report.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(self.name(&report)),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(jiff::Timestamp::now())),
            regarding: Some(report.regarding),
            related: report.related,
            type_: Some(type_.to_owned()),
            reason: Some(truncate(&report.reason, WORD_BYTES).to_owned()),
            action: Some(truncate(&report.action, WORD_BYTES).to_owned()),
            note: Some(shorten(&report.note)),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: self.reporter.instance.clone(),
            ..Event::default()
        }
    }

    /// The same for the same words about the same object; at most 253 bytes, the limit of names.
    fn name(&self, report: &Report) -> String {
        let mut words = DefaultHasher::new();
        let Report { regarding, related, type_, reason, action, note } = report;
        let of =
            |object: &ObjectReference| (object.kind.clone(), object.namespace.clone(), object.uid.clone());
        (&self.reporter.controller, of(regarding), related.as_ref().map(of), type_, reason, action, note)
            .hash(&mut words);
        let about = regarding.name.as_deref().unwrap_or("unnamed");
        format!("{}.{:016x}", truncate(about, 220).trim_end_matches(['.', '-']), words.finish())
    }
}

/// Creates the event, or counts it as one more of its series.
async fn put(api: &Api<Event>, event: &Event) -> kube::Result<()> {
    match with_deadline(DEADLINE, api.create(&PostParams::default(), event)).await {
        Err(error) if classify(&error) == Failure::AlreadyExists => {}
        answer => return answer.map(drop),
    }
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let known = with_deadline(DEADLINE, api.get(name)).await?;
    let last_observed_time = event.event_time.clone().unwrap_or_else(|| MicroTime(jiff::Timestamp::now()));
    let count = known.series.map_or(1, |series| series.count).saturating_add(1);
    let series = EventSeries { count, last_observed_time };
    let patch = Patch::Merge(json!({ "series": series }));
    with_deadline(DEADLINE, api.patch(name, &PatchParams::default(), &patch)).await.map(drop)
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
mod tests;
