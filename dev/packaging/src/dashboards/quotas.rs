//! What tenants have, use and wait for.

use super::{Kind, Panel};

pub(super) const PANELS: &[Panel] = &[
    Panel {
        title: "Held pods",
        kind: Kind::Stat,
        unit: "none",
        width: 4,
        queries: &[("sum(sluice_held_pods)", "")],
    },
    Panel {
        title: "Oldest wait",
        kind: Kind::Stat,
        unit: "s",
        width: 5,
        queries: &[("max(sluice_quota_oldest_wait_seconds) or vector(0)", "")],
    },
    Panel {
        title: "Pods that can never go",
        kind: Kind::Stat,
        unit: "none",
        width: 5,
        queries: &[("sum(sluice_held_pods{reason=\"ExceedsLimit\"})", "")],
    },
    Panel {
        title: "Full quotas",
        kind: Kind::Stat,
        unit: "none",
        width: 5,
        queries: &[(
            "count(max by (namespace, resourcequota) (kube_application_aware_resourcequota{type=\"used\"} / \
             ignoring(type) (kube_application_aware_resourcequota{type=\"hard\"} > 0)) >= 1) or vector(0)",
            "",
        )],
    },
    Panel {
        title: "Paused namespaces",
        kind: Kind::Stat,
        unit: "none",
        width: 5,
        queries: &[("max(sluice_paused_namespaces)", "")],
    },
    Panel {
        title: "Use of each quota",
        kind: Kind::Share,
        unit: "percentunit",
        width: 12,
        queries: &[(
            "sort_desc(kube_application_aware_resourcequota{type=\"used\", namespace=~\"$namespace\"} / \
             ignoring(type) (kube_application_aware_resourcequota{type=\"hard\"} > 0))",
            "{{namespace}}/{{resourcequota}} {{resource}}",
        )],
    },
    Panel {
        title: "Who waits",
        kind: Kind::Table,
        unit: "none",
        width: 12,
        queries: &[(
            "sort_desc(sum by (namespace, resourcequota) (sluice_quota_held_pods{namespace=~\"$namespace\"}))",
            "",
        )],
    },
    Panel {
        title: "CPU: used and limit",
        kind: Kind::Lines,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (namespace, type) (kube_application_aware_resourcequota{unit=\"core\", namespace=~\"$namespace\"})",
            "{{namespace}} {{type}}",
        )],
    },
    Panel {
        title: "Memory: used and limit",
        kind: Kind::Lines,
        unit: "bytes",
        width: 12,
        queries: &[(
            "sum by (namespace, type) (kube_application_aware_resourcequota{unit=\"bytes\", namespace=~\"$namespace\"})",
            "{{namespace}} {{type}}",
        )],
    },
    Panel {
        title: "Pods that wait, by quota",
        kind: Kind::Lines,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (namespace, resourcequota) (sluice_quota_held_pods{namespace=~\"$namespace\"})",
            "{{namespace}}/{{resourcequota}}",
        )],
    },
    Panel {
        title: "Oldest wait, by quota",
        kind: Kind::Lines,
        unit: "s",
        width: 12,
        queries: &[(
            "max by (namespace, resourcequota) (sluice_quota_oldest_wait_seconds{namespace=~\"$namespace\"})",
            "{{namespace}}/{{resourcequota}}",
        )],
    },
    Panel {
        title: "Held pods, by reason",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[("sum by (reason) (sluice_held_pods)", "{{reason}}")],
    },
    Panel {
        title: "Releases per second",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[
            ("sum(rate(sluice_releases_total[$__rate_interval]))", "released"),
            ("sum(rate(sluice_releases_taken_back_total[$__rate_interval]))", "taken back"),
        ],
    },
    Panel {
        title: "Wait of pods that were released",
        kind: Kind::Lines,
        unit: "s",
        width: 8,
        queries: &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(sluice_gate_wait_seconds_bucket[$__rate_interval])))",
                "half of them",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(sluice_gate_wait_seconds_bucket[$__rate_interval])))",
                "99 of 100",
            ),
        ],
    },
];
