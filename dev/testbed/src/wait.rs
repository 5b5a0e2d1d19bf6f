//! Waiting for conditions, always with a deadline and a message that says what was awaited.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::anyhow;
use futures::StreamExt as _;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two tries where no event can be waited for.
const RETRY: Duration = Duration::from_millis(25);
/// Objects that a message shows at most.
const SHOWN: usize = 10;

/// Tries until the probe returns a value.
///
/// For what cannot be watched (processes, ports, files); use [`wait_for`] for API objects.
///
/// # Errors
/// When the deadline passes; the message names what was awaited.
pub async fn eventually<T, F, P>(deadline: Duration, mut probe: P, what: &str) -> anyhow::Result<T>
where
    P: FnMut() -> F,
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + deadline;
    let tries = async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            sleep(RETRY).await;
        }
    };
    timeout_at(end, tries).await.map_err(|_| anyhow!("waited {deadline:?} in vain for {what}"))
}

/// Waits by watch until the object satisfies the condition (`None`: it does not exist).
///
/// # Errors
/// When the deadline passes; the message names the object, what was awaited and its last state.
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    deadline: Duration,
    what: &str,
    mut condition: impl FnMut(Option<&K>) -> bool,
) -> anyhow::Result<Option<K>>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let mut last: Option<K> = None;
    let end = Instant::now() + deadline;
    let mut events = std::pin::pin!(watcher::watch_object(api.clone(), name));
    loop {
        match timeout_at(end, events.next()).await {
            Ok(Some(Ok(object))) => {
                last = object;
                if condition(last.as_ref()) {
                    return Ok(last);
                }
            }
            // The watcher connects again by itself; the pause keeps a refused connection cheap.
            Ok(Some(Err(_))) => sleep(RETRY).await,
            Ok(None) => break,
            Err(_) => break,
        }
    }
    Err(anyhow!("waited {deadline:?} in vain for {what} ({name}); last state: {}", shown(last.as_slice())))
}

/// Waits by watch until the objects selected by `config` together satisfy the condition.
///
/// # Errors
/// When the deadline passes; the message says what was awaited and how many objects there were.
pub async fn wait_for_all<K>(
    api: &Api<K>,
    config: watcher::Config,
    deadline: Duration,
    what: &str,
    mut condition: impl FnMut(&[K]) -> bool,
) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let end = Instant::now() + deadline;
    let (mut objects, mut fresh): (Vec<K>, Vec<K>) = (Vec::new(), Vec::new());
    let mut events = std::pin::pin!(watcher::watcher(api.clone(), config));
    while let Ok(Some(event)) = timeout_at(end, events.next()).await {
        match event {
            Ok(Event::Init) => {
                fresh.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                fresh.push(object);
                continue;
            }
            Ok(Event::InitDone) => objects = std::mem::take(&mut fresh),
            Ok(Event::Apply(object)) => {
                objects.retain(|other| other.meta().uid != object.meta().uid);
                objects.push(object);
            }
            Ok(Event::Delete(object)) => objects.retain(|other| other.meta().uid != object.meta().uid),
            Err(_) => {
                sleep(RETRY).await;
                continue;
            }
        }
        if condition(&objects) {
            return Ok(objects);
        }
    }
    let (count, shown) = (objects.len(), shown(&objects));
    Err(anyhow!("waited {deadline:?} in vain for {what}; {count} objects at last: {shown}"))
}

/// The first objects as JSON without `managedFields`, a line each.
fn shown<K: kube::Resource + Serialize>(objects: &[K]) -> String {
    let lines = objects.iter().take(SHOWN).map(|object| {
        let mut object = serde_json::to_value(object).unwrap_or_default();
        if let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        format!("\n{object}")
    });
    if objects.is_empty() { "none".to_owned() } else { lines.collect() }
}
