//! The kinds of objects that `sluice why` knows.

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Kind {
    Pod,
    Vm,
    Vmi,
    Migration,
    Quota,
    ClusterQuota,
    Workload(&'static str, &'static str, &'static str),
}

impl Kind {
    pub(in crate::cli) fn read(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().split('.').next().unwrap_or_default() {
            "pod" | "pods" | "po" => Self::Pod,
            "vm" | "vms" | "virtualmachine" | "virtualmachines" => Self::Vm,
            "vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances" => Self::Vmi,
            "migration"
            | "migrations"
            | "vmim"
            | "vmims"
            | "virtualmachineinstancemigration"
            | "virtualmachineinstancemigrations" => Self::Migration,
            "quota" | "arq" | "arqs" | "applicationawareresourcequota" | "applicationawareresourcequotas" => {
                Self::Quota
            }
            "clusterquota"
            | "acrq"
            | "acrqs"
            | "applicationawareclusterresourcequota"
            | "applicationawareclusterresourcequotas" => Self::ClusterQuota,
            "deployment" | "deployments" | "deploy" => Self::Workload("apps", "v1", "Deployment"),
            "statefulset" | "statefulsets" | "sts" => Self::Workload("apps", "v1", "StatefulSet"),
            "daemonset" | "daemonsets" | "ds" => Self::Workload("apps", "v1", "DaemonSet"),
            "replicaset" | "replicasets" | "rs" => Self::Workload("apps", "v1", "ReplicaSet"),
            "job" | "jobs" => Self::Workload("batch", "v1", "Job"),
            _ => return None,
        })
    }
}
