//! The drain of a node in full quotas while the sidecar that says what VMs take does not answer.

use std::path::Path;

use futures::future::{join_all, try_join_all};
use kube::Api;
use sluice_api::{AAQ, names};
use sluice_e2e::tenant::own_shared;
use sluice_e2e::{Running, Setup};
use sluice_testbed::kubevirt::{MigrationScript, Vm};
use sluice_testbed::{Bed, Program, artifacts, wait};

use crate::context::{SOON, Team, VMI, assert_always_used, count_by, until_migrated_once, until_under_way};

const NAMESPACES: usize = 5;
const VMS_EACH: usize = 4;
/// By it the stand-in knows what it is about: it charges twice what Kubernetes counts of such a pod.
const LABEL: &str = "label-app";
/// What guests do not take, and the answers of the sidecar add.
const ADDED: &str = "requests.memory";

async fn start(bed: &Bed, directory: &Path, name: &str) -> Program {
    let program = tokio::task::spawn_blocking(artifacts::evaluator).await.unwrap().unwrap();
    let args = ["--dir".into(), directory.as_os_str().to_owned(), "--config".into(), "double".into()];
    bed.program(name, program, args, []).unwrap()
}

/// Waits until the `AAQ` says so of the sidecars of the controller that leads.
async fn until_told(bed: &Bed, reason: &str) {
    let aaqs: Api<AAQ> = Api::all(bed.admin().unwrap());
    let says = |aaq: Option<&AAQ>| {
        let conditions = aaq.and_then(|aaq| aaq.status.as_ref()?.conditions.as_ref());
        let is_it = |it: &sluice_api::AaqCondition| {
            it.type_ == names::EVALUATORS_ANSWER && it.reason.as_deref() == Some(reason)
        };
        conditions.is_some_and(|conditions| conditions.iter().any(is_it))
    };
    wait::wait_for(&aaqs, "aaq", SOON, &format!("the AAQ to say {reason}"), says).await.unwrap();
}

/// What an evaluator says of a VM's first launcher is added to the VM, and no further launcher is asked about.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_vms_leave_a_node_while_nobody_answers_and_a_new_one_is_held_and_told() {
    let bed = own_shared().await;
    let directory = bed.dir().join("evaluator");
    std::fs::create_dir_all(&directory).unwrap();
    let controller_args =
        vec![format!("--evaluator=label={}", directory.display()), "--in-flight-grace=3".to_owned()];
    let _running = Running::on(bed, Setup { controller_args, ..Setup::default() }).await.unwrap();
    count_by(bed, "DedicatedVirtualResources").await;
    let sidecar = start(bed, &directory, "sidecar").await;
    until_told(bed, "SidecarsAnswer").await;

    let kubevirt = bed.kubevirt().unwrap();
    let node = kubevirt.add_nodes(1).await.unwrap().remove(0);
    let teams = join_all((0..NAMESPACES).map(|_| Team::on(bed, "dead", &[]))).await;
    let vmi: Vec<_> = VMI.into_iter().zip(["4", "4", "1Gi"]).collect();
    let plenty: Vec<_> = vmi.iter().copied().chain([(ADDED, "1Ti")]).collect();
    join_all(teams.iter().map(|team| team.quota("vms", &plenty))).await;
    let vms = try_join_all(teams.iter().flat_map(|team| {
        let vm = |number| team.tenant.kubevirt.vm(team.tenant.name(), &format!("vm-{number}")).node(&node);
        (0..VMS_EACH).map(move |number| vm(number).label(LABEL, "").script(MigrationScript::Hold).start())
    }));
    let vms = vms.await.unwrap();
    join_all(teams.iter().map(|team| team.until_used("vms", &vmi))).await;
    // All VMs are alike, so that all quotas are full of the same.
    let added = teams[0].until_any_used("vms", ADDED).await;
    join_all(teams.iter().map(|team| team.set_hard("vms", ADDED, &added))).await;
    let full: Vec<_> = vmi.iter().copied().chain([(ADDED, &*added)]).collect();
    join_all(teams.iter().map(|team| team.until_used("vms", &full))).await;

    sidecar.kill();
    sidecar.wait().await;
    until_told(bed, "SidecarFails").await;
    join_all(teams.iter().map(|team| team.until_written("vms", "1Ti"))).await;
    let watches = join_all(teams.iter().map(|team| team.watch())).await;
    assert_eq!(kubevirt.drain(&node).await.unwrap().len(), NAMESPACES * VMS_EACH);
    until_under_way(&vms).await;
    join_all(teams.iter().map(|team| team.until_written("vms", "2Ti"))).await;
    try_join_all(vms.iter().map(Vm::release)).await.unwrap();
    join_all(vms.iter().map(until_migrated_once)).await;
    for (team, (watch, vms)) in teams.iter().zip(watches.into_iter().zip(vms.chunks(VMS_EACH))) {
        assert_always_used(watch, "vms", &full).await;
        team.assert_nothing_refused(vms).await;
    }

    // A new one is held whatever room there is.
    let team = Team::on(bed, "new", &[]).await;
    team.quota("vms", &plenty).await;
    let late = team.tenant.kubevirt.vm(team.tenant.name(), "late").create().await.unwrap();
    let held = team.until_held("late").await;
    let told = team.until_told(&held).await;
    assert!(told.starts_with("held: evaluator label is not there: "), "{told}");
    let _sidecar = start(bed, &directory, "sidecar-again").await;
    late.until_running().await.unwrap();
}
