//! What the operator may do with the objects of controller and webhook.

use serde_json::{Value, json};
use sluice_api::names;

use super::{READ, rule};
use crate::object::set;

/// A kind of objects that the operator makes, and their names.
pub(super) struct Made {
    group: &'static str,
    resource: &'static str,
    names: &'static [&'static str],
}

const COMPONENTS: &[&str] = &[names::CONTROLLER, names::WEBHOOK];

/// In the namespace of the installation.
pub(super) const OF_NAMESPACE: [Made; 5] = [
    Made { group: "apps", resource: "deployments", names: COMPONENTS },
    Made { group: "policy", resource: "poddisruptionbudgets", names: COMPONENTS },
    Made { group: "networking.k8s.io", resource: "networkpolicies", names: COMPONENTS },
    Made { group: "", resource: "services", names: &[names::WEBHOOK, names::METRICS_SERVICE] },
    Made { group: "", resource: "resourcequotas", names: &[names::PROOF_QUOTA] },
];

/// Of the cluster: the lane of Sluice's requests.
pub(super) const OF_CLUSTER: [Made; 2] = [
    Made { group: super::FLOWCONTROL, resource: "flowschemas", names: &[names::FLOW] },
    Made { group: super::FLOWCONTROL, resource: "prioritylevelconfigurations", names: &[names::FLOW] },
];

/// They are found by their label, so all of a kind may be read. `create` cannot be limited to a name. They belong to the
/// operator's role: where the plugin OwnerReferencesPermissionEnforcement is enabled, as on OpenShift, only an account that
/// may `delete` an object may give it another owner.
pub(super) fn rules(made: &Made) -> [Value; 2] {
    let Made { group, resource, names } = made;
    let mut own = rule(group, &[*resource], &["patch", "delete"]);
    set(&mut own, "resourceNames", json!(names));
    [rule(group, &[*resource], &[&READ[..], &["create"]].concat()), own]
}
