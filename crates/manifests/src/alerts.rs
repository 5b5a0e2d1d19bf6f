//! The rules for Prometheus: alerts, each with a page in `docs/runbooks`, and the alias of application-aware-quota's.

use serde_json::{Value, json};
use sluice_api::names;

/// Where the pages are.
const RUNBOOKS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbooks");

/// An alert, with the series that it is about.
struct Alert {
    name: &'static str,
    expression: &'static str,
    after: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

/// Few, and each is something to do. Which series they use is compared with what the processes serve
/// (`crates/sluice/src/tests.rs`), when each fires is tested by promtool (`dev/packaging/tests/monitoring`).
const ALERTS: [Alert; 13] = [
    Alert {
        name: "SluiceDown",
        expression: "absent(sluice_leader{component=\"controller\"} == 1)",
        after: "5m",
        severity: "critical",
        summary: "No controller of Sluice leads, or none can be scraped",
        description: "Pods that wait for a quota are not released, and resizes are refused. What runs goes on.",
    },
    Alert {
        name: "SluiceWebhookDown",
        expression: "absent(sluice_build_info{component=\"webhook\"})",
        after: "5m",
        severity: "critical",
        summary: "No webhook of Sluice runs, or none can be scraped",
        description: "Quotas and growing pods are refused, migrations get no head-room. Where the webhook gates, new pods \
            of gated namespaces are refused.",
    },
    Alert {
        name: "SluiceOperatorDown",
        expression: "absent(sluice_leader{component=\"operator\"} == 1)",
        after: "30m",
        severity: "warning",
        summary: "No operator of Sluice leads, or none can be scraped",
        description: "Certificates are not renewed and edited objects are not put back. Nothing else stops until \
            certificates end.",
    },
    Alert {
        name: "SluiceCertificateExpiring",
        expression: "min by (which) ((sluice_certificate_expiry_timestamp_seconds - time()) / \
            (sluice_certificate_expiry_timestamp_seconds - sluice_certificate_issue_timestamp_seconds)) < 0.2",
        after: "10m",
        severity: "critical",
        summary: "A certificate of Sluice was not renewed and is in the last fifth of its life",
        description: "The certificate {{ $labels.which }}. When it ends, the webhook is not reached any more.",
    },
    Alert {
        name: "SluicePodsNotGated",
        expression: "max(sluice_gate_api_servers{by=~\"nothing|refused\"}) > 0",
        after: "5m",
        severity: "critical",
        summary: "Pods come into gated namespaces without a gate, or are refused, at an API server",
        description: "The condition Gating of the AAQ says where and why.",
    },
    Alert {
        name: "SluicePodsHeldLong",
        expression: "max by (namespace, resourcequota) (sluice_quota_oldest_wait_seconds) > 86400",
        after: "5m",
        severity: "warning",
        summary: "A pod has waited for a quota for more than a day",
        description: "Quota {{ $labels.resourcequota }} of {{ $labels.namespace }}: the oldest pod waits for \
            {{ $value | humanizeDuration }}.",
    },
    Alert {
        name: "SluiceReleasesRefused",
        expression: "max(sluice_held_pods{reason=\"ReleaseRefused\"}) > 0",
        after: "10m",
        severity: "warning",
        summary: "The API server refuses to let pods go that have room",
        description: "Pods: {{ $value }}. Events ReleaseRefused have its words. Each is tried again ever more seldom.",
    },
    Alert {
        name: "SluiceLedgerDifference",
        expression: "increase(sluice_ledger_audit_differences_total[1h]) > 0",
        after: "0m",
        severity: "warning",
        summary: "A recount of pods has found another sum than the ledger of a quota",
        description: "It was put right. It is a bug: report it with the log of the controller.",
    },
    Alert {
        name: "SluiceStatusOverwritten",
        expression: "increase(sluice_status_overwritten_total[15m]) > 10",
        after: "15m",
        severity: "warning",
        summary: "Another client writes the status of quotas",
        description: "A second quota controller runs, such as application-aware-quota: stop one of the two.",
    },
    Alert {
        name: "SluiceAdmissionContested",
        expression: "sum by (object, manager) (increase(sluice_admission_contests_total[30m])) > 10",
        after: "0m",
        severity: "warning",
        summary: "Another client insists on an admission object of Sluice",
        description: "{{ $labels.manager }} changes {{ $labels.object }} whenever the operator puts it back. For a moment \
            each time, pods may come in without a gate.",
    },
    Alert {
        name: "SluiceMigrationsBlocked",
        expression: "max by (reason) (sluice_blocked_migrations{reason!=\"HeadroomNotGranted\"}) > 0",
        after: "30m",
        severity: "warning",
        summary: "Live migrations wait although head-room is granted",
        description: "Migrations: {{ $value }}, {{ $labels.reason }}. A node that is drained may wait.",
    },
    Alert {
        name: "SluiceHeadroomHidden",
        expression: "max(sluice_headroom_api_servers_hidden) > 0",
        after: "15m",
        severity: "warning",
        summary: "Live migrations get no head-room: API servers are behind one address",
        description: "Set the option balancerProofs (docs/install.md).",
    },
    Alert {
        name: "SluiceQuotaLeftRaised",
        expression: "increase(sluice_headroom_left_raised_total[15m]) > 0",
        after: "0m",
        severity: "warning",
        summary: "A ResourceQuota stayed raised for a migration until its lock ended",
        description: "The controller puts it back. See the log of webhook and controller for the API server's errors.",
    },
];

/// The groups of a `PrometheusRule`, which are those of a file of rules too.
pub(crate) fn groups() -> Value {
    let alerts = ALERTS.map(|alert| {
        json!({
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.after,
            "labels": { "severity": alert.severity },
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                "runbook_url": format!("{RUNBOOKS}/{}.md", alert.name),
            },
        })
    });
    // That of application-aware-quota's own rules (`pkg/monitoring/rules/recordingrules`).
    let alias = json!({
        "record": "kube_application_aware_resourcequota_creation_timestamp",
        "expr": "kube_application_aware_resourcequota_creation_timestamp_seconds",
    });
    let aliases = format!("{}-aliases", names::APP);
    json!([{ "name": names::APP, "rules": alerts }, { "name": aliases, "rules": [alias] }])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{ALERTS, RUNBOOKS, groups};

    #[test]
    fn each_alert_has_its_page_and_each_page_its_alert() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
        let pages = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let pages: BTreeSet<String> = pages.map(|name| name.into_string().unwrap()).collect();
        let alerts: BTreeSet<String> = ALERTS.iter().map(|alert| format!("{}.md", alert.name)).collect();
        assert_eq!(pages, alerts);
        for page in &pages {
            let text = std::fs::read_to_string(folder.join(page)).unwrap();
            let parts: Vec<_> = text.lines().filter(|line| line.starts_with('#')).collect();
            let title = format!("# {}", page.trim_end_matches(".md"));
            assert_eq!(parts, [title.as_str(), "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]);
            assert!(text.contains("```"), "{page}: a diagnosis has commands");
        }
        for rule in groups()[0]["rules"].as_array().unwrap() {
            let url = rule["annotations"]["runbook_url"].as_str().unwrap();
            let page = url.strip_prefix(RUNBOOKS).and_then(|rest| rest.strip_prefix('/')).unwrap();
            assert!(pages.contains(page), "{url}");
        }
    }

    #[test]
    fn a_number_stands_before_no_word_so_that_it_is_right_of_one_and_of_many() {
        for alert in ALERTS {
            assert!(!alert.description.contains("$value }} "), "{}: {}", alert.name, alert.description);
        }
    }
}
