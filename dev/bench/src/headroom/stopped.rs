//! One of two API servers stands still while full namespaces ask for head-room: how long the targets of a namespace with
//! room take meanwhile. KubeVirt's controller creates one target after the other in the whole cluster, so a
//! session that waits for the stopped API server delays the targets of all namespaces.

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join, try_join_all};
use kube::ResourceExt as _;
use sluice_api::names;
use sluice_e2e::metrics::Samples;
use sluice_e2e::pair::{at_second, both, options};
use sluice_e2e::tenant::{Tenant, prepare, spec_hard, used};
use sluice_e2e::{Installation, Setup};
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::{Migration, Vm};
use sluice_testbed::{Bed, Component};

use super::drain::limit;
use super::journey::Journey;
use super::requests;
use crate::report::{quantile, say};

/// What [`limit`] calls a quota in which nothing more fits.
const FULL: &str = "full";

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// Full namespaces in each of which a migration asks for head-room.
    pub(super) namespaces: usize,
    /// From a migration to its target where there is room, milliseconds: with both API servers, and with one.
    pub(super) both_ms: Vec<f64>,
    pub(super) one_ms: Vec<f64>,
}

impl Stopped {
    /// On a control plane of its own.
    pub(super) async fn measure(quick: bool) -> anyhow::Result<Self> {
        // Of 120 targets, one that is slow is not yet the 99th hundredth.
        let (namespaces, targets) = if quick { (2, 3) } else { (10, 120) };
        say(&format!(
            "headroom: {targets} targets with room beside {namespaces} full namespaces, two API servers"
        ));
        let bed = Bed::start(options()).await?;
        prepare(&bed).await;
        // None of them ends while the API server stands still: kube-scheduler speaks with it.
        bed.kubevirt()?.migrate_at_a_time(1_000, 1_000).await?;
        let args = ["--lease-duration=60s".to_owned(), "--lease-renew-deadline=50s".to_owned()];
        let setup =
            Setup { controller_args: args.into_iter().chain(both(&bed)).collect(), ..Setup::default() };
        let gating = setup.gating();
        let installation = Installation::apply(&bed, setup).await?;
        let _controller = installation.controller().await?;
        // It speaks with the second, as KubeVirt's controller does.
        let account = bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await?;
        let servers = both(&bed);
        let servers = servers.each_ref().map(String::as_str);
        let webhook = installation.webhook_at(&bed.at_second_server(&account)?, &servers).await?;
        installation.until_gating().await?;
        installation.until_gated_by(&at_second(&bed), gating).await?;
        installation.until_guarded().await?;
        webhook.until_proven().await?;

        let scene = Scene::set_up(&bed, namespaces, targets).await?;
        scene.measure(1, false).await.context("warming up")?;
        let both_ms = scene.measure(targets, false).await.context("with both API servers")?;
        let one_ms = scene.measure(targets, true).await.context("while one API server stands still")?;
        let unproven = Samples::of(&webhook.admin)
            .await?
            .sum("sluice_headroom_targets_total", &[("ending", "unproven")])
            .unwrap_or_default();
        ensure!(unproven > 0.0, "no session has met the API server that stood still");
        Ok(Self { namespaces, both_ms, one_ms })
    }

    /// While one stands still, with both.
    pub(super) fn ms(&self, q: f64) -> [f64; 2] {
        [&self.one_ms, &self.both_ms].map(|side| quantile(&mut side.clone(), q))
    }
}

/// Namespaces whose quotas are full, with a VM each, and one with room and many VMs.
/// All is asked for at the second API server.
struct Scene<'b> {
    bed: &'b Bed,
    full: Vec<(Tenant<'b>, Vm)>,
    roomy: Tenant<'b>,
    vms: Vec<Vm>,
}

impl<'b> Scene<'b> {
    async fn set_up(bed: &'b Bed, namespaces: usize, targets: usize) -> anyhow::Result<Self> {
        let second = at_second(bed);
        let full = join_all((0..namespaces).map(async |_| {
            let tenant = Tenant::on(bed, FULL).await;
            let vm = tenant.vm("vm").await.through(&second);
            limit(&tenant, true).await;
            (tenant, vm)
        }));
        let full = full.await;
        let roomy = Tenant::on(bed, "roomy").await;
        let start = |number| roomy.kubevirt.vm(roomy.name(), &format!("vm-{number}")).start();
        let vms = try_join_all((0..targets).map(start)).await.context("starting the VMs")?;
        let vms = vms.iter().map(|vm| vm.through(&second)).collect();
        limit(&roomy, false).await;
        Ok(Self { bed, full, roomy, vms })
    }

    /// Migrates the VM of each full namespace and so many VMs with room, the latter one after the other, and all of them to
    /// their end. Returns how long each target took that had room.
    async fn measure(&self, targets: usize, stops: bool) -> anyhow::Result<Vec<f64>> {
        if stops {
            self.bed.pause(Component::ApiServer);
        }
        let created = self.migrate(targets).await;
        if stops {
            self.bed.resume(Component::ApiServer);
        }
        let (full, with_room) = created?;
        for ((tenant, vm), migration) in self.full.iter().zip(&full) {
            tenant.let_in_when_woken(FULL, migration).await;
            migration.until_succeeded().await?;
            vm.until_alone().await?;
            tenant.until_clear().await;
            let is_back = |quota: &_| used(quota) == spec_hard(quota);
            tenant.until_quota(FULL, "the source's share to be given back", is_back).await;
        }
        try_join_all(with_room.iter().map(|(migration, _)| migration.until_succeeded())).await?;
        try_join_all(self.vms.iter().map(Vm::until_alone)).await?;
        let log = requests(self.bed).await?;
        let log: Vec<&AuditEvent> = log.iter().filter(|it| it.namespace == self.roomy.name()).collect();
        let read = |(_, uid): &(Migration, String)| {
            let journey = Journey::read(&log, uid);
            journey
                .map(|journey| journey.target_ms)
                .with_context(|| format!("the audit log does not tell of migration {uid}"))
        };
        with_room.iter().map(read).collect()
    }

    async fn migrate(&self, targets: usize) -> anyhow::Result<(Vec<Migration>, Vec<(Migration, String)>)> {
        let with_room = async {
            let mut migrations = Vec::new();
            for vm in self.vms.iter().take(targets) {
                let migration = vm.migrate().await?;
                let uid = migration.object().await?.uid().context("a migration without uid")?;
                migration.until_target_pod().await?;
                migrations.push((migration, uid));
            }
            Ok(migrations)
        };
        try_join(try_join_all(self.full.iter().map(|(_, vm)| vm.migrate())), with_room).await
    }
}

#[cfg(test)]
mod tests {
    use super::Stopped;

    #[test]
    fn one_slow_target_of_many_is_the_longest_and_not_the_99th_hundredth() {
        let with = |ms: f64| [vec![10.0; 119], vec![ms]].concat();
        let stopped = Stopped { namespaces: 1, both_ms: with(10.0), one_ms: with(900.0) };
        assert_eq!((stopped.ms(0.99), stopped.ms(1.0)), ([10.0, 10.0], [900.0, 10.0]));
    }
}
