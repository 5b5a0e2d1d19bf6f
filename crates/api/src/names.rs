//! Every name that another program or a person can see, in one place.
//!
//! Names that users of application-aware-quota know are kept as they are (`aaq.md` §1–§3); the others are
//! Sluice's own and live under `quota.sluice.dev` or carry the prefix `sluice-`.

/// API group of the quota kinds.
pub const GROUP: &str = "aaq.kubevirt.io";
/// The only served version of [`GROUP`].
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of the quota kinds.
pub const API_VERSION: &str = "aaq.kubevirt.io/v1alpha1";
/// Domain of Sluice's own labels, annotations and kinds.
pub const OWN_DOMAIN: &str = "quota.sluice.dev";

/// Resource name of [`crate::AAQ`].
pub const AAQS: &str = "aaqs";
/// Resource name of [`crate::ApplicationAwareResourceQuota`].
pub const ARQS: &str = "applicationawareresourcequotas";
/// Resource name of [`crate::AAQJobQueueConfig`].
pub const JOB_QUEUE_CONFIGS: &str = "aaqjobqueueconfigs";
/// Name of the one `AAQJobQueueConfig` of a namespace (`aaq.md` §1.4).
pub const JOB_QUEUE_CONFIG: &str = "aaqjqc";
/// Key of `AAQJobQueueConfig.status.controllerLock` for namespaced quotas (`aaq.md` §3).
pub const ARQ_LOCK: &str = "application-aware-resource-quota-lock";
/// Key of `AAQJobQueueConfig.status.controllerLock` for cluster quotas (`aaq.md` §3).
pub const ACRQ_LOCK: &str = "application-aware-cluster-resource-quota-lock";
/// Conventional name of the `AAQ` singleton.
pub const AAQ_NAME: &str = "aaq";

/// The scheduling gate that a pod waits behind.
pub const GATE: &str = "ApplicationAwareQuotaGate";
/// A namespace with this label key has its pods gated, unless the `AAQ` says otherwise (`aaq.md` §2.1).
pub const TARGET_LABEL: &str = "application-aware-quota/enable-gating";
/// Annotation on a pod: who created it, as the API server saw it at admission. Nobody can set or change it.
pub const CREATED_BY_ANNOTATION: &str = "quota.sluice.dev/created-by";

/// Namespace that `deploy/install.yaml` installs into.
pub const INSTALL_NAMESPACE: &str = "sluice-system";
/// Name of the controller's Deployment, ServiceAccount and roles.
pub const CONTROLLER: &str = "sluice-controller";
/// Name of the webhook's Deployment, ServiceAccount, Service and roles.
pub const WEBHOOK: &str = "sluice-webhook";
/// Name of the Lease in the install namespace that elects the writing controller.
pub const LEASE: &str = "sluice-controller";
/// `source.component` and `reportingController` of the controller's events.
pub const EVENT_COMPONENT: &str = "sluice-controller";
/// Field manager of server-side applies.
pub const FIELD_MANAGER: &str = "sluice";

/// Secret with the own certificate authority: keys [`TLS_CERT`], [`TLS_KEY`] and [`CA_BUNDLE`].
pub const CA_SECRET: &str = "sluice-ca";
/// Secret with the webhook's serving certificate: keys [`TLS_CERT`], [`TLS_KEY`] and [`CA_BUNDLE`].
pub const SERVING_SECRET: &str = "sluice-webhook-cert";
/// Secret key of a PEM certificate.
pub const TLS_CERT: &str = "tls.crt";
/// Secret key of a PEM private key.
pub const TLS_KEY: &str = "tls.key";
/// Secret key of the PEM bundle of all authorities that are still trusted.
pub const CA_BUNDLE: &str = "ca.crt";

/// Port the webhook listens on in its container.
pub const WEBHOOK_PORT: u16 = 8443;
/// Port of the webhook's Service.
pub const WEBHOOK_SERVICE_PORT: u16 = 443;
/// Port of probes and metrics in both containers.
pub const ADMIN_PORT: u16 = 8081;
/// Path that serves the webhooks known from upstream (`aaq.md` §2.1).
pub const PATH_SERVE: &str = "/serve-path";
/// Path of [`WEBHOOK_POD_IDENTITY`], which sees the same kinds and operations as others do and so needs its own.
pub const PATH_POD_IDENTITY: &str = "/pod-identity";
/// Path of the liveness probe on [`ADMIN_PORT`].
pub const PATH_HEALTHZ: &str = "/healthz";
/// Path of the readiness probe on [`ADMIN_PORT`].
pub const PATH_READYZ: &str = "/readyz";
/// Path of the metrics on [`ADMIN_PORT`].
pub const PATH_METRICS: &str = "/metrics";

/// The MutatingWebhookConfiguration.
pub const MUTATING_CONFIG: &str = "gating-mutator";
/// The ValidatingWebhookConfiguration.
pub const VALIDATING_CONFIG: &str = "aaq-validator";
/// Webhook of [`MUTATING_CONFIG`] that appends [`GATE`].
pub const WEBHOOK_GATER: &str = "gater.cqo.kubevirt.io";
/// Webhook of [`VALIDATING_CONFIG`] that checks quota objects.
pub const WEBHOOK_QUOTA: &str = "application.resource.quota.validator";
/// Webhook of [`VALIDATING_CONFIG`] that guards the removal of [`GATE`].
pub const WEBHOOK_GATE_GUARD: &str = "remove.pod.gate.validator";
/// Webhook of [`VALIDATING_CONFIG`] that allows one `AAQ` only.
pub const WEBHOOK_AAQ: &str = "aaq.cr.validator";
/// Webhook of [`VALIDATING_CONFIG`] that guards [`CREATED_BY_ANNOTATION`].
pub const WEBHOOK_POD_IDENTITY: &str = "pod.identity.validator";

/// Finalizer that Sluice's operator puts on the `AAQ` it serves.
pub const FINALIZER: &str = "quota.sluice.dev/installation";

/// Label key on objects that belong to an installation (upstream's key).
pub const MANAGED_LABEL: &str = "aaq.kubevirt.io";
/// `app.kubernetes.io/name` and `app.kubernetes.io/part-of` of an installation's objects.
pub const APP: &str = "sluice";

/// Username the API server gives to the controller of an installation in `namespace`.
pub fn controller_username(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{CONTROLLER}")
}

/// Username the API server gives to the webhook of an installation in `namespace`.
pub fn webhook_username(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{WEBHOOK}")
}
