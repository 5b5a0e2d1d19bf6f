//! For how much of the time a namespace is locked, and who waits for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use sluice_e2e::audit::{AuditTrail, until_refused};
use sluice_e2e::objects;
use sluice_e2e::tenant::{SOON, Tenant, shared, used};
use sluice_testbed::kubevirt::{Migration, MigrationPhase, MigrationScript, Vm};
use sluice_testbed::wait;
use tokio::task::JoinHandle;

use crate::context::{MEMORY, MI, crowded, rejected, set_limit, used_memory};

/// Of the time, so much may be locked in vain: a namespace rests for ten times as long after such a lock.
const SHARE_IN_VAIN: f64 = 0.10;

/// A tenant who creates and deletes small pods as fast as that goes.
struct Pods {
    over: Arc<AtomicBool>,
    created: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Pods {
    fn start(tenant: &Tenant<'_>) -> Self {
        let (over, created) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (end, count, pods) = (Arc::clone(&over), Arc::clone(&created), tenant.pods.clone());
        let task = tokio::spawn(async move {
            let pod = objects::pod("small", &[("memory", "1Mi")]);
            while !end.load(Ordering::SeqCst) {
                // Refused while the namespace is locked, and while the last one is not gone yet.
                if pods.create(&PostParams::default(), &pod).await.is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let _ = pods.delete("small", &DeleteParams::default().grace_period(0)).await;
            }
        });
        Self { over, created, task }
    }

    async fn until_created(&self, count: usize) {
        let reached = || async { (self.created.load(Ordering::SeqCst) >= count).then_some(()) };
        wait::eventually(SOON, reached, "small pods to be created").await.unwrap();
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
    let pods = Pods::start(&tenant);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_keep_the_namespace_locked() {
    let tenant = Tenant::on(shared().await.bed, "loop").await;
    let vms = join_all(["a", "b", "c", "d", "e"].map(|name| tenant.vm(name))).await;
    tenant.full_quota("rq", &[MEMORY]).await;
    let used = used_memory(&tenant).await;
    set_limit(&tenant, &(used + 20 * MI).to_string()).await;
    tenant.until_clear().await;
    tenant.unlimited().await;
    for vm in &vms {
        vm.follow(MigrationScript::Hold).await.unwrap();
    }
    let pods = Pods::start(&tenant);
    join_all(vms.iter().map(|vm| migrate_in_vain(vm, 8))).await;
    let created = pods.end().await;
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
        "{} locks in {time:#}, {} of them in vain, for {locked:#}; {created} small pods",
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
    assert_eq!(tenant.rejected_attempts().await, 0);
    for migration in &migrations {
        assert!(migration.target_pod().await.unwrap().is_none());
        assert!(migration.rejected().await.unwrap());
    }
    assert_eq!(AuditTrail::of(&crowd).await.status_writes().count(), 0);
    try_join_all(migrations.iter().map(Migration::abort)).await.unwrap();
}
