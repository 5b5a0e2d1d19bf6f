//! The writes of which an opening consists: found in a run that was recorded, so that a new one is tested by itself.

use hyper::Method;
use serde_json::Value;
use sluice_api::names;
use sluice_engine::headroom::MARK;
use sluice_testbed::proxy::{Action, Recorded, Rule};
use tokio::sync::OnceCell;

use crate::faults::scene::Scene;
use crate::faults::world;

/// A write, told from others by what it does, not by when it comes: it may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    method: Method,
    /// Without the namespace.
    path: String,
    /// What becomes of the mark of a quota.
    mark: &'static str,
}

impl Step {
    /// `None` for what belongs to another namespace, or changes nothing.
    fn of(request: &Recorded, namespace: &str) -> Option<Self> {
        let part = format!("/namespaces/{namespace}/");
        if !request.is_write() || !request.path.contains(&part) || request.path.contains("/events") {
            return None;
        }
        let path = request.path.replace(&part, "/");
        let body = request.body.as_ref().and_then(|body| body.get("status")?.get("hard")?.get(MARK));
        let mark = match body {
            Some(Value::String(_)) => "set",
            Some(_) => "removed",
            None => "",
        };
        Some(Self { method: request.method.clone(), path, mark })
    }

    /// Whether it raises a quota.
    pub fn is_raise(&self) -> bool {
        self.mark == "set"
    }

    /// Whether it ends a raise.
    pub fn is_restore(&self) -> bool {
        self.mark == "removed"
    }

    /// Whether it asks an API server for the mark.
    pub fn is_probe(&self) -> bool {
        self.path.ends_with(names::HEADROOM_PROBES)
    }

    /// What is done to this write in a namespace.
    pub fn rule(&self, namespace: &str, action: Action) -> Rule {
        let (step, namespace) = (self.clone(), namespace.to_owned());
        Rule::new(action).when(move |request| Self::of(request, &namespace).as_ref() == Some(&step))
    }
}

/// Each kind of write of an opening in which two quotas are raised, in the order of first appearance.
pub async fn writes() -> &'static [Step] {
    static STEPS: OnceCell<Vec<Step>> = OnceCell::const_new();
    let record = || async {
        let world = world::shared().await;
        let scene = Scene::unlimited(world.bed, "record").await;
        scene.migrate_through().await;
        assert_eq!(scene.tenant.rejected_attempts().await, 0);
        let mut found: Vec<Step> = Vec::new();
        let requests = world.gate.proxy.requests();
        for step in requests.iter().filter_map(|request| Step::of(request, scene.tenant.name())) {
            if !found.contains(&step) {
                found.push(step);
            }
        }
        let count = |is: fn(&Step) -> bool| found.iter().filter(|step| is(step)).count();
        let kinds = (count(Step::is_raise), count(Step::is_probe), count(Step::is_restore));
        assert_eq!((kinds, found.len()), ((2, 1, 2), 5), "{found:#?}");
        found
    };
    STEPS.get_or_init(record).await
}
