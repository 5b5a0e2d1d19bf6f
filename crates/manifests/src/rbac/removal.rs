//! What the operator may do in addition where the `AAQ` installs: when the `AAQ` goes, no pod stays behind a gate, no quota
//! stays raised and no managed quota is left, whether the controller runs or not.

use serde_json::{Value, json};
use sluice_api::names;

use super::{binding, role, rule, subject};
use crate::object::{cluster_metadata, labelled, metadata, set};
use crate::options::{InstallOptions, Installation};

/// Roles of their own, bound to the operator's account; none where the operator installs.
#[must_use]
pub fn removal_rights(options: &InstallOptions) -> Vec<Value> {
    const NAME: &str = "sluice-removal";
    if options.installation == Installation::Always {
        return Vec::new();
    }
    let everywhere = json!([
        rule("", &["pods"], &["list", "patch"]),
        rule("", &["resourcequotas"], &["delete"]),
        rule("", &["resourcequotas/status"], &["patch"]),
        rule(names::OPENSHIFT_QUOTA_GROUP, &[names::CLUSTER_RESOURCE_QUOTAS], &["list", "delete"]),
        rule(names::GROUP, &[names::AACRQS], &["list", "delete"]),
    ]);
    let at_home = json!([rule(names::OWN_GROUP, &[names::CLUSTER_QUOTA_CHARGES], &["list", "delete"])]);
    let granted =
        [("ClusterRole", cluster_metadata(NAME), everywhere), ("Role", metadata(options, NAME), at_home)];
    let objects = granted.map(|(kind, metadata, rules)| {
        let mut bound = binding(options, kind, metadata.clone(), NAME);
        set(&mut bound, "subjects", json!([subject(options, names::OPERATOR)]));
        [role(kind, metadata, rules), bound]
    });
    labelled(options, objects.concat())
}
