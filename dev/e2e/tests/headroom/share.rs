//! For how much of the time a namespace is locked, and who waits for whom.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_e2e::audit::{AuditTrail, Lock, until_refused};
use sluice_e2e::objects;
use sluice_e2e::tenant::{SOON, Tenant, amount, shared, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm};
use sluice_testbed::wait;
use tokio::task::JoinHandle;

use crate::context::{MEMORY, MI, crowded, rejected, set_limit, used_memory};

/// Of the time, so much may be locked in vain: a namespace rests for ten times as long after such a lock.
const SHARE_IN_VAIN: f64 = 0.10;

/// A tenant who creates and deletes objects as fast as that goes.
struct Busy {
    over: Arc<AtomicBool>,
    tried: Arc<AtomicUsize>,
    created: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Busy {
    /// With the same object again and again: refused while the namespace is locked, and while the last one is not gone yet.
    fn start<K>(api: Api<K>, object: K) -> Self
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let over = Arc::<AtomicBool>::default();
        let (tried, created) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (end, of_all, count) = (Arc::clone(&over), Arc::clone(&tried), Arc::clone(&created));
        let task = tokio::spawn(async move {
            while !end.load(Ordering::SeqCst) {
                of_all.fetch_add(1, Ordering::SeqCst);
                if api.create(&PostParams::default(), &object).await.is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let _ = api.delete(&object.name_any(), &DeleteParams::default().grace_period(0)).await;
            }
        });
        Self { over, tried, created, task }
    }

    fn with_pods(tenant: &Tenant<'_>, memory: &str) -> Self {
        Self::with_pod(tenant, "busy", memory)
    }

    fn with_pod(tenant: &Tenant<'_>, name: &str, memory: &str) -> Self {
        Self::start(tenant.pods.clone(), objects::pod(name, &[("memory", memory)]))
    }

    fn with_config_maps(tenant: &Tenant<'_>) -> Self {
        let metadata = ObjectMeta { name: Some("busy".to_owned()), ..ObjectMeta::default() };
        let object = ConfigMap { metadata, ..ConfigMap::default() };
        Self::start(Api::namespaced(tenant.client.clone(), tenant.name()), object)
    }

    async fn until_created(&self, count: usize) {
        let reached = || async { (self.created.load(Ordering::SeqCst) >= count).then_some(()) };
        wait::eventually(SOON, reached, "objects to be created").await.unwrap();
    }

    /// Returns how many were created.
    async fn end(self) -> usize {
        self.over.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
        self.created.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grant_pods_come_and_go_and_nothing_is_raised() {
    let (tenant, vm) = crowded("churn").await;
    let migration = rejected(&vm).await;
    let pods = Busy::with_pods(&tenant, "1Mi");
    // Each of them wakes KubeVirt's controller.
    pods.until_created(50).await;
    until_refused(&tenant, 20).await;
    let created = pods.end().await;
    let trail = AuditTrail::of(&tenant).await;
    println!("{created} pods created, {} targets refused", trail.rejections().len());
    assert_eq!(trail.status_writes().count(), 0);
    migration.abort().await.unwrap();
}

/// Creates and deletes migrations: each is deleted as soon as its target was admitted or refused.
async fn migrate_in_vain(vm: &Vm, rounds: usize) {
    for _ in 0..rounds {
        let migration = vm.migrate().await.unwrap();
        let tried = || async {
            let is_refused = migration.rejected().await.ok()?;
            (is_refused || migration.phase().await.ok()? >= MigrationPhase::Scheduling).then_some(())
        };
        wait::eventually(SOON, tried, "the target to be tried").await.unwrap();
        migration.abort().await.unwrap();
    }
}

/// Objects that a lock does not refuse change what its quota counts: they make no lock one that has helped.
#[rstest]
#[case::pods(|tenant: &Tenant<'_>| Busy::with_pods(tenant, "1Mi"))]
#[case::config_maps(Busy::with_config_maps)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_cannot_keep_the_namespace_locked(#[case] busy: fn(&Tenant<'_>) -> Busy) {
    let tenant = Tenant::on(shared().await.bed, "loop").await;
    let vms = join_all(["a", "b", "c", "d", "e"].map(|name| tenant.vm(name))).await;
    tenant.full_quota("rq", &[MEMORY]).await;
    let counted = Patch::Merge(json!({ "spec": { "hard": { "configmaps": "100" } } }));
    tenant.quotas.patch("rq", &PatchParams::default(), &counted).await.unwrap();
    let used = used_memory(&tenant).await;
    set_limit(&tenant, &(used + 20 * MI).to_string()).await;
    tenant.until_clear().await;
    tenant.unlimited().await;
    for vm in &vms {
        vm.follow(MigrationScript::Hold).await.unwrap();
    }
    let busy = busy(&tenant);
    join_all(vms.iter().map(|vm| migrate_in_vain(vm, 8))).await;
    let created = busy.end().await;
    tenant.until_clear().await;
    let trail = AuditTrail::of(&tenant).await;
    let locks = trail.locks();
    let restored: Vec<_> = locks.iter().map(|lock| lock.restored.expect("every lock was ended")).collect();
    let time = restored.last().unwrap().duration_since(locks[0].from);
    // How long a lock takes that lets its target in is the API server's doing. What the tenant can add is locks.
    let (helped, in_vain): (Vec<_>, Vec<_>) =
        locks.iter().copied().partition(|lock| trail.let_target_in(lock));
    assert!(helped.len() <= trail.targets().count(), "one lock for each target: {helped:#?}");
    let locked = in_vain.iter().fold(SignedDuration::ZERO, |sum, lock| sum + lock.duration());
    println!(
        "{} locks in {time:#}, {} of them in vain, for {locked:#}; {created} objects",
        locks.len(),
        in_vain.len()
    );
    // One may be under way for each machine when another ends.
    let longest = in_vain.iter().map(|lock| lock.duration()).max().unwrap_or_default();
    let under_way = longest * i32::try_from(vms.len()).unwrap();
    let most = SHARE_IN_VAIN * time.as_secs_f64() + under_way.as_secs_f64();
    assert!(locked.as_secs_f64() <= most, "{locked:#} of {time:#}: {in_vain:#?}");
    assert!(locks.len() > 5, "the loop ran: {locks:#?}");
}

/// A pod as large as a target, tried at every moment of every migration, is let in by no raise once the lock is known. One
/// that passed the policy before takes the target's place, and the next raise waits until it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_exact_size_of_a_target_gets_in_by_no_raise() {
    let tenant = Tenant::on(shared().await.bed, "thief").await;
    let vm = tenant.vm("web").await;
    let full = tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let names = ["thief-0", "thief-1", "thief-2", "thief-3"];
    let thieves = names.map(|name| Busy::with_pod(&tenant, name, &used(&full)[MEMORY].0));
    for _ in 0..5 {
        vm.migrate().await.unwrap().until_succeeded().await.unwrap();
        vm.until_alone().await.unwrap();
    }
    let tried: usize = thieves.iter().map(|thief| thief.tried.load(Ordering::SeqCst)).sum();
    let let_in: usize = join_all(thieves.map(Busy::end)).await.into_iter().sum();
    tenant.until_clear().await;
    let trail = AuditTrail::of(&tenant).await;
    let (raises, locks) = (trail.raises(), trail.locks());
    println!("{tried} pods tried, {let_in} let in, {} raises", raises.len());
    assert!(tried >= 50 && raises.len() >= 5, "{tried} pods tried beside {raises:#?}");
    let admitted: Vec<_> = names.iter().flat_map(|name| trail.admitted(name)).collect();
    assert_eq!(admitted.len(), let_in);
    let unknown: Vec<_> = locks.iter().filter(|lock| trail.known(lock).is_none()).collect();
    assert!(!unknown.iter().any(|lock| trail.let_target_in(lock)), "{unknown:#?}");
    for asked in admitted {
        let not_known = |lock: &&Lock| asked < trail.known(lock).unwrap_or_else(|| lock.to());
        let lock = locks.iter().find(|lock| asked < lock.to());
        assert!(lock.filter(not_known).is_some(), "asked for at {asked}: {locks:#?}");
    }
    let now = tenant.quotas.get("rq").await.unwrap();
    assert!(amount(&used(&now), MEMORY) <= amount(&used(&full), MEMORY), "{now:?}");
}

/// Migrates the machine; how long it took from the request to its target.
async fn migrate_once(tenant: &Tenant<'_>, vm: &Vm) -> Duration {
    let migration = vm.migrate().await.unwrap();
    let uid = migration.object().await.unwrap().uid().unwrap();
    migration.until_succeeded().await.unwrap();
    vm.until_alone().await.unwrap();
    let full = |quota: &_| used(quota) == sluice_e2e::tenant::spec_hard(quota);
    tenant.until_quota("rq", "to be full again", full).await;
    AuditTrail::of(tenant).await.way_to_target(&uid)
}

/// A tenant with so many migrations that nothing is granted.
async fn blocked(count: usize) -> (Tenant<'static>, Vec<Migration>) {
    let tenant = Tenant::on(shared().await.bed, "blocked").await;
    let names: Vec<String> = (0..count).map(|n| format!("vm-{n}")).collect();
    let vms = join_all(names.iter().map(|name| tenant.vm(name))).await;
    tenant.full_quota("rq", &[MEMORY]).await;
    let migrations = try_join_all(vms.iter().map(Vm::migrate)).await.unwrap();
    try_join_all(migrations.iter().map(Migration::until_rejected)).await.unwrap();
    (tenant, migrations)
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_migrations_of_one_tenant_do_not_hold_up_another() {
    let tenant = Tenant::on(shared().await.bed, "other").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("rq", &[MEMORY]).await;
    tenant.unlimited().await;
    let mut alone = Vec::new();
    for _ in 0..3 {
        alone.push(migrate_once(&tenant, &vm).await);
    }
    let (crowd, migrations) = blocked(20).await;
    let mut beside = Vec::new();
    for round in 1..=3 {
        // Wakes all twenty.
        let limit = used_memory(&crowd).await + round;
        set_limit(&crowd, &limit.to_string()).await;
        beside.push(migrate_once(&tenant, &vm).await);
    }
    println!("from the request to the target: alone {alone:?}, beside 20 blocked ones {beside:?}");
    // Not a claim of speed: who waits for another tenant's back-off waits for seconds, each time. Of a machine that is busy
    // otherwise one of the three may be slow.
    let (slowest, quickest) = (alone.iter().max().unwrap(), beside.iter().min().unwrap());
    assert!(*quickest <= *slowest + Duration::from_secs(1), "{beside:?} beside others, {alone:?} alone");
    assert_eq!(tenant.rejected_attempts().await, 0);
    for migration in &migrations {
        assert!(migration.target_pod().await.unwrap().is_none());
        assert!(migration.rejected().await.unwrap());
    }
    assert_eq!(AuditTrail::of(&crowd).await.status_writes().count(), 0);
    try_join_all(migrations.iter().map(Migration::abort)).await.unwrap();
}
