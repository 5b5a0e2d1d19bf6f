//! What a verdict may depend on besides the review itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_engine::quota_spec::HardEntry;
use sluice_engine::vm::Calculator;
use sluice_engine::{CompiledQuota, CountedBy, KeyKind, NamespacePattern, QuotaKind, warnings};
use sluice_index::Targeting;

use crate::evaluator_sightings::SeenEvaluators;

/// Whether the cluster has an `AAQ` object, as far as the webhook knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AaqPresence {
    /// The list of `AAQ` objects has not been seen yet.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// There is at least one, possibly one that is being deleted.
    Present {
        /// Whether one allows quotas that span namespaces.
        cluster_quotas: bool,
        /// How virtual machines are counted.
        calculator: Calculator,
        /// The one that holds is the operator's, which goes once there is another.
        gives_way: bool,
    },
}

/// The configuration of the endpoints; a value, replaced as a whole when it changes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace Sluice runs in; its pods are never gated.
    pub install_namespace: String,
    /// Namespaces whose pods are never gated; that of the installation is one of them.
    pub exempt: Arc<[NamespacePattern]>,
    /// Which namespaces are targeted; `None` as long as that is not known.
    pub targeting: Option<Targeting>,
    /// Usernames of the platform, whose pods may name their node.
    pub platform_accounts: BTreeSet<String>,
    /// Whether an `AAQ` exists, and what it allows.
    pub aaq: AaqPresence,
    /// Whether the cluster has OpenShift's ClusterResourceQuota; `None` as long as that is not known.
    pub cluster_resource_quotas: Option<bool>,
    /// Names of the sidecars, which say what pods take, of the `AAQ` that holds.
    pub sidecars: BTreeSet<String>,
    pub evaluators: Arc<SeenEvaluators>,
    /// Username of KubeVirt's controller; `None` as long as it is not known where KubeVirt is installed.
    pub kubevirt_controller: Option<String>,
}

impl Settings {
    /// How virtual machines are counted; `None` where KubeVirt is not known to run, or the `AAQ` is not known yet.
    #[must_use]
    pub fn machines(&self) -> Option<Calculator> {
        self.kubevirt_controller.as_ref()?;
        match self.aaq {
            AaqPresence::Unknown => None,
            AaqPresence::Absent => Some(Calculator::default()),
            AaqPresence::Present { calculator, .. } => Some(calculator),
        }
    }

    /// The warnings about a quota. Of keys that an evaluator may charge is not said that no pod takes them.
    #[must_use]
    pub fn warnings(&self, kind: QuotaKind, quota: &CompiledQuota) -> Vec<String> {
        let by = CountedBy {
            machines: self.machines(),
            evaluators: !self.sidecars.is_empty() || self.evaluators.charge_any(),
        };
        let mut quota = quota.clone();
        let is_charged =
            |entry: &HardEntry| entry.kind == KeyKind::Custom && self.evaluators.charge(&entry.resource);
        quota.entries.retain(|entry| !is_charged(entry));
        warnings(kind, &quota, by)
    }

    /// How virtual machines are counted, if by what their guests have, whatever their pods take.
    #[must_use]
    pub fn guests(&self) -> Option<Calculator> {
        self.machines().filter(|calculator| calculator.counts_machines() && !calculator.is_of_pods())
    }

    /// Whether the targets of local migrations that this user creates need no gate: the user is KubeVirt's controller, and
    /// VMs are charged for their guests, so that a target takes nothing, whatever its size.
    #[must_use]
    pub fn lets_in_targets_of(&self, username: &str) -> bool {
        self.kubevirt_controller.as_deref() == Some(username) && self.guests().is_some()
    }

    /// Settings of an installation in `install_namespace`.
    pub fn new(install_namespace: &str) -> Self {
        Self {
            install_namespace: install_namespace.to_owned(),
            exempt: [NamespacePattern::named(install_namespace)].into(),
            targeting: None,
            platform_accounts: BTreeSet::new(),
            aaq: AaqPresence::Unknown,
            cluster_resource_quotas: None,
            sidecars: BTreeSet::new(),
            evaluators: Arc::default(),
            kubevirt_controller: None,
        }
    }
}
