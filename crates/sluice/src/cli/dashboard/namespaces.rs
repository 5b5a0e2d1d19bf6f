//! Namespaces of which a page is open: watches keep their pods and VMs, and of that the answers are made again when
//! something changes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use sluice_dashboard::{Answer, Asked, Followed, Shared};
use sluice_gate::plain;
use sluice_index::{ArqWire, PodWire, VmiWire, VmimWire};
use sluice_runtime::watch::Event;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answers;
use super::source::{AGAIN, Source};
use crate::cli::cluster::Connection;
use crate::cli::world::{Kept, World};

/// At least between two looks at a namespace.
const BETWEEN: Duration = Duration::from_millis(400);
/// What takes long is done seldom: a look takes no more than this part of the time.
const PART: u32 = 4;
/// After a look that has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// A namespace as it was understood last, or why it could not be.
type Seen = Option<Arc<Result<World, String>>>;

/// All that are open.
pub struct Namespaces {
    connection: Connection,
    page: Shared,
    open: Mutex<HashMap<String, Weak<Opened>>>,
}

/// One that is open: while somebody holds it, it is watched.
struct Opened {
    connection: Connection,
    seen: watch::Receiver<Seen>,
    kept: Arc<Objects>,
    _ends: DropGuard,
}

/// What is kept of a namespace.
struct Objects {
    pods: Listed<PodWire>,
    machines: Listed<VmiWire>,
    migrations: Listed<VmimWire>,
    quotas: Listed<ArqWire>,
}

/// Objects of a kind by name, and those of a list that is not complete yet.
struct Listed<K>(Mutex<Listing<K>>);

struct Listing<K> {
    objects: Option<HashMap<String, K>>,
    listing: HashMap<String, K>,
    missing: Option<String>,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Self(Mutex::new(Listing { objects: None, listing: HashMap::new(), missing: None }))
    }
}

impl<K: Resource + Clone> Listed<K> {
    fn with<T>(&self, change: impl FnOnce(&mut Listing<K>) -> T) -> T {
        change(&mut self.0.lock())
    }

    /// Takes over an event; whether what is known is another than before.
    fn on(&self, event: Event<K>) -> bool {
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        self.with(|state| {
            match event {
                Event::Init => state.listing.clear(),
                Event::InitApply(object) => drop(state.listing.insert(name(&object), object)),
                Event::InitDone => {
                    state.objects = Some(std::mem::take(&mut state.listing));
                    state.missing = None;
                    return true;
                }
                Event::Apply(object) => {
                    if let Some(objects) = &mut state.objects {
                        objects.insert(name(&object), object);
                    }
                    return true;
                }
                Event::Delete(object) => {
                    if let Some(objects) = &mut state.objects {
                        objects.remove(&name(&object));
                    }
                    return true;
                }
            }
            false
        })
    }

    fn forbid(&self, right: String) {
        self.with(|state| (state.objects, state.missing) = (None, Some(right)));
    }

    /// Whether it is known which there are, or that this may not be known.
    fn is_known(&self) -> bool {
        self.with(|state| state.objects.is_some() || state.missing.is_some())
    }

    fn missing(&self) -> Option<String> {
        self.with(|state| state.missing.clone())
    }

    fn all(&self) -> Option<Vec<K>> {
        self.with(|state| state.objects.as_ref().map(|objects| objects.values().cloned().collect()))
    }
}

impl Objects {
    fn are_known(&self) -> bool {
        self.pods.is_known()
            && self.machines.is_known()
            && self.migrations.is_known()
            && self.quotas.is_known()
    }

    fn missing(&self) -> Vec<String> {
        let missing =
            [self.pods.missing(), self.machines.missing(), self.migrations.missing(), self.quotas.missing()];
        missing.into_iter().flatten().collect()
    }

    fn kept(&self) -> Kept {
        Kept {
            pods: self.pods.all(),
            machines: self.machines.all(),
            migrations: self.migrations.all(),
            quotas: self.quotas.all(),
        }
    }
}

impl Namespaces {
    pub fn new(connection: Connection, page: Shared) -> Self {
        Self { connection, page, open: Mutex::default() }
    }

    /// Answers whenever something of the namespace has changed, until nobody listens any more.
    pub fn follow(self: &Arc<Self>, asked: Asked) -> Followed {
        let (answers, followed) = watch::channel(None);
        let opened = self.open(asked.namespace());
        tokio::spawn(async move {
            let mut seen = opened.seen.clone();
            loop {
                let world = seen.borrow_and_update().clone();
                if let Some(world) = world {
                    let answer = match &*world {
                        Ok(world) => {
                            answers::answer(&opened.connection, world, &opened.kept.missing(), &asked).await
                        }
                        Err(error) => Answer::Failed(error.clone()),
                    };
                    answers.send_replace(Some(Arc::new(answer)));
                }
                tokio::select! {
                    changed = seen.changed() => if changed.is_err() { return },
                    () = answers.closed() => return,
                }
            }
        });
        followed
    }

    fn open(&self, name: &str) -> Arc<Opened> {
        let mut open = self.open.lock();
        open.retain(|_, opened| opened.strong_count() > 0);
        if let Some(opened) = open.get(name).and_then(Weak::upgrade) {
            return opened;
        }
        let opened = Arc::new(Opened::new(self.connection.in_namespace(name), self.page.clone()));
        open.insert(name.to_owned(), Arc::downgrade(&opened));
        opened
    }
}

impl Opened {
    fn new(connection: Connection, page: Shared) -> Self {
        let (sender, seen) = watch::channel(None);
        let kept = Arc::new(Objects {
            pods: Listed::default(),
            machines: Listed::default(),
            migrations: Listed::default(),
            quotas: Listed::default(),
        });
        let ends = CancellationToken::new();
        let work = watched(connection.clone(), page, Arc::clone(&kept), sender);
        tokio::spawn(ends.clone().run_until_cancelled_owned(work));
        Self { connection, seen, kept, _ends: ends.drop_guard() }
    }
}

/// Keeps the objects of a namespace, and understands them again and again.
async fn watched(connection: Connection, page: Shared, kept: Arc<Objects>, seen: watch::Sender<Seen>) {
    let changed = watch::Sender::new(());
    let (connection, page, kept, changed) = (&connection, &page, &*kept, &changed);
    tokio::join!(
        keep(connection, page, &kept.pods, changed),
        keep(connection, page, &kept.machines, changed),
        keep(connection, page, &kept.migrations, changed),
        keep(connection, page, &kept.quotas, changed),
        understand(connection, kept, changed.subscribe(), &seen),
    );
}

async fn keep<K>(connection: &Connection, page: &Shared, objects: &Listed<K>, changed: &watch::Sender<()>)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let namespace = &connection.namespace;
    let what = format!("{} in namespace {namespace}", K::plural(&()));
    let source = Source { connection, page, what: what.clone() };
    // The page says no more that this watch was interrupted once nobody needs it.
    let _ended = Ended(&source);
    loop {
        let api = Api::<K>::namespaced(connection.client.clone(), namespace);
        let sink = |event| {
            if objects.on(event) {
                changed.send_replace(());
            }
        };
        source.follow(api, sink).await;
        objects.forbid(format!("list {what}"));
        changed.send_replace(());
        sleep(AGAIN).await;
    }
}

struct Ended<'s>(&'s Source<'s>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn understand(
    connection: &Connection,
    kept: &Objects,
    mut changed: watch::Receiver<()>,
    seen: &watch::Sender<Seen>,
) {
    loop {
        if kept.are_known() {
            let begun = Instant::now();
            changed.mark_unchanged();
            let world = World::of_kept(connection, &connection.namespace, kept.kept()).await;
            let world = world.map_err(|error| plain(&format!("{error:#}")));
            let is_good = world.is_ok();
            seen.send_replace(Some(Arc::new(world)));
            sleep((begun.elapsed() * PART).max(BETWEEN)).await;
            if !is_good {
                let _ = timeout(AFTER_FAILURE, changed.changed()).await;
                continue;
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}
