//! Head-room for migrations, and how Sluice itself is.

use super::{Kind, Panel};

pub(super) const PANELS: &[Panel] = &[
    Panel {
        title: "Leaders",
        kind: Kind::Stat,
        unit: "none",
        width: 6,
        queries: &[("sum by (component) (sluice_leader)", "{{component}}")],
    },
    Panel {
        title: "Versions",
        kind: Kind::Table,
        unit: "none",
        width: 10,
        queries: &[("count by (component, version) (sluice_build_info)", "")],
    },
    Panel {
        title: "Certificates end in",
        kind: Kind::Stat,
        unit: "s",
        width: 8,
        queries: &[("min by (which) (sluice_certificate_expiry_timestamp_seconds - time())", "{{which}}")],
    },
    Panel {
        title: "API servers, by what gates pods there",
        kind: Kind::Lines,
        unit: "none",
        width: 12,
        queries: &[
            ("max by (by) (sluice_gate_api_servers)", "gated by {{by}}"),
            ("max by (by) (sluice_gate_last_word_api_servers)", "last word {{by}}"),
        ],
    },
    Panel {
        title: "API servers, for head-room",
        kind: Kind::Lines,
        unit: "none",
        width: 12,
        queries: &[
            ("max(sluice_headroom_api_servers)", "addressed"),
            ("min(sluice_headroom_api_servers_proven)", "proven"),
            ("max(sluice_headroom_api_servers_hidden)", "hidden"),
        ],
    },
    Panel {
        title: "Migrations that wait, by reason",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[("max by (reason) (sluice_blocked_migrations)", "{{reason}}")],
    },
    Panel {
        title: "Targets, by how it ended",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[("sum by (ending) (rate(sluice_headroom_targets_total[$__rate_interval]))", "{{ending}}")],
    },
    Panel {
        title: "Quotas raised",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[
            ("sum(rate(sluice_headroom_raises_total[$__rate_interval]))", "raised"),
            ("sum(rate(sluice_headroom_left_raised_total[$__rate_interval]))", "left raised"),
            ("sum(rate(sluice_headroom_rejected_total[$__rate_interval]))", "migrations rejected"),
        ],
    },
    Panel {
        title: "How long quotas are raised",
        kind: Kind::Lines,
        unit: "s",
        width: 8,
        queries: &[(
            "histogram_quantile(0.99, sum by (le) (rate(sluice_headroom_raised_duration_seconds_bucket[$__rate_interval])))",
            "99 of 100",
        )],
    },
    Panel {
        title: "Namespaces above their ResourceQuotas",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[("max(sluice_headroom_namespaces_above_quotas)", "namespaces")],
    },
    Panel {
        title: "Namespaces whose quotas cannot be written",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[("max(sluice_headroom_forbidden_namespaces)", "namespaces")],
    },
    Panel {
        title: "Admission objects that others change",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[(
            "sum by (object, manager) (increase(sluice_admission_contests_total[$__rate_interval]))",
            "{{manager}}: {{object}}",
        )],
    },
    Panel {
        title: "What should stay 0",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[
            ("sum(increase(sluice_status_overwritten_total[$__rate_interval]))", "statuses overwritten"),
            ("sum(increase(sluice_releases_by_others_total[$__rate_interval]))", "gates taken by others"),
            ("sum(increase(sluice_ledger_audit_differences_total[$__rate_interval]))", "wrong sums"),
        ],
    },
    Panel {
        title: "In memory",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[("max(sluice_index_pods)", "pods"), ("max(sluice_index_quotas)", "quotas")],
    },
    Panel {
        title: "Admission reviews per second",
        kind: Kind::Lines,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (endpoint, code) (rate(sluice_webhook_requests_total[$__rate_interval]))",
            "{{endpoint}} {{code}}",
        )],
    },
    Panel {
        title: "Time of an admission review, 99 of 100",
        kind: Kind::Lines,
        unit: "s",
        width: 12,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, endpoint) \
             (rate(sluice_webhook_request_duration_seconds_bucket[$__rate_interval])))",
            "{{endpoint}}",
        )],
    },
    Panel {
        title: "Writes to the API server per second",
        kind: Kind::Lines,
        unit: "none",
        width: 8,
        queries: &[(
            "sum by (resource, verb, code) (rate(sluice_api_writes_total[$__rate_interval]))",
            "{{verb}} {{resource}} {{code}}",
        )],
    },
    Panel {
        title: "Time of a write, 99 of 100",
        kind: Kind::Lines,
        unit: "s",
        width: 8,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, resource) \
             (rate(sluice_api_write_duration_seconds_bucket[$__rate_interval])))",
            "{{resource}}",
        )],
    },
    Panel {
        title: "Time that the gate's state is locked, 99 of 100",
        kind: Kind::Lines,
        unit: "s",
        width: 8,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, by) (rate(sluice_gate_lock_hold_seconds_bucket[$__rate_interval])))",
            "{{by}}",
        )],
    },
];
