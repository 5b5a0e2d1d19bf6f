//! A node with many VMs is drained under quotas that just fit them, beside the same without quotas.

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_e2e::objects::{self, TARGETED};
use sluice_e2e::targets::{migrate, until_gated};
use sluice_e2e::tenant::{Tenant, own};
use sluice_e2e::{Running, Setup};
use sluice_testbed::Bed;
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::{MigrationScript, Vm};

use crate::headroom::{between_ms, first_node, requests};
use crate::report::{median, quantile, say};

const NAMESPACES: usize = 5;
const VMS_EACH: usize = 4;
pub(super) const VMS: usize = NAMESPACES * VMS_EACH;

/// KubeVirt's defaults: how many migrations run at a time in the cluster, and away from a node
/// (`pkg/virt-config/virt-config.go`, `ParallelMigrationsPerClusterDefault`, `ParallelOutboundMigrationsPerNodeDefault`).
const AT_A_TIME: (u32, u32) = (5, 2);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Under quotas that are full, as many migrations at a time as KubeVirt lets by default. Memory takes one to two seconds
    /// to be copied, as it does for small VMs.
    Full,
    /// The same, but all migrations at once.
    FullAtOnce,
    /// The same, and nothing is copied: the processes that all share two cores have work all the time, and a request takes
    /// as long as they let it.
    FullAndBusy,
    /// All at once, nothing is copied, and there are no quotas.
    UnlimitedAndBusy,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Full, Self::FullAtOnce, Self::FullAndBusy, Self::UnlimitedAndBusy];

    const fn words(self) -> &'static str {
        match self {
            Self::Full => "full quotas, KubeVirt's own limits of migrations",
            Self::FullAtOnce => "full quotas, all at once",
            Self::FullAndBusy => "full quotas, all at once, nothing to copy",
            Self::UnlimitedAndBusy => "no quotas, all at once, nothing to copy",
        }
    }

    const fn script(self) -> MigrationScript {
        match self {
            Self::Full | Self::FullAtOnce => MigrationScript::Copy,
            Self::FullAndBusy | Self::UnlimitedAndBusy => MigrationScript::Succeed,
        }
    }

    fn at_a_time(self) -> (u32, u32) {
        if self == Self::Full { AT_A_TIME } else { (100, 100) }
    }
}

#[derive(Default)]
pub(super) struct Drains {
    full: Targets,
    at_once: Targets,
    busy: Targets,
    busy_s: Vec<f64>,
    unlimited_busy_s: Vec<f64>,
}

/// Of drains under quotas.
#[derive(Default)]
struct Targets {
    /// 0 for those that were created without a gate.
    held: Milliseconds,
    gated: usize,
    /// How long the API server takes for a patch of a pod by KubeVirt.
    patch: Milliseconds,
}

#[derive(Default)]
struct Milliseconds(Vec<f64>);

impl Milliseconds {
    fn longest(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    fn quantile(&self, q: f64) -> f64 {
        quantile(&mut self.0.clone(), q)
    }
}

impl Targets {
    fn json(&self) -> Value {
        let (held, patch) = (&self.held, &self.patch);
        json!({
            "targets": held.0.len(), "gated": self.gated, "held_p50_ms": held.quantile(0.5),
            "held_p99_ms": held.quantile(0.99),
            "held_max_ms": held.longest(), "patches": patch.0.len(), "patch_p50_ms": patch.quantile(0.5),
            "patch_max_ms": patch.longest(),
        })
    }
}

impl Drains {
    pub(super) async fn measure(rounds: usize) -> anyhow::Result<Self> {
        let bed = own().await;
        let _sluice = Running::on(&bed, Setup::default()).await?;
        let first = Tenant::with(&bed, "first", TARGETED).await;
        let vm = first.vm("first").await;
        until_gated(&first, &migrate(&vm).await, false).await;
        vm.delete().await?;
        let node = first_node(&bed).await?;
        let mut drains = Self::default();
        for round in 0..rounds {
            // None comes first each time.
            let mut kinds = Kind::ALL;
            kinds.rotate_left(round % Kind::ALL.len());
            for kind in kinds {
                drains.drain(&bed, &node, kind).await?;
            }
        }
        Ok(drains)
    }

    async fn drain(&mut self, bed: &Bed, node: &str, kind: Kind) -> anyhow::Result<()> {
        say(&format!("vms: draining {VMS} VMs in {NAMESPACES} namespaces, {}", kind.words()));
        let kubevirt = bed.kubevirt()?;
        let (cluster, outbound) = kind.at_a_time();
        kubevirt.migrate_at_a_time(cluster, outbound).await?;
        let is_full = kind != Kind::UnlimitedAndBusy;
        let labels = if is_full { TARGETED } else { &[] };
        let tenants = join_all((0..NAMESPACES).map(|_| Tenant::with(bed, "drain", labels))).await;
        let hard = [("requests.instances/vmi", VMS_EACH.to_string())];
        let hard = hard.each_ref().map(|(key, amount)| (*key, amount.as_str()));
        if is_full {
            let quota = objects::quota("vms", &hard);
            try_join_all(tenants.iter().map(|it| objects::create(&it.client, it.name(), &quota))).await?;
        }
        let vms = try_join_all(tenants.iter().flat_map(|tenant| {
            let vm = |number| tenant.kubevirt.vm(tenant.name(), &format!("vm-{number}"));
            (0..VMS_EACH).map(move |number| vm(number).node(node).script(kind.script()).start())
        }));
        let vms = vms.await.context("starting the VMs")?;
        let begin = jiff::Timestamp::now();
        let drained = kubevirt.drain(node).await?;
        ensure!(drained.len() == VMS, "{} VMs were on the node, not {VMS}", drained.len());
        // One after the other, and the last VM first: 20 lists at once would load the API server just when the first targets
        // are created.
        for vm in vms.iter().rev() {
            vm.until_away_from(node).await?;
            vm.until_alone().await?;
        }
        let took = between_ms(begin, jiff::Timestamp::now()) / 1e3;
        if is_full {
            let names: Vec<&str> = tenants.iter().map(Tenant::name).collect();
            let log = requests(bed).await?;
            let held = held(&log, &names);
            ensure!(held.len() == VMS, "{} targets could be scheduled, not {VMS}", held.len());
            let targets = match kind {
                Kind::Full => &mut self.full,
                Kind::FullAtOnce => &mut self.at_once,
                _ => &mut self.busy,
            };
            targets.gated += held.iter().filter(|held| held.is_some()).count();
            targets.held.0.extend(held.into_iter().map(Option::unwrap_or_default));
            targets.patch.0.extend(patches_by_others(&log, &names, begin));
        }
        match kind {
            Kind::Full | Kind::FullAtOnce => {}
            Kind::FullAndBusy => self.busy_s.push(took),
            Kind::UnlimitedAndBusy => self.unlimited_busy_s.push(took),
        }
        try_join_all(vms.iter().map(Vm::delete)).await.context("removing the VMs")?;
        kubevirt.uncordon(node).await
    }

    pub(super) fn held_max_ms(&self) -> f64 {
        self.full.held.longest().max(self.at_once.held.longest())
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "drain": self.full.json(),
            "drain_at_once": self.at_once.json(),
            "drain_busy": self.busy.json(),
            "drain_busy_s": median(&mut self.busy_s.clone()),
            "drain_unlimited_busy_s": median(&mut self.unlimited_busy_s.clone()),
        })
    }
}

/// How long the API server took for each patch of a pod that is not a release, since the drain began.
fn patches_by_others(log: &[AuditEvent], namespaces: &[&str], begin: jiff::Timestamp) -> Vec<f64> {
    let is_one = |it: &&AuditEvent| {
        namespaces.contains(&it.namespace.as_str())
            && it.succeeded()
            && it.received >= begin
            && it.is("patch", "pods")
            && !it.is_by(names::CONTROLLER)
    };
    log.iter().filter(is_one).map(|it| between_ms(it.received, it.answered)).collect()
}

/// How long each target was held: from the answer to its creation to the answer that its gate is gone, by the API server's
/// clock. `None` for one that was created without a gate; what is held still is left out.
fn held(log: &[AuditEvent], namespaces: &[&str]) -> Vec<Option<f64>> {
    let ours = |it: &&AuditEvent| namespaces.contains(&it.namespace.as_str()) && it.succeeded();
    let targets = log.iter().filter(ours).filter(|it| it.is_target());
    let held = targets.filter_map(|target| {
        if !target.is_gated() {
            return Some(None);
        }
        let name = target.response.pointer("/metadata/name")?.as_str()?;
        let is_release =
            |it: &&AuditEvent| it.is("patch", "pods") && it.name == name && it.is_by(names::CONTROLLER);
        let release = log.iter().filter(ours).find(is_release)?;
        Some(Some(between_ms(target.answered, release.answered)))
    });
    held.collect()
}
