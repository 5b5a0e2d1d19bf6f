//! Which fields of which kind are kept, beside what names the object.

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// All: a kind of Sluice's, or one that has no secrets.
    Whole,
    /// What is below these paths.
    Fields(&'static [&'static str]),
    /// What names it alone.
    Identity,
}

/// What is kept of objects of this kind.
pub fn keep(kind: &str) -> Keep {
    match kind {
        "AAQ"
        | "AAQJobQueueConfig"
        | "ApplicationAwareAppliedClusterResourceQuota"
        | "ApplicationAwareClusterResourceQuota"
        | "ApplicationAwareResourceQuota"
        | "ClusterQuotaCharge"
        | "ClusterResourceQuota"
        | "ClusterRole"
        | "ClusterRoleBinding"
        | "Evaluator"
        | "FlowSchema"
        | "HeadroomPolicy"
        | "Lease"
        | "MTQ"
        | "MutatingAdmissionPolicy"
        | "MutatingAdmissionPolicyBinding"
        | "MutatingWebhookConfiguration"
        | "NetworkPolicy"
        | "PodDisruptionBudget"
        | "PriorityLevelConfiguration"
        | "PrometheusRule"
        | "ResourceQuota"
        | "Role"
        | "RoleBinding"
        | "Service"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "ValidatingWebhookConfiguration"
        | "VirtualMachineMigrationResourceQuota" => Keep::Whole,
        "Certificate" => Keep::Fields(&CERTIFICATE),
        "CustomResourceDefinition" => Keep::Fields(&DEFINITION),
        "Deployment" => Keep::Fields(&DEPLOYMENT),
        "Event" => Keep::Fields(&EVENT),
        "KubeVirt" => Keep::Fields(&KUBEVIRT),
        "Namespace" => Keep::Fields(&["status"]),
        "Pod" => Keep::Fields(&POD),
        "ServiceMonitor" => Keep::Fields(&SERVICE_MONITOR),
        "VirtualMachineInstance" => Keep::Fields(&MACHINE),
        "VirtualMachineInstanceMigration" => Keep::Fields(&MIGRATION),
        _ => Keep::Identity,
    }
}

const CERTIFICATE: [&str; 6] =
    ["spec.dnsNames", "spec.duration", "spec.issuerRef", "spec.renewBefore", "spec.secretName", "status"];

const SERVICE_MONITOR: [&str; 7] = [
    "spec.endpoints.honorLabels",
    "spec.endpoints.interval",
    "spec.endpoints.path",
    "spec.endpoints.port",
    "spec.endpoints.scheme",
    "spec.namespaceSelector",
    "spec.selector",
];

const DEFINITION: [&str; 8] = [
    "spec.group",
    "spec.names",
    "spec.scope",
    "spec.versions.name",
    "spec.versions.served",
    "spec.versions.storage",
    "status.conditions",
    "status.storedVersions",
];

const DEPLOYMENT: [&str; 29] = [
    "spec.minReadySeconds",
    "spec.paused",
    "spec.progressDeadlineSeconds",
    "spec.replicas",
    "spec.selector",
    "spec.strategy",
    "spec.template.metadata.labels",
    "spec.template.spec.affinity",
    "spec.template.spec.containers.args",
    "spec.template.spec.containers.image",
    "spec.template.spec.containers.imagePullPolicy",
    "spec.template.spec.containers.name",
    "spec.template.spec.containers.ports",
    "spec.template.spec.containers.resources",
    "spec.template.spec.containers.securityContext",
    "spec.template.spec.containers.volumeMounts",
    "spec.template.spec.hostNetwork",
    "spec.template.spec.initContainers.image",
    "spec.template.spec.initContainers.name",
    "spec.template.spec.nodeSelector",
    "spec.template.spec.priorityClassName",
    "spec.template.spec.securityContext",
    "spec.template.spec.serviceAccountName",
    "spec.template.spec.tolerations",
    "spec.template.spec.topologySpreadConstraints",
    "spec.template.spec.volumes.configMap.name",
    "spec.template.spec.volumes.name",
    "spec.template.spec.volumes.secret.secretName",
    "status",
];

const EVENT: [&str; 14] = [
    "action",
    "count",
    "eventTime",
    "firstTimestamp",
    "involvedObject",
    "lastTimestamp",
    "message",
    "reason",
    "related",
    "reportingComponent",
    "reportingInstance",
    "series",
    "source",
    "type",
];

const KUBEVIRT: [&str; 9] = [
    "spec.configuration",
    "spec.infra.replicas",
    "spec.workloadUpdateStrategy",
    "status.conditions",
    "status.observedKubeVirtVersion",
    "status.operatorVersion",
    "status.outdatedVirtualMachineInstanceWorkloads",
    "status.phase",
    "status.targetKubeVirtVersion",
];

/// What charge, scopes, gates and the order of release depend on, and how containers of Sluice's own pods do.
const POD: [&str; 54] = [
    "spec.activeDeadlineSeconds",
    "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.podAffinityTerm.namespaceSelector",
    "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.podAffinityTerm.namespaces",
    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.namespaceSelector",
    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.namespaces",
    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.podAffinityTerm.namespaceSelector",
    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.podAffinityTerm.namespaces",
    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.namespaceSelector",
    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.namespaces",
    "spec.containers.name",
    "spec.containers.resources",
    "spec.hostNetwork",
    "spec.initContainers.name",
    "spec.initContainers.resources",
    "spec.initContainers.restartPolicy",
    "spec.nodeName",
    "spec.overhead",
    "spec.preemptionPolicy",
    "spec.priority",
    "spec.priorityClassName",
    "spec.resourceClaims.name",
    "spec.resources",
    "spec.restartPolicy",
    "spec.runtimeClassName",
    "spec.schedulerName",
    "spec.schedulingGates",
    "status.conditions.lastProbeTime",
    "status.conditions.lastTransitionTime",
    "status.conditions.message",
    "status.conditions.observedGeneration",
    "status.conditions.reason",
    "status.conditions.status",
    "status.conditions.type",
    "status.containerStatuses.allocatedResources",
    "status.containerStatuses.image",
    "status.containerStatuses.imageID",
    "status.containerStatuses.lastState.terminated.exitCode",
    "status.containerStatuses.lastState.terminated.finishedAt",
    "status.containerStatuses.lastState.terminated.reason",
    "status.containerStatuses.lastState.terminated.startedAt",
    "status.containerStatuses.name",
    "status.containerStatuses.ready",
    "status.containerStatuses.resources",
    "status.containerStatuses.restartCount",
    "status.containerStatuses.state.running",
    "status.containerStatuses.state.terminated.exitCode",
    "status.containerStatuses.state.terminated.finishedAt",
    "status.containerStatuses.state.terminated.reason",
    "status.containerStatuses.state.waiting",
    "status.phase",
    "status.qosClass",
    "status.reason",
    "status.resize",
    "status.startTime",
];

/// What the charge of a virtual machine and its next pod depend on, and how its last migration went.
const MACHINE: [&str; 45] = [
    "spec.architecture",
    "spec.domain.cpu.cores",
    "spec.domain.cpu.dedicatedCpuPlacement",
    "spec.domain.cpu.isolateEmulatorThread",
    "spec.domain.cpu.maxSockets",
    "spec.domain.cpu.sockets",
    "spec.domain.cpu.threads",
    "spec.domain.devices.autoattachGraphicsDevice",
    "spec.domain.devices.gpus.deviceName",
    "spec.domain.devices.gpus.name",
    "spec.domain.devices.hostDevices.deviceName",
    "spec.domain.devices.hostDevices.name",
    "spec.domain.devices.interfaces.binding.name",
    "spec.domain.devices.interfaces.name",
    "spec.domain.devices.interfaces.sriov",
    "spec.domain.devices.tpm",
    "spec.domain.firmware.bootloader.efi.persistent",
    "spec.domain.ioThreads",
    "spec.domain.ioThreadsPolicy",
    "spec.domain.launchSecurity.sev.policy",
    "spec.domain.launchSecurity.snp.policy",
    "spec.domain.memory",
    "spec.domain.resources",
    "spec.evictionStrategy",
    "spec.priorityClassName",
    "status.conditions",
    "status.currentCPUTopology",
    "status.launcherContainerImageVersion",
    "status.memory",
    "status.migrationMethod",
    "status.migrationState.abortRequested",
    "status.migrationState.abortStatus",
    "status.migrationState.completed",
    "status.migrationState.endTimestamp",
    "status.migrationState.failed",
    "status.migrationState.failureReason",
    "status.migrationState.migrationUid",
    "status.migrationState.sourceNode",
    "status.migrationState.sourcePod",
    "status.migrationState.startTimestamp",
    "status.migrationState.targetNode",
    "status.migrationState.targetPod",
    "status.nodeName",
    "status.phase",
    "status.phaseTransitionTimestamps",
];

const MIGRATION: [&str; 14] = [
    "spec.priority",
    "spec.receive.migrationID",
    "spec.vmiName",
    "status.conditions",
    "status.migrationState.completed",
    "status.migrationState.endTimestamp",
    "status.migrationState.failed",
    "status.migrationState.failureReason",
    "status.migrationState.migrationUid",
    "status.migrationState.sourceNode",
    "status.migrationState.startTimestamp",
    "status.migrationState.targetNode",
    "status.phase",
    "status.phaseTransitionTimestamps",
];
