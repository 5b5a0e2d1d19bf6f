//! What an installation may consist of, in the order in which it goes. The names are those of the rendered objects.

use std::collections::BTreeSet;

use sluice_api::names;

use super::object::{Kind, ObjectName};
use crate::admission_policies::is_standing;
use crate::asked::AskedOfPods;
use crate::cert_manager::certificate;
use crate::options::{InstallOptions, Installation, IssuerRef, Monitoring, Naming};
use crate::rbac::rancher_objects;
use crate::render::{admission_objects, crds, install_objects, operand_objects};

/// When an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Rights of the operator, which puts back what gates. Without them it does not, also where its pod cannot be stopped.
    Operator,
    /// What refuses pods, or asks a process.
    Refuses,
    /// What gates and stamps pods.
    Gates,
    /// Rights of the processes that have ended, should one of them run on.
    Rights,
    /// Policies that hold Sluice's own accounts to what they do, and guard raised quotas.
    Guards,
    /// Everything else.
    Objects,
    Home,
}

/// Kinds of what the operator works with: certificates, and by whom it is led.
const OWN: [&str; 4] = ["Certificate", "ConfigMap", "Lease", "Secret"];

/// An object of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// When it goes.
    pub stage: Stage,
    pub object: ObjectName,
    /// No manifest contains it: the operator or another process has made it.
    pub is_made: bool,
}

/// Everything that an installation in `namespace` may have, whatever its options, but for the CRDs.
#[must_use]
pub fn inventory(namespace: &str) -> Vec<Part> {
    let (mut applied, mut made) = (BTreeSet::new(), BTreeSet::new());
    for naming in Naming::ALL {
        let (of_manifest, by_processes) = named(namespace, naming);
        applied.extend(of_manifest);
        made.extend(by_processes);
    }
    let mut placed: Vec<_> =
        applied.union(&made).map(|object| (place(object, namespace), object.clone())).collect();
    placed.sort();
    let part = |((stage, _), object)| Part { stage, is_made: made.contains(&object), object };
    placed.into_iter().map(part).collect()
}

/// What manifests contain of an installation with these names, and what processes make.
fn named(namespace: &str, naming: Naming) -> (Vec<ObjectName>, Vec<ObjectName>) {
    let issuer = IssuerRef { name: String::new(), kind: String::new(), group: String::new() };
    let options = InstallOptions {
        namespace: namespace.to_owned(),
        installation: Installation::Cr,
        cert_manager: Some(issuer.clone()),
        monitoring: Monitoring { service_monitor: true, rules: true, ..Monitoring::default() },
        naming,
        ..InstallOptions::default()
    };
    let kustomized = InstallOptions { reads_leases_everywhere: true, ..options.clone() };
    let applied =
        [install_objects(&options), install_objects(&kustomized), rancher_objects(&options)].concat();
    let made = [
        operand_objects(&options, &AskedOfPods::default()),
        admission_objects(&options),
        vec![certificate(namespace, &issuer, &[])],
    ]
    .concat();
    let parts = naming.parts();
    let bundle = parts.bundle.map(|(name, _)| ("v1", "ConfigMap", name));
    let written = [
        ("v1", "Secret", parts.authority),
        ("v1", "Secret", parts.serving),
        ("v1", "Secret", names::GIVEN_SECRET),
        ("coordination.k8s.io/v1", "Lease", names::LEASE),
        ("coordination.k8s.io/v1", "Lease", names::OPERATOR),
    ]
    .into_iter()
    .chain(bundle)
    .map(|(api_version, kind, name)| ObjectName {
        kind: Kind::new(api_version, kind),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    });
    let made = made.iter().filter_map(ObjectName::of).chain(written).collect();
    (applied.iter().filter_map(ObjectName::of).collect(), made)
}

/// What the operator makes by the word of an `AAQ`, where the `AAQ` installs: everything that gates, refuses pods or guards
/// quotas, controller and webhook, and what belongs to them. What the operator works with itself stays, as what is applied
/// with it, and so do policies that only [guard](is_standing) gates and stamps.
#[must_use]
pub fn goes_with_aaq(part: &Part) -> bool {
    let ObjectName { kind, name, .. } = &part.object;
    part.is_made && !OWN.contains(&kind.kind.as_str()) && !is_standing(name)
}

#[must_use]
pub fn definitions() -> Vec<ObjectName> {
    crds().iter().filter_map(ObjectName::of).collect()
}

/// The stage, and the place in it: a binding before its policy, for a policy without a binding holds for nothing.
fn place(object: &ObjectName, namespace: &str) -> (Stage, u8) {
    let is_elsewhere = object.namespace.as_ref().is_some_and(|at| at != namespace);
    match (object.kind.kind.as_str(), object.name.as_str()) {
        // They are of roles that only read, or write events.
        ("RoleBinding", _) if is_elsewhere => (Stage::Objects, 0),
        ("ClusterRoleBinding" | "RoleBinding", names::OPERATOR) => (Stage::Operator, 0),
        ("ClusterRoleBinding" | "RoleBinding", _) => (Stage::Rights, 0),
        ("ValidatingAdmissionPolicyBinding", names::GATED_POLICY) => (Stage::Refuses, 0),
        ("ValidatingAdmissionPolicy", names::GATED_POLICY) => (Stage::Refuses, 1),
        ("ValidatingWebhookConfiguration", _) => (Stage::Refuses, 2),
        // It refuses stamps that `sluice-stamp` would have corrected.
        ("ValidatingAdmissionPolicyBinding", names::GUARD_POLICY) => (Stage::Refuses, 3),
        ("ValidatingAdmissionPolicy", names::GUARD_POLICY) => (Stage::Refuses, 4),
        ("MutatingWebhookConfiguration", _) => (Stage::Gates, 0),
        ("MutatingAdmissionPolicyBinding", _) => (Stage::Gates, 1),
        ("MutatingAdmissionPolicy", _) => (Stage::Gates, 2),
        ("ValidatingAdmissionPolicyBinding", _) => (Stage::Guards, 0),
        ("ValidatingAdmissionPolicy", _) => (Stage::Guards, 1),
        ("Namespace", _) => (Stage::Home, 0),
        ("Secret" | "Lease", _) => (Stage::Objects, 1),
        // It says where the installation is, also when all bindings are gone.
        ("FlowSchema", _) => (Stage::Objects, 2),
        ("PriorityLevelConfiguration", _) => (Stage::Objects, 3),
        _ => (Stage::Objects, 0),
    }
}
