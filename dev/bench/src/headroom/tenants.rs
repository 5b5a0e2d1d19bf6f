//! What tenants feel of locks: pods that a client creates and deletes without end, beside a migration that nothing
//! helps, and beside an attack.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{select, try_join, try_join_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_e2e::objects;
use sluice_e2e::tenant::{Tenant, used};
use sluice_engine::Quantity;
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::Vm;
use tokio::time::timeout;

use super::locked::{Locked, Span};
use super::requests;
use crate::report::say;

const MEMORY: &str = "requests.memory";
/// Less than any launcher asks for.
const SMALL: &str = "16Mi";
/// Loops of pods in an attack.
const POD_LOOPS: usize = 4;
/// A migration whose target was not sent is deleted after so long.
const TRIED: Duration = Duration::from_secs(3);
/// Of so many pods of an attack one is as large as a target.
const LARGE_ONE_IN: usize = 3;

/// What a tenant met.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    pub(super) s: f64,
    pub(super) locked: Locked,
    /// Pods of the tenant that were created.
    pub(super) pods: usize,
    /// … that the lock refused.
    pub(super) refused_by_lock: usize,
    /// … that a quota refused.
    pub(super) refused_by_quota: usize,
    /// Migrations that were asked for.
    pub(super) migrations: usize,
    /// How often virt-controller tried to create a target.
    pub(super) targets: usize,
}

impl Met {
    /// One migration is blocked in a namespace without any grant, whose quota has room for one more small pod, but not for
    /// the target.
    pub(super) async fn without_grant(bed: &Bed, quick: bool) -> anyhow::Result<Self> {
        let time = Duration::from_secs(if quick { 3 } else { 15 });
        say(&format!("headroom: a blocked migration and pods for {} s, without a grant", time.as_secs()));
        let tenant = Tenant::on(bed, "no-grant").await;
        let vm = tenant.vm("vm").await;
        let taken = memory_used(&tenant).await?;
        tenant.quota("some-room", json!({MEMORY: sum(&taken, SMALL)?})).await;
        let migration = vm.migrate().await?;
        migration.until_rejected().await.context("waiting for the migration to be blocked")?;
        let pods = Pods::new(&tenant);
        let loops = pods.create_and_delete("small", |_| SMALL.to_owned());
        let met = during(bed, &tenant, time, loops).await?;
        vm.delete().await.context("removing the VM")?;
        Ok(Self { migrations: 1, ..pods.counted(met) })
    }

    /// Migrations of many VMs and pods are created and deleted without end under a full quota with an unlimited grant; some
    /// of the pods would take exactly a target's room.
    pub(super) async fn attack(bed: &Bed, quick: bool) -> anyhow::Result<Self> {
        let (count, seconds) = if quick { (6, 5) } else { (20, 30) };
        say(&format!("headroom: migrations of {count} VMs and pods without end for {seconds} s"));
        let tenant = Tenant::on(bed, "attack").await;
        let first = tenant.vm("vm-0").await;
        let target = memory_used(&tenant).await?;
        let others =
            (1..count).map(|number| tenant.kubevirt.vm(tenant.name(), &format!("vm-{number}")).start());
        let mut vms = try_join_all(others).await.context("starting the VMs")?;
        vms.push(first);
        tenant.full_quota("full", &[MEMORY]).await;
        tenant.unlimited().await;
        let (pods, migrations) = (Pods::new(&tenant), Cell::new(0));
        let size = |number: usize| {
            if number.is_multiple_of(LARGE_ONE_IN) { target.clone() } else { SMALL.to_owned() }
        };
        let names: Vec<String> = (0..POD_LOOPS).map(|number| format!("pod-{number}")).collect();
        let pod_loops = try_join_all(names.iter().map(|name| pods.create_and_delete(name, size)));
        // Half of them end at once, which is most work for KubeVirt's controller, and half when it has tried: on a slow
        // machine it would not get to any target otherwise.
        let loops = vms.iter().enumerate();
        let loops = loops.map(|(at, vm)| migrate_and_abort(vm, &migrations, at.is_multiple_of(2)));
        let migration_loops = try_join_all(loops);
        let loops = try_join(pod_loops, migration_loops);
        let met = during(bed, &tenant, Duration::from_secs(seconds), loops).await?;
        Ok(Self { migrations: migrations.get(), ..pods.counted(met) })
    }
}

/// Runs what has no end for a while and looks what came of it.
async fn during<T>(
    bed: &Bed,
    tenant: &Tenant<'_>,
    time: Duration,
    loops: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Met> {
    // The bed's processes share one clock with us.
    let from = Timestamp::now();
    if let Ok(ended) = timeout(time, loops).await {
        ended?;
    }
    let span = Span { from, to: Timestamp::now() };
    let log = requests(bed).await?;
    let of_namespace = || log.iter().filter(|it| it.namespace == tenant.name());
    let targets = of_namespace().filter(|it| it.is_target() && it.received >= from && it.received < span.to);
    Ok(Met {
        s: span.ms() / 1e3,
        locked: Locked::read(of_namespace(), span),
        targets: targets.count(),
        ..Met::default()
    })
}

/// A VM's migrations, over and over: deleted as soon as they exist, or when their target was sent.
async fn migrate_and_abort(vm: &Vm, count: &Cell<usize>, at_once: bool) -> anyhow::Result<Infallible> {
    loop {
        let migration = vm.migrate().await?;
        count.set(count.get() + 1);
        if !at_once {
            let tried = async {
                select(pin!(migration.until_target_pod()), pin!(migration.until_rejected())).await;
            };
            // It is deleted all the same.
            let _ = timeout(TRIED, tried).await;
        }
        // It may have ended, and been cleared away, meanwhile.
        if let Err(error) = migration.abort().await
            && migration.phase().await.is_ok()
        {
            return Err(error);
        }
    }
}

/// A tenant's pods.
struct Pods<'t> {
    tenant: &'t Tenant<'t>,
    met: RefCell<Met>,
}

impl<'t> Pods<'t> {
    fn new(tenant: &'t Tenant<'t>) -> Self {
        Self { tenant, met: RefCell::default() }
    }

    /// One after the other, without end; each is deleted before the next one comes.
    async fn create_and_delete(
        &self,
        name: &str,
        memory: impl Fn(usize) -> String,
    ) -> anyhow::Result<Infallible> {
        let pods = &self.tenant.pods;
        for number in 0_usize.. {
            let name = format!("{name}-{number}");
            let pod: Pod = objects::pod(&name, &[("memory", &memory(number))]);
            let created = pods.create(&PostParams::default(), &pod).await;
            if self.count(created)? {
                let now = DeleteParams::default().grace_period(0);
                pods.delete(&name, &now).await.with_context(|| format!("deleting pod {name}"))?;
            }
        }
        anyhow::bail!("no number is left for a pod")
    }

    /// Whether it was created.
    fn count(&self, created: kube::Result<Pod>) -> anyhow::Result<bool> {
        let mut met = self.met.borrow_mut();
        let count = match &created {
            Ok(_) => &mut met.pods,
            Err(kube::Error::Api(status)) if status.message.contains(names::LOCK_POLICY) => {
                &mut met.refused_by_lock
            }
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
                &mut met.refused_by_quota
            }
            // Quota admission gives up when the quota has changed under it three times.
            Err(kube::Error::Api(status))
                if status.code == 409 && status.message.contains("resourcequotas") =>
            {
                &mut met.refused_by_quota
            }
            Err(_) => return created.map(|_| true).context("creating a tenant's pod"),
        };
        *count += 1;
        Ok(created.is_ok())
    }

    fn counted(&self, met: Met) -> Met {
        let Met { pods, refused_by_lock, refused_by_quota, .. } = *self.met.borrow();
        Met { pods, refused_by_lock, refused_by_quota, ..met }
    }
}

/// What the namespace's pods ask for by now.
async fn memory_used(tenant: &Tenant<'_>) -> anyhow::Result<String> {
    tenant.quota("probe", json!({MEMORY: "1Ei"})).await;
    let counted = |quota: &_| used(quota).get(MEMORY).is_some_and(|amount| amount.0 != "0");
    let probe = tenant.until_quota("probe", "usage to be counted", counted).await;
    tenant.quotas.delete("probe", &DeleteParams::default()).await.context("removing the probe")?;
    used(&probe).remove(MEMORY).map(|amount| amount.0).context("a quota that does not count memory")
}

fn sum(one: &str, other: &str) -> anyhow::Result<String> {
    Ok(Quantity::parse(one)?.checked_add(Quantity::parse(other)?)?.to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn amounts_are_added_as_the_api_server_does() {
        assert_eq!(super::sum("524Mi", super::SMALL).unwrap(), "540Mi");
        assert!(super::sum("x", "1").is_err());
    }
}
