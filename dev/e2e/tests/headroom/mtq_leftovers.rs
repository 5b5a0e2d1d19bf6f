//! What a managed-tenant-quota that crashed left behind is listed and ended, with the identity that is shipped for it.

mod left;

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_e2e::simulated_rancher::{SimulatedRancher, Validator};
use sluice_e2e::tenant::SOON;
use sluice_e2e::{Installation, Setup, build};
use sluice_operator::{InstallOptions, mtq_cleanup_objects};
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::proxy::{Action, FaultProxy, Recorded, Rule};
use sluice_testbed::{Bed, BedOptions, Identity, Program, wait};
use tokio::sync::OnceCell;

use crate::context::turn;
use left::{Left, STEPS, Step};

/// A cluster in which a managed-tenant-quota crashed in every way: what was listed, and what ended it.
struct Aftermath {
    bed: Bed,
    table: (i32, String),
    json: (i32, String),
    /// What was written while it was listed.
    written: Vec<AuditEvent>,
    cleaned: (i32, String),
    again: (i32, String),
}

/// Something is left.
const LEFT: i32 = 3;

/// A cluster with the kinds of Sluice and the identity of the clean-up.
async fn light() -> Bed {
    let bed =
        Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap();
    Installation::apply(&bed, Setup { without_webhook: true, ..Setup::default() }).await.unwrap();
    let shipped = mtq_cleanup_objects(&InstallOptions::default()).into_iter();
    bed.apply_objects(shipped.filter(|object| object["kind"] != "Job")).await.unwrap();
    bed
}

async fn account(bed: &Bed) -> Identity {
    bed.service_account(names::INSTALL_NAMESPACE, names::MTQ_CLEANUP).await.unwrap()
}

fn start(bed: &Bed, kubeconfig: &Path, args: &[&str]) -> Program {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let name = format!("mtq-leftovers-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    let mut all: Vec<OsString> = vec!["mtq-leftovers".into(), "--kubeconfig".into(), kubeconfig.into()];
    all.extend(args.iter().map(Into::into));
    bed.program(&name, build::sluice().unwrap(), all, []).unwrap()
}

async fn ended(program: &Program) -> (i32, String) {
    let exit =
        tokio::time::timeout(SOON, program.wait()).await.unwrap_or_else(|_| panic!("{}", program.log()));
    (exit.code, program.log())
}

/// Runs the command with the rights that are shipped; its exit code and what it printed.
async fn run(bed: &Bed, args: &[&str]) -> (i32, String) {
    ended(&start(bed, account(bed).await.kubeconfig(), args)).await
}

async fn aftermath() -> &'static Aftermath {
    static AFTERMATH: OnceCell<Aftermath> = OnceCell::const_new();
    AFTERMATH
        .get_or_init(|| async {
            let _turn = turn().await;
            crash_and_clean(light().await).await
        })
        .await
}

async fn crash_and_clean(bed: Bed) -> Aftermath {
    for (name, step) in STEPS {
        Left::make(&bed, name, step).await;
    }
    let unlocked = Left::make(&bed, "unlocked", Step::Raised).await;
    unlocked.locks().delete(&unlocked.lock_name(), &DeleteParams::default()).await.unwrap();
    let edited = Left::at(&bed, "edited");
    edited.begin().await;
    edited.record().await;
    edited.raise("9").await;
    edited.lock(false).await;
    Left::at(&bed, "gone").lock(false).await;
    let foreign = Left::at(&bed, "foreign");
    foreign.begin().await;
    foreign.record().await;
    foreign.raise("6").await;
    foreign.lock(true).await;

    let table = run(&bed, &[]).await;
    let json = run(&bed, &["--output=json"]).await;
    let mut written = bed.audit_events().await.unwrap();
    written.retain(|event| event.is_by(names::MTQ_CLEANUP) && event.is_write());
    let cleaned = run(&bed, &["--clean", "--lock-age=1s"]).await;
    let again = run(&bed, &["--clean", "--lock-age=1s"]).await;
    Aftermath { bed, table, json, written, cleaned, again }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_names_everything_and_writes_nothing() {
    let aftermath = aftermath().await;
    assert_eq!(aftermath.written, []);
    let (code, table) = &aftermath.table;
    assert_eq!(*code, LEFT, "{table}");
    let json: Value = serde_json::from_str(&aftermath.json.1).unwrap();
    assert_eq!((aftermath.json.0, &json["alive"]), (LEFT, &Value::Null));
    let listed = json["namespaces"].as_array().unwrap();
    for (namespace, step) in [
        ("locked", "delete the lock lock.locked.com"),
        ("recorded", "clear the record of mtq"),
        ("raised", "lower status.hard of quota rq: pods from 6 to 4"),
        ("raised", "delete the lock lock.raised.com"),
        ("raised", "restore spec.hard of quota rq: pods from 6 to 4"),
        ("unlocked", "restore spec.hard of quota rq: pods from 6 to 4"),
        ("edited", "quota rq was changed since and is left as it is in pods"),
        ("gone", "delete the lock lock.gone.com"),
        ("foreign", "lock.foreign.com is not what managed-tenant-quota creates and is left alone"),
    ] {
        assert!(table.lines().any(|line| line.ends_with(step)), "{step} in {table}");
        let each = listed.iter().find(|each| each["namespace"] == namespace).unwrap();
        assert!(each["steps"].as_array().unwrap().iter().any(|is| is == step), "{step} in {each}");
        assert_eq!(each["lockedForSeconds"].is_null(), namespace == "unlocked");
        assert_eq!(each["leftAlone"], namespace == "foreign");
    }
    assert_eq!(listed.len(), 7, "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_each_step_is_ended_and_told() {
    let aftermath = aftermath().await;
    let (code, said) = &aftermath.cleaned;
    assert_eq!(*code, LEFT, "one belongs to another installation: {said}");
    for (name, step) in STEPS.into_iter().chain([("unlocked", Step::Raised)]) {
        Left::at(&aftermath.bed, name).is_ended().await;
        let told =
            if step == Step::Locked { "delete the lock lock.locked.com" } else { "clear the record of mtq" };
        assert!(said.contains(&format!("{name}: {told}")), "{said}");
    }
    assert!(said.contains("ended in 6 namespaces, something is left in 1"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_again_it_finds_only_what_it_left_alone() {
    let (code, said) = &aftermath().await.again;
    assert_eq!(*code, LEFT);
    let expected = "foreign: lock.foreign.com is not what managed-tenant-quota creates and is left alone\n\
        ended in 0 namespaces, something is left in 1\n";
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_an_administrator_has_edited_since_is_left_and_said() {
    let aftermath = aftermath().await;
    let left = Left::at(&aftermath.bed, "edited");
    assert!(left.lock_is_gone().await && left.is_forgotten().await);
    left.until_enforced("9").await;
    let said = "edited: quota rq was changed since and is left as it is in pods\n";
    assert!(aftermath.cleaned.1.contains(said), "{}", aftermath.cleaned.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_namespace_that_is_gone_is_deleted() {
    let aftermath = aftermath().await;
    assert!(Left::at(&aftermath.bed, "gone").lock_is_gone().await);
    assert!(aftermath.cleaned.1.contains("gone: delete the lock lock.gone.com\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_owner_is_left_alone_and_so_is_what_it_protects() {
    let left = Left::at(&aftermath().await.bed, "foreign");
    left.until_enforced("6").await;
    assert!(!left.lock_is_gone().await);
    let record = left.records().get("mtq").await.unwrap();
    assert_eq!(record.status.unwrap().original_blocking_resource_quotas.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_touched_while_a_managed_tenant_quota_is_alive() {
    let _turn = turn().await;
    let bed = light().await;
    let (code, said) = run(&bed, &[]).await;
    assert_eq!((code, said.as_str()), (0, "Nothing is left of a managed-tenant-quota.\n"));
    let left = Left::make(&bed, "alive", Step::Raised).await;
    let renewed = Timestamp::now();
    let lease = json!({
        "metadata": { "name": "mtq-controller" },
        "spec": {
            "holderIdentity": "mtq-controller-1", "leaseDurationSeconds": 10,
            "renewTime": format!("{renewed:.6}"), "acquireTime": format!("{renewed:.6}"),
        },
    });
    let leases: Api<Lease> = Api::namespaced(left.client.clone(), "default");
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let (code, said) = run(&bed, &["--clean", "--lock-age=0s"]).await;
    assert_eq!(code, LEFT, "{said}");
    let refused =
        "a managed-tenant-quota is alive (mtq-controller-1 holds the lease default/mtq-controller until";
    assert!(said.contains(refused) && said.contains("scale"), "{said}");
    assert!(!left.lock_is_gone().await && !left.is_forgotten().await);
    left.until_enforced("6").await;
    let (_, table) = run(&bed, &[]).await;
    assert!(table.contains("may be its work in progress"), "{table}");

    let dead = || async { (run(&bed, &["--clean", "--lock-age=0s"]).await.0 == 0).then_some(()) };
    wait::eventually(SOON, dead, "the lease to be over").await.unwrap();
    assert!(Timestamp::now() > renewed + SignedDuration::from_secs(10), "not before its lease is over");
    left.is_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_young_lock_is_waited_for() {
    let _turn = turn().await;
    let bed = light().await;
    let left = Left::make(&bed, "young", Step::Raised).await;
    let created = left.locks().get(&left.lock_name()).await.unwrap().metadata.creation_timestamp.unwrap().0;
    let (code, said) = run(&bed, &["--clean", "--lock-age=6s"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.starts_with("waiting ") && said.contains("ended in 1 namespaces, something is left in 0"),
        "{said}"
    );
    left.is_ended().await;
    let deleted = bed.audit_events().await.unwrap().into_iter();
    let deleted = deleted.filter(|event| event.is_by(names::MTQ_CLEANUP) && event.verb == "delete");
    let times: Vec<Timestamp> = deleted.map(|event| event.received).collect();
    assert_eq!(times.len(), 1);
    assert!(times[0] >= created + SignedDuration::from_secs(6), "{times:?} {created}");
}

/// The writes that end one namespace: what is in their path.
const WRITES: [&str; 4] = [
    "/resourcequotas/rq/status$",
    "/validatingwebhookconfigurations/",
    "/resourcequotas/rq$",
    "/virtualmachinemigrationresourcequotas/mtq/status$",
];

/// One after the other: each run looks at the whole cluster.
#[tokio::test(flavor = "multi_thread")]
async fn killed_or_hindered_at_any_write_it_ends_everything_when_it_runs_again() {
    let _turn = turn().await;
    let bed = light().await;
    let proxy = FaultProxy::start(&bed, &account(&bed).await).await.unwrap();
    for (n, path) in WRITES.into_iter().enumerate() {
        for (when, action) in [("before", Action::DropBefore), ("after", Action::ApplyThenLoseResponse)] {
            killed_at(&bed, &proxy, &format!("killed-{when}-{n}"), path, action).await;
        }
    }
    let failures = Action::failures().into_iter();
    for (failure, action) in failures.filter(|(name, _)| ["422", "503", "lost answer"].contains(name)) {
        hindered(&bed, &proxy, &format!("hindered-{}", failure.replace(' ', "-")), action).await;
    }
    beside_rancher(&bed, &proxy).await;
}

async fn killed_at(bed: &Bed, proxy: &FaultProxy, namespace: &str, path: &str, action: Action) {
    let left = Left::make(bed, namespace, Step::Raised).await;
    let killed = proxy.add(Rule::new(action).path(path).unwrap().when(Recorded::is_write));
    // What follows this write does not happen, whenever the process dies.
    let over = killed.clone();
    proxy.add(Rule::new(Action::DropBefore).when(move |request| request.is_write() && over.applied() > 0));
    let program = start(bed, proxy.kubeconfig(), &["--clean", "--lock-age=0s"]);
    killed.wait_applied(1, SOON).await.unwrap();
    program.kill();
    proxy.clear();
    let (code, said) = run(bed, &["--clean", "--lock-age=0s"]).await;
    assert_eq!(code, 0, "{namespace}: {said}");
    left.is_ended().await;
}

/// Each write fails once.
async fn hindered(bed: &Bed, proxy: &FaultProxy, namespace: &str, action: Action) {
    let left = Left::make(bed, namespace, Step::Raised).await;
    let rules =
        WRITES.map(|path| Rule::new(action.clone()).path(path).unwrap().when(Recorded::is_write).times(1));
    let rules = rules.map(|rule| proxy.add(rule));
    let (code, said) = ended(&start(bed, proxy.kubeconfig(), &["--clean", "--lock-age=0s"])).await;
    assert_eq!(code, 0, "{namespace}: {said}");
    for (rule, path) in rules.iter().zip(WRITES) {
        assert_eq!(rule.applied(), 1, "{namespace}: {path}");
    }
    proxy.clear();
    left.is_ended().await;
}

/// Its webhook keeps the status of quotas to Kubernetes. The first lists fail.
async fn beside_rancher(bed: &Bed, proxy: &FaultProxy) {
    let left = Left::make(bed, "rancher", Step::Raised).await;
    let rancher = SimulatedRancher::start(bed, "rancher", Validator::Present).await.unwrap();
    proxy.add(Rule::answer(503).unwrap().times(2));
    let (code, said) = ended(&start(bed, proxy.kubeconfig(), &["--clean", "--lock-age=0s"])).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("trying again (2 of 6)"), "{said}");
    assert!(said.contains("rancher: could not lower status.hard of quota rq: pods from 6 to 4"), "{said}");
    assert!(rancher.denials() > 0);
    left.is_ended().await;
}
