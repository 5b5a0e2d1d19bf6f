//! What the quota scaler of Harvester 1.7 to 1.9 does to the ResourceQuota that Rancher made for a namespace
//! (`pkg/controller/master/migration` and `pkg/controller/master/resourcequota` in harvester/harvester).
//!
//! One of its controllers records each pending migration in annotations of the quota and takes the record away at the end.
//! The other one keeps `spec.hard` at the namespace's own limits and what is recorded. Where a quota rejects the migration
//! all the same, the first one records what is missing too, as 1.9 does. Left out is a namespace without limits of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use sluice_engine::{Amount, Format, Quantity};
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::MigrationPhase;
use tokio::task::JoinHandle;

use crate::simulated_rancher::MARKER;

/// Annotation (value `true`) of a quota that is left alone.
pub const SKIP: &str = "harvesterhci.io/skipResourceQuotaAutoScaling";
/// Before the uid of a machine: the annotation with what is added for it.
pub const MIGRATING: &str = "harvesterhci.io/migratingUID-";
/// Annotation with what is added because a migration was rejected although it is recorded.
pub const COMPENSATION: &str = "harvesterhci.io/migratingCompensation";
/// Annotation (`true` or `false`) with which the first controller asks for the second.
const RESYNC: &str = "harvesterhci.io/migratingScalingResyncNeeded";
/// What a compensation adds to what is missing: 128Mi.
const SPARE: &str = "134217728";
/// The account of Harvester's controllers.
const HARVESTER: &str = "system:serviceaccount:harvester-system:harvester";

type Amounts = BTreeMap<String, Amount>;

/// Harvester's scaler at work in one namespace. It ends when it is dropped.
pub struct SimulatedHarvester {
    writes: Arc<AtomicUsize>,
    acting: JoinHandle<anyhow::Result<()>>,
}

struct Scaler {
    quotas: Api<ResourceQuota>,
    machines: Api<DynamicObject>,
    migrations: Api<DynamicObject>,
    /// The limits that the annotation of the namespace says.
    base: Amounts,
    /// What Harvester's formula adds to the memory limit of a machine.
    overhead: Amount,
    writes: Arc<AtomicUsize>,
}

impl SimulatedHarvester {
    /// `base` is what the namespace's annotation says of `limits.cpu` and `limits.memory`. `overhead` is what Harvester's
    /// formula gives for the machines of the test; it leaves the container `guest-console-log` out.
    ///
    /// # Errors
    /// When the account cannot be made.
    pub fn start(
        bed: &Bed,
        namespace: &str,
        base: &BTreeMap<String, String>,
        overhead: &str,
    ) -> anyhow::Result<Self> {
        let client = bed.client_as_user(HARVESTER, &["system:masters"])?.client()?;
        let writes = Arc::<AtomicUsize>::default();
        let base = base.iter().map(|(key, text)| Ok((key.clone(), exact(text)?)));
        let scaler = Scaler {
            quotas: Api::namespaced(client.clone(), namespace),
            machines: kubevirt(&client, namespace, "VirtualMachineInstance"),
            migrations: kubevirt(&client, namespace, "VirtualMachineInstanceMigration"),
            base: base.collect::<anyhow::Result<_>>()?,
            overhead: exact(overhead)?,
            writes: Arc::clone(&writes),
        };
        Ok(Self { writes, acting: tokio::spawn(scaler.act()) })
    }

    /// How often it has written the spec of a quota.
    #[must_use]
    pub fn spec_writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Whether it is still at work.
    #[must_use]
    pub fn is_acting(&self) -> bool {
        !self.acting.is_finished()
    }
}

impl Drop for SimulatedHarvester {
    fn drop(&mut self) {
        self.acting.abort();
    }
}

impl Scaler {
    async fn act(self) -> anyhow::Result<()> {
        let config = watcher::Config::default;
        let quotas = watcher::watcher(self.quotas.clone(), config()).map(drop).boxed();
        let migrations = watcher::watcher(self.migrations.clone(), config()).map(drop).boxed();
        let mut events = futures::stream::select(quotas, migrations);
        while events.next().await.is_some() {
            while !self.reconcile().await? {}
        }
        Ok(())
    }

    /// `false` if the quota was changed meanwhile, and has to be looked at again.
    async fn reconcile(&self) -> anyhow::Result<bool> {
        let managed = ListParams::default().labels(&format!("{MARKER}=true"));
        let Some(quota) = self.quotas.list(&managed).await?.items.into_iter().next() else { return Ok(true) };
        let mut recorded = quota.clone();
        let migrations = self.migrations.list(&ListParams::default()).await?.items;
        let under_way: BTreeSet<&str> =
            migrations.iter().filter(|migration| !has_ended(migration)).map(machine_of).collect();
        for migration in &migrations {
            // An earlier migration of a machine takes nothing from a later one.
            if !has_ended(migration) || !under_way.contains(machine_of(migration)) {
                self.record(&mut recorded, migration).await?;
            }
        }
        if recorded.annotations() != quota.annotations() {
            recorded.annotations_mut().insert(RESYNC.to_owned(), "true".to_owned());
            return self.write(&recorded).await;
        }
        if is_left_alone(&quota) {
            return Ok(true);
        }
        let mut scaled = quota.clone();
        if let Some(resync) = scaled.annotations_mut().get_mut(RESYNC) {
            "false".clone_into(resync);
        }
        let hard = scaled.spec.get_or_insert_default().hard.get_or_insert_default();
        for (key, amount) in self.wanted(&quota)? {
            let format = if key == "limits.memory" { Format::BinarySi } else { Format::DecimalSi };
            if hard.get(&key).and_then(|text| exact(&text.0).ok()) != Some(amount) {
                hard.insert(key, Text(amount.quantity(format).to_string()));
            }
        }
        let is_scaled = scaled.spec != quota.spec;
        if !is_scaled && scaled.annotations() == quota.annotations() {
            return Ok(true);
        }
        let written = self.write(&scaled).await?;
        self.writes.fetch_add(usize::from(written && is_scaled), Ordering::SeqCst);
        Ok(written)
    }

    /// What the first controller makes of one migration. Of a machine that is gone nothing is restored.
    async fn record(&self, quota: &mut ResourceQuota, migration: &DynamicObject) -> anyhow::Result<()> {
        let Some(machine) = self.machines.get_opt(machine_of(migration)).await? else { return Ok(()) };
        let key = format!("{MIGRATING}{}", machine.uid().context("a machine without uid")?);
        if has_ended(migration) {
            if quota.annotations_mut().remove(&key).is_some() {
                quota.annotations_mut().remove(COMPENSATION);
            }
        } else if MigrationPhase::of(migration) == MigrationPhase::Pending && !is_left_alone(quota) {
            let limit = |resource: &str| {
                let text = machine.data.pointer("/spec/domain/resources/limits")?.get(resource)?;
                exact(text.as_str()?).ok()
            };
            let text = |amount: Amount| amount.quantity(Format::DecimalSi).to_string();
            let (cpu, memory) = (limit("cpu").unwrap_or_default(), limit("memory").unwrap_or_default());
            let memory = memory.saturating_add(self.overhead);
            let texts = json!({ "limits.cpu": text(cpu), "limits.memory": text(memory) });
            let is_known = quota.annotations().contains_key(&key);
            quota.annotations_mut().entry(key).or_insert_with(|| texts.to_string());
            // What is recorded has to be in `spec.hard` before it is known to be too little.
            let is_settled = quota.annotations().get(RESYNC).is_some_and(|needed| needed == "false");
            let is_first = !quota.annotations().contains_key(COMPENSATION);
            if is_known && is_settled && is_first && is_rejected(migration) {
                compensate(quota, memory)?;
            }
        }
        Ok(())
    }

    /// The limits of the namespace and what is recorded, as the second controller adds them up.
    fn wanted(&self, quota: &ResourceQuota) -> anyhow::Result<Amounts> {
        let mut wanted = self.base.clone();
        let is_record = |key: &str| key.starts_with(MIGRATING) || key == COMPENSATION;
        for (_, text) in quota.annotations().iter().filter(|(key, _)| is_record(key)) {
            let recorded: BTreeMap<String, String> = serde_json::from_str(text)?;
            for (key, amount) in &mut wanted {
                let more = recorded.get(key).map(|text| exact(text)).transpose()?.unwrap_or_default();
                *amount = amount.saturating_add(more);
            }
        }
        Ok(wanted)
    }

    async fn write(&self, quota: &ResourceQuota) -> anyhow::Result<bool> {
        match self.quotas.replace(&quota.name_any(), &PostParams::default(), quota).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            written => written.map(|_| true).context("writing the quota"),
        }
    }
}

/// Records what the quota lacks for one more target of this size, and a little more: one record for all migrations.
fn compensate(quota: &mut ResourceQuota, memory: Amount) -> anyhow::Result<()> {
    const KEY: &str = "limits.memory";
    let (spec, status) = (quota.spec.clone().unwrap_or_default(), quota.status.clone().unwrap_or_default());
    let of = |amounts: Option<BTreeMap<String, Text>>| amounts?.get(KEY).and_then(|text| exact(&text.0).ok());
    let (limit, used) = (of(spec.hard).unwrap_or_default(), of(status.used).unwrap_or_default());
    let missing = used.saturating_add(memory).saturating_sub(limit);
    if missing > Amount::ZERO {
        let amount = missing.saturating_add(exact(SPARE)?).quantity(Format::DecimalSi).to_string();
        quota.annotations_mut().insert(COMPENSATION.to_owned(), json!({ KEY: amount }).to_string());
    }
    Ok(())
}

fn is_rejected(migration: &DynamicObject) -> bool {
    let conditions = migration.data.pointer("/status/conditions").and_then(|all| all.as_array());
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "migrationRejectedByResourceQuota" && condition["status"] == "True"
    })
}

fn machine_of(migration: &DynamicObject) -> &str {
    migration.data.pointer("/spec/vmiName").and_then(|name| name.as_str()).unwrap_or_default()
}

fn has_ended(migration: &DynamicObject) -> bool {
    matches!(MigrationPhase::of(migration), MigrationPhase::Succeeded | MigrationPhase::Failed)
}

fn is_left_alone(quota: &ResourceQuota) -> bool {
    quota.annotations().get(SKIP).is_some_and(|value| value == "true")
}

fn exact(text: &str) -> anyhow::Result<Amount> {
    Ok(Amount::from(Quantity::parse(text)?))
}

fn kubevirt(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}
