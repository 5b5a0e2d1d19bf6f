//! From a watch to a board: lists come as a whole, and each kind of object is told in its own way.

use std::future::ready;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// What became of the objects of one kind.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// These there are, and no others.
    All(Vec<K>),
    /// One is new or has changed.
    Is(K),
    Gone(K),
}

impl<K> Change<K> {
    /// Those that are there.
    pub fn present(self) -> Vec<K> {
        match self {
            Self::All(objects) => objects,
            Self::Is(object) => vec![object],
            Self::Gone(_) => Vec::new(),
        }
    }
}

impl<K: ResourceExt> Change<K> {
    /// The uids of those that are gone, all others are known.
    pub fn gone<'k>(&self, known: impl Iterator<Item = &'k String>) -> Vec<String> {
        match self {
            Self::All(objects) => {
                let is_there =
                    |uid: &String| objects.iter().any(|object| object.meta().uid.as_ref() == Some(uid));
                known.filter(|uid| !is_there(uid)).cloned().collect()
            }
            Self::Is(_) => Vec::new(),
            Self::Gone(object) => object.uid().into_iter().collect(),
        }
    }
}

/// How a change is taken in by a board, so long after the start; returns the lines that tell what is new.
pub type Tell<B, K> = fn(&mut B, Duration, Change<K>) -> Vec<String>;

/// As [`Tell`], with the change.
type Take<B> = dyn FnOnce(&mut B, Duration) -> Vec<String> + Send;

/// News of one watch.
pub struct Update<B> {
    /// Whether the watch begins with this: what happens from now on will be seen.
    pub begins: bool,
    pub take: Box<Take<B>>,
}

/// What a watch tells, and what it complains about. It goes on by itself.
pub type Watch<B> = BoxStream<'static, watcher::Result<Update<B>>>;

/// Updates of several watches, as they come.
pub type Updates<B> = SelectAll<Watch<B>>;

/// Watches objects, none of which need to be there yet.
pub fn follow<B: 'static, K>(api: Api<K>, config: watcher::Config, tell: Tell<B, K>) -> Watch<B>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let (mut list, mut begins) = (Vec::new(), true);
    let update = move |event: watcher::Result<Event<K>>| {
        let change = event.map(|event| complete(&mut list, event)).transpose();
        ready(change.map(|change| {
            change.map(|change| Update {
                begins: std::mem::take(&mut begins),
                take: Box::new(move |board: &mut B, at| tell(board, at, change)),
            })
        }))
    };
    watcher(api, config).default_backoff().filter_map(update).boxed()
}

fn complete<K>(list: &mut Vec<K>, event: Event<K>) -> Option<Change<K>> {
    match event {
        Event::Init => {
            list.clear();
            None
        }
        Event::InitApply(object) => {
            list.push(object);
            None
        }
        Event::InitDone => Some(Change::All(std::mem::take(list))),
        Event::Apply(object) => Some(Change::Is(object)),
        Event::Delete(object) => Some(Change::Gone(object)),
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::{Change, complete};

    #[test]
    fn a_list_that_is_begun_again_is_told_once() {
        let mut list = Vec::new();
        for event in [Event::Init, Event::InitApply(1), Event::Init, Event::InitApply(2)] {
            assert_eq!(complete(&mut list, event), None);
        }
        assert_eq!(complete(&mut list, Event::InitDone), Some(Change::All(vec![2])));
        assert_eq!(complete(&mut list, Event::Delete(2)), Some(Change::Gone(2)));
    }
}
