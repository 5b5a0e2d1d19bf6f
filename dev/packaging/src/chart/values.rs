//! What the values of the chart stand for: marks in the rendered objects, and options that are set or not.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use sluice_operator::{Amounts, Gating, InstallOptions, Installation, NamespaceUse, Platform, Resources};

/// Marks: texts and numbers that occur nowhere else.
pub(super) mod mark {
    pub(crate) const NAMESPACE: &str = "mark-of-namespace";
    pub(crate) const IMAGE: &str = "mark-of-image";
    pub(crate) const PRIORITY_CLASS: &str = "system-mark-of-class";
    pub(crate) const EXEMPT: &str = "mark-of-exempt";
    pub(crate) const ACCOUNTS: (&str, &str) = ("mark-of", "accounts");
    pub(crate) const NODE_LABEL: &str = "mark-of-node";
    pub(crate) const TAINT: &str = "mark-of-taint";
    pub(crate) const PULL_SECRET: &str = "mark-of-secret";
    pub(crate) const CPU: &str = "mark-of-cpu-";
    pub(crate) const MEMORY: &str = "mark-of-memory-";
    pub(crate) const WEBHOOK_PORT: u16 = 65001;
    pub(crate) const API_SERVER_PORT: u16 = 65002;
    pub(crate) const PROOFS: u32 = 65003;
    pub(crate) const REPLICAS: u32 = 65004;
}

/// Several replicas.
pub(super) const SEVERAL: u32 = mark::REPLICAS;

/// An option that a value sets or leaves.
pub(super) struct Toggle {
    /// When the value sets it, in the language of templates.
    pub(super) condition: &'static str,
    /// Sets it.
    pub(super) set: fn(&mut InstallOptions),
}

/// Options with a mark for each value that is always written somewhere.
pub(super) fn base() -> InstallOptions {
    let amounts = |component: &str| Amounts {
        cpu: format!("{}{component}", mark::CPU),
        memory: format!("{}{component}", mark::MEMORY),
    };
    InstallOptions {
        namespace: mark::NAMESPACE.to_owned(),
        namespace_use: NamespaceUse::Own,
        image: mark::IMAGE.to_owned(),
        replicas: mark::REPLICAS,
        webhook_port: mark::WEBHOOK_PORT,
        api_server_ports: vec![mark::API_SERVER_PORT],
        priority_class: Some(mark::PRIORITY_CLASS.to_owned()),
        resources: Resources {
            controller: amounts("controller"),
            webhook: amounts("webhook"),
            operator: amounts("operator"),
        },
        ..InstallOptions::default()
    }
}

/// In the order of the arguments of a container: several may be inserted at one place.
pub(super) fn toggles() -> [Toggle; 11] {
    [
        Toggle {
            condition: "eq .Values.gating \"webhook\"",
            set: |options| options.gating = Gating::Webhook,
        },
        Toggle {
            condition: "not (kindIs \"invalid\" .Values.exemptNamespaces)",
            set: |options| options.exempt_namespaces = mark::EXEMPT.parse().into_iter().collect(),
        },
        Toggle {
            condition: "not (kindIs \"invalid\" .Values.platformAccounts)",
            set: |options| {
                let (namespace, name) = mark::ACCOUNTS;
                options.platform_accounts = format!("{namespace}:{name}").parse().unwrap_or_default();
            },
        },
        Toggle {
            condition: "eq .Values.installation \"cr\"",
            set: |options| options.installation = Installation::Cr,
        },
        Toggle {
            condition: "gt (int .Values.balancerProofs) 0",
            set: |options| options.balancer_proofs = mark::PROOFS,
        },
        Toggle {
            condition: "eq .Values.platform \"openshift\"",
            set: |options| options.platform = Platform::Openshift,
        },
        Toggle { condition: ".Values.webhook.hostNetwork", set: |options| options.host_network = true },
        Toggle { condition: "not .Values.priorityClassName", set: |options| options.priority_class = None },
        Toggle {
            condition: ".Values.nodeSelector",
            set: |options| {
                options.node_selector = BTreeMap::from([(mark::NODE_LABEL.to_owned(), "x".to_owned())]);
            },
        },
        Toggle {
            condition: ".Values.tolerations",
            set: |options| {
                let toleration = Toleration { key: Some(mark::TAINT.to_owned()), ..Toleration::default() };
                options.tolerations = vec![toleration];
            },
        },
        Toggle {
            condition: ".Values.imagePullSecrets",
            set: |options| options.image_pull_secrets = vec![mark::PULL_SECRET.to_owned()],
        },
    ]
}
