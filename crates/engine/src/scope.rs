//! Which pods a quota governs (`docs/quota-semantics.md`, *Scopes*).

use std::sync::Arc;

use crate::pod::{PodInput, is_best_effort};

/// A scope of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `spec.activeDeadlineSeconds` is set and not negative.
    Terminating,
    NotTerminating,
    /// The quality of service is best effort.
    BestEffort,
    NotBestEffort,
    /// By `spec.priorityClassName`.
    PriorityClass,
    /// An affinity term looks into other namespaces.
    CrossNamespacePodAffinity,
    /// For volume claims; no pod matches.
    VolumeAttributesClass,
}

impl Scope {
    /// The scope of this name in the API.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "Terminating" => Self::Terminating,
            "NotTerminating" => Self::NotTerminating,
            "BestEffort" => Self::BestEffort,
            "NotBestEffort" => Self::NotBestEffort,
            "PriorityClass" => Self::PriorityClass,
            "CrossNamespacePodAffinity" => Self::CrossNamespacePodAffinity,
            "VolumeAttributesClass" => Self::VolumeAttributesClass,
            _ => return None,
        })
    }

    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminating => "Terminating",
            Self::NotTerminating => "NotTerminating",
            Self::BestEffort => "BestEffort",
            Self::NotBestEffort => "NotBestEffort",
            Self::PriorityClass => "PriorityClass",
            Self::CrossNamespacePodAffinity => "CrossNamespacePodAffinity",
            Self::VolumeAttributesClass => "VolumeAttributesClass",
        }
    }
}

/// How the values of a requirement are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The value is there and listed.
    In,
    /// The value is absent or not listed.
    NotIn,
    /// The value is there.
    Exists,
    /// The value is absent.
    DoesNotExist,
}

impl Operator {
    /// The operator of this name in the API.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }
}

/// What the scopes of a pod depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ScopeFacts {
    /// Has a deadline.
    pub terminating: bool,
    /// Asks for no cpu and no memory.
    pub best_effort: bool,
    /// An affinity term looks into other namespaces.
    pub cross_namespace_affinity: bool,
    /// Name of the priority class, if there is one.
    pub priority_class: Option<Arc<str>>,
}

impl ScopeFacts {
    #[must_use]
    pub fn of(pod: &PodInput<'_>) -> Self {
        Self {
            terminating: pod.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
            best_effort: is_best_effort(pod),
            cross_namespace_affinity: pod.cross_namespace_affinity,
            priority_class: pod.priority_class_name.filter(|name| !name.is_empty()).map(Arc::from),
        }
    }
}

/// One condition of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopeRequirement {
    scope: Scope,
    operator: Operator,
    /// Sorted, each once.
    values: Box<[Arc<str>]>,
}

impl ScopeRequirement {
    /// A condition; the order of `values` does not matter.
    #[must_use]
    pub fn new<'v>(scope: Scope, operator: Operator, values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut values: Vec<Arc<str>> = values.into_iter().map(Arc::from).collect();
        values.sort_unstable();
        values.dedup();
        Self { scope, operator, values: values.into_boxed_slice() }
    }

    /// The condition that an entry of `spec.scopes` stands for.
    #[must_use]
    pub fn exists(scope: Scope) -> Self {
        Self { scope, operator: Operator::Exists, values: Box::default() }
    }

    /// Whether the facts fulfil the condition. Operator and values only matter for `PriorityClass`.
    /// A value that could not be a label is compared as it is, where Kubernetes would refuse every pod.
    #[must_use]
    pub fn matches(&self, facts: &ScopeFacts) -> bool {
        match self.scope {
            Scope::Terminating => facts.terminating,
            Scope::NotTerminating => !facts.terminating,
            Scope::BestEffort => facts.best_effort,
            Scope::NotBestEffort => !facts.best_effort,
            Scope::CrossNamespacePodAffinity => facts.cross_namespace_affinity,
            Scope::VolumeAttributesClass => false,
            Scope::PriorityClass => self.matches_value(facts.priority_class.as_deref()),
        }
    }

    fn matches_value(&self, value: Option<&str>) -> bool {
        let listed = || {
            value.is_some_and(|value| {
                self.values.binary_search_by(|candidate| candidate.as_ref().cmp(value)).is_ok()
            })
        };
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// The compiled scopes of a quota: `scopes` and `scopeSelector` together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Scopes(Box<[ScopeRequirement]>);

impl Scopes {
    /// A selector of which all conditions must hold.
    #[must_use]
    pub fn new(requirements: impl IntoIterator<Item = ScopeRequirement>) -> Self {
        Self(requirements.into_iter().collect())
    }

    /// Whether the quota governs a pod with these facts. Without conditions it governs every pod.
    #[must_use]
    pub fn matches(&self, facts: &ScopeFacts) -> bool {
        self.0.iter().all(|requirement| requirement.matches(facts))
    }

    /// Whether there are no conditions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every condition is about `scope`; true without conditions.
    #[must_use]
    pub fn are_only(&self, scope: Scope) -> bool {
        self.0.iter().all(|requirement| requirement.scope == scope)
    }
}
