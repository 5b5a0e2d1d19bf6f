//! What the quota scaler of Harvester 1.7 to 1.9 does to the ResourceQuota that Rancher made for a namespace
//! (`pkg/controller/master/migration` and `pkg/controller/master/resourcequota` in harvester/harvester).
//!
//! One of its controllers records each pending migration in annotations of the quota and takes the record away at the end.
//! The other one keeps `spec.hard` at the namespace's own limits and what is recorded. Left out are a namespace without
//! limits of its own, and the compensation of 1.9.

use std::collections::BTreeMap;
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
        let mut migrations = self.migrations.list(&ListParams::default()).await?.items;
        // An earlier migration of a machine takes nothing from a later one.
        migrations.sort_by_key(|migration| !has_ended(migration));
        for migration in &migrations {
            self.record(&mut recorded, migration).await?;
        }
        if recorded.annotations() != quota.annotations() {
            return self.write(&recorded).await;
        }
        if is_left_alone(&quota) {
            return Ok(true);
        }
        let mut scaled = quota.clone();
        let hard = scaled.spec.get_or_insert_default().hard.get_or_insert_default();
        for (key, amount) in self.wanted(&quota)? {
            let format = if key == "limits.memory" { Format::BinarySi } else { Format::DecimalSi };
            if hard.get(&key).and_then(|text| exact(&text.0).ok()) != Some(amount) {
                hard.insert(key, Text(amount.quantity(format).to_string()));
            }
        }
        if scaled.spec == quota.spec {
            return Ok(true);
        }
        let written = self.write(&scaled).await?;
        self.writes.fetch_add(usize::from(written), Ordering::SeqCst);
        Ok(written)
    }

    /// What the first controller makes of one migration. Of a machine that is gone nothing is restored.
    async fn record(&self, quota: &mut ResourceQuota, migration: &DynamicObject) -> anyhow::Result<()> {
        let name = migration.data.pointer("/spec/vmiName").and_then(|name| name.as_str()).unwrap_or_default();
        let Some(machine) = self.machines.get_opt(name).await? else { return Ok(()) };
        let key = format!("{MIGRATING}{}", machine.uid().context("a machine without uid")?);
        if has_ended(migration) {
            quota.annotations_mut().remove(&key);
        } else if MigrationPhase::of(migration) == MigrationPhase::Pending && !is_left_alone(quota) {
            let limit = |resource: &str| {
                let text = machine.data.pointer("/spec/domain/resources/limits")?.get(resource)?;
                exact(text.as_str()?).ok()
            };
            let text = |amount: Amount| amount.quantity(Format::DecimalSi).to_string();
            let (cpu, memory) = (limit("cpu").unwrap_or_default(), limit("memory").unwrap_or_default());
            let memory = text(memory.saturating_add(self.overhead));
            let texts = json!({ "limits.cpu": text(cpu), "limits.memory": memory });
            quota.annotations_mut().entry(key).or_insert_with(|| texts.to_string());
        }
        Ok(())
    }

    /// The limits of the namespace and what is recorded, as the second controller adds them up.
    fn wanted(&self, quota: &ResourceQuota) -> anyhow::Result<Amounts> {
        let mut wanted = self.base.clone();
        for (_, text) in quota.annotations().iter().filter(|(key, _)| key.starts_with(MIGRATING)) {
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
