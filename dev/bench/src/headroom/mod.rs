//! Live migrations of the real virt-controller under full native quotas, beside the same under quotas with room, in
//! turns on one control plane; then what locks cost tenants. All times are the API server's own, from its audit log.

mod drain;
mod figures;
mod journey;
mod locked;
mod output;
mod stopped;
mod tenants;

use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_e2e::audit::AuditEventExt as _;
use sluice_e2e::tenant::{Tenant, own, spec_hard, used};
use sluice_e2e::{Running, Setup};
use sluice_testbed::Bed;
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::Vm;

use crate::report::{self, say};
use drain::Drain;
use figures::Figures;
use journey::Journey;
use stopped::Stopped;
use tenants::Met;

/// Migrations that nothing is read from: connections are open and caches filled when it counts.
const WARM_UPS: usize = 2;

/// Measures, prints, writes `headroom.json`.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn run(quick: bool, out: &Path) -> anyhow::Result<()> {
    let machine = report::machine();
    let mut figures = Figures::new(if quick { 5 } else { 50 });
    let version = on_one_server(quick, &mut figures).await?;
    figures.stopped = Stopped::measure(quick).await?;
    output::print(&figures);
    report::write(out, "headroom", &output::json(&figures, &version, quick, &machine))
}

/// What is measured on a control plane with one API server. Returns its version.
async fn on_one_server(quick: bool, figures: &mut Figures) -> anyhow::Result<String> {
    say("headroom: starting a control plane with KubeVirt");
    let bed = own().await;
    let _sluice = Running::on(&bed, Setup::default()).await?;
    let version = bed.admin()?.apiserver_version().await.context("asking for the server's version")?;

    in_turns(&bed, figures.migrations, figures).await?;
    let node = first_node(&bed).await?;
    for round in 0..if quick { 1 } else { 3 } {
        // Each goes first as often as second.
        for full in [round % 2 == 0, round % 2 == 1] {
            let drain = Drain::measure(&bed, &node, full).await?;
            figures.drain(full, drain);
        }
    }
    figures.no_grant = Met::without_grant(&bed, quick).await?;
    figures.attack = Met::attack(&bed, quick).await?;
    Ok(version.git_version)
}

/// One side of the comparison: a VM under a quota.
struct Side<'b> {
    tenant: Tenant<'b>,
    vm: Vm,
    full: bool,
}

impl<'b> Side<'b> {
    async fn set_up(bed: &'b Bed, full: bool) -> Self {
        let tenant = Tenant::on(bed, if full { "full" } else { "roomy" }).await;
        let vm = tenant.vm("vm").await;
        drain::limit(&tenant, full).await;
        Self { tenant, vm, full }
    }

    /// Migrates the VM once; the migration's uid when all is as it was before.
    async fn migrate(&self) -> anyhow::Result<String> {
        let migration = self.vm.migrate().await?;
        let uid = migration.object().await?.uid().context("a migration without uid")?;
        migration.until_succeeded().await?;
        self.vm.until_alone().await?;
        self.tenant.until_clear().await;
        let is_back = |quota: &_| !self.full || used(quota) == spec_hard(quota);
        let quota = if self.full { "full" } else { "roomy" };
        self.tenant.until_quota(quota, "the source's share to be given back", is_back).await;
        Ok(uid)
    }
}

/// Migrates now on this side, now on that one, each first as often as second, and reads how it went.
async fn in_turns(bed: &Bed, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let sides = [Side::set_up(bed, true).await, Side::set_up(bed, false).await];
    for side in &sides {
        for _ in 0..WARM_UPS {
            side.migrate().await?;
        }
    }
    let begin = Timestamp::now();
    let mut migrations: Vec<(&Side<'_>, String)> = Vec::new();
    let [full, roomy] = &sides;
    for number in 0..count {
        if number % 10 == 0 {
            say(&format!("headroom: migrations under a full quota and one with room, {number} of {count}"));
        }
        for side in if number % 2 == 0 { [full, roomy] } else { [roomy, full] } {
            migrations.push((side, side.migrate().await?));
        }
    }
    let log = requests(bed).await?;
    for (side, uid) in migrations {
        let of_namespace: Vec<&AuditEvent> =
            log.iter().filter(|it| it.namespace == side.tenant.name()).collect();
        let journey = Journey::read(&of_namespace, &uid);
        let journey = journey.with_context(|| format!("the audit log does not tell of migration {uid}"))?;
        figures.journey(side.full, journey);
    }
    // The bed's processes share one clock with us.
    // A lease is renewed by the clock, whether a machine migrates or not.
    let counts = |it: &&AuditEvent| it.is_write() && it.resource != "leases";
    figures.requests(log.iter().filter(|it| it.is_ours() && it.received >= begin).filter(counts));
    // The drains that follow are of their own VMs alone.
    for side in &sides {
        side.vm.delete().await?;
    }
    Ok(())
}

/// What has been answered so far, in the order of the answers.
pub(crate) async fn requests(bed: &Bed) -> anyhow::Result<Vec<AuditEvent>> {
    let mut requests = bed.audit_events().await?;
    requests.sort_by_key(|it| it.answered);
    Ok(requests)
}

/// Milliseconds from one moment to another.
pub(crate) fn between_ms(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

pub(crate) async fn first_node(bed: &Bed) -> anyhow::Result<String> {
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(bed.admin()?);
    let nodes = nodes.list_metadata(&kube::api::ListParams::default()).await.context("listing nodes")?;
    nodes.items.first().map(kube::ResourceExt::name_any).context("no nodes")
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};
    use sluice_e2e::audit::MarkWrite;
    use sluice_engine::headroom::MARK;
    use sluice_testbed::audit::AuditEvent;

    pub(super) const WEBHOOK: &str = "system:serviceaccount:sluice-system:sluice-webhook";
    pub(super) const DRY_RUN: &str = "/x?dryRun=All";

    pub(super) fn moment(ms: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_millis(ms)
    }

    /// A request that was received and answered at these milliseconds.
    pub(super) fn request(user: &str, verb: &str, resource: &str, name: &str, at: [i64; 2]) -> AuditEvent {
        let [received, answered] = at.map(moment);
        AuditEvent {
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            code: 200,
            received,
            answered,
            ..AuditEvent::default()
        }
    }

    /// The body of a target pod for this migration.
    pub(super) fn target_of(uid: &str) -> Value {
        json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": uid}}})
    }

    /// One of Sluice's writes of a quota's status.
    pub(super) fn write(write: MarkWrite, quota: &str, at: [i64; 2]) -> AuditEvent {
        let hard = match write {
            MarkWrite::Raise { end: Some(end) } => json!({MARK: end.as_millisecond().to_string()}),
            MarkWrite::Raise { end: None } => json!({MARK: "none"}),
            MarkWrite::Restore => json!({MARK: null}),
        };
        let request = json!({"status": {"hard": hard}});
        AuditEvent { request, ..self::request(WEBHOOK, "patch", "resourcequotas/status", quota, at) }
    }
}
