//! All objects of an installation.

use serde_json::{Value, json};
use sluice_api::names;

use crate::admission_policies::admission_policies;
use crate::asked::AskedOfPods;
use crate::cert_manager::cert_manager_rights;
use crate::monitoring::monitoring_objects;
use crate::naming::naming_rights;
use crate::object::{labelled, labels, set};
use crate::options::{InstallOptions, NamespaceUse};
use crate::{
    config, critical_pods, flow, headroom_policies, network, rbac, security, services, webhooks, workload,
};

/// All objects that an installation consists of once its operator runs, in the order they have to be applied.
pub fn render(options: &InstallOptions) -> Vec<Value> {
    let operands = operand_objects(options, &AskedOfPods::default());
    [crds(), install_objects(options), operands, admission_objects(options)].concat()
}

/// The CRDs. They belong to no installation: who removes them removes every quota.
#[must_use]
pub fn crds() -> Vec<Value> {
    // A CRD is made of strings, numbers and lists only: it always has a JSON form.
    sluice_api::all_crds().into_iter().filter_map(|crd| serde_json::to_value(crd).ok()).collect()
}

/// What is applied to install, `deploy/install.yaml`: accounts and rights, and the operator with what it needs
/// itself, its options among them. Kinds of cert-manager or Prometheus' operator are there if they are asked for.
#[must_use]
pub fn install_objects(options: &InstallOptions) -> Vec<Value> {
    let mut objects = Vec::new();
    if options.namespace_use == NamespaceUse::Created {
        objects.push(namespace(options));
    }
    objects.extend(rbac::objects(options));
    objects.push(network::of_operator(options));
    objects.extend(critical_pods::quota(options));
    objects.push(config::map(options));
    objects.extend(workload::of_operator(options));
    objects.extend(rbac::removal_rights(options));
    objects.extend(cert_manager_rights(options));
    objects.extend(monitoring_objects(options));
    objects.extend(naming_rights(options));
    labelled(options, objects)
}

/// What the operator makes and keeps: controller and webhook, and what belongs to them. Their pods are as it is `asked`.
/// What one of the objects needs comes before it.
#[must_use]
pub fn operand_objects(options: &InstallOptions, asked: &AskedOfPods) -> Vec<Value> {
    let mut objects = Vec::from(network::of_operands(options));
    objects.extend(flow::objects(options));
    objects.push(headroom_policies::proof_quota(options));
    objects.extend(services::objects(options));
    objects.extend(workload::of_operands(options, asked));
    labelled(options, objects)
}

/// What the operator writes besides: everything that gates, guards or reviews. No manifest contains these objects: applying
/// a manifest again would replace the selector of the `AAQ` by the default.
///
/// What gates comes after what guards, then the webhook configurations: from then on the API server refuses what it cannot
/// have reviewed. The policy that refuses pods without a gate is last.
#[must_use]
pub fn admission_objects(options: &InstallOptions) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut policies = admission_policies(options);
    let last = policies.pop();
    objects.extend(policies.into_iter().flat_map(|each| [each.policy, each.binding]));
    objects.push(webhooks::mutating(options));
    objects.push(webhooks::validating(options));
    objects.extend(last.into_iter().flat_map(|each| [each.policy, each.binding]));
    objects
}

/// An `AAQ` that says what holds without one: something to edit.
#[must_use]
pub fn default_aaq(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": names::API_VERSION,
        "kind": "AAQ",
        "metadata": { "name": "aaq" },
        "spec": { "namespaceSelector": options.namespace_selector },
    })
}

fn namespace(options: &InstallOptions) -> Value {
    let mut labels = labels(None);
    for mode in ["enforce", "audit", "warn"] {
        set(
            &mut labels,
            &format!("pod-security.kubernetes.io/{mode}"),
            json!(security::level(options.host_network)),
        );
    }
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": options.namespace, "labels": labels },
    })
}
