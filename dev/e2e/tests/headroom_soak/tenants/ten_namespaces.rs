//! "Solutions" of the second field report: 100Gi in all, ten namespaces with a quota of 10Gi each, eight of them full. The
//! overhead ratio goes from 1.5 to 4.5, and after their migrations the eight take 92Gi instead of 80Gi,
//! if nothing bounds it. The report writes 100G for ten times 10Gi; they are quotas here, and no nodes of that size.
//!
//! Two machines in each namespace. A launcher takes 5Gi at 1.5: 4966055664 and an overhead of 402653456. At 4.5 the overhead
//! is 1207961456, and the sixteen take 92Gi and 26112 bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::HeadroomPolicy;
use sluice_e2e::tenant::{SOON, Tenant, amount, used};
use sluice_engine::Amount;
use sluice_testbed::kubevirt::{MigrationPhase, Vm};
use sluice_testbed::wait;

use crate::tenants::quota_history::exact;
use crate::tenants::scene::{machine, other_pod, until_told};
use crate::tenants::second_bed::{BedUse, alone};

const MEMORY: &str = "limits.memory";
const BEFORE: i128 = 5_368_709_120;
const AFTER: i128 = 6_174_017_120;
const FULL: usize = 8;

fn bytes(amount: i128) -> Amount {
    exact(&amount.to_string())
}

/// A namespace whose quota of 10Gi two machines fill.
struct Member {
    tenant: Tenant<'static>,
    vms: Vec<Vm>,
}

impl Member {
    async fn new(bed_use: &BedUse, policy: &str) -> Self {
        let tenant = covered(bed_use, policy).await;
        let vms = join_all(["a", "b"].map(|name| {
            let devices = json!({ "autoattachGraphicsDevice": false, "logSerialConsole": false });
            let machine = machine(&tenant, name, (3, "4966055664"), ("100m", "2Gi"));
            machine.spec(json!({ "domain": { "devices": devices } })).start()
        }));
        let vms = vms.await.into_iter().map(Result::unwrap).collect();
        let member = Self { tenant, vms };
        member.until_used(2 * BEFORE).await;
        member
    }

    async fn used(&self) -> Amount {
        amount(&used(&self.tenant.quotas.get("default").await.unwrap()), MEMORY)
    }

    async fn until_used(&self, total: i128) {
        let is_so = |quota: &ResourceQuota| amount(&used(quota), MEMORY) == bytes(total);
        self.tenant.until_quota("default", &format!("{total} to be used"), is_so).await;
    }

    /// Migrates both machines, one after the other, as far as that is possible. Returns how many have migrated.
    async fn migrate(&self) -> usize {
        let mut grown = 0;
        for vm in &self.vms {
            if migrates(vm).await {
                vm.until_alone().await.unwrap();
                grown += 1;
            }
            let left = i128::try_from(2 - grown).unwrap();
            self.until_used(left * BEFORE + (2 - left) * AFTER).await;
        }
        self.tenant.until_clear().await;
        grown
    }
}

/// Whether a migration of the machine succeeds; otherwise its quota has rejected the target.
async fn migrates(vm: &Vm) -> bool {
    let migration = vm.migrate().await.unwrap();
    let ended = || async {
        if migration.phase().await.ok()? == MigrationPhase::Succeeded {
            return Some(true);
        }
        migration.rejected().await.ok()?.then_some(false)
    };
    wait::eventually(SOON, ended, "the target to be let in or rejected").await.unwrap()
}

/// A namespace with a quota of 10Gi that the policy covers.
async fn covered(bed_use: &BedUse, policy: &str) -> Tenant<'static> {
    let tenant = Tenant::on(bed_use.bed, "planned").await;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "headroom": policy } } }));
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    namespaces.patch(tenant.name(), &PatchParams::default(), &label).await.unwrap();
    tenant.quota("default", json!({ MEMORY: "10Gi" })).await;
    tenant
}

/// The eight namespaces, after the ratio has changed.
async fn eight(bed_use: &BedUse, budget: Value) -> (Vec<Member>, String) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("planned-{}", NUMBER.fetch_add(1, Ordering::SeqCst));
    let policy: HeadroomPolicy = serde_json::from_value(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": { "name": name },
        "spec": { "namespaceSelector": { "matchLabels": { "headroom": name } }, "budget": budget },
    }))
    .unwrap();
    let policies: Api<HeadroomPolicy> = Api::all(bed_use.bed.admin().unwrap());
    policies.create(&PostParams::default(), &policy).await.unwrap();
    bed_use.overhead_ratio(Some("1.5")).await;
    let members = join_all((0..FULL).map(|_| Member::new(bed_use, &name))).await;
    bed_use.overhead_ratio(Some("4.5")).await;
    (members, name)
}

async fn total(members: &[Member]) -> Amount {
    let each = join_all(members.iter().map(Member::used)).await;
    each.into_iter().fold(Amount::ZERO, Amount::saturating_add)
}

/// The policy shows what the namespaces take above their quotas.
async fn until_shown(bed_use: &BedUse, policy: &str, above: i128) {
    let policies: Api<HeadroomPolicy> = Api::all(bed_use.bed.admin().unwrap());
    let shows = |policy: Option<&HeadroomPolicy>| {
        let shown = policy.and_then(|policy| policy.status.as_ref());
        shown.is_some_and(|shown| {
            shown.used.contains_key(MEMORY) && amount(&shown.used, MEMORY) == bytes(above)
        })
    };
    wait::wait_for(&policies, policy, SOON, &format!("{above} to be shown"), shows).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_limit_eight_namespaces_take_92_of_80_gibibytes() {
    let bed_use = alone().await;
    let (members, policy) = eight(&bed_use, json!({ "mode": "Unlimited" })).await;
    for member in &members {
        assert_eq!(member.migrate().await, 2);
    }
    assert_eq!(total(&members).await, bytes(98_784_273_920));
    assert!(total(&members).await.saturating_add(exact("10Gi")) > exact("100Gi"), "as in the report");
    until_shown(&bed_use, &policy, 98_784_273_920 - 85_899_345_920).await;
}

/// A budget of one target: a namespace grows as long as what it takes above its quota and one more target fit the budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_one_target_leaves_the_ninth_namespace_its_ten_gibibytes() {
    let bed_use = alone().await;
    let budget = json!({ "mode": "PerNamespace", "resources": { MEMORY: "6Gi" } });
    let (members, policy) = eight(&bed_use, budget).await;
    for member in &members {
        assert_eq!(member.migrate().await, 1);
        let said = until_told(&member.tenant, "VirtualMachineInstanceMigration", "NotEnoughHeadroom").await;
        let said = said.message.unwrap();
        assert!(said.contains(MEMORY) && said.ends_with("536874176"), "{said}");
    }
    assert_eq!(total(&members).await, bytes(92_341_809_920), "86Gi");
    until_shown(&bed_use, &policy, 92_341_809_920 - 85_899_345_920).await;

    fits_a_ninth(&bed_use, &policy, &members).await;
}

/// The ninth namespace gets its 10Gi, and all have what is there.
async fn fits_a_ninth(bed_use: &BedUse, policy: &str, members: &[Member]) {
    let ninth = covered(bed_use, policy).await;
    ninth.pods.create(&PostParams::default(), &other_pod("planned", "1", "10Gi")).await.unwrap();
    let counted = |quota: &ResourceQuota| amount(&used(quota), MEMORY) == exact("10Gi");
    ninth.until_quota("default", "10Gi to be used", counted).await;
    assert!(total(members).await.saturating_add(exact("10Gi")) <= exact("100Gi"));
}

/// A pool of the 10Gi that are planned for no namespace: what has grown for good counts for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_what_is_left_leaves_the_ninth_namespace_its_ten_gibibytes() {
    let bed_use = alone().await;
    let pool = json!({ "mode": "Pool", "resources": { MEMORY: "10Gi" } });
    let (members, policy) = eight(&bed_use, pool).await;
    let mut grown = Vec::new();
    for member in &members {
        grown.push(member.migrate().await);
    }
    assert_eq!(grown, [2, 2, 2, 0, 0, 0, 0, 0], "as long as one more target fits the pool");
    assert_eq!(total(&members).await, bytes(90_731_193_920), "84.5Gi");
    until_shown(&bed_use, &policy, 90_731_193_920 - 85_899_345_920).await;
    fits_a_ninth(&bed_use, &policy, &members).await;
    // What one namespace gives back is for those that wait.
    let larger = Patch::Merge(json!({ "spec": { "hard": { MEMORY: (2 * AFTER).to_string() } } }));
    for member in &members[..3] {
        member.tenant.quotas.patch("default", &PatchParams::default(), &larger).await.unwrap();
    }
    let goes_on = || async { (total(&members).await > bytes(90_731_193_920)).then_some(()) };
    wait::eventually(SOON, goes_on, "a waiting migration to take what the pool has again").await.unwrap();
}
