//! Namespaces that share a pool never take more than it grants, even at the same moment.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::{HeadroomPolicy, names};
use sluice_e2e::intruders::intruder;
use sluice_e2e::tenant::{SOON, Tenant, spec_hard, used};
use sluice_engine::{Amount, Quantity};
use sluice_testbed::kubevirt::{self, Migration, MigrationPhase, MigrationScript};
use sluice_testbed::{Bed, wait};

use crate::faults::invariants::Invariants;
use crate::faults::world;

const MEMORY: &str = "requests.memory";
/// What a target takes, and what the pool grants.
const ONE: &str = "50Mi";
const ROUNDS: usize = 3;
const PAIRS: usize = 3;

/// A namespace with a full quota and a migration that is under way.
struct Member {
    tenant: Tenant<'static>,
    migration: Migration,
}

impl Member {
    async fn new(bed: &'static Bed, pool: &str) -> Self {
        let tenant = Tenant::on(bed, "pool").await;
        let label = Patch::Merge(json!({ "metadata": { "labels": { "pool": pool } } }));
        let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
        namespaces.patch(tenant.name(), &PatchParams::default(), &label).await.unwrap();
        let vm =
            tenant.kubevirt.vm(tenant.name(), "web").script(MigrationScript::Hold).start().await.unwrap();
        let migration = vm.migrate().await.unwrap();
        migration.until(MigrationPhase::Running).await.unwrap();
        tenant.full_quota("full", &[MEMORY]).await;
        Self { tenant, migration }
    }

    /// One more target of the migration, by KubeVirt's account: its controller makes one target after the other, another
    /// replica of it could make one at the same moment.
    async fn try_target(&self, name: &str) -> bool {
        let (_, account) = kubevirt::CONTROLLER.rsplit_once(':').unwrap();
        let identity = self.tenant.bed.service_account(kubevirt::NAMESPACE, account).await.unwrap();
        let uid = self.migration.object().await.unwrap().uid().unwrap();
        let pod = intruder(json!({
            "name": name,
            "labels": { names::MIGRATION_JOB_LABEL: uid, "kubevirt.io": name },
            "annotations": { names::MIGRATION_NAME_ANNOTATION: self.migration.name() },
        }));
        let pods: Api<Pod> = Api::namespaced(identity.client().unwrap(), self.tenant.name());
        pods.create(&PostParams::default(), &pod).await.is_ok()
    }

    async fn clear(&self, name: &str) {
        let _ = self.tenant.pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        self.tenant.until_clear().await;
        let full = |quota: &_| used(quota) == spec_hard(quota);
        self.tenant.until_quota("full", "to be as it was", full).await;
    }
}

async fn pool(bed: &Bed, name: &str) {
    let policy: HeadroomPolicy = serde_json::from_value(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": { "name": name },
        "spec": {
            "namespaceSelector": { "matchLabels": { "pool": name } },
            "budget": { "mode": "Pool", "resources": { MEMORY: ONE } },
        },
    }))
    .unwrap();
    Api::all(bed.admin().unwrap()).create(&PostParams::default(), &policy).await.unwrap();
}

/// The most that the members have taken together above their quotas, at any version of the cluster.
async fn most_taken(members: &[Member]) -> Amount {
    let mut writes = Vec::new();
    for (n, member) in members.iter().enumerate() {
        let invariants = Invariants::of(member.tenant.bed, member.tenant.name()).await;
        writes.extend(invariants.overdrafts("full", MEMORY).map(|(version, above)| (version, n, above)));
    }
    writes.sort();
    let (mut now, mut most) = (BTreeMap::new(), Amount::ZERO);
    for (_, member, above) in writes {
        now.insert(member, above);
        most = now.values().fold(Amount::ZERO, |sum, above| sum.saturating_add(*above)).max(most);
    }
    most
}

async fn rounds(bed: &'static Bed, number: usize) -> usize {
    let name = format!("pool-{number}");
    pool(bed, &name).await;
    let members = join_all((0..2).map(|_| Member::new(bed, &name))).await;
    let mut entered = 0;
    for round in 0..ROUNDS {
        let target = format!("target-{round}");
        let tried = join_all(members.iter().map(|member| member.try_target(&target))).await;
        entered += tried.into_iter().filter(|entered| *entered).count();
        join_all(members.iter().map(|member| member.clear(&target))).await;
    }
    // Those that gave way to each other rest for a moment.
    let alone = || async { members[0].try_target("alone").await.then_some(()) };
    wait::eventually(SOON, alone, "one of them alone to be let in").await.unwrap();
    let one = Amount::from(Quantity::parse(ONE).unwrap());
    let most = most_taken(&members).await;
    assert!(most <= one, "{most:?} of a pool of {one:?}");
    entered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_namespaces_at_the_same_moment_never_exceed_the_pool() {
    let bed = world::shared().await.bed;
    let entered = join_all((0..PAIRS).map(|number| rounds(bed, number))).await;
    println!("targets that were let in, of {ROUNDS} rounds of two each: {entered:?}");
}
