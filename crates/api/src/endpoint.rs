//! The admission endpoints and how API servers are told to call them.
//!
//! One table: the operator renders both webhook configurations from it, the webhook and the controller bind a decision to
//! each endpoint that they serve. What depends on the settings of an installation is
//! named here and rendered by the operator.

use crate::names;

/// Declares an enum and the list of its variants, so that the list is complete.
macro_rules! listed {
    ($(#[$of_enum:meta])* $name:ident { $($(#[$of_variant:meta])* $variant:ident,)* }) => {
        $(#[$of_enum])*
        pub enum $name { $($(#[$of_variant])* $variant,)* }

        impl $name {
            /// All, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

listed! {
    /// A decision on admission reviews, in the order in which the configurations call them: upstream's, then Sluice's own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Endpoint {
        /// Validates ApplicationAwareResourceQuotas.
        QuotaValidate,
        /// Validates the `AAQ`.
        AaqValidate,
        /// Validates ApplicationAwareClusterResourceQuotas.
        AcrqValidate,
        /// Validates Evaluators.
        EvaluatorValidate,
        /// Gates and stamps new pods.
        PodGate,
        /// Charges what updates of pods and of VMs take more.
        Growth,
        /// Answers QuotaReviews.
        Explain,
        /// Warns of VMs whose pods are larger than their guest.
        VmSize,
        /// Refuses pods that pass for targets of live migrations.
        Target,
        /// Makes room for the target pods of live migrations, and refuses machines a size for which there would be none.
        Headroom,
    }
}

impl Endpoint {
    /// Value of the label `endpoint` of metrics and logs.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// HTTP path, behind the secret segment of the installation. Endpoints of one path divide its reviews among them.
    pub const fn path(self) -> &'static str {
        self.row().1
    }

    /// Entries of the webhook configurations that call it.
    pub const fn webhooks(self) -> &'static [WebhookEntry] {
        self.row().2
    }

    const fn row(self) -> (&'static str, &'static str, &'static [WebhookEntry]) {
        match self {
            Self::QuotaValidate => ("quota_validate", SERVE, &[WebhookEntry::QUOTA]),
            Self::AaqValidate => ("aaq_validate", SERVE, &[WebhookEntry::AAQ]),
            Self::AcrqValidate => ("acrq_validate", SERVE, &[WebhookEntry::CLUSTER_QUOTA]),
            Self::EvaluatorValidate => ("evaluator_validate", SERVE, &[WebhookEntry::EVALUATOR]),
            Self::PodGate => ("pod_gate", SERVE, &[WebhookEntry::GATER, WebhookEntry::BOUND]),
            Self::Growth => ("growth", "/growth", &[WebhookEntry::GROWTH, WebhookEntry::VMI_GROWTH]),
            Self::Explain => ("explain", "/explain", &[WebhookEntry::EXPLAIN]),
            Self::VmSize => ("vm_size", "/vm-size", &[WebhookEntry::VM_SIZE]),
            Self::Target => ("target", "/target", &[WebhookEntry::TARGET]),
            Self::Headroom => ("headroom", "/headroom", &[WebhookEntry::HEADROOM, WebhookEntry::OUTGROWN]),
        }
    }
}

/// An entry of a webhook configuration; strings are values of its fields.
#[derive(Clone, Copy, Debug)]
pub struct WebhookEntry {
    /// Name of the entry.
    pub name: &'static str,
    /// `reinvocationPolicy` of an entry of the mutating configuration; `None` for the validating one.
    pub reinvocation_policy: Option<&'static str>,
    /// Which requests it is called for.
    pub rules: &'static [Rule],
    /// Which of them; all have to hold.
    pub conditions: &'static [Condition],
    /// Whether it is called only for the namespaces that the `AAQ` selects.
    pub selected_namespaces: bool,
    /// Label key that objects must have.
    pub object_label: Option<&'static str>,
    /// `Fail` or `Ignore`.
    pub failure_policy: &'static str,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: &'static str,
    /// Seconds that the API server waits for an answer.
    pub timeout_seconds: u32,
}

/// Names of entries that former versions had. The operator takes them out of the configurations of an installation.
pub const FORMER_ENTRIES: &[&str] = &["remove.pod.gate.validator"];

/// Requests that an entry is called for, in all API versions.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// API group, or `*`.
    pub group: &'static str,
    /// `CREATE`, `UPDATE`, …
    pub operations: &'static [&'static str],
    /// Resources, with their subresources.
    pub resources: &'static [&'static str],
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
}

/// A match condition; its expression is rendered for an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The namespace is neither exempt nor that of the installation.
    NotExempt,
    /// The pod does not name its node, or an account of the platform creates it.
    NotBoundByOthers,
    /// The pod names its node, no account of the platform creates it, and it is not the mirror of a static pod.
    BoundByOthers,
    /// The pod lacks a true stamp, or the gate that it could have.
    NotGatedAndStamped,
    /// The stored pod has no gate.
    NotGated,
    /// The new pod has no gate.
    Ungated,
    /// The account has the name of KubeVirt's controller.
    ByKubevirt,
    /// The update changes the specification.
    AsksForSomethingNew,
    /// The update of a pod may take more of a quota, or of another one.
    MayTakeMore,
    /// The update gives a VM other CPUs, memory or resources, or asks for an even number of CPUs.
    Resized,
    /// The same, or it gives a VM other interfaces.
    ResizedOrPlugged,
    /// No controller has made the object.
    MadeByHand,
    /// The VM, or the template of one, says what its pod takes of CPUs or memory.
    StatesResources,
    /// The VM, or the template of one, is new, or gets other CPUs, memory or resources.
    NewOrResized,
}

/// Path of the webhooks known from upstream.
const SERVE: &str = "/serve-path";

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const NEW_PODS: Rule =
    Rule { group: "*", operations: &["CREATE"], resources: &["pods"], scope: "Namespaced" };
/// What API servers are asked for to learn who gates pods.
const PROBES: Rule =
    Rule { group: names::OWN_GROUP, resources: &[names::GATE_PROBES], scope: "Cluster", ..NEW_PODS };

/// New objects of KubeVirt. Where that is not installed, no request matches.
const KUBEVIRT: Rule = Rule { group: "kubevirt.io", ..NEW_PODS };

/// A validating entry that fails closed.
const VALIDATING: WebhookEntry = WebhookEntry {
    name: "",
    reinvocation_policy: None,
    rules: &[],
    conditions: &[],
    selected_namespaces: false,
    object_label: None,
    failure_policy: "Fail",
    side_effects: "None",
    timeout_seconds: 5,
};

impl WebhookEntry {
    /// Gates new pods that no admission policy has gated and stamped.
    pub const GATER: Self = Self {
        name: "gater.cqo.kubevirt.io",
        // A webhook that runs later may replace the list of gates; adding ours again does no harm.
        reinvocation_policy: Some("IfNeeded"),
        rules: &[NEW_PODS, PROBES],
        conditions: &[Condition::NotExempt, Condition::NotBoundByOthers, Condition::NotGatedAndStamped],
        selected_namespaces: true,
        ..VALIDATING
    };

    /// Pods of others than the platform that name their node, should the admission policy that refuses them not be in force.
    pub const BOUND: Self = Self {
        name: "bound.pod.validator",
        rules: &[NEW_PODS, PROBES],
        conditions: &[Condition::NotExempt, Condition::BoundByOthers],
        selected_namespaces: true,
        ..VALIDATING
    };

    /// Checks quota objects.
    pub const QUOTA: Self = Self {
        name: "application.resource.quota.validator",
        rules: &[Rule { operations: WRITES, resources: &[names::ARQS], ..NEW_PODS }],
        ..VALIDATING
    };

    /// Allows one `AAQ` only. An `AAQ` may be what brings the webhook back, by another placement of its pods, or by being
    /// there at all: without the webhook any may be written. The operator and the controller say of it what this would have.
    pub const AAQ: Self = Self {
        name: "aaq.cr.validator",
        rules: &[Rule { operations: WRITES, resources: &[names::AAQS], scope: "Cluster", ..NEW_PODS }],
        conditions: &[Condition::AsksForSomethingNew],
        failure_policy: "Ignore",
        ..VALIDATING
    };

    /// Checks cluster quotas.
    pub const CLUSTER_QUOTA: Self = Self {
        name: "cluster.apps.resource.quota.validator",
        rules: &[Rule { operations: WRITES, resources: &[names::ACRQS], scope: "Cluster", ..NEW_PODS }],
        conditions: &[Condition::AsksForSomethingNew],
        ..VALIDATING
    };

    /// Checks rules of evaluators against their examples. It fails open: an evaluator is switched off while the webhook does
    /// not run too, and one whose rule cannot be used says so in its status.
    pub const EVALUATOR: Self = Self {
        name: "evaluator.quota.sluice.dev",
        rules: &[Rule {
            group: names::OWN_GROUP,
            operations: WRITES,
            resources: &[names::EVALUATORS],
            scope: "Cluster",
        }],
        conditions: &[Condition::AsksForSomethingNew],
        failure_policy: "Ignore",
        ..VALIDATING
    };

    /// Charges what updates of pods take more.
    pub const GROWTH: Self = Self {
        name: "growth.quota.sluice.dev",
        rules: &[Rule { operations: &["UPDATE"], resources: &["pods", "pods/resize"], ..NEW_PODS }],
        conditions: &[Condition::NotExempt, Condition::NotGated, Condition::MayTakeMore],
        selected_namespaces: true,
        // A charge is taken, except in a dry run.
        side_effects: "NoneOnDryRun",
        ..VALIDATING
    };

    /// Charges what updates of VMs take more: the kind has no subresource for sizes, nor for the status.
    pub const VMI_GROWTH: Self = Self {
        name: "growth.vmi.quota.sluice.dev",
        rules: &[Rule { operations: &["UPDATE"], resources: &["virtualmachineinstances"], ..KUBEVIRT }],
        conditions: &[Condition::NotExempt, Condition::Resized],
        ..Self::GROWTH
    };

    /// Answers QuotaReviews. Who asks can go without an answer, and a policy lets none be stored. Where it failed closed,
    /// who may only view a namespace would be told the webhook's URL by the API server that cannot reach it.
    pub const EXPLAIN: Self = Self {
        name: "explain.quota.sluice.dev",
        reinvocation_policy: Some("Never"),
        rules: &[Rule { group: names::OWN_GROUP, resources: &[names::QUOTA_REVIEWS], ..NEW_PODS }],
        failure_policy: "Ignore",
        timeout_seconds: 3,
        ..VALIDATING
    };

    /// Tells who makes a VM that its pod takes more than quotas are charged: VMs, and instances without one.
    /// virt-controller, which makes all others, reads no warnings. Nothing is refused, whether it can be reached or not,
    /// and nothing waits for it long.
    pub const VM_SIZE: Self = Self {
        name: "size.vm.quota.sluice.dev",
        rules: &[
            Rule { operations: WRITES, resources: &["virtualmachines"], ..KUBEVIRT },
            Rule { resources: &["virtualmachineinstances"], ..KUBEVIRT },
        ],
        conditions: &[
            Condition::NotExempt,
            Condition::StatesResources,
            Condition::NewOrResized,
            Condition::MadeByHand,
        ],
        selected_namespaces: true,
        failure_policy: "Ignore",
        timeout_seconds: 2,
        ..VALIDATING
    };

    /// Targets of migrations that come without a gate, where pods are gated. Policies let in what looks like one; whether it
    /// is one is asked beside head-room, at the same time, and like that it is nothing that a migration waits for long.
    pub const TARGET: Self = Self {
        name: "target.quota.sluice.dev",
        conditions: &[Condition::NotExempt, Condition::ByKubevirt, Condition::Ungated],
        selected_namespaces: true,
        side_effects: "None",
        ..Self::HEADROOM
    };

    /// Room for a migration is a service: without it pods are created as if Sluice were not there, so nothing is refused
    /// when it cannot be reached. Quotas are raised, and seen to be raised, before the answer. KubeVirt creates one target
    /// of the cluster at a time, so all others wait for a webhook that does not answer: it is given up after three seconds.
    pub const HEADROOM: Self = Self {
        name: "headroom.quota.sluice.dev",
        rules: &[NEW_PODS],
        conditions: &[Condition::ByKubevirt],
        object_label: Some(names::MIGRATION_JOB_LABEL),
        failure_policy: "Ignore",
        side_effects: "NoneOnDryRun",
        timeout_seconds: 3,
        ..VALIDATING
    };

    /// A VM that gets another size has it from its next migration on. Where the target would not fit, and may not be let in
    /// beside its quotas, the update is refused in time. Nothing is charged.
    pub const OUTGROWN: Self = Self {
        name: "growth.headroom.quota.sluice.dev",
        rules: &[Rule { operations: &["UPDATE"], resources: &["virtualmachineinstances"], ..KUBEVIRT }],
        conditions: &[Condition::ResizedOrPlugged],
        failure_policy: "Ignore",
        timeout_seconds: 2,
        ..VALIDATING
    };
}
