//! Every name that another program or a person can see, in one place;
//! those of admission endpoints are in [`crate::Endpoint`].
//!
//! Names that users of application-aware-quota know are kept as they are (`docs/predecessors.md`); the others are
//! Sluice's own and live under `quota.sluice.dev` or carry the prefix `sluice-`.

/// API group of the quota kinds.
pub const GROUP: &str = "aaq.kubevirt.io";
/// The only served version of [`GROUP`].
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of the quota kinds.
pub const API_VERSION: &str = "aaq.kubevirt.io/v1alpha1";

/// Resource name of [`crate::AAQ`].
pub const AAQS: &str = "aaqs";
/// Name of the CRD of [`AAQS`].
pub const AAQ_DEFINITION: &str = "aaqs.aaq.kubevirt.io";
/// Name of the CRD of [`crate::Evaluator`]s.
pub const EVALUATOR_DEFINITION: &str = "evaluators.quota.sluice.dev";
/// Resource name of [`crate::ApplicationAwareResourceQuota`].
pub const ARQS: &str = "applicationawareresourcequotas";
/// Resource name of [`crate::ApplicationAwareClusterResourceQuota`].
pub const ACRQS: &str = "applicationawareclusterresourcequotas";
/// Resource name of [`crate::ApplicationAwareAppliedClusterResourceQuota`].
pub const AACRQS: &str = "applicationawareappliedclusterresourcequotas";
/// Name of the one `AAQJobQueueConfig` of a namespace.
pub const JOB_QUEUE_CONFIG: &str = "aaqjqc";
/// Key of `AAQJobQueueConfig.status.controllerLock` for namespaced quotas.
pub const ARQ_LOCK: &str = "application-aware-resource-quota-lock";
/// Key of `AAQJobQueueConfig.status.controllerLock` for cluster quotas.
pub const ACRQ_LOCK: &str = "application-aware-cluster-resource-quota-lock";
/// Resource name of [`crate::MTQ`].
pub const MTQS: &str = "mtqs";
/// Conventional name of the `AAQ` singleton, and the name of the one that the operator makes.
pub const AAQ_NAME: &str = "aaq";

/// End of the name of a quota's managed ResourceQuota, after the name of the quota.
pub const MANAGED_QUOTA_SUFFIX: &str = "-non-schedulable-resources-managed-rq-x";
/// End of the name of a cluster quota's managed ClusterResourceQuota, after the name of the quota.
pub const MANAGED_CLUSTER_QUOTA_SUFFIX: &str = "-non-schedulable-resources-managed-crq-x";
/// OpenShift's API group of quotas.
pub const OPENSHIFT_QUOTA_GROUP: &str = "quota.openshift.io";
/// Resource name of OpenShift's ClusterResourceQuota.
pub const CLUSTER_RESOURCE_QUOTAS: &str = "clusterresourcequotas";
/// Longest name of an object.
const MAX_NAME: usize = 253;

/// API group of the kinds that users of managed-tenant-quota know.
pub const MTQ_GROUP: &str = "mtq.kubevirt.io";
/// Resource name of [`crate::VirtualMachineMigrationResourceQuota`].
pub const VMMRQS: &str = "virtualmachinemigrationresourcequotas";

/// API group of Sluice's own kinds, and domain of its labels and annotations.
pub const OWN_GROUP: &str = "quota.sluice.dev";
/// The only served version of [`OWN_GROUP`].
pub const OWN_VERSION: &str = "v1alpha1";
/// Resource name of [`crate::ClusterQuotaCharge`].
pub const CLUSTER_QUOTA_CHARGES: &str = "clusterquotacharges";
/// Resource name of [`crate::HeadroomProbe`].
pub const HEADROOM_PROBES: &str = "headroomprobes";
/// Resource name of [`crate::HeadroomPolicy`].
pub const HEADROOM_POLICIES: &str = "headroompolicies";
/// Resource name of [`crate::Evaluator`].
pub const EVALUATORS: &str = "evaluators";
/// Kind of [`crate::Evaluator`].
pub const EVALUATOR: &str = "Evaluator";
/// Type of a condition of [`crate::Evaluator`]: whether its rule is in force.
pub const READY: &str = "Ready";
/// Type of a condition of [`crate::Evaluator`]: whether its rule says of its examples what they say.
pub const CONSISTENT: &str = "Consistent";
/// Kind of [`crate::QuotaReview`].
pub const QUOTA_REVIEW: &str = "QuotaReview";
/// Resource name of [`crate::QuotaReview`].
pub const QUOTA_REVIEWS: &str = "quotareviews";
/// Kind of [`crate::GateProbe`].
pub const GATE_PROBE: &str = "GateProbe";
/// Resource name of [`crate::GateProbe`].
pub const GATE_PROBES: &str = "gateprobes";
/// What [`crate::GateProbeSpec::gated_by`] says when the webhook has set the gate.
pub const GATED_BY_WEBHOOK: &str = "webhook";
/// Name of the [`crate::HeadroomProbe`]s and [`crate::GateProbe`]s that are asked for.
pub const PROBE_NAME: &str = "probe";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that keeps pods away from marked quotas.
pub const LOCK_POLICY: &str = "sluice-headroom-lock";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that guards the status of marked quotas.
pub const CHARGE_POLICY: &str = "sluice-headroom-charge";
/// What [`LOCK_POLICY`] says to a probe whose mark it knows.
pub const PROBE_DENIED: &str = "this mark is known here";
/// Begins what [`CHARGE_POLICY`] says to a write of limits or marks that it refuses.
pub const CHARGE_DENIED: &str = "guarded by Sluice";
/// Name of the ResourceQuota in the namespace of the installation on which both
/// policies are asked whether they are in force.
pub const PROOF_QUOTA: &str = "sluice-headroom-proof";

/// Name of the MutatingAdmissionPolicy, and of its binding, that gates and stamps pods.
pub const GATE_POLICY: &str = "sluice-gate";
/// Name of the MutatingAdmissionPolicy, and of its binding, that corrects a wrong stamp and restores a lost one.
pub const STAMP_POLICY: &str = "sluice-stamp";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that guards gate and stamp of existing pods, also against
/// Sluice's own accounts.
pub const GUARD_POLICY: &str = "sluice-guard";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that lets no pod of a targeted namespace in without gate and
/// stamp.
pub const GATED_POLICY: &str = "sluice-gated";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that holds Sluice's own accounts to what they write
/// of managed quotas.
pub const ACCOUNTS_POLICY: &str = "sluice-accounts";
/// Begins what the policies say that hold Sluice's own accounts to what they do.
pub const ACCOUNT_DENIED: &str = "not for Sluice's account";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that keeps claims out of the status of a new
/// VirtualMachineInstance.
pub const VMI_STATUS_POLICY: &str = "sluice-vmi-status";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that keeps tenants from the names of exempt namespaces.
pub const EXEMPT_NAMES_POLICY: &str = "sluice-exempt-names";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that keeps pauses for administrators.
pub const PAUSE_POLICY: &str = "sluice-pause";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that lets no [`crate::QuotaReview`] be stored.
pub const REVIEW_POLICY: &str = "sluice-review";
/// Name of the ValidatingAdmissionPolicy, and of its binding, that keeps containers of [`crate::Evaluator`]s for those who
/// may run programs beside the controller.
pub const EVALUATOR_POLICY: &str = "sluice-evaluators";
/// Verb on `evaluators`: who has it may name a container in one.
pub const RUN_VERB: &str = "run";
/// Verb on `namespaces`: who has it may create one of an exempt name.
pub const EXEMPT_VERB: &str = "exempt";
/// Most items of a list of an object that admission looks into, and most scheduling gates of a pod in a targeted namespace,
/// ours included: 30,000 double the time of a creation.
pub const MOST_ITEMS: usize = 64;

/// The scheduling gate that a pod waits behind.
pub const GATE: &str = "ApplicationAwareQuotaGate";
/// A namespace with this label key has its pods gated, unless the `AAQ` says otherwise.
pub const TARGET_LABEL: &str = "application-aware-quota/enable-gating";
/// Annotation on a Namespace or the `AAQ`: until this time (RFC 3339) no pod waits for quota there.
pub const PAUSED_ANNOTATION: &str = "quota.sluice.dev/paused";
/// Annotation beside [`PAUSED_ANNOTATION`]: the time when the pause began, from which its length is reckoned.
pub const PAUSED_SINCE_ANNOTATION: &str = "quota.sluice.dev/paused-since";
/// Annotation beside [`PAUSED_ANNOTATION`]: so many waiting pods go in a second at most.
pub const PAUSE_RATE_ANNOTATION: &str = "quota.sluice.dev/pause-rate";
/// Annotation on a pod: who created it, as the API server saw it at admission. It cannot be forged or changed.
pub const CREATED_BY_ANNOTATION: &str = "quota.sluice.dev/created-by";

/// Namespace that an installation is in unless it is rendered for another.
pub const INSTALL_NAMESPACE: &str = "sluice-system";
/// Name of the controller's Deployment, ServiceAccount and roles.
pub const CONTROLLER: &str = "sluice-controller";
/// Name of the webhook's Deployment, ServiceAccount, Service and roles.
pub const WEBHOOK: &str = "sluice-webhook";
/// Name of the Deployment, ServiceAccount, Lease and roles of the operator, which keeps admission objects and certificates.
pub const OPERATOR: &str = "sluice-operator";
/// How `sluice pause` and `sluice resume` call themselves in requests: their user agent and field manager.
pub const PAUSE: &str = "sluice-pause";
/// How `sluice uninstall` calls itself in requests: its user agent and field manager.
pub const UNINSTALL: &str = "sluice-uninstall";
/// Key of the ConfigMap [`OPERATOR`] that has the options of the installation. It wins over further keys that end with
/// `.yaml`.
pub const OPTIONS_KEY: &str = "options.yaml";
/// Where that ConfigMap is in the operator's container.
pub const OPTIONS_PATH: &str = "/etc/sluice";
/// Reason of a condition and of events: another client insists on an object that the operator keeps.
pub const OBJECT_CONTESTED: &str = "ObjectContested";
/// Reason of a condition and of events: a CRD drops what this version records.
pub const SCHEMA_TOO_OLD: &str = "SchemaTooOld";
/// Annotation of what the operator writes: its version. An older operator leaves what a newer one has written.
pub const WRITER_VERSION_ANNOTATION: &str = "quota.sluice.dev/writer-version";
/// Settings of the allocator (jemalloc, with the prefix that it has here).
pub const ALLOCATOR_VARIABLE: &str = "_RJEM_MALLOC_CONF";
/// One arena, and memory given back at once: a list of many pods takes a fifth longer, and the process a fifth less memory.
pub const ALLOCATOR_SETTINGS: &str = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0";
/// Name of the Lease in the install namespace that elects the writing controller.
pub const LEASE: &str = "sluice-controller";
/// `source.component` and `reportingController` of the controller's events.
pub const EVENT_COMPONENT: &str = "sluice-controller";
/// Field manager of server-side applies.
pub const FIELD_MANAGER: &str = "sluice";

/// Secret with the own certificate authority: keys [`TLS_CERT`], [`TLS_KEY`], [`CA_BUNDLE`], [`SECRET_PATH`] (what the
/// webhook configurations name) and [`SECRET_PATH_SINCE`].
pub const CA_SECRET: &str = "sluice-ca";
/// Secret with the serving certificate of webhooks and metrics: keys [`TLS_CERT`], [`TLS_KEY`], [`CA_BUNDLE`],
/// [`SECRET_PATH`] and [`SECRET_PATH_BEFORE`], both of which are answered.
pub const SERVING_SECRET: &str = "sluice-webhook-cert";
/// Secret key of a PEM certificate.
pub const TLS_CERT: &str = "tls.crt";
/// Secret key of a PEM private key.
pub const TLS_KEY: &str = "tls.key";
/// Secret key of the PEM bundle of all authorities that are still trusted.
pub const CA_BUNDLE: &str = "ca.crt";
/// Secret key of the segment before every path of the webhook. Who does not know it is answered with 404.
pub const SECRET_PATH: &str = "webhook-path";
/// Secret key of the segment that API servers may use still, while they learn of [`SECRET_PATH`]. Absent otherwise.
pub const SECRET_PATH_BEFORE: &str = "webhook-path-before";
/// Secret key of the time since when the webhook configurations are to name [`SECRET_PATH`].
pub const SECRET_PATH_SINCE: &str = "webhook-path-since";

/// API group of cert-manager.
pub const CERT_MANAGER_GROUP: &str = "cert-manager.io";
/// Resource name of cert-manager's Certificate.
pub const CERTIFICATES: &str = "certificates";
/// Name of the Certificate that cert-manager is asked for, and of the Secret that it writes: keys [`TLS_CERT`], [`TLS_KEY`]
/// and [`CA_BUNDLE`], which has the authority alone. Of no meaning unless an issuer is named.
pub const GIVEN_SECRET: &str = "sluice-webhook-cert-manager";

/// Annotation of both Secrets, as application-aware-quota's have it (`library-go/pkg/operator/certrotation`): since when the
/// certificate counts as issued.
pub const CERT_NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
/// Annotation of both Secrets: when the certificate ends. Who writes another time there has the certificate renewed.
pub const CERT_NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
/// Annotation of both Secrets: the lifetime that the certificate was issued for, and at which age it is renewed.
pub const CERT_CONFIG: &str = "operator.aaq.kubevirt.io/certConfig";

/// Port the webhook listens on in its container.
pub const WEBHOOK_PORT: u16 = 8443;
/// Port of the webhook's Service.
pub const WEBHOOK_SERVICE_PORT: u16 = 443;
/// Port of probes in both containers, over HTTP.
pub const ADMIN_PORT: u16 = 8081;
/// Port of metrics in both containers, over HTTPS.
pub const METRICS_PORT: u16 = 8444;
/// Port on which the leading controller judges what pods and VMs are to take more, and says why something waits, over HTTPS,
/// for the webhook alone.
pub const GROWTH_PORT: u16 = 8445;
/// Annotation of [`LEASE`]: address and port of [`GROWTH_PORT`] at its holder.
pub const LEADER_ADDRESS_ANNOTATION: &str = "quota.sluice.dev/leader-address";
/// Annotation of [`LEASE`] that its last holder left: its term, if it had nothing under way when it gave the lease back.
pub const HANDED_OVER_ANNOTATION: &str = "quota.sluice.dev/handed-over";
/// Name of the FlowSchema and the PriorityLevelConfiguration of our own requests.
pub const FLOW: &str = "sluice";
/// Name of the Service with the [`METRICS_PORT`] of all containers.
pub const METRICS_SERVICE: &str = "sluice-metrics";
/// Name of the ClusterRole of those who scrape.
pub const METRICS_READER: &str = "sluice-metrics-reader";
/// Name of the ServiceAccount of those who scrape by our ServiceMonitor, and of the Secret with its token.
pub const SCRAPER: &str = "sluice-scraper";
/// Label key on namespaces whose pods reach the metrics through our NetworkPolicy (value `enabled`).
pub const MONITORING_LABEL: &str = "metrics";
/// Path of the liveness probe on [`ADMIN_PORT`].
pub const PATH_HEALTHZ: &str = "/healthz";
/// Path of the readiness probe on [`ADMIN_PORT`].
pub const PATH_READYZ: &str = "/readyz";
/// Path of the metrics on [`METRICS_PORT`].
pub const PATH_METRICS: &str = "/metrics";

/// The MutatingWebhookConfiguration.
pub const MUTATING_CONFIG: &str = "gating-mutator";
/// The ValidatingWebhookConfiguration.
pub const VALIDATING_CONFIG: &str = "aaq-validator";
/// Annotation of a static pod's object, set by its kubelet.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Group of all kubelets.
pub const NODES_GROUP: &str = "system:nodes";

/// Type of a quota's condition, there while its `spec.hard` has keys that nothing counts.
pub const UNCOUNTED_KEYS: &str = "UncountedKeys";
/// Type of a quota's condition, there while pods wait for it.
pub const PODS_HELD: &str = "PodsHeld";
/// Type of a quota's condition, there (`False`) while evaluators have no answer about pods that run and that it counts.
pub const EVALUATED: &str = "Evaluated";
/// Type of a quota's condition, there (`False`) while pods that it is about are not gated, so that it does not limit them.
pub const ENFORCED: &str = "Enforced";
/// Type of a condition of quotas, where KubeVirt runs, and of the `AAQ`: its reason is the calculator by which virtual
/// machines are counted. `False` if their pods are charged instead.
pub const VIRTUAL_MACHINES: &str = "VirtualMachines";

/// Type of a condition of the `AAQ`, written by the controller: whether pods are gated at each API server. Its reason says
/// by whom.
pub const GATING: &str = "Gating";
/// Type of a condition of the `AAQ`, written by the controller once it has sidecars: whether all of them answer it.
pub const EVALUATORS_ANSWER: &str = "Evaluators";
/// Type of a condition of the `AAQ`, written by the controller once it was paused: whether all namespaces are.
pub const PAUSED: &str = "Paused";
/// Type of a condition of `AAQ` and `MTQ`, written by the operator: whether the installation does its work. Types and
/// meaning of this one and the next two are those of application-aware-quota's operator (`operator/pkg/operator/resources`).
pub const AVAILABLE: &str = "Available";
/// Type of a condition of `AAQ` and `MTQ`, written by the operator: whether pods of the installation are being replaced.
pub const PROGRESSING: &str = "Progressing";
/// Type of a condition of `AAQ` and `MTQ`, written by the operator: whether something of the installation is missing or
/// wrong.
pub const DEGRADED: &str = "Degraded";
/// Type of a condition of `AAQ` and `MTQ`, written by the operator: which fields are set and have no effect.
pub const FIELDS_NOT_IN_FORCE: &str = "FieldsNotInForce";

/// Type of a condition of the `AAQ`: whether live migrations may get head-room in native quotas.
pub const HEADROOM: &str = "Headroom";

/// Label of a namespace: how many times their request of memory the limit of launchers is that KubeVirt sets.
pub const LIMIT_RATIO_LABEL: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";
/// Label of a migration's target pod: the uid of its VirtualMachineInstanceMigration.
pub const MIGRATION_JOB_LABEL: &str = "kubevirt.io/migrationJobUID";
/// Selects the pods of virtual machines: launchers, and pods that attach volumes to them (KubeVirt's
/// `pkg/virt-controller/services/template.go`).
pub const LAUNCHER_ROLES: &str = "kubevirt.io in (virt-launcher,hotplug-disk)";
/// Annotation of a migration's target pod: the name of its VirtualMachineInstanceMigration.
pub const MIGRATION_NAME_ANNOTATION: &str = "kubevirt.io/migrationJobName";
/// Annotation of a VirtualMachineInstance, of any value: its isolated emulator thread
/// gets a second CPU where the CPUs are even.
pub const EVEN_EMULATOR_ANNOTATION: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
/// Annotation of a VirtualMachineInstanceMigration: for so many seconds KubeVirt lets its target pod be pending.
pub const PENDING_TIMEOUT_ANNOTATION: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
/// Label of a launcher pod: the uid of its VirtualMachineInstance.
pub const CREATED_BY_LABEL: &str = "kubevirt.io/created-by";
/// Label of a node: its name, as pods choose or avoid it.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Name of the ServiceAccount of KubeVirt's controller, in KubeVirt's namespace.
pub const KUBEVIRT_CONTROLLER_ACCOUNT: &str = "kubevirt-controller";
/// Name, in kube-system, of the ServiceAccount of kube-controller-manager's quota controller.
pub const QUOTA_CONTROLLER_ACCOUNT: &str = "resourcequota-controller";
/// Type of the VirtualMachineInstanceMigration's condition that tells of a target pod refused by a quota.
pub const REJECTED_CONDITION: &str = "migrationRejectedByResourceQuota";
/// Annotation (value `true`) on a Namespace or a ResourceQuota that must not be raised.
pub const OWN_OPT_OUT: &str = "quota.sluice.dev/skip-headroom";

/// Finalizer of the `AAQ`, of application-aware-quota's name, so that either operator takes away what the other has left. It
/// is put there only where the `AAQ` installs (`--installation=cr`).
pub const FINALIZER: &str = "operator.aaq.kubevirt.io";
/// Finalizer that managed-tenant-quota's operator puts on the `MTQ`. Nothing waits for it here: it is only taken away.
pub const MTQ_FINALIZER: &str = "operator.mtq.kubevirt.io";
/// Label of the `AAQ` that the operator has made, with the value [`MADE_BY_OPERATOR`].
pub const MADE_BY_LABEL: &str = "quota.sluice.dev/made-by";
/// Value of [`MADE_BY_LABEL`].
pub const MADE_BY_OPERATOR: &str = "operator";

/// Label key on objects that belong to an installation, and on managed quotas with the value `true` (upstream's key).
pub const MANAGED_LABEL: &str = "aaq.kubevirt.io";
/// `app.kubernetes.io/name` and `app.kubernetes.io/part-of` of an installation's objects.
pub const APP: &str = "sluice";

/// Username the API server gives to the operator of an installation in `namespace`.
pub fn operator_username(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{OPERATOR}")
}

/// Username the API server gives to the controller of an installation in `namespace`.
pub fn controller_username(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{CONTROLLER}")
}

/// Username the API server gives to the webhook of an installation in `namespace`.
pub fn webhook_username(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{WEBHOOK}")
}

/// Username of kube-controller-manager's quota controller, which puts `status.hard` of quotas in step with `spec.hard`.
pub fn quota_controller_username() -> String {
    format!("system:serviceaccount:kube-system:{QUOTA_CONTROLLER_ACCOUNT}")
}

/// Username the API server gives to KubeVirt's controller when KubeVirt is installed in `namespace`.
pub fn kubevirt_controller_username(namespace: &str) -> String {
    service_account_username(namespace, KUBEVIRT_CONTROLLER_ACCOUNT)
}

/// Username the API server gives to a ServiceAccount.
pub fn service_account_username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Longest name of a quota that can have a managed ResourceQuota.
pub const MAX_NAME_OF_MANAGED: usize = MAX_NAME - MANAGED_QUOTA_SUFFIX.len();

/// Name of the managed ResourceQuota of a quota; too long to be one if that of the quota is longer than
/// [`MAX_NAME_OF_MANAGED`].
pub fn managed_quota(arq: &str) -> String {
    format!("{arq}{MANAGED_QUOTA_SUFFIX}")
}

/// Longest name of a cluster quota that can have a managed ClusterResourceQuota.
pub const MAX_NAME_OF_MANAGED_CLUSTER: usize = MAX_NAME - MANAGED_CLUSTER_QUOTA_SUFFIX.len();

/// As [`managed_quota`], of a cluster quota.
pub fn managed_cluster_quota(acrq: &str) -> String {
    format!("{acrq}{MANAGED_CLUSTER_QUOTA_SUFFIX}")
}
