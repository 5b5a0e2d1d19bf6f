//! The requests of which a window consists: found in a run that was recorded, so that a new one is tested by itself.

use hyper::Method;
use serde_json::Value;
use sluice_api::names;
use sluice_testbed::Bed;
use sluice_testbed::proxy::{Action, FaultProxy, Recorded, Rule};
use tokio::sync::OnceCell;

use crate::gate::Gate;
use crate::scene::Scene;
use crate::world;

/// A request, told from others by what it does, not by when it comes: probes are repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    method: Method,
    /// Without the namespace.
    path: String,
    /// What the body does.
    does: String,
}

impl Step {
    /// `None` for what belongs to another namespace, or to no window.
    pub fn of(request: &Recorded, namespace: &str) -> Option<Self> {
        let part = format!("/namespaces/{namespace}/");
        if request.is_watch() || !request.path.contains(&part) || request.path.contains("/events") {
            return None;
        }
        let mut path = request.path.replace(&part, "/");
        if let Some((collection, _)) = path.split_once("virtualmachineinstancemigrations/") {
            // Their names are made up anew each time.
            path = format!("{collection}virtualmachineinstancemigrations");
        }
        Some(Self { method: request.method.clone(), path, does: does(request.body.as_ref()) })
    }

    /// Whether it changes something, or is a dry run of that.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it makes the lock or proves it.
    pub fn is_before_proof(&self) -> bool {
        self.path.ends_with(names::MIGRATION_WINDOWS)
            && [names::WINDOW_NAME, names::PROBE_NAME].contains(&self.does.as_str())
    }

    /// Whether it raises a quota: only then it matters how much is used.
    pub fn is_raise(&self) -> bool {
        self.does.contains("test /status/used")
    }

    /// Whether it goes through the queue of quota admission: before a raise, and to see whether it knows of one.
    pub fn is_drain(&self) -> bool {
        self.path.ends_with(names::MIGRATION_WINDOWS) && self.does == names::DRAIN_NAME
    }

    /// Whether it makes the lock.
    pub fn is_lock(&self) -> bool {
        self.method == Method::POST
            && self.path.ends_with(names::MIGRATION_WINDOWS)
            && self.does == names::WINDOW_NAME
    }

    /// Whether it puts a quota back.
    pub fn is_restore(&self) -> bool {
        self.does.contains("/status/hard") && !self.is_raise()
    }

    /// Whether every window of a full quota has it.
    pub fn is_certain(&self) -> bool {
        self.path.contains(names::MIGRATION_WINDOWS) || self.does.contains("/status/hard")
    }

    /// Whether a request does this in a namespace.
    pub fn is(&self, request: &Recorded, namespace: &str) -> bool {
        Self::of(request, namespace).as_ref() == Some(self)
    }

    /// What is done to this request in a namespace.
    pub fn rule(&self, namespace: &str, action: Action) -> Rule {
        let (step, namespace) = (self.clone(), namespace.to_owned());
        Rule::new(action).when(move |request| step.is(request, &namespace))
    }
}

fn does(body: Option<&Value>) -> String {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    match body {
        Some(Value::Array(patch)) => {
            let words = patch.iter().map(|line| format!("{} {}", text(line, "op"), text(line, "path")));
            words.collect::<Vec<_>>().join(", ")
        }
        Some(object) => text(&object["metadata"], "name"),
        None => String::new(),
    }
}

/// Each kind of request in a namespace, in the order of first appearance.
pub fn steps(requests: &[Recorded], namespace: &str) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    for step in requests.iter().filter_map(|request| Step::of(request, namespace)) {
        if !found.contains(&step) {
            found.push(step);
        }
    }
    found
}

/// The requests of a webhook's window in which two quotas are raised.
pub async fn of_a_window() -> &'static [Step] {
    static STEPS: OnceCell<Vec<Step>> = OnceCell::const_new();
    let record = || async {
        let world = world::shared().await;
        let scene = Scene::unlimited(world.bed, "record").await;
        let gate = Gate::of(world, &[&scene]).await;
        scene.migrate_through().await;
        assert_eq!(scene.tenant.rejected_attempts().await, 0);
        steps(&gate.proxy.requests(), scene.tenant.name())
    };
    STEPS.get_or_init(record).await
}

/// What a controller writes in a window of its own. Virt-controller makes one target after the other, so of the windows of
/// a webhook no two stand between lock and admission: those of a controller do.
pub async fn writes_of_a_controller(bed: &'static Bed, proxy: &FaultProxy) -> Vec<Step> {
    let (scene, migration) = Scene::rejected(bed, "record").await;
    scene.tenant.unlimited().await;
    scene.through(&migration).await;
    let mut steps = steps(&proxy.requests(), scene.tenant.name());
    steps.retain(|step| step.is_write() && step.is_certain());
    assert!(steps.len() >= 8, "{steps:#?}");
    steps
}

/// Those of [`of_a_window`] that change something.
pub async fn writes_of_a_window() -> Vec<Step> {
    let writes: Vec<Step> = of_a_window().await.iter().filter(|step| step.is_write()).cloned().collect();
    // The lock, the proof, the drain, two raises, two restores, the end of the lock.
    assert!(writes.len() >= 8, "{writes:#?}");
    writes
}
