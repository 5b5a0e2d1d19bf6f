//! Follows one object by name.

use std::fmt::Debug;

use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch};
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;

/// What is known of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen<K> {
    /// It was not looked for yet.
    Unknown,
    /// It does not exist.
    Absent,
    /// It exists like this.
    Present(K),
}

/// Keeps in `seen` what the API server has under `name`, until `cancel`.
pub(crate) async fn follow_one<K>(api: Api<K>, name: &str, seen: Sender<Seen<K>>, cancel: CancellationToken)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let mut listed = None;
    let sink = |event: Event<K>| {
        let state = match event {
            Event::Init => {
                listed = None;
                return;
            }
            Event::InitApply(object) => {
                listed = Some(object);
                return;
            }
            Event::InitDone => listed.take().map_or(Seen::Absent, Seen::Present),
            Event::Apply(object) => Seen::Present(object),
            Event::Delete(_) => Seen::Absent,
        };
        seen.send_replace(state);
    };
    let options = WatchOptions::default().fields(format!("metadata.name={name}"));
    watch(api, options, sink, WatchHealth::new(K::kind(&())), cancel).await;
}
