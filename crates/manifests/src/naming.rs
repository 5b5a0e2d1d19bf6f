//! Names by which other programs find the parts of an installation: the one place where they differ.
//!
//! Those of application-aware-quota are for its own test suite, in the namespace `aaq`. Accounts keep Sluice's names there
//! too: under upstream's usernames a controller of upstream that still runs could take gates.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::{labels, metadata, set, set_in};
use crate::options::{InstallOptions, Naming};
use crate::rbac::{READ, account, binding, named, role, rule, subject};

/// The names that differ.
#[derive(Debug, PartialEq, Eq)]
pub struct PartNames {
    pub controller: &'static str,
    /// Deployment and Service of the webhook.
    pub webhook: &'static str,
    pub operator: &'static str,
    /// Secret of the own authority.
    pub authority: &'static str,
    /// Secret of the serving certificate.
    pub serving: &'static str,
    /// ConfigMap, and its key, with the authorities that are trusted; `None`: nobody looks for one.
    pub bundle: Option<(&'static str, &'static str)>,
    /// PriorityClass of controller and webhook where it exists and nobody names one; `None`: that of the options.
    pub priority_class: Option<&'static str>,
}

const SLUICE: PartNames = PartNames {
    controller: names::CONTROLLER,
    webhook: names::WEBHOOK,
    operator: names::OPERATOR,
    authority: names::CA_SECRET,
    serving: names::SERVING_SECRET,
    bundle: None,
    priority_class: None,
};

/// `pkg/aaq-operator/resources/namespaced` and `pkg/aaq-operator/resources/cert`, the class of `pkg/util`,
/// commit `c7d385c6`.
const AAQ: PartNames = PartNames {
    controller: "aaq-controller",
    webhook: "aaq-server",
    operator: "aaq-operator",
    authority: "aaq-server",
    serving: "aaq-server-cert",
    bundle: Some(("aaq-server-signer-bundle", "ca-bundle.crt")),
    priority_class: Some("kubevirt-cluster-critical"),
};

/// The component of pods that others look for.
pub(crate) const AAQ_COMPONENT: &str = "multi-tenant";

impl Naming {
    /// Those that there are.
    pub(crate) const ALL: [Self; 2] = [Self::Sluice, Self::Aaq];

    /// By what name each part is found.
    #[must_use]
    pub const fn parts(self) -> &'static PartNames {
        match self {
            Self::Sluice => &SLUICE,
            Self::Aaq => &AAQ,
        }
    }

    /// The Deployment of a component.
    pub(crate) fn deployment(self, component: &'static str) -> &'static str {
        let parts = self.parts();
        match component {
            names::CONTROLLER => parts.controller,
            names::WEBHOOK => parts.webhook,
            names::OPERATOR => parts.operator,
            other => other,
        }
    }

    /// Labels by which the pods of a component are selected.
    pub(crate) fn selector(self, component: &'static str) -> Value {
        if self.is_own(component) {
            return labels(Some(component));
        }
        let mut selector = labels(None);
        set(&mut selector, names::MANAGED_LABEL, json!(self.deployment(component)));
        selector
    }

    /// Labels of these pods and of their Deployment.
    pub(crate) fn labels(self, component: &'static str) -> Value {
        let mut labels = self.selector(component);
        if !self.is_own(component) {
            for (key, value) in [
                ("app.kubernetes.io/component", AAQ_COMPONENT),
                ("app.kubernetes.io/managed-by", "aaq-operator"),
                ("prometheus.aaq.kubevirt.io", "true"),
            ] {
                set(&mut labels, key, json!(value));
            }
        }
        labels
    }

    /// Whether its labels are Sluice's. Of the operator nobody looks for more than the Deployment.
    fn is_own(self, component: &str) -> bool {
        self == Self::Sluice || component == names::OPERATOR
    }
}

/// Rights on objects of names that are not Sluice's, and an account that others look for, which has no right and no pod.
/// Nothing where all names are Sluice's.
#[must_use]
pub fn naming_rights(options: &InstallOptions) -> Vec<Value> {
    const NAME: &str = "sluice-names";
    let parts = options.naming.parts();
    if *parts == SLUICE {
        return Vec::new();
    }
    let keep = ["get", "list", "watch", "update", "patch", "delete"];
    let mut rules = vec![
        rule("", &["configmaps"], &["create"]),
        named("", "services", parts.webhook, &keep),
        named("", "secrets", parts.authority, &keep),
    ];
    for deployment in [parts.controller, parts.webhook] {
        rules.push(named("apps", "deployments", deployment, &keep));
    }
    rules.push(named("", "secrets", parts.serving, &keep));
    rules.extend(parts.bundle.map(|(bundle, _)| named("", "configmaps", bundle, &keep)));
    rules.push(named("", "serviceaccounts", parts.controller, &["get", "list", "watch", "patch"]));
    const READERS: &str = "sluice-names-readers";
    let reading = json!([named("", "secrets", parts.serving, &READ)]);
    let granted = [
        (NAME, json!(rules), vec![names::OPERATOR]),
        (READERS, reading, vec![names::CONTROLLER, names::WEBHOOK]),
    ];
    let objects = granted.map(|(name, rules, accounts)| {
        let mut bound = binding(options, "Role", metadata(options, name), name);
        let subjects: Vec<_> = accounts.into_iter().map(|account| subject(options, account)).collect();
        set(&mut bound, "subjects", json!(subjects));
        [role("Role", metadata(options, name), rules), bound]
    });
    [objects.concat(), account_looked_for(options).into_iter().collect()].concat()
}

/// The account that others look for; `None` where all names are Sluice's.
#[must_use]
pub fn account_looked_for(options: &InstallOptions) -> Option<Value> {
    let parts = options.naming.parts();
    (*parts != SLUICE).then(|| {
        let mut account = account(options, parts.controller);
        let mut labels = labels(None);
        set(&mut labels, names::MANAGED_LABEL, json!(""));
        set_in(&mut account, "metadata", "labels", labels);
        account
    })
}
