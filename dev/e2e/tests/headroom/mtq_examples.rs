//! managed-tenant-quota's own examples, unchanged: a machine, a quota that is full with it, a budget and a migration.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::tenant::{Tenant, shared, spec_hard, used};
use sluice_testbed::kubevirt::Vm;

use crate::context::{until_told, vmmrqs};

const BUDGET: &str =
    include_str!("../../fixtures/managed-tenant-quota/VirtualMachineMigrationResourceQuotaExample.yaml");
const QUOTA: &str = include_str!("../../fixtures/managed-tenant-quota/rq.yaml");
const MACHINE: &str = include_str!("../../fixtures/managed-tenant-quota/vmi-migratable.yaml");
const MIGRATION: &str = include_str!("../../fixtures/managed-tenant-quota/migration-job.yaml");

async fn apply(tenant: &Tenant<'_>, name: &str, text: &str) {
    let file = tenant.bed.dir().join(format!("{}-{name}", tenant.name()));
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let output =
        tenant.bed.kubectl(&["apply", "--namespace", tenant.name(), "--filename", &file]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The instance of the example, with what virt-api would add to it.
async fn start(tenant: &Tenant<'_>) -> Vm {
    let mut machine: Value = serde_saphyr::from_str(MACHINE).unwrap();
    machine["metadata"]["namespace"] = json!(tenant.name());
    let vm = tenant.kubevirt.create(machine).await.unwrap();
    vm.until_running().await.unwrap();
    vm
}

/// The example's budget is smaller than the example's machine, so its migration waits here as it did there. It is told what
/// is missing, and passes when the budget has it.
#[tokio::test(flavor = "multi_thread")]
async fn the_examples_together_say_what_is_missing_and_pass_with_it() {
    let tenant = Tenant::on(shared().await.bed, "examples").await;
    apply(&tenant, "rq.yaml", QUOTA).await;
    let vm = start(&tenant).await;
    let name = "example-big-resource-quota";
    let counted = |quota: &_| used(quota).get("requests.cpu").is_some_and(|amount| amount.0 != "0");
    let before = tenant.until_quota(name, "the machine to be counted", counted).await;
    apply(&tenant, "budget.yaml", BUDGET).await;
    apply(&tenant, "migration.yaml", &with_the_label(MIGRATION)).await;
    let migration = vm.until_migration(&[]).await.unwrap();
    migration.until_rejected().await.unwrap();
    let told = until_told(&tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
    let said = told.message.unwrap();
    assert!(said.contains("migration-job") && said.contains(name), "{said}");
    until_told(&tenant, "Pod", "NotEnoughResourceToRelease").await;
    assert_eq!(AuditTrail::of(&tenant).await.raises().len(), 0, "{said}");
    let enough = Patch::Merge(json!({ "spec": { "additionalMigrationResources": {
        "requests.cpu": used(&before)["requests.cpu"], "limits.cpu": used(&before)["limits.cpu"],
    }}}));
    vmmrqs(&tenant).patch("my-vmmrq", &PatchParams::default(), &enough).await.unwrap();
    migration.until_succeeded().await.unwrap();
    tenant.until_clear().await;
    let after = tenant.quotas.get(name).await.unwrap();
    assert_eq!(spec_hard(&after), spec_hard(&before));
}

/// virt-api labels a migration with its machine, and has virt-controller finish it before it goes.
fn with_the_label(migration: &str) -> String {
    let mut object: Value = serde_saphyr::from_str(migration).unwrap();
    let machine = object["spec"]["vmiName"].clone();
    object["metadata"]["labels"] = json!({ "kubevirt.io/vmi-name": machine });
    object["metadata"]["finalizers"] = json!(["kubevirt.io/migrationJobFinalize"]);
    object.to_string()
}
