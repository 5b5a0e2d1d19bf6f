//! The quotas of the field reports.

use super::{Hard, amounts};

/// The namespace of Harvester 1.2's report: thirteen keys, 30 cores, 60Gi.
pub fn thirteen_keys() -> Hard {
    amounts(&[
        ("configmaps", "15"),
        ("limits.cpu", "30"),
        ("limits.memory", "60Gi"),
        ("persistentvolumeclaims", "75"),
        ("pods", "50"),
        ("replicationcontrollers", "50"),
        ("requests.cpu", "30"),
        ("requests.memory", "60Gi"),
        ("requests.storage", "320Gi"),
        ("secrets", "65"),
        ("services", "15"),
        ("services.loadbalancers", "1"),
        ("services.nodeports", "15"),
    ])
}

/// Three machines fit with little to spare.
pub fn just_above_three() -> Hard {
    amounts(&[
        ("limits.cpu", "3"),
        ("limits.memory", "4404019200"),
        ("requests.cpu", "3"),
        ("requests.memory", "4200Mi"),
        ("pods", "50"),
    ])
}

/// What the customer's namespace may use.
pub fn customer() -> Hard {
    amounts(&[("limits.cpu", "30"), ("limits.memory", "60Gi")])
}
