//! Requests of a bundle: what fails is told of, and neither a dead API server nor a dead node holds all up.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncReadExt as _};
use http::Request;
use kube::api::ListParams;
use kube::core::ApiResource;
use kube::core::DynamicObject;
use kube::core::Request as Requests;
use kube::core::request::Error as RequestError;
use serde_json::Value;
use sluice_manifests::uninstall::Kind;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify, words};
use tokio::sync::watch;

use super::tail::Tail;
use crate::cli::cluster::Connection;
use crate::progress::Progress;

/// After so many requests in a row without an answer no further one is sent.
const MOST_SILENT: u32 = 3;
/// What is said of those that are not sent.
pub const GIVEN_UP: &str = "not asked: the API server had stopped answering";
/// How often a request is sent that a busy server refuses.
const TRIES: u32 = 3;

/// Why an answer is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The account may not.
    Forbidden,
    /// There is no such object or kind.
    NotThere,
    /// Nobody answered in time.
    NoAnswer(String),
    /// The list is too old to go on; it can go on by this token, with objects of a later time.
    Expired(Option<String>),
    /// Another refusal, with its code.
    Refused(u16, String),
}

impl Missed {
    fn of(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error
            && status.code == 410
        {
            let token = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone());
            return Self::Expired(token.filter(|token| !token.is_empty()));
        }
        let told = told(error);
        match classify(error) {
            Failure::Forbidden if is_of_authorizer(&told) => Self::Forbidden,
            // A proxy on the way, or the API server, which connects to no address of its own.
            Failure::Forbidden => Self::Refused(403, told),
            Failure::NotFound => Self::NotThere,
            Failure::Unknown => Self::NoAnswer(told),
            Failure::Server(code) | Failure::Other(code) => Self::Refused(code, told),
            Failure::Throttled { .. } => Self::Refused(429, told),
            Failure::Conflict | Failure::AlreadyExists => Self::Refused(409, told),
            Failure::Invalid => Self::Refused(422, told),
        }
    }
}

/// Whether a refusal is about the account's rights (`apiserver/pkg/endpoints/handlers/responsewriters/errors.go`).
fn is_of_authorizer(told: &str) -> bool {
    told.contains("User \"") && told.contains("\" cannot ")
}

/// The words of an error without those that its sort repeats, and without the URL that the API server asked for.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let message = status.message.trim();
            let behind_url = message.strip_prefix("Get \"").and_then(|rest| rest.split_once("\": "));
            let message = behind_url.map_or(message, |(_, message)| message);
            format!("{message} ({})", status.code)
        }
        other => words(other),
    }
}

/// Sends requests with the rights of the user.
pub struct Reader<'c> {
    connection: &'c Connection,
    silent: AtomicU32,
    doing: watch::Sender<String>,
}

impl<'c> Reader<'c> {
    pub fn new(connection: &'c Connection) -> Self {
        Self { connection, silent: AtomicU32::new(0), doing: watch::Sender::new("connecting".to_owned()) }
    }

    pub const fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// What is being done, for a person who waits.
    pub fn doing(&self) -> String {
        self.doing.borrow().clone()
    }

    /// Says what is done next.
    pub fn begin(&self, what: impl Into<String>) {
        self.doing.send_replace(what.into());
    }

    /// Whether no further request is sent.
    pub fn has_given_up(&self) -> bool {
        self.silent.load(Ordering::Relaxed) >= MOST_SILENT
    }

    pub async fn get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Value, Missed> {
        self.ask(|| requests(kind, namespace).get(name, &Default::default())).await
    }

    /// A page of a list: its objects, and the token of the next.
    pub async fn page(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<(Vec<Value>, Option<String>), Missed> {
        let mut list: Value = self.ask(|| requests(kind, namespace).list(params)).await?;
        let next =
            list.pointer("/metadata/continue").and_then(Value::as_str).filter(|token| !token.is_empty());
        let next = next.map(str::to_owned);
        let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
        Ok((items.unwrap_or_default(), next))
    }

    /// The answer to any request to the API server itself.
    pub async fn ask(
        &self,
        request: impl Fn() -> Result<Request<Vec<u8>>, RequestError>,
    ) -> Result<Value, Missed> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(2), process_seed());
        loop {
            if self.has_given_up() {
                return Err(Missed::NoAnswer(GIVEN_UP.to_owned()));
            }
            let request = request().map_err(|error| Missed::Refused(0, error.to_string()))?;
            let answer =
                with_deadline(self.connection.deadline, self.connection.client.request(request)).await;
            let error = match answer {
                Ok(answer) => {
                    self.silent.store(0, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            match classify(&error) {
                Failure::Throttled { .. } | Failure::Server(_) if backoff.failures() + 1 < TRIES => {
                    tokio::time::sleep(backoff.failed()).await;
                }
                Failure::Unknown => {
                    self.silent.fetch_add(1, Ordering::Relaxed);
                    return Err(Missed::of(&error));
                }
                _ => {
                    self.silent.store(0, Ordering::Relaxed);
                    return Err(Missed::of(&error));
                }
            }
        }
    }

    /// The end of a text that the API server fetches from a node or a pod, `most` bytes of it. That these do not answer
    /// says nothing about the API server.
    pub async fn tail(&self, request: Request<Vec<u8>>, most: usize) -> Result<Tail, Missed> {
        let deadline = self.connection.deadline;
        let stream = with_deadline(deadline, self.connection.client.request_stream(request)).await;
        let stream = stream.map_err(|error| Missed::of(&error))?;
        // A stream that goes on and on ends too: a log is read to where it was when it was asked for.
        match tokio::time::timeout(deadline, read(stream, most)).await {
            Ok(read) => read.map_err(|error| Missed::NoAnswer(error.to_string())),
            Err(_) => Err(Missed::NoAnswer(format!("not read to its end within {}s", deadline.as_secs()))),
        }
    }
}

async fn read(stream: impl AsyncBufRead, most: usize) -> std::io::Result<Tail> {
    let mut stream = std::pin::pin!(stream);
    let (mut tail, mut chunk) = (Tail::new(most), vec![0; 64 << 10]);
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(tail);
        }
        tail.push(chunk.get(..count).unwrap_or_default());
    }
}

/// Requests about objects of a kind.
pub fn requests(kind: &Kind, namespace: Option<&str>) -> Requests {
    let resource = ApiResource {
        group: kind.group.clone(),
        version: kind.version.clone(),
        api_version: kind.api_version(),
        kind: kind.kind.clone(),
        plural: kind.resource(),
    };
    Requests::new(<DynamicObject as kube::Resource>::url_path(&resource, namespace))
}

/// Does the work, and says every two seconds what is done.
pub async fn while_saying<T>(reader: &Reader<'_>, work: impl Future<Output = T>) -> T {
    let mut progress = Progress::begin(reader.connection.say);
    progress.while_doing(|| format!("{} …", reader.doing()), work).await
}
