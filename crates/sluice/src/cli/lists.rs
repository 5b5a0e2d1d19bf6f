//! Lists with the rights of the user: what may not be listed is named, and the rest is shown.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify, words_and_causes};
use sluice_runtime::watch::Event;

use super::cluster::Connection;
use crate::progress::Progress;

/// Objects in one page of a list.
const PAGE: u32 = 500;

#[derive(Clone, Copy, Debug)]
pub enum Where<'n> {
    Namespace(&'n str),
    Everywhere,
}

/// A list that failed.
#[derive(Debug, thiserror::Error)]
#[error("could not list {what}: {}", words_and_causes(.why))]
pub struct ListError {
    what: String,
    /// Not its source, for those are printed as they are.
    why: kube::Error,
}

/// Lists, and remembers which rights were missing.
pub struct Lists<'c> {
    pub connection: &'c Connection,
    missing: BTreeSet<String>,
    progress: Progress,
}

impl<'c> Lists<'c> {
    pub fn new(connection: &'c Connection) -> Self {
        Self { connection, missing: BTreeSet::new(), progress: Progress::begin(connection.say) }
    }

    /// The verbs and resources that the user may not, each once.
    pub fn missing(&self) -> Vec<String> {
        self.missing.iter().cloned().collect()
    }

    /// All objects of a kind with namespaces; `None`: they may not be listed. None of a kind that is not installed.
    pub async fn all<K>(&mut self, place: Where<'_>) -> Result<Option<Vec<K>>, ListError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let client = self.connection.client.clone();
        let (api, scope) = match place {
            Where::Namespace(name) => (Api::<K>::namespaced(client, name), format!(" in namespace {name}")),
            Where::Everywhere => (Api::all(client), String::new()),
        };
        self.pages(&api, &scope).await
    }

    /// Whether the objects of all namespaces may be listed.
    pub async fn may_list_everywhere<K>(&mut self) -> Result<bool, ListError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api = &Api::<K>::all(self.connection.client.clone());
        let what = right(&K::group(&()), &K::plural(&()));
        // One is enough to know it.
        let one = |page: ListParams| async move {
            let mut list = api.list_metadata(&page.limit(1)).await?;
            list.metadata.continue_ = None;
            Ok(list)
        };
        Ok(self.pages_of(&what, one).await?.is_some())
    }

    /// As [`Self::all`], of a kind of the cluster.
    pub async fn all_of_cluster<K>(&mut self) -> Result<Option<Vec<K>>, ListError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api = Api::<K>::all(self.connection.client.clone());
        self.pages(&api, "").await
    }

    async fn pages<K>(&mut self, api: &Api<K>, scope: &str) -> Result<Option<Vec<K>>, ListError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let what = format!("{}{scope}", right(&K::group(&()), &K::plural(&())));
        self.pages_of(&what, |page| async move { api.list(&page).await }).await
    }

    /// All objects of a list whose pages are asked for so. `what` is how rights name it, such as `pods in namespace a`.
    pub async fn pages_of<K, F>(
        &mut self,
        what: &str,
        ask: impl Fn(ListParams) -> F,
    ) -> Result<Option<Vec<K>>, ListError>
    where
        K: Clone,
        F: Future<Output = kube::Result<ObjectList<K>>>,
    {
        let mut all = Vec::new();
        let mut next = None::<String>;
        loop {
            // Served from the watch cache where it can be: what is a moment old is good enough, and it costs least.
            let mut page = ListParams::default().limit(PAGE);
            page.continue_token = next.take();
            let so_far = all.len();
            let request = with_deadline(self.connection.deadline, ask(page.clone()));
            match self.progress.while_doing(|| format!("{so_far} {what} read …"), request).await {
                Ok(list) => {
                    all.extend(list.items);
                    next = list.metadata.continue_.filter(|token| !token.is_empty());
                }
                // The list took longer than API servers keep its version.
                Err(kube::Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                    all.clear();
                    continue;
                }
                Err(error) => {
                    return match classify(&error) {
                        Failure::Forbidden => {
                            self.missing.insert(format!("list {what}"));
                            Ok(None)
                        }
                        Failure::NotFound => Ok(Some(Vec::new())),
                        _ => Err(ListError { what: what.to_owned(), why: error }),
                    };
                }
            }
            if next.is_none() {
                return Ok(Some(all));
            }
        }
    }

    /// One object; `Ok(None)`: there is none, or it may not be read, which is noted.
    /// `what` is how rights name it, such as `namespaces a`.
    pub async fn get<K>(&mut self, api: &Api<K>, what: &str, name: &str) -> Result<Option<K>, ListError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let request = with_deadline(self.connection.deadline, api.get(name));
        match self.progress.while_doing(|| format!("reading {what} …"), request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) => match classify(&error) {
                Failure::NotFound => Ok(None),
                Failure::Forbidden => {
                    self.missing.insert(format!("get {what}"));
                    Ok(None)
                }
                _ => Err(ListError { what: what.to_owned(), why: error }),
            },
        }
    }
}

/// How rights name a resource.
pub fn right(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// Feeds a list as a watch does.
pub fn feed<K: Clone>(objects: &[K], mut on: impl FnMut(&Event<K>)) {
    on(&Event::Init);
    for object in objects {
        on(&Event::InitApply(object.clone()));
    }
    on(&Event::InitDone);
}

#[cfg(test)]
mod tests;
