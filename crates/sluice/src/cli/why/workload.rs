//! Why pods of a Deployment, a Job or another controller wait.
//!
//! Which pods are meant is what their owner references say: a controller takes those as its own whose reference with
//! `controller: true` has its uid (`k8s.io/kubernetes/pkg/controller/controller_ref_manager.go`), a Deployment those of
//! its ReplicaSets. Its selector says less: it may match pods of other controllers, and pods that nobody controls.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use sluice_gate::Subject;

use super::answer::Answer;
use crate::cli::cluster::Connection;
use crate::cli::lists::{ListError, Lists, right};
use crate::cli::nearest::{hint, nearest};
use crate::cli::world::World;

/// Explains the pods of the controller of this name.
pub(super) async fn answer(
    connection: &Connection,
    world: &World,
    answer: &mut Answer,
    (kind, name): (&GroupVersionKind, &str),
) -> anyhow::Result<()> {
    let mut lists = Lists::new(connection);
    answer.unknown = explain(&mut lists, world, answer, (kind, name)).await?;
    answer.missing.extend(lists.missing());
    Ok(())
}

/// Explains the pods, or says why they cannot be explained.
async fn explain(
    lists: &mut Lists<'_>,
    world: &World,
    answer: &mut Answer,
    (kind, name): (&GroupVersionKind, &str),
) -> Result<Option<String>, ListError> {
    let namespace = lists.connection.namespace.clone();
    let resource = ApiResource::from_gvk(kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(lists.connection.client.clone(), &namespace, &resource);
    let what = format!("{} {name} in namespace {namespace}", right(&resource.group, &resource.plural));
    let Some(controller) = lists.get(&api, &what, name).await? else {
        if !lists.missing().is_empty() {
            return Ok(Some(format!("{name} cannot be read in namespace {namespace}")));
        }
        let all = metadata(lists, kind).await?.unwrap_or_default();
        let near = nearest(name, all.iter().filter_map(|other| other.name.as_deref()));
        return Ok(Some(format!("{name} not found in namespace {namespace}{}", hint(&near))));
    };
    let between = match kind.kind.as_str() {
        "Deployment" => metadata(lists, &GroupVersionKind::gvk("apps", "v1", "ReplicaSet")).await?,
        _ => Some(Vec::new()),
    };
    let pods = metadata(lists, &GroupVersionKind::gvk("", "v1", "Pod")).await?;
    let (Some(between), Some(pods)) = (between, pods) else {
        return Ok(Some(format!("which pods {name} has cannot be read")));
    };
    let uid = controller.metadata.uid.unwrap_or_default();
    let names = controlled(&uid, &between, &pods);
    for pod in &names {
        answer.explain(world, Subject::Pod { namespace: &namespace, name: pod });
    }
    let held = answer.explanations.iter().filter(|explanation| explanation.is_held()).count();
    let pods = if names.len() == 1 { "pod" } else { "pods" };
    answer.lines.push(format!("{name} has {} {pods}, held: {held}.", names.len()));
    Ok(None)
}

/// What all objects of a kind say of themselves; `None`: they may not be listed.
async fn metadata(
    lists: &mut Lists<'_>,
    kind: &GroupVersionKind,
) -> Result<Option<Vec<ObjectMeta>>, ListError> {
    let (resource, namespace) = (ApiResource::from_gvk(kind), lists.connection.namespace.clone());
    let api: Api<DynamicObject> =
        Api::namespaced_with(lists.connection.client.clone(), &namespace, &resource);
    let what = format!("{} in namespace {namespace}", right(&resource.group, &resource.plural));
    let api = &api;
    let all = lists.pages_of(&what, |page| async move { api.list_metadata(&page).await }).await?;
    Ok(all.map(|all| all.into_iter().map(|object| object.metadata).collect()))
}

/// Names of the pods that an object controls, by itself or by what it controls.
fn controlled<'p>(uid: &str, between: &[ObjectMeta], pods: &'p [ObjectMeta]) -> Vec<&'p str> {
    let ours = between.iter().filter(|object| controller_of(object) == Some(uid));
    let controllers: BTreeSet<&str> = ours.filter_map(|object| object.uid.as_deref()).chain([uid]).collect();
    let is_ours = |pod: &&ObjectMeta| controller_of(pod).is_some_and(|uid| controllers.contains(uid));
    pods.iter().filter(is_ours).filter_map(|pod| pod.name.as_deref()).collect()
}

/// The uid of the owner that controls an object.
fn controller_of(object: &ObjectMeta) -> Option<&str> {
    let owners = object.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests;
