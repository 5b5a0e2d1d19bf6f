//! Reads what is judged. Nothing is written: what asks for effects is created in dry runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota as Arq, ApplicationAwareResourceQuotaSpec as ArqSpec};
use sluice_controllers::gating;
use sluice_manifests::InstallOptions;
use sluice_runtime::client::{ServerVersion, with_deadline};
use sluice_runtime::retry::{Failure, classify, words_and_causes};

use super::seen::{
    NOT_REACHED, OTHERS, Reached, Read, Seen, options, options_map, other, paths, without_paths,
};
use crate::cli::cluster::Connection;

/// Reads at a time.
const AT_A_TIME: usize = 12;
/// Objects in one page of a list.
const PAGE: usize = 500;
/// So long API servers ask the webhook at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at what there is before an installation.
pub async fn before(connection: &Connection) -> Seen {
    let version = version(connection).await;
    let objects = read_all(connection, OTHERS.map(other).to_vec()).await;
    Seen {
        namespace: String::new(),
        options: InstallOptions::default(),
        options_fault: None,
        version,
        now: now(connection),
        objects,
        reached: Reached::Unknown("not asked".to_owned()),
        gates: gating::Seen {
            gates: gating::Gates::Unknown("not asked".into()),
            last_word: gating::LastWord::Unknown("not asked".into()),
        },
    }
}

/// Looks at the installation in `namespace`.
pub async fn after(connection: &Connection, namespace: &str) -> Seen {
    let version = version(connection).await;
    let map = read(connection, &options_map(namespace)).await;
    let (options, options_fault) = options(&map, namespace);
    let (mut objects, reached, gates) = tokio::join!(
        read_all(connection, paths(namespace, &options)),
        reached(connection, namespace),
        gating::ask(&connection.client),
    );
    objects.insert(options_map(namespace), map);
    let now = now(connection);
    Seen { namespace: namespace.to_owned(), options, options_fault, version, now, objects, reached, gates }
}

fn now(connection: &Connection) -> Timestamp {
    Timestamp::from_second(connection.now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

async fn version(connection: &Connection) -> Result<(u32, u32), String> {
    let version = ServerVersion::fetch(&connection.client).await;
    version.map(|version| (version.major, version.minor)).map_err(|error| error.to_string())
}

async fn read_all(connection: &Connection, paths: Vec<String>) -> BTreeMap<String, Read> {
    let reads = paths.into_iter().map(|path| async move {
        let read = read(connection, &path).await;
        (path, read)
    });
    stream::iter(reads).buffer_unordered(AT_A_TIME).collect().await
}

/// An object, or all pages of a list.
async fn read(connection: &Connection, path: &str) -> Read {
    let mut items: Vec<Value> = Vec::new();
    let mut next = String::new();
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        // An object takes no notice of these.
        let page = format!("{path}{separator}limit={PAGE}&continue={next}");
        let request = match http::Request::get(page).body(Vec::new()) {
            Ok(request) => request,
            Err(error) => return Read::Unknown(error.to_string()),
        };
        let mut answer =
            match with_deadline(connection.deadline, connection.client.request::<Value>(request)).await {
                Ok(answer) => answer,
                Err(error) => return not_read(&error),
            };
        let Some(page) = answer.get_mut("items").and_then(Value::as_array_mut) else {
            return Read::Is(answer);
        };
        items.append(page);
        match answer.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => next = token.to_owned(),
            _ => return Read::Is(json!({ "items": items })),
        }
    }
}

fn not_read(error: &kube::Error) -> Read {
    match classify(error) {
        Failure::NotFound => Read::Absent,
        _ => Read::Unknown(words_and_causes(error)),
    }
}

/// Whether API servers get through to the webhook: a quota is created in a dry run that the webhook alone refuses.
async fn reached(connection: &Connection, namespace: &str) -> Reached {
    let api: Api<Arq> = Api::namespaced(connection.client.clone(), namespace);
    let contradiction = ["BestEffort", "NotBestEffort"].map(str::to_owned);
    let spec = ArqSpec { scopes: Some(contradiction.to_vec()), ..ArqSpec::default() };
    let mut quota = Arq::new("", spec);
    quota.metadata.name = None;
    quota.metadata.generate_name = Some("check-".to_owned());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let begin = Instant::now();
    let patience = PATIENCE.min(connection.deadline);
    match with_deadline(patience, api.create(&dry_run, &quota)).await {
        Ok(_) => Reached::Unknown("API servers do not ask it: see webhooks".to_owned()),
        Err(error) => match &error {
            kube::Error::Api(status) if status.message.contains(NOT_REACHED) => {
                Reached::No(without_paths(&status.message))
            }
            kube::Error::Api(status) if status.message.contains("admission webhook") => {
                Reached::Yes(begin.elapsed().as_millis())
            }
            error => Reached::Unknown(words_and_causes(error)),
        },
    }
}
