//! A node with many VMs is drained.

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join_all};
use serde_json::json;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_e2e::tenant::Tenant;
use sluice_testbed::Bed;
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::Vm;

use super::{between_ms, requests};
use crate::report::say;

const NAMESPACES: usize = 5;
const VMS_EACH: usize = 4;
/// VMs on the node.
pub(super) const VMS: usize = NAMESPACES * VMS_EACH;
/// Who says that a source has ended: the test bed's node agents.
const HANDLER: &str = "system:serviceaccount:kubevirt:kubevirt-handler";

/// How one drain went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// From the answer that the node is cordoned to the end of the last source pod.
    pub(super) s: f64,
    /// … to the answer that the last target pod exists.
    pub(super) targets_s: f64,
    /// How often a target was refused.
    pub(super) rejected: usize,
}

impl Drain {
    /// Fills a node with VMs in namespaces of their own, drains it and removes the VMs. `full`: nothing more fits into
    /// the quotas.
    pub(super) async fn measure(bed: &Bed, node: &str, full: bool) -> anyhow::Result<Self> {
        say(&format!("headroom: draining {VMS} VMs in {NAMESPACES} namespaces, {}", word(full)));
        let tenants = join_all((0..NAMESPACES).map(|_| Tenant::on(bed, "drain"))).await;
        let vms = try_join_all(tenants.iter().flat_map(|tenant| {
            let vm = |number| tenant.kubevirt.vm(tenant.name(), &format!("vm-{number}"));
            (0..VMS_EACH).map(move |number| vm(number).node(node).start())
        }));
        let vms = vms.await.context("starting the VMs")?;
        for tenant in &tenants {
            limit(tenant, full).await;
        }
        let kubevirt = bed.kubevirt()?;
        let drained = kubevirt.drain(node).await?;
        ensure!(drained.len() == VMS, "{} VMs were on the node, not {VMS}", drained.len());
        try_join_all(vms.iter().map(|vm| vm.until_away_from(node))).await?;
        try_join_all(vms.iter().map(Vm::until_alone)).await?;
        let log = requests(bed).await?;
        let names: Vec<&str> = tenants.iter().map(Tenant::name).collect();
        let drain = Self::read(&log, node, &names).context("the audit log does not tell of the drain")?;
        join_all(tenants.iter().map(Tenant::until_clear)).await;
        try_join_all(vms.iter().map(Vm::delete)).await.context("removing the VMs")?;
        kubevirt.uncordon(node).await?;
        Ok(drain)
    }

    /// The last drain of `node`, as the requests tell that were answered since.
    fn read(log: &[AuditEvent], node: &str, namespaces: &[&str]) -> Option<Self> {
        let begin =
            log.iter().rfind(|it| it.is("patch", "nodes") && it.name == node && it.user != HANDLER)?.answered;
        let since =
            || log.iter().filter(|it| it.answered >= begin && namespaces.contains(&it.namespace.as_str()));
        let targets = || since().filter(|it| it.is_target());
        let last_target = targets().filter(|it| it.succeeded()).map(|it| it.answered).max()?;
        let ends = since().filter(|it| it.is("patch", "pods/status") && it.user == HANDLER && it.succeeded());
        let end = ends.map(|it| it.answered).max()?;
        Some(Self {
            s: between_ms(begin, end) / 1e3,
            targets_s: between_ms(begin, last_target) / 1e3,
            rejected: targets().filter(|it| !it.succeeded()).count(),
        })
    }
}

/// Gives the namespace a quota, full or with room for anything, and what lets migrations pass a full one.
pub(super) async fn limit(tenant: &Tenant<'_>, full: bool) {
    let keys = ["requests.cpu", "requests.memory", "pods"];
    if full {
        tenant.full_quota("full", &keys).await;
    } else {
        let roomy = keys.map(|key| (key.to_owned(), json!("1000000000000000")));
        tenant.quota("roomy", roomy.into_iter().collect::<serde_json::Map<_, _>>().into()).await;
    }
    tenant.unlimited().await;
}

pub(super) const fn word(full: bool) -> &'static str {
    if full { "full quotas" } else { "quotas with room" }
}

#[cfg(test)]
mod tests {
    use sluice_testbed::audit::AuditEvent;

    use super::super::tests::{request, target_of};
    use super::{Drain, HANDLER};

    #[test]
    fn a_drain_lasts_until_the_last_source_has_ended() {
        let target = |code, at| {
            let pod = request("kubevirt-controller", "create", "pods", "", at);
            AuditEvent { code, request: target_of("uid"), ..pod }
        };
        let elsewhere = AuditEvent { namespace: "other".to_owned(), ..target(403, [3_000, 3_001]) };
        let log = [
            request("admin", "patch", "nodes", "a", [0, 10]),
            request("admin", "patch", "nodes", "a", [900, 1_000]),
            target(403, [1_100, 1_200]),
            target(201, [1_300, 1_500]),
            target(201, [1_300, 2_000]),
            request(HANDLER, "patch", "pods/status", "source", [2_400, 2_500]),
            request("kwok", "patch", "pods/status", "other", [2_600, 2_700]),
            elsewhere,
        ];
        let drain = Drain::read(&log, "a", &["ns"]).unwrap();
        assert_eq!((drain.s, drain.targets_s, drain.rejected), (1.5, 1.0, 1));
        assert!(Drain::read(&log, "b", &["ns"]).is_none());
    }
}
