//! Which rights steps take.

use std::collections::BTreeSet;

use super::collection::Collection;
use super::object::{Kind, ObjectName, orders};
use super::plan::{Step, Wait};

/// A right, as RBAC grants it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    pub verb: &'static str,
    /// API group; empty: core.
    pub group: String,
    pub resource: String,
    /// The subresource; empty: the object itself.
    pub subresource: &'static str,
    /// Where; `None`: everywhere.
    pub namespace: Option<String>,
    /// On which object; `None`: on any.
    pub name: Option<String>,
}

impl Right {
    fn on(verb: &'static str, object: &ObjectName) -> Self {
        let right = Self::to(verb, &object.kind);
        Self { namespace: object.namespace.clone(), name: Some(object.name.clone()), ..right }
    }

    fn to(verb: &'static str, kind: &Kind) -> Self {
        let (group, resource) = (kind.group.clone(), kind.resource());
        Self { verb, group, resource, subresource: "", namespace: None, name: None }
    }

    fn core(verb: &'static str, resource: &str, subresource: &'static str) -> Self {
        let resource = resource.to_owned();
        Self { verb, group: String::new(), resource, subresource, namespace: None, name: None }
    }

    fn within(self, collection: Collection, namespace: &str) -> Self {
        let namespace = collection.is_at_home().then(|| namespace.to_owned());
        Self { namespace, ..self }
    }

    /// Resource, subresource and group, as RBAC and kubectl have them.
    #[must_use]
    pub fn qualified(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource =
            if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{}{group}{subresource}", self.resource)
    }
}

/// What an account has to be allowed that carries out `steps`.
#[must_use]
pub fn rights(steps: &[Step], namespace: &str) -> BTreeSet<Right> {
    steps.iter().flat_map(|step| of_step(step, namespace)).collect()
}

fn of_step(step: &Step, namespace: &str) -> Vec<Right> {
    match step {
        Step::Stop(object) => vec![Right::on("patch", object)],
        Step::Delete(object, _) => vec![Right::on("delete", object)],
        Step::Wait(Wait::Followed) => Vec::new(),
        Step::Wait(Wait::Ended) => vec![Right::core("list", "pods", "")],
        Step::Release => vec![Right::core("list", "pods", ""), Right::core("patch", "pods", "")],
        Step::Restore => {
            vec![Right::core("list", "resourcequotas", ""), Right::core("patch", "resourcequotas", "status")]
        }
        Step::Clear(collection) => ["list", "delete"]
            .map(|verb| Right::to(verb, &collection.kind()).within(*collection, namespace))
            .into(),
        Step::Unfinalize => orders()
            .into_iter()
            .flat_map(|kind| ["list", "patch"].map(|verb| Right::to(verb, &kind)))
            .collect(),
    }
}
