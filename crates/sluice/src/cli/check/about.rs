//! What is checked, in the order in which it is printed: by what name, what to do when it fails, where more is written.

use sluice_api::names;

/// How a check ended, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Good,
    /// Works, with something to know.
    Warning,
    /// Could not be looked at.
    Unknown,
    Failed,
}

impl State {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// What is said of a check, however it ends.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    pub name: &'static str,
    /// What to do when it fails.
    pub hint: &'static str,
    /// Where more is written, in the repository.
    pub page: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub about: &'static About,
    pub state: State,
    /// What is there.
    pub found: String,
}

impl About {
    pub fn good(&'static self, found: impl Into<String>) -> Check {
        Check { about: self, state: State::Good, found: found.into() }
    }

    pub fn warning(&'static self, found: impl Into<String>) -> Check {
        Check { about: self, state: State::Warning, found: found.into() }
    }

    pub fn failed(&'static self, found: impl Into<String>) -> Check {
        Check { about: self, state: State::Failed, found: found.into() }
    }

    pub fn unknown(&'static self, found: impl Into<String>) -> Check {
        Check { about: self, state: State::Unknown, found: found.into() }
    }

    /// Good without faults.
    pub fn without(&'static self, faults: &[String], good: impl Into<String>) -> Check {
        if faults.is_empty() { self.good(good) } else { self.failed(faults.join("; ")) }
    }
}

pub const KUBERNETES: About = About {
    name: "kubernetes",
    hint: "upgrade the cluster: Kubernetes 1.31 is the oldest that is supported",
    page: "README.md#status",
};
pub const CLOCKS: About = About {
    name: "clocks",
    hint: "set the clocks of the nodes by NTP: certificates and pauses begin and end at the wrong time",
    page: "docs/protocols.md#the-clock",
};
pub const OTHERS: About = About {
    name: "no other operator",
    hint: "remove application-aware-quota and managed-tenant-quota: two controllers cannot release the same pods or raise \
           the same quotas",
    page: "docs/predecessors.md",
};
pub const DEFINITIONS: About = About {
    name: "custom resources",
    hint: "apply deploy/crds.yaml of this version (sluice crds prints it)",
    page: "docs/install.md#upgrading",
};
pub const OPTIONS: About = About {
    name: "options",
    hint: "correct the ConfigMap sluice-operator: the operator does not start with it",
    page: "docs/install.md#options",
};
pub const OPERATOR: About = About {
    name: names::OPERATOR,
    hint: "apply the installation again where it is not there; else look at its pods and their logs: kubectl describe pods \
           --selector app.kubernetes.io/component=sluice-operator",
    page: "docs/runbooks/SluiceOperatorDown.md",
};
pub const CONTROLLER: About = About {
    name: names::CONTROLLER,
    hint: "the operator makes it where it is not there; else look at its pods and their logs: kubectl describe pods \
           --selector app.kubernetes.io/component=sluice-controller",
    page: "docs/runbooks/SluiceDown.md",
};
pub const WEBHOOK: About = About {
    name: names::WEBHOOK,
    hint: "the operator makes it where it is not there; else look at its pods and their logs: kubectl describe pods \
           --selector app.kubernetes.io/component=sluice-webhook",
    page: "docs/runbooks/SluiceWebhookDown.md",
};
pub const LEADER: About = About {
    name: "leader",
    hint: "no controller leads: pods wait until one does; look at the controller's logs",
    page: "docs/runbooks/SluiceDown.md",
};
pub const OPERATING: About = About {
    name: "leading operator",
    hint: "no operator keeps certificates and policies: look at its logs before the serving certificate ends",
    page: "docs/runbooks/SluiceOperatorDown.md",
};
pub const SERVICE: About = About {
    name: "webhook service",
    hint: "the Service selects no ready pod: compare its selector with the labels of the webhook's pods",
    page: "docs/runbooks/SluiceWebhookDown.md#diagnosis",
};
pub const ANSWERS: About = About {
    name: "webhook answers",
    hint: "API servers do not get through to the webhook: read what they say about network, certificate or name",
    page: "docs/runbooks/SluiceWebhookDown.md#diagnosis",
};
pub const WEBHOOKS: About = About {
    name: "webhooks",
    hint: "the operator writes the webhook configurations: look at its logs, and at who else writes them",
    page: "docs/admission.md#how-the-operator-keeps-policies-and-webhooks",
};
pub const POLICIES: About = About {
    name: "admission policies",
    hint: "the operator writes the admission policies: look at its logs, and at who else writes them",
    page: "docs/admission.md#how-the-operator-keeps-policies-and-webhooks",
};
pub const GATING: About = About {
    name: "gating",
    hint: "pods come in without a gate, or not at all: see which API server, and the condition Gating of the AAQ",
    page: "docs/runbooks/SluicePodsNotGated.md",
};
pub const RIGHTS: About = About {
    name: "rights",
    hint: "apply the manifest of the installed version again: an account lacks what it needs",
    page: "docs/install.md#upgrading",
};
pub const FLOW: About = About {
    name: "priority of requests",
    hint: "the operator makes FlowSchema and PriorityLevelConfiguration sluice: look at its logs",
    page: "docs/install.md#changing-what-the-operator-makes",
};
pub const CONFIGURATION: About = About {
    name: "configuration",
    hint: "see the conditions of the AAQ: kubectl describe aaq",
    page: "docs/operate.md#how-is-sluice",
};
pub const HEADROOM: About = About {
    name: "head-room",
    hint: "live migrations get no head-room until each API server proves that it knows of a raise",
    page: "docs/runbooks/SluiceHeadroomHidden.md",
};
pub const QUOTAS: About = About {
    name: "quotas",
    hint: "these quotas do not limit all that they name: the message of the condition says why",
    page: "docs/quota-semantics.md#where-nothing-is-enforced",
};
pub const PAUSES: About = About {
    name: "pauses",
    hint: "no pod waits for quota there meanwhile; sluice resume ends it",
    page: "docs/pause.md",
};

/// All of them.
#[cfg(test)]
pub const ALL: [&About; 21] = [
    &KUBERNETES,
    &CLOCKS,
    &OTHERS,
    &DEFINITIONS,
    &OPTIONS,
    &OPERATOR,
    &CONTROLLER,
    &WEBHOOK,
    &LEADER,
    &OPERATING,
    &SERVICE,
    &ANSWERS,
    &WEBHOOKS,
    &POLICIES,
    &GATING,
    &RIGHTS,
    &FLOW,
    &CONFIGURATION,
    &HEADROOM,
    &QUOTAS,
    &PAUSES,
];
