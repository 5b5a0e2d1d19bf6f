//! The watches that feed the model: quotas and migrations everywhere, or in one namespace where that is all that is allowed.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use sluice_api::names;
use sluice_dashboard::{Change, Condition, Kind, Migration, Model, Name, Quota, Shared};
use sluice_index::{AacrqWire, AaqWire, AcrqWire};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::classify;
use sluice_runtime::watch::Event;

use super::source::{AGAIN, Source};
use crate::cli::cluster::Connection;

/// Between two looks whether the API server answers, and how long it may take.
const BETWEEN: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(3);

/// Feeds the model for ever.
pub async fn run(connection: &Connection, page: &Shared) {
    let feed = Feed { connection, page };
    let quota = |kind| move |model: &mut Model, change, now| model.on_quota(kind, change, now);
    tokio::join!(
        feed.namespaced(Quota::namespaced, quota(Kind::Namespaced)),
        feed.namespaced(Quota::native, quota(Kind::Native)),
        feed.namespaced(Migration::read, |model, change, _| model.on_migration(change)),
        feed.cluster_quotas(),
        feed.installation(),
        feed.pulse(),
    );
}

struct Feed<'f> {
    connection: &'f Connection,
    page: &'f Shared,
}

/// How rights name a kind.
fn resource<K: Resource<DynamicType = ()>>() -> String {
    match &*K::group(&()) {
        "" => K::plural(&()).into_owned(),
        group => format!("{}.{group}", K::plural(&())),
    }
}

fn change<K: Resource, V>(event: Event<K>, read: fn(&K) -> (Name, V)) -> Change<V> {
    let is = |object: &K| {
        let (name, value) = read(object);
        Change::Is(name, value)
    };
    match event {
        Event::Init => Change::Begin,
        Event::InitApply(object) | Event::Apply(object) => is(&object),
        Event::InitDone => Change::End,
        Event::Delete(object) => Change::Gone(read(&object).0),
    }
}

impl Feed<'_> {
    fn source(&self, what: String) -> Source<'_> {
        Source { connection: self.connection, page: self.page, what }
    }

    /// Hands on what a watch tells.
    fn sink<K: Resource, V>(
        &self,
        read: fn(&K) -> (Name, V),
        take: impl Fn(&mut Model, Change<V>, i64),
    ) -> impl FnMut(Event<K>) {
        move |event| {
            let change = change(event, read);
            self.page.change(|model| take(model, change, self.connection.now()));
        }
    }

    /// A kind with namespaces: in all of them, or in that of the flags or the context.
    async fn namespaced<K, V>(
        &self,
        read: fn(&K) -> (Name, V),
        take: impl Fn(&mut Model, Change<V>, i64) + Copy,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let (client, namespace) = (&self.connection.client, &self.connection.namespace);
        let (resource, source) = (resource::<K>(), self.source(resource::<K>()));
        let note = format!(
            "Of {resource} those of namespace {namespace} are shown: you may not list all (-n names another)"
        );
        loop {
            source.follow(Api::<K>::all(client.clone()), self.sink(read, take)).await;
            self.page.change(|model| model.set_note(&note, true));
            source.follow(Api::<K>::namespaced(client.clone(), namespace), self.sink(read, take)).await;
            self.page.change(|model| model.set_note(&note, false));
            self.nothing(&format!("list {resource} in namespace {namespace}"), take).await;
        }
    }

    /// There is nothing to be shown for want of a right. After a while it is tried again.
    async fn nothing<V>(&self, right: &str, take: impl Fn(&mut Model, Change<V>, i64)) {
        let now = self.connection.now();
        self.page.change(|model| {
            take(model, Change::Begin, now);
            take(model, Change::End, now);
            model.set_missing(right, true);
        });
        tokio::time::sleep(AGAIN).await;
        self.page.change(|model| model.set_missing(right, false));
    }

    /// Cluster quotas, or the mirrors of those that limit the own namespace.
    async fn cluster_quotas(&self) {
        let (client, namespace) = (&self.connection.client, &self.connection.namespace);
        let take = |model: &mut Model, change, now| model.on_quota(Kind::Cluster, change, now);
        loop {
            let quotas = Api::<AcrqWire>::all(client.clone());
            self.source(resource::<AcrqWire>()).follow(quotas, self.sink(Quota::cluster, take)).await;
            let mirrors = Api::<AacrqWire>::namespaced(client.clone(), namespace);
            let source = self.source(resource::<AacrqWire>());
            source.follow(mirrors, self.sink(Quota::mirror, take)).await;
            self.nothing(&format!("list {}", resource::<AcrqWire>()), take).await;
        }
    }

    /// Asks for the version again and again: watches of an API server that stands still tell nothing for minutes.
    async fn pulse(&self) {
        let (source, mut is_told) = (self.source("the API server".to_owned()), false);
        loop {
            let answer = with_deadline(PATIENCE, self.connection.client.apiserver_version()).await;
            let failure = answer.err().map(|error| (classify(&error), error.to_string()));
            // That it answers at all is what counts.
            let failure = failure.filter(|(failure, _)| failure.is_transient());
            if failure.is_some() != is_told {
                is_told = failure.is_some();
                source.tell(failure);
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// What is wrong with the installation, for those who may read that.
    async fn installation(&self) {
        let api = Api::<AaqWire>::all(self.connection.client.clone());
        loop {
            let sink = |event: Event<AaqWire>| match event {
                Event::InitApply(aaq) | Event::Apply(aaq) => {
                    self.page.change(|model| model.set_installation(wrong(&aaq)));
                }
                Event::Delete(_) => self.page.change(|model| model.set_installation(Vec::new())),
                Event::Init | Event::InitDone => {}
            };
            self.source(resource::<AaqWire>()).follow(api.clone(), sink).await;
            self.page.change(|model| model.set_installation(Vec::new()));
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// The conditions that are not as they should be.
pub fn wrong(aaq: &AaqWire) -> Vec<Condition> {
    let conditions = aaq.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let wrong = conditions.filter(|condition| {
        let bad = match condition.type_.as_str() {
            names::AVAILABLE | names::GATING | names::HEADROOM => "False",
            names::DEGRADED | names::PAUSED | names::FIELDS_NOT_IN_FORCE => "True",
            _ => return false,
        };
        condition.status == bad
    });
    let condition = |it: &sluice_api::AaqCondition| Condition {
        kind: it.type_.clone(),
        status: it.status.clone(),
        message: it.message.clone().unwrap_or_default(),
    };
    wrong.map(condition).collect()
}
