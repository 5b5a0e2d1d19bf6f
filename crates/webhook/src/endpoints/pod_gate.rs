//! Pod CREATE: appends the gate, as application-aware-quota does (`docs/predecessors.md`, *Admission of AAQ*), and
//! stamps who creates the pod (`docs/admission.md`, *Policies that gate and guard*).

use serde_json::{Value, json};
use sluice_api::names;

use crate::review::local_target::LauncherView;
use crate::review::pod::{PodSpec, PodView};
use crate::review::{PatchOp, Review, Verdict};
use crate::settings::Settings;

/// The API server's limit for the keys and values of all annotations of an object, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Decides on the creation of a pod.
///
/// The patch has a size that does not depend on the pod, and is empty for a pod that has it all already.
pub fn pod_gate(review: &Review<'_>, settings: &Settings) -> Verdict {
    // Whatever Sluice itself needs to run must not wait for Sluice.
    if review.namespace == settings.install_namespace {
        return Verdict::allow("Pod belongs to the quota operator's own namespace and is not gated");
    }
    let pod: PodView<'_> = match review.read_object("a pod") {
        Ok(pod) => pod,
        Err(verdict) => return verdict,
    };
    let Some(spec) = &pod.spec else {
        return Verdict::malformed("could not gate the pod: it has no spec");
    };
    let username = &review.user_info.username;
    if !spec.node_name.is_empty() {
        if !settings.platform_accounts.contains(username) {
            return bound_at_creation(review, &pod, spec);
        }
        let stamp = stamp(&pod, username).into_iter().collect();
        return Verdict::allow("Pod names its node and is of the platform: it is not gated")
            .with_patch(stamp);
    }
    if settings.lets_in_targets_of(username)
        && let Ok(launcher) = review.read_object::<LauncherView>("a pod")
        && launcher.is_local_target()
    {
        let stamp = stamp(&pod, username).into_iter().collect();
        return Verdict::allow(
            "Pod is the target of a migration of a virtual machine that is charged already: it is not gated",
        )
        .with_patch(stamp);
    }
    let mut patch = Vec::with_capacity(2);
    patch.extend(gate(&pod, spec));
    patch.extend(stamp(&pod, username));
    if review.kind == names::GATE_PROBE {
        // The controller, which creates the probe, learns that the webhook gated it and not the admission policy.
        patch.push(add("/spec/gatedBy", json!(names::GATED_BY_WEBHOOK)));
    }
    Verdict::allow("Pod has successfully gated").with_patch(patch)
}

/// A pod of others that names its node never passes the scheduler, so the API server accepts no gate on it.
fn bound_at_creation(review: &Review<'_>, pod: &PodView<'_>, spec: &PodSpec<'_>) -> Verdict {
    let node = &spec.node_name;
    let own_kubelet = review.user_info.username.strip_prefix("system:node:") == Some(node.as_str())
        && review.user_info.groups.iter().any(|group| group == names::NODES_GROUP);
    if own_kubelet && pod.annotations().is_some_and(|annotations| annotations.mirror) {
        return Verdict::allow("Pod mirrors a static pod of its node and is not gated");
    }
    Verdict::deny(format!(
        "pod sets spec.nodeName to \"{node}\", which bypasses the scheduler, so it cannot wait for quota behind \
         the scheduling gate {}: leave spec.nodeName empty and choose the node with spec.nodeSelector or node \
         affinity on the label kubernetes.io/hostname, or create the pod in a namespace whose pods are not gated",
        names::GATE
    ))
}

fn gate(pod: &PodView<'_>, spec: &PodSpec<'_>) -> Option<PatchOp> {
    if pod.is_gated() {
        return None;
    }
    let gate = json!({ "name": names::GATE });
    Some(match spec.scheduling_gates {
        Some(_) => add("/spec/schedulingGates/-", gate),
        None => add("/spec/schedulingGates", json!([gate])),
    })
}

fn stamp(pod: &PodView<'_>, username: &str) -> Option<PatchOp> {
    if pod.created_by() == Some(username) {
        return None;
    }
    let stamps = json!({ names::CREATED_BY_ANNOTATION: username });
    if pod.metadata.is_none() {
        return Some(add("/metadata", json!({ "annotations": stamps })));
    }
    let Some(annotations) = pod.annotations() else {
        return Some(add("/metadata/annotations", stamps));
    };
    let path = format!("/metadata/annotations/{}", pointer_token(names::CREATED_BY_ANNOTATION));
    let size = names::CREATED_BY_ANNOTATION.len().saturating_add(username.len());
    if annotations.other_bytes.saturating_add(size) > ANNOTATIONS_LIMIT {
        // A legal pod stays legal. No stamp means no evidence of a creator, which favours no client; a stamp
        // that the client has written must not stay.
        return annotations.created_by.as_ref().map(|_| PatchOp::Remove { path });
    }
    Some(PatchOp::Add { path, value: Value::from(username) })
}

fn add(path: &str, value: Value) -> PatchOp {
    PatchOp::Add { path: path.to_owned(), value }
}

/// Escapes a member name for use in a JSON pointer (RFC 6901 §3).
fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
