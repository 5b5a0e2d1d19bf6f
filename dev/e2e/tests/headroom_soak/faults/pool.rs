//! Namespaces that share a pool never take more than it grants, even at the same moment.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::json;
use sluice_api::HeadroomPolicy;
use sluice_e2e::tenant::{SOON, Tenant, spec_hard, used};
use sluice_engine::{Amount, Quantity};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript};
use sluice_testbed::{Bed, wait};
use tokio::task::JoinHandle;

use crate::faults::invariants::Invariants;
use crate::faults::targets::try_target;
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
        let tenant = Tenant::with(bed, "pool", &[("pool", pool)]).await;
        let vm =
            tenant.kubevirt.vm(tenant.name(), "web").script(MigrationScript::Hold).start().await.unwrap();
        let migration = vm.migrate().await.unwrap();
        migration.until(MigrationPhase::Running).await.unwrap();
        tenant.full_quota("full", &[MEMORY]).await;
        Self { tenant, migration }
    }

    /// A tenant that writes ConfigMaps, which the quota counts: its usage changes all the time, and no lock refuses that.
    async fn busy(&self) -> Busy {
        let counted = Patch::Merge(json!({ "spec": { "hard": { "configmaps": "1000" } } }));
        self.tenant.quotas.patch("full", &PatchParams::default(), &counted).await.unwrap();
        self.tenant.until_clear().await;
        let maps: Api<ConfigMap> = Api::namespaced(self.tenant.client.clone(), self.tenant.name());
        Busy(tokio::spawn(async move {
            let map = ConfigMap { metadata: named("busy"), ..ConfigMap::default() };
            loop {
                let _ = maps.create(&PostParams::default(), &map).await;
                let _ = maps.delete("busy", &DeleteParams::default()).await;
            }
        }))
    }

    async fn try_target(&self, name: &str) -> bool {
        try_target(&self.tenant, &self.migration, name).await.is_ok()
    }

    async fn clear(&self, name: &str) {
        let _ = self.tenant.pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        self.tenant.until_clear().await;
        let full = |quota: &_| used(quota).get(MEMORY) == spec_hard(quota).get(MEMORY);
        self.tenant.until_quota("full", "to be as it was", full).await;
    }
}

/// Ends when it is dropped.
struct Busy(JoinHandle<()>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
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

async fn rounds(bed: &'static Bed, name: &str, is_busy: bool) -> usize {
    pool(bed, name).await;
    let members = join_all((0..2).map(|_| Member::new(bed, name))).await;
    let mut busy = Vec::new();
    for member in members.iter().filter(|_| is_busy) {
        busy.push(member.busy().await);
    }
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
    drop(busy);
    let most = most_taken(&members).await;
    assert!(most <= one, "{most:?} of a pool of {one:?}");
    entered
}

/// Nothing that they count beside makes them forget what the other one takes.
#[rstest]
#[case::in_quiet_namespaces("quiet", false)]
#[case::while_they_write_config_maps("busy", true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_namespaces_at_the_same_moment_never_exceed_the_pool(#[case] name: &str, #[case] is_busy: bool) {
    let bed = world::shared().await.bed;
    let names: Vec<String> = (0..PAIRS).map(|number| format!("pool-{name}-{number}")).collect();
    let entered = join_all(names.iter().map(|name| rounds(bed, name, is_busy))).await;
    println!("targets that were let in, of {ROUNDS} rounds of two each: {entered:?}");
    assert!(entered.iter().sum::<usize>() > 0, "none of two at the same moment was let in");
}
