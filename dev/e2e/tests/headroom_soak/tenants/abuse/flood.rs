//! Twenty loops that create pods as fast as they can.

use futures::future::{join, join_all};
use kube::api::DeleteParams;
use serde_json::json;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::intruders::{Flood, Tally, editor, grant};
use sluice_e2e::tenant::{Tenant, amount, spec_hard, used};
use sluice_engine::Amount;
use sluice_testbed::kubevirt::Vm;

use crate::tenants::quota_history::{QuotaHistory, exact};
use crate::tenants::scene::until_told;
use crate::tenants::second_bed::alone;

const MEMORY: &str = "requests.memory";

/// Quotas were raised, nothing of `user` was admitted meanwhile, and who had a target refused was told why: quota admission,
/// which the flood keeps busy, did not answer within a session. That concerns the tenant who floods, and nobody else.
async fn assert_only_targets(tenant: &Tenant<'_>, tally: &Tally, raises: usize, user: &str) {
    let trail = AuditTrail::of(tenant).await;
    let (locks, rejections) = (trail.locks().len(), trail.rejections());
    eprintln!("{} targets refused beside {tally:?}", rejections.len());
    if !rejections.is_empty() {
        until_told(tenant, "VirtualMachineInstanceMigration", "HeadroomNotProven").await;
    }
    assert!(locks >= raises, "{locks} locks");
    let admitted = trail.admitted_while_locked(user);
    assert!(admitted.is_empty(), "{admitted:?}");
    trail.assert_no_spec_written();
}

/// Migrates the machine a few times, one migration after the other.
async fn migrate(vm: Vm, times: usize) {
    for _ in 0..times {
        let migration = vm.migrate().await.unwrap();
        migration.until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_one_pod_of_a_flood_gets_into_a_full_quota_during_twenty_migrations() {
    let bed_use = alone().await;
    let tenant = Tenant::on(bed_use.bed, "flood").await;
    let vms = join_all(["a", "b", "c", "d"].map(|name| tenant.vm(name))).await;
    let full = tenant.full_quota("full", &[MEMORY]).await;
    let need = amount(&used(&full), MEMORY).nanos() / 4;
    tenant.unlimited().await;
    let editor = editor(&tenant).await;
    let history = QuotaHistory::of(&tenant).await;
    let flood = Flood::start(&tenant, &editor);
    // One after the other: an API server that the flood keeps busy takes longer for one than a second one waits for it.
    for vm in vms.iter().cycle().take(20) {
        migrate(vm.clone(), 1).await;
        tenant.until_quota("full", "the source to be given back", |now| used(now) == used(&full)).await;
    }
    let tally = flood.end().await;
    tenant.until_clear().await;
    let seen = history.end().await;
    assert_eq!(tally.let_in(), 0);
    assert!(tally.over_quota() > 0, "the loops ran");
    seen.assert_spec_untouched("full");
    for grown in seen.growths_while_raised("full", MEMORY) {
        assert_eq!(grown.nanos() % need, 0, "only targets entered: {grown:?}");
    }
    let most = amount(&spec_hard(&full), MEMORY).nanos() + need;
    assert!(seen.most_used("full", MEMORY) <= Amount::from_nanos(most), "there is one target at most");
    assert_only_targets(&tenant, &tally, 20, editor.user()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_has_room_of_its_own_takes_none_of_the_targets() {
    let bed_use = alone().await;
    let tenant = Tenant::on(bed_use.bed, "slack").await;
    let vm = tenant.vm("web").await;
    let full = tenant.full_quota("full", &[MEMORY]).await;
    let need = amount(&used(&full), MEMORY);
    tenant.quotas.delete("full", &DeleteParams::default()).await.unwrap();
    // Room for two pods of the flood at a time.
    let hard = need.saturating_add(exact("120Mi")).quantity(sluice_engine::Format::BinarySi);
    tenant.quota("tight", json!({ MEMORY: hard.to_string() })).await;
    tenant.unlimited().await;
    let editor = editor(&tenant).await;
    let history = QuotaHistory::of(&tenant).await;
    let flood = Flood::start(&tenant, &editor);
    migrate(vm, 3).await;
    let tally = flood.end().await;
    tenant.until_clear().await;
    let seen = history.end().await;
    assert!(tally.let_in() > 0, "there was room between the raises");
    seen.assert_spec_untouched("tight");
    for grown in seen.growths_while_raised("tight", MEMORY) {
        assert_eq!(grown, need, "only the target entered");
    }
    assert_only_targets(&tenant, &tally, 1, editor.user()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_that_the_tenant_asks_for_himself_let_nothing_but_targets_in() {
    let bed_use = alone().await;
    let tenant = Tenant::on(bed_use.bed, "vmims").await;
    let vm = tenant.vm("web").await;
    let full = tenant.full_quota("full", &[MEMORY]).await;
    tenant.unlimited().await;
    let editor = editor(&tenant).await;
    grant(&tenant, &editor, "kubevirt.io", "virtualmachineinstancemigrations").await;
    let neighbour = Tenant::on(bed_use.bed, "beside").await;
    let other = neighbour.vm("web").await;
    neighbour.full_quota("full", &[MEMORY]).await;
    neighbour.unlimited().await;
    let history = QuotaHistory::of(&tenant).await;
    let flood = Flood::start(&tenant, &editor);
    let others = migrate(other, 8);
    let path = format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstancemigrations", tenant.name());
    let client = editor.client().unwrap();
    // One for a machine that does not exist and that claims to have been rejected.
    let ghost = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": "ghost" }, "spec": { "vmiName": "ghost" },
        "status": {
            "phase": "Pending",
            "conditions": [{ "type": "migrationRejectedByResourceQuota", "status": "True" }],
        },
    });
    assert!(sluice_e2e::call::post(&client, &path, &ghost).await.unwrap().is_ok());
    let own = async {
        for _ in 0..2 {
            let known = vm.migrations().await.unwrap();
            let own = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
                "metadata": {
                    "generateName": "own-", "labels": { "kubevirt.io/vmi-name": "web" },
                    "finalizers": ["kubevirt.io/migrationJobFinalize"],
                },
                "spec": { "vmiName": "web" },
            });
            assert!(sluice_e2e::call::post(&client, &path, &own).await.unwrap().is_ok());
            vm.until_migration(&known).await.unwrap().until_succeeded().await.unwrap();
            vm.until_alone().await.unwrap();
        }
    };
    join(own, others).await;
    assert_eq!(neighbour.rejected_attempts().await, 0, "the flood of one tenant concerns no other");
    let tally = flood.end().await;
    tenant.until_clear().await;
    let seen = history.end().await;
    assert_eq!(tally.let_in(), 0);
    let need = amount(&used(&full), MEMORY);
    assert!(seen.most_used("full", MEMORY) <= need.saturating_add(need));
    assert_only_targets(&tenant, &tally, 2, editor.user()).await;
}
