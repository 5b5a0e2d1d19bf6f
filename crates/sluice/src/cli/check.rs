//! `sluice check`: whether an installation works, or can be made.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::uninstall::definitions;
use sluice_runtime::client::{ServerVersion, with_deadline};
use sluice_runtime::retry::{Failure, classify};

use super::cluster::{ClusterArgs, Connection};
use super::printed::{Exit, Format, OutputArgs, print, print_value};

/// Between two looks with `--wait`.
const PAUSE: Duration = Duration::from_secs(1);
/// A lease that was not renewed for so long is nobody's (seconds).
const STALE_S: i64 = 60;
/// The oldest minor version of Kubernetes 1 that Sluice works with.
const OLDEST_MINOR: u32 = 31;

/// Flags of `sluice check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Before an installation: whether the cluster can have one
    #[arg(long)]
    pre: bool,
    /// Wait until nothing fails, at most so long: 30s, 2m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::INSTALL_NAMESPACE)]
    install_namespace: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let read = text.parse::<SignedDuration>().ok().and_then(|lasts| Duration::try_from(lasts).ok());
    read.ok_or_else(|| "write one like 30s or 2m".to_owned())
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    Failed,
    /// It could not be looked at.
    Unknown,
}

/// One check.
#[derive(Clone, Debug)]
struct Check {
    name: &'static str,
    state: State,
    /// What is there.
    found: String,
    /// What to do if it failed.
    hint: &'static str,
    /// Where more is written.
    page: &'static str,
}

/// Checks, and prints what was found.
///
/// # Errors
/// When the API server does not answer at all.
pub async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let begin = Instant::now();
    loop {
        let checks = if args.pre {
            before(&connection).await
        } else {
            after(&connection, &args.install_namespace).await
        };
        let is_good = checks.iter().all(|check| check.state == State::Good);
        if is_good || args.wait.is_none_or(|most| begin.elapsed() >= most) {
            say(&checks, args.output.output)?;
            let has = |state| checks.iter().any(|check| check.state == state);
            let exit = match (has(State::Failed), has(State::Unknown)) {
                (true, _) => Exit::Held,
                (false, true) => Exit::Unknown,
                (false, false) => Exit::Good,
            };
            return Ok(exit.into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn before(connection: &Connection) -> Vec<Check> {
    let mut checks = vec![version(connection).await];
    checks.push(others(connection).await);
    checks
}

async fn after(connection: &Connection, namespace: &str) -> Vec<Check> {
    let mut checks = vec![version(connection).await, crds(connection).await];
    for name in [names::OPERATOR, names::CONTROLLER, names::WEBHOOK] {
        checks.push(deployment(connection, namespace, name).await);
    }
    checks.push(leader(connection, namespace).await);
    checks.push(admission(connection).await);
    checks.push(configuration(connection).await);
    checks
}

/// What a read of an object comes to, as a check.
fn looked<T>(
    answer: kube::Result<T>,
    (name, hint, page): (&'static str, &'static str, &'static str),
    judge: impl FnOnce(T) -> Result<String, String>,
) -> Check {
    let (state, found) = match answer {
        Ok(object) => match judge(object) {
            Ok(found) => (State::Good, found),
            Err(found) => (State::Failed, found),
        },
        Err(error) => match classify(&error) {
            Failure::NotFound => (State::Failed, "not there".to_owned()),
            _ => (State::Unknown, error.to_string()),
        },
    };
    Check { name, state, found, hint, page }
}

async fn version(connection: &Connection) -> Check {
    let told =
        ("kubernetes", "upgrade the cluster: Kubernetes 1.31 is the oldest that is supported", "README.md");
    match ServerVersion::fetch(&connection.client).await {
        Ok(version) => looked(Ok(version), told, |version| {
            let found = format!("{}.{}", version.major, version.minor);
            if (version.major, version.minor) >= (1, OLDEST_MINOR) { Ok(found) } else { Err(found) }
        }),
        Err(error) => Check {
            name: told.0,
            state: State::Unknown,
            found: error.to_string(),
            hint: told.1,
            page: told.2,
        },
    }
}

/// Before an installation there is no other program that gates the same pods.
async fn others(connection: &Connection) -> Check {
    let told = (
        "no other aaq-operator",
        "remove application-aware-quota first: two controllers cannot release the same pods",
        "docs/predecessors.md",
    );
    let api: Api<Deployment> = Api::namespaced(connection.client.clone(), "aaq");
    let found = with_deadline(connection.deadline, api.get_opt("aaq-controller")).await;
    looked(found, told, |found| match found {
        Some(_) => Err("Deployment aaq/aaq-controller is there".to_owned()),
        None => Ok("none".to_owned()),
    })
}

async fn crds(connection: &Connection) -> Check {
    let told =
        ("custom resources", "apply deploy/crds.yaml of this version (sluice crds prints it)", "README.md");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let api: Api<DynamicObject> = Api::all_with(connection.client.clone(), &resource);
    let (mut missing, wanted) = (Vec::new(), definitions());
    for definition in &wanted {
        match with_deadline(connection.deadline, api.get_opt(&definition.name)).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push(definition.name.clone()),
            Err(error) => return looked(Err::<(), _>(error), told, |()| Ok(String::new())),
        }
    }
    looked(Ok(()), told, |()| match missing.as_slice() {
        [] => Ok(format!("{0} of {0}", wanted.len())),
        missing => Err(format!("missing: {}", missing.join(", "))),
    })
}

async fn deployment(connection: &Connection, namespace: &str, name: &'static str) -> Check {
    let told = (
        name,
        "look at its pods: kubectl describe pods of that Deployment, and their logs",
        "docs/runbooks/SluiceDown.md",
    );
    let api: Api<Deployment> = Api::namespaced(connection.client.clone(), namespace);
    looked(with_deadline(connection.deadline, api.get(name)).await, told, |deployment| {
        let wanted = deployment.spec.replicas.unwrap_or(1);
        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        let found = format!("{ready} of {wanted} ready");
        if ready >= wanted && wanted > 0 { Ok(found) } else { Err(found) }
    })
}

async fn leader(connection: &Connection, namespace: &str) -> Check {
    let told = (
        "leader",
        "no controller leads: pods wait until one does; look at the controller's logs",
        "docs/gate.md",
    );
    let api: Api<Lease> = Api::namespaced(connection.client.clone(), namespace);
    let now = connection.now();
    looked(with_deadline(connection.deadline, api.get(names::LEASE)).await, told, |lease| {
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty()).ok_or("none")?;
        let renewed = spec.renew_time.map_or(0, |time| time.0.as_second());
        if now - renewed > STALE_S {
            Err(format!("{holder}, not renewed for {} s", now - renewed))
        } else {
            Ok(holder)
        }
    })
}

async fn admission(connection: &Connection) -> Check {
    let told = (
        "admission",
        "the operator writes the guard of the gate: look at its logs, and at the condition Gate of the AAQ",
        "docs/admission.md",
    );
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
    ));
    let api: Api<DynamicObject> = Api::all_with(connection.client.clone(), &resource);
    let found = with_deadline(connection.deadline, api.get(names::GUARD_POLICY)).await;
    looked(found, told, |_| Ok(format!("policy {} is there", names::GUARD_POLICY)))
}

async fn configuration(connection: &Connection) -> Check {
    let told = ("configuration", "see the conditions of the AAQ: kubectl describe aaq", "docs/gate.md");
    let api: Api<sluice_api::AAQ> = Api::all(connection.client.clone());
    let found = with_deadline(connection.deadline, api.list(&Default::default())).await;
    looked(found, told, |list| {
        let objects: Vec<Value> =
            list.items.iter().filter_map(|aaq| serde_json::to_value(aaq).ok()).collect();
        let conditions =
            objects.iter().filter_map(|aaq| aaq.pointer("/status/conditions")?.as_array()).flatten();
        let text = |condition: &Value, field: &str| {
            condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let wrong: Vec<String> = conditions
            .filter(|it| match text(it, "type").as_str() {
                "Degraded" => text(it, "status") == "True",
                "Available" => text(it, "status") == "False",
                _ => false,
            })
            .map(|it| format!("{}={}: {}", text(it, "type"), text(it, "status"), text(it, "message")))
            .collect();
        if wrong.is_empty() { Ok(format!("{} AAQ", objects.len())) } else { Err(wrong.join("; ")) }
    })
}

/// What is found of an installation, for programs.
pub async fn found(connection: &Connection, namespace: &str) -> Value {
    value(&after(connection, namespace).await)
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

fn value(checks: &[Check]) -> Value {
    let items = checks.iter().map(|check| {
        json!({
            "name": check.name, "state": check.state.word(), "found": check.found, "hint": check.hint,
            "page": check.page,
        })
    });
    json!({ "apiVersion": "cli.sluice.dev/v1", "kind": "Check", "items": items.collect::<Vec<_>>() })
}

fn say(checks: &[Check], format: Format) -> anyhow::Result<()> {
    let many = |state| checks.iter().filter(|check| check.state == state).count();
    match format {
        Format::Json | Format::Yaml => print_value(&value(checks), format)?,
        Format::Name => {
            let failed = checks.iter().filter(|check| check.state != State::Good);
            print(&failed.map(|check| format!("{}\n", check.name)).collect::<String>())?;
        }
        Format::Table | Format::Wide => {
            let mut text = String::new();
            for check in checks {
                text.push_str(&format!("{:<8} {:<22} {}\n", check.state.word(), check.name, check.found));
                if check.state == State::Failed {
                    text.push_str(&format!("         {}: see {}\n", check.hint, check.page));
                }
            }
            text.push_str(&format!("{} failed, {} not known.\n", many(State::Failed), many(State::Unknown)));
            print(&text)?;
        }
    }
    Ok(())
}
