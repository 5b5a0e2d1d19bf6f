//! Each alert, provoked: a real Prometheus with the rules of the installation, a fault that is made and undone, and the
//! commands of the runbook while the alert fires.
//!
//! `make test` has four of them, `make soak` all ([`ALERTS`]). The expressions are the installed ones. Only the times for
//! which they have to be true are shorter, each by the same factor ([`HASTENED`]).

mod faults;
mod runbook;
mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_e2e::tenant;
use sluice_testbed::wait;

use crate::context::SOON;
use crate::prometheus::{Prometheus, seconds};
use runbook::Runbook;
use scene::{Fault, Scene};

/// So many times sooner than as installed an alert fires: 5 minutes are a second here.
const HASTENED: u32 = 300;
/// Which alerts are provoked: `all`, or that of a name; without it [`SHORT`].
const ALERTS: &str = "SLUICE_ALERTS";
/// These take a third of the time of all, which is four minutes.
const SHORT: [&str; 4] =
    ["SluiceWebhookDown", "SluiceCertificateExpiring", "SluiceReleasesRefused", "SluiceMigrationsBlocked"];
/// With this in the environment the ends of alerts about counters are waited for, which takes half an hour.
const WINDOWS: &str = "SLUICE_ALERT_WINDOWS";

/// An alert, how it is provoked and how it ends.
struct Case {
    alert: &'static str,
    fault: Fault,
    /// For people.
    provoked: &'static str,
    ended: &'static str,
    /// Those that the expression leaves, beside those of each alert.
    labels: &'static [(&'static str, &'static str)],
    /// How its description begins, where that depends on the series.
    said: &'static str,
}

const fn case(alert: &'static str, fault: Fault, provoked: &'static str, ended: &'static str) -> Case {
    Case { alert, fault, provoked, ended, labels: &[], said: "" }
}

impl Case {
    const fn with(self, labels: &'static [(&'static str, &'static str)], said: &'static str) -> Self {
        Self { labels, said, ..self }
    }
}

/// All but one. `SluiceLedgerDifference` cannot be provoked: what the recount is compared with is made of the same pods, so
/// they differ by a bug alone.
const CASES: [Case; 13] = [
    case("SluiceDown", Fault::NoController, "the controller is killed", "another one leads"),
    case("SluiceWebhookDown", Fault::NoWebhook, "the webhook is killed", "another one serves")
        .with(&[("component", "webhook")], ""),
    case("SluiceOperatorDown", Fault::NoOperator, "the operator ends", "another one leads"),
    case(
        "SluiceCertificateExpiring",
        Fault::OldCertificate,
        "no operator renews a certificate",
        "it is renewed",
    )
    .with(&[("which", "serving")], "The certificate serving."),
    case("SluicePodsNotGated", Fault::Ungated, "what gates is deleted", "an operator makes it"),
    case("SluicePodsNotGated", Fault::LetIn, "what refuses is deleted too", "an operator makes it"),
    case(
        "SluicePodsHeldLong",
        Fault::HeldLong,
        "the API server's clock is two days on",
        "the pod is deleted",
    )
    .with(
        &[("namespace", "team-a"), ("resourcequota", "compute")],
        "Quota compute of team-a: the oldest pod waits for 2d ",
    ),
    case("SluiceReleasesRefused", Fault::Frozen, "a policy refuses that pods are changed", "it is deleted")
        .with(&[], "Pods: 1."),
    case("SluiceMigrationsBlocked", Fault::SmallGrant, "a grant is smaller than a VM", "it is large enough")
        .with(&[("reason", "NotEnoughHeadroom")], "Migrations: 1, NotEnoughHeadroom."),
    case("SluiceHeadroomHidden", Fault::HiddenServer, "an API server has no address", "it is gone"),
    case("SluiceStatusOverwritten", Fault::Overwritten, "another client writes statuses", "it ends"),
    case("SluiceAdmissionContested", Fault::Contested, "another client insists on a binding", "it ends")
        .with(
            &[("manager", "argocd"), ("object", "validatingadmissionpolicybindings/sluice-guard")],
            "argocd changes validatingadmissionpolicybindings/sluice-guard whenever the operator puts it back.",
        ),
    case(
        "SluiceQuotaLeftRaised",
        Fault::NoRestore,
        "no process of Sluice can put a quota back",
        "a controller does",
    ),
];
const NEVER: &str = "SluiceLedgerDifference";

/// State, expression and severity of an alert.
async fn alert(server: &Prometheus, name: &str) -> Option<(String, String, String)> {
    let rules = server.rules().await?;
    let rule = rules.into_iter().find(|rule| rule["name"] == name)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some((text(&rule["state"])?, text(&rule["query"])?, text(&rule["labels"]["severity"])?))
}

async fn until(server: &Prometheus, name: &str, state: &str, within: Duration) {
    let is = || async { (alert(server, name).await?.0 == state).then_some(()) };
    wait::eventually(within, is, &format!("{name} to be {state}")).await.unwrap();
}

/// Labels and description of the alerts of a name that fire. Where they were scraped differs from run to run.
async fn firing(server: &Prometheus, name: &str) -> Option<BTreeSet<(BTreeMap<String, String>, String)>> {
    let rules = server.rules().await?;
    let rule = rules.iter().find(|rule| rule["name"] == name)?;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let read = |alert: &Value| {
        let labels = alert["labels"].as_object().unwrap().iter();
        let own = labels.filter(|(label, _)| !["instance", "job"].contains(&label.as_str()));
        let labels = own.map(|(label, value)| (label.clone(), text(value))).collect();
        (labels, text(&alert["annotations"]["description"]))
    };
    let fires = rule["alerts"].as_array()?.iter().filter(|alert| alert["state"] == "firing");
    Some(fires.map(read).collect())
}

/// Waits until one alert fires that names what the fault is about, and no other of its name.
async fn until_named(server: &Prometheus, case: &Case, severity: &str) {
    let of_each = [("alertname", case.alert), ("severity", severity)];
    let labels = of_each.iter().chain(case.labels);
    let labels: BTreeMap<String, String> =
        labels.map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    let seen = Mutex::new(None);
    let is_named = || async {
        let firing = firing(server, case.alert).await?;
        let is_right = firing.len() == 1
            && firing.iter().all(|(has, said)| *has == labels && said.starts_with(case.said));
        *seen.lock().unwrap() = Some(firing);
        is_right.then_some(())
    };
    let named = wait::eventually(SOON, is_named, "the labels of the alert").await;
    named.unwrap_or_else(|error| panic!("{error}: {labels:?} {:?}: {:?}", case.said, seen.lock().unwrap()));
}

/// How far an expression looks back, and the counter that it looks at.
fn window(expression: &str) -> Option<(Duration, &str)> {
    let (_, rest) = expression.split_once("increase(")?;
    let (counter, rest) = rest.split_once('[')?;
    let (range, _) = rest.split_once(']')?;
    Some((Duration::from_secs(seconds(range)), counter))
}

/// The counter stands still, so the alert ends once its window is past.
async fn until_rests(server: &Prometheus, counter: &str) {
    let changes = format!("sum(changes({counter}[10s]))");
    let rests = || async { (server.value(&changes).await? < 0.5).then_some(()) };
    wait::eventually(SOON, rests, &format!("{counter} to stand still")).await.unwrap();
}

/// What [`ALERTS`] asks for.
fn asked() -> Vec<Case> {
    let asked = std::env::var(ALERTS).ok();
    let is_asked = |case: &Case| match asked.as_deref() {
        Some(asked) => asked == "all" || asked == case.alert,
        None => SHORT.contains(&case.alert),
    };
    let cases: Vec<Case> = CASES.into_iter().filter(is_asked).collect();
    assert!(!cases.is_empty(), "{ALERTS}: {asked:?}");
    cases
}

/// Makes and undoes a fault. Of an alert that looks back: when what it looks at is past.
async fn provoke(scene: &mut Scene<'_>, case: &Case) -> Option<Instant> {
    until(&scene.server, case.alert, "inactive", SOON).await;
    let begun = Instant::now();
    scene.make(case.fault).await;
    until(&scene.server, case.alert, "firing", SOON).await;
    let fired = begun.elapsed();
    let (_, expression, severity) = alert(&scene.server, case.alert).await.unwrap();
    until_named(&scene.server, case, &severity).await;
    let mut runbook = case.fault.is_shown().then(|| Runbook::open(case.alert));
    if let Some(runbook) = &mut runbook {
        runbook.while_it_fires(scene).await;
    }
    let begun = Instant::now();
    scene.undo(case.fault).await;
    let window = window(&expression);
    match window {
        None => until(&scene.server, case.alert, "inactive", SOON).await,
        Some((_, counter)) => until_rests(&scene.server, counter).await,
    }
    let ended = begun.elapsed();
    if let Some(runbook) = runbook {
        runbook.afterwards(scene).await;
    }
    let (alert, provoked, end) = (case.alert, case.provoked, case.ended);
    eprintln!("{alert:<26} {provoked:<40} fires after {fired:>5.1?}; {end}: rests after {ended:.1?}");
    window.map(|(window, _)| Instant::now() + window)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alert_fires_for_its_fault_and_ends_with_it() {
    let bed = tenant::own().await;
    let mut scene = Scene::on(&bed, HASTENED).await;
    let installed = scene.server.rules().await.unwrap();
    let names = installed.iter().filter(|rule| rule["type"] == "alerting").map(|rule| rule["name"].as_str());
    let known = CASES.iter().map(|case| case.alert).chain([NEVER]);
    assert_eq!(names.collect::<BTreeSet<_>>(), known.map(Some).collect());
    Runbook::open(NEVER).when_all_is_well(&scene).await;

    let mut later = Vec::new();
    for case in asked() {
        let past = provoke(&mut scene, &case).await;
        later.extend(past.map(|past| (case.alert, past)));
    }
    if std::env::var_os(WINDOWS).is_some() {
        for (alert, past) in later {
            let left = past.saturating_duration_since(Instant::now());
            until(&scene.server, alert, "inactive", left + SOON).await;
            eprintln!("{alert:<26} is over");
        }
    }
    assert_eq!(alert(&scene.server, NEVER).await.unwrap().0, "inactive");
    let audited = "sum(sluice_ledger_audits_total)";
    let recounted = || async { (scene.server.value(audited).await? > 0.0).then_some(()) };
    wait::eventually(SOON, recounted, "a recount that finds the same").await.unwrap();
}

/// No alert that looks back is missed by [`window`].
#[test]
fn a_window_is_found_in_an_expression() {
    let half_an_hour = Duration::from_secs(1800);
    let found = window("sum by (object) (increase(a_total[30m])) > 10");
    assert_eq!(found, Some((half_an_hour, "a_total")));
    assert_eq!(window("max(a) > 0"), None);
    let rules = sluice_manifests::monitoring_objects(&sluice_manifests::InstallOptions {
        monitoring: sluice_manifests::Monitoring { rules: true, ..Default::default() },
        ..Default::default()
    });
    let rules = rules.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    for rule in rules["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let expression = rule["expr"].as_str().map_or_else(|| panic!("{rule}"), str::to_owned);
        assert_eq!(
            window(&expression).is_some(),
            expression.contains('['),
            "{}",
            Value::from(expression.clone())
        );
    }
}
