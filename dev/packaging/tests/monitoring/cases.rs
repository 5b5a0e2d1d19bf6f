//! For each alert, series with which it fires and with which it does not.

/// Series and their values, one a minute, in promtool's notation.
pub type Scene = &'static [(&'static str, &'static str)];

pub struct Case {
    pub alert: &'static str,
    /// When it is looked.
    pub at: &'static str,
    pub fires: &'static [Scene],
    pub quiet: &'static [Scene],
    /// Of the alert that fires, beside its severity.
    pub labels: &'static [(&'static str, &'static str)],
    /// Its description, where that depends on the series.
    pub said: Option<&'static str>,
}

const LEADER: &str = "sluice_leader{component=\"controller\", pod=\"a\"}";
const OTHER: &str = "sluice_leader{component=\"controller\", pod=\"b\"}";
const OPERATOR: &str = "sluice_leader{component=\"operator\", pod=\"c\"}";
const WEBHOOK: &str = "sluice_build_info{component=\"webhook\", version=\"0.1.0\"}";
const CONTROLLER: &str = "sluice_build_info{component=\"controller\", version=\"0.1.0\"}";
const EXPIRY: &str = "sluice_certificate_expiry_timestamp_seconds{which=\"serving\", pod=\"a\"}";
const ISSUE: &str = "sluice_certificate_issue_timestamp_seconds{which=\"serving\", pod=\"a\"}";
const CONTESTS: &str =
    "sluice_admission_contests_total{object=\"mutatingwebhookconfigurations/sluice\", manager=\"argocd\"}";

pub const CASES: [Case; 13] = [
    Case {
        alert: "SluiceDown",
        at: "20m",
        fires: &[&[], &[(LEADER, "0x30"), (OTHER, "0x30")], &[(LEADER, "1x10 0x20"), (OPERATOR, "1x30")]],
        quiet: &[&[(LEADER, "0x30"), (OTHER, "1x30")], &[(LEADER, "1x10 0x3 1x20")]],
        labels: &[],
        said: None,
    },
    Case {
        alert: "SluiceWebhookDown",
        at: "20m",
        fires: &[&[(CONTROLLER, "1x30")], &[(WEBHOOK, "1x5 stale")]],
        quiet: &[&[(WEBHOOK, "1x30")]],
        labels: &[("component", "webhook")],
        said: None,
    },
    Case {
        alert: "SluiceOperatorDown",
        at: "40m",
        fires: &[&[(LEADER, "1x60")], &[(OPERATOR, "0x60")]],
        quiet: &[&[(OPERATOR, "1x60")], &[(OPERATOR, "1x20 0x40")]],
        labels: &[],
        said: None,
    },
    Case {
        // Of 4000 s less than 800 s are left from the 54th minute on.
        alert: "SluiceCertificateExpiring",
        at: "65m",
        fires: &[&[(EXPIRY, "4000x80"), (ISSUE, "0x80")]],
        quiet: &[
            &[(EXPIRY, "40000x80"), (ISSUE, "0x80")],
            &[(EXPIRY, "4000x60 7600x20"), (ISSUE, "0x60 3600x20")],
        ],
        labels: &[("which", "serving")],
        said: Some("The certificate serving. When it ends, the webhook is not reached any more."),
    },
    Case {
        alert: "SluicePodsNotGated",
        at: "20m",
        fires: &[
            &[
                ("sluice_gate_api_servers{by=\"nothing\"}", "1x30"),
                ("sluice_gate_api_servers{by=\"policy\"}", "2x30"),
            ],
            &[("sluice_gate_api_servers{by=\"refused\"}", "3x30")],
        ],
        quiet: &[
            &[
                ("sluice_gate_api_servers{by=\"nothing\"}", "0x30"),
                ("sluice_gate_api_servers{by=\"policy\"}", "3x30"),
            ],
            &[("sluice_gate_api_servers{by=\"unknown\"}", "1x30")],
        ],
        labels: &[],
        said: None,
    },
    Case {
        alert: "SluicePodsHeldLong",
        at: "20m",
        fires: &[&[
            ("sluice_quota_oldest_wait_seconds{namespace=\"team\", resourcequota=\"compute\"}", "90000x30"),
            ("sluice_quota_oldest_wait_seconds{namespace=\"other\", resourcequota=\"compute\"}", "80000x30"),
        ]],
        quiet: &[
            &[(
                "sluice_quota_oldest_wait_seconds{namespace=\"team\", resourcequota=\"compute\"}",
                "80000x30",
            )],
            &[("sluice_quota_held_pods{namespace=\"team\", resourcequota=\"compute\"}", "900x30")],
        ],
        labels: &[("namespace", "team"), ("resourcequota", "compute")],
        said: Some("Quota compute of team: the oldest pod waits for 1d 1h 0m 0s."),
    },
    Case {
        alert: "SluiceReleasesRefused",
        at: "20m",
        fires: &[&[("sluice_held_pods{reason=\"ReleaseRefused\"}", "3x30")]],
        quiet: &[
            &[("sluice_held_pods{reason=\"ReleaseRefused\"}", "0x10 3x5 0x20")],
            &[("sluice_held_pods{reason=\"QuotaExceeded\"}", "3x30")],
        ],
        labels: &[],
        said: Some("Pods: 3. Events ReleaseRefused have its words. Each is tried again ever more seldom."),
    },
    Case {
        alert: "SluiceLedgerDifference",
        at: "30m",
        fires: &[&[("sluice_ledger_audit_differences_total", "0x10 1x30")]],
        quiet: &[
            &[("sluice_ledger_audit_differences_total", "0x40")],
            &[("sluice_ledger_audit_differences_total", "4x40")],
        ],
        labels: &[],
        said: None,
    },
    Case {
        alert: "SluiceStatusOverwritten",
        at: "50m",
        fires: &[&[("sluice_status_overwritten_total", "0+1x60")]],
        quiet: &[
            &[("sluice_status_overwritten_total", "0+1x8 8x60")],
            &[("sluice_status_overwritten_total", "0x60")],
        ],
        labels: &[],
        said: None,
    },
    Case {
        alert: "SluiceAdmissionContested",
        at: "40m",
        fires: &[&[(CONTESTS, "0+1x60")]],
        quiet: &[&[(CONTESTS, "0x20 1x40")], &[(CONTESTS, "900x60")]],
        labels: &[("object", "mutatingwebhookconfigurations/sluice"), ("manager", "argocd")],
        said: Some(
            "argocd changes mutatingwebhookconfigurations/sluice whenever the operator puts it back. For a moment each \
             time, pods may come in without a gate.",
        ),
    },
    Case {
        alert: "SluiceMigrationsBlocked",
        at: "40m",
        fires: &[&[
            ("sluice_blocked_migrations{reason=\"NotEnoughHeadroom\"}", "2x60"),
            ("sluice_blocked_migrations{reason=\"HeadroomNotGranted\"}", "7x60"),
        ]],
        quiet: &[
            &[("sluice_blocked_migrations{reason=\"HeadroomNotGranted\"}", "7x60")],
            &[("sluice_blocked_migrations{reason=\"NotEnoughHeadroom\"}", "0x20 2x10 0x30")],
        ],
        labels: &[("reason", "NotEnoughHeadroom")],
        said: Some("Migrations: 2, NotEnoughHeadroom. A node that is drained may wait."),
    },
    Case {
        alert: "SluiceHeadroomHidden",
        at: "30m",
        fires: &[&[("sluice_headroom_api_servers_hidden", "1x60")]],
        quiet: &[
            &[("sluice_headroom_api_servers_hidden", "0x60")],
            &[("sluice_headroom_api_servers_hidden", "0x20 1x40")],
        ],
        labels: &[],
        said: None,
    },
    Case {
        alert: "SluiceQuotaLeftRaised",
        at: "35m",
        fires: &[&[("sluice_headroom_left_raised_total", "0x30 1x30")]],
        quiet: &[
            &[("sluice_headroom_left_raised_total", "0x60")],
            &[("sluice_headroom_left_raised_total", "5x60")],
        ],
        labels: &[],
        said: None,
    },
];
