//! What the loop decides from what it sees.

mod acts;
mod asked;
mod containers;
mod existence;
mod kept;
mod operands;
mod refused;
mod server;
mod statuses;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::InstallOptions;

use super::kind::Kind;
use super::live::{Live, Rollout};
use super::named::Evaluators;
use super::observe::World;
use super::wire::{AaqWire, MtqWire, Order, Orders as _};
use crate::owner::Owner;
use crate::troubles::AdmissionTroubles;
use crate::version::Version;

/// This operator.
const VERSION: Version<'_> = Version { own: "1.2.3", may_downgrade: false };

/// A Deployment with so many pods of two that do their work.
fn deployment(ready: i64) -> Live {
    let rollout = Rollout { wanted: 2, total: 2, updated: 2, ready, is_observed: true };
    Live { rollout, ..Live::default() }
}

fn role() -> OwnerReference {
    OwnerReference {
        api_version: "rbac.authorization.k8s.io/v1".to_owned(),
        kind: "ClusterRole".to_owned(),
        name: names::OPERATOR.to_owned(),
        uid: "role".to_owned(),
        ..OwnerReference::default()
    }
}

/// There is no `AAQ` and no `MTQ`, and all Deployments are ready.
fn world() -> World {
    let mut world = World {
        aaqs: Some(BTreeMap::new()),
        mtqs: Some(BTreeMap::new()),
        is_kind_of_others: Some(false),
        priority_classes: Some(["high", "system-cluster-critical"].map(str::to_owned).into()),
        evaluators: Evaluators {
            named: Some(BTreeMap::new()),
            is_served: Some(true),
            ..Evaluators::default()
        },
        admission: AdmissionTroubles { guards_containers: true, ..AdmissionTroubles::default() },
        operands: Kind::ALL.map(|kind| (kind, super::observe::Operands::default())).into(),
        unlisted: BTreeMap::new(),
        owner: Owner::Known(role()),
        ..World::default()
    };
    let deployments = world.operands.entry(Kind::Deployment).or_default();
    deployments.live =
        World::default().deployment_names().map(|name| (name.to_owned(), deployment(2))).into();
    world
}

fn metadata(name: &str, second: u32) -> Value {
    json!({
        "name": name, "uid": format!("uid-{name}"), "resourceVersion": format!("rv-{name}"),
        "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
    })
}

fn aaq(name: &str, second: u32, spec: &Value, status: &Value) -> Order {
    let object = json!({ "metadata": metadata(name, second), "spec": spec, "status": status });
    serde_json::from_value::<AaqWire>(object).unwrap().order()
}

fn mtq(name: &str, spec: &Value) -> Order {
    let object = json!({ "metadata": metadata(name, 0), "spec": spec });
    serde_json::from_value::<MtqWire>(object).unwrap().order()
}

fn ask(world: &mut World, spec: &Value) {
    world.aaqs = Some([("aaq".to_owned(), aaq("aaq", 0, spec, &Value::Null))].into());
}

/// With this one `AAQ`.
fn asking(spec: &Value) -> World {
    let mut world = world();
    ask(&mut world, spec);
    world
}

fn options() -> InstallOptions {
    InstallOptions::default()
}
